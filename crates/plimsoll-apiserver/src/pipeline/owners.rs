//! Managers of the fields that a write changes.

use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::apply::Served;
use serde_json::Value;

use super::Write;
use crate::convert::versions::{OtherVersions, with_versions};
use crate::convert::webhook;
use crate::machine;

/// Records in `new` the field managers of what changed.
///
/// # Errors
/// The object is converted over and over. A conversion that fails leaves the object without managed fields
/// (`UpdateNoErrors`).
pub async fn own_update(w: &Write, old: Option<&Value>, new: &mut Value) -> Result<(), ApiError> {
    let own = |versions: &OtherVersions, new: &mut Value| {
        let served = Served { kind: &w.kind, versions: Some(versions) };
        machine::own_update(served, old, new, &w.manager, &w.subresource, w.now)
    };
    if !webhook::is_hooked(&w.kind) {
        return own(&OtherVersions::of(w), new);
    }
    let given = new.clone();
    *new = with_versions(w, |versions| {
        let mut new = given.clone();
        own(versions, &mut new).map(|()| new)
    })
    .await?;
    Ok(())
}
