//! Quantities → canonical integers.

use super::{Result, bad};
use crate::Quantity;
use crate::lean::meta::{RawQuantity, RawResources};
use plimsoll_state::model::Resources;

/// Amounts by resource name: cpu in millicores, everything else in whole units, rounded up.
pub(crate) fn resources(field: &str, raw: RawResources) -> Result<Resources> {
    let mut out = Resources::new();
    for (name, quantity) in raw.unwrap_or_default() {
        let amount = match quantity {
            None => 0,
            Some(q) => amount(field, &name, &q)?,
        };
        out.insert(name, amount);
    }
    Ok(out)
}

/// One amount of the resource `name`.
pub(crate) fn amount(field: &str, name: &str, raw: &RawQuantity) -> Result<i64> {
    match raw.0.parse::<Quantity>() {
        Ok(q) if name == "cpu" => Ok(q.milli_value()),
        Ok(q) => Ok(q.value()),
        Err(e) => bad(format!("{field}[{name}]"), format!("Invalid value: {:?}: {e}", raw.0)),
    }
}
