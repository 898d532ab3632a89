//! Quantities → canonical integers.

use super::{Result, bad};
use crate::lean::meta::{RawQuantity, RawResources};
use plimsoll_core::model::Resources;

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
    let scale = if name == "cpu" { 3 } else { 0 };
    match parse(&raw.0, scale) {
        Some(v) => Ok(v),
        None => bad(format!("{field}[{name}]"), format!("cannot parse {:?} as a quantity", raw.0)),
    }
}

/// Bytes or another whole amount.
pub(crate) fn whole(field: &str, raw: &RawQuantity) -> Result<i64> {
    amount(field, "", raw)
}

/// `text` × 10^`scale`, rounded up, saturating (apimachinery `Quantity.ScaledValue`).
fn parse(text: &str, scale: u32) -> Option<i64> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (binary, decimal) = suffix_exponents(suffix)?;
    let digits = whole.bytes().chain(fraction.bytes());
    let mut value: i128 = 0;
    for d in digits {
        value = value.saturating_mul(10).saturating_add(i128::from(d - b'0'));
    }
    value = value.saturating_mul(1i128 << binary);
    let exponent = decimal + i32::try_from(scale).ok()? - i32::try_from(fraction.len()).ok()?;
    let value = shift(value, exponent, negative);
    let signed = if negative { -value } else { value };
    Some(i64::try_from(signed).unwrap_or(if negative { i64::MIN } else { i64::MAX }))
}

/// `value` × 10^`exponent`; a remainder rounds away from zero for positive numbers, towards zero for others.
fn shift(value: i128, exponent: i32, negative: bool) -> i128 {
    let mut value = value;
    if exponent >= 0 {
        for _ in 0..exponent.min(60) {
            value = value.saturating_mul(10);
        }
        return value;
    }
    let mut remainder = false;
    for _ in 0..exponent.unsigned_abs().min(60) {
        remainder |= value % 10 != 0;
        value /= 10;
    }
    if remainder && !negative { value + 1 } else { value }
}

/// Binary and decimal exponent of a suffix.
fn suffix_exponents(suffix: &str) -> Option<(u32, i32)> {
    Some(match suffix {
        "" => (0, 0),
        "n" => (0, -9),
        "u" => (0, -6),
        "m" => (0, -3),
        "k" => (0, 3),
        "M" => (0, 6),
        "G" => (0, 9),
        "T" => (0, 12),
        "P" => (0, 15),
        "E" => (0, 18),
        "Ki" => (10, 0),
        "Mi" => (20, 0),
        "Gi" => (30, 0),
        "Ti" => (40, 0),
        "Pi" => (50, 0),
        "Ei" => (60, 0),
        _ => (0, suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}
