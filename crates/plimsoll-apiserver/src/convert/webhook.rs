//! Conversion of custom resources by webhook: before objects are shown in another version than the one they are stored
//! in, and before what was written in another version is stored.
//!
//! What a webhook made of a record is [shared](super::shared), so that many watchers cost one call.

use std::sync::Arc;

use plimsoll_apimachinery::crd::Conversion;
use plimsoll_apimachinery::{ApiError, Kind};
use serde_json::Value;

use super::call::ask;
use super::shared::Wanted;
use super::{is_served_as, storage_version, to_served, to_storage};
use crate::server::Server;
use crate::store::{Change, Record};

fn hook(kind: &Kind) -> Option<&Arc<Conversion>> {
    kind.custom.as_ref()?.conversion.as_ref()
}

/// Whether objects of a kind are converted by a webhook.
pub fn is_hooked(kind: &Kind) -> bool {
    hook(kind).is_some()
}

/// The records in the version of a kind, as far as a webhook has to convert them.
///
/// # Errors
/// 500 with upstream's message when the webhook fails.
pub async fn records(
    server: &Server,
    kind: &Kind,
    mut records: Vec<Arc<Record>>,
) -> Result<Vec<Arc<Record>>, ApiError> {
    let Some(hook) = hook(kind) else { return Ok(records) };
    let foreign = |(i, r): (usize, &Arc<Record>)| (!is_served_as(r, &kind.gvk)).then_some(i);
    let places: Vec<usize> = records.iter().enumerate().filter_map(foreign).collect();
    if !places.is_empty() {
        let wanted = Wanted { hook: Arc::clone(hook), version: kind.gvk.api_version().into() };
        server.conversions().convert(server.store(), &wanted, &mut records, &places).await?;
    }
    Ok(records)
}

/// As [`records`], for one.
///
/// # Errors
/// As there.
pub async fn record(server: &Server, kind: &Kind, record: Arc<Record>) -> Result<Arc<Record>, ApiError> {
    if hook(kind).is_none() {
        return Ok(record);
    }
    let converted = records(server, kind, vec![record]).await?;
    converted.into_iter().next().ok_or_else(|| ApiError::internal("a record was lost by its conversion"))
}

/// As [`records`], for changes. Their states before only if they are `compared`.
///
/// # Errors
/// As there.
pub async fn changes(
    server: &Server,
    kind: &Kind,
    changes: &[Arc<Change>],
    compared: bool,
) -> Result<Vec<Change>, ApiError> {
    let before = |c: &Arc<Change>| c.previous.clone().filter(|_| compared);
    let all = changes.iter().flat_map(|c| [Some(Arc::clone(&c.record)), before(c)]).flatten().collect();
    let mut converted = records(server, kind, all).await?.into_iter();
    let lost = || ApiError::internal("a record was lost by its conversion");
    let one = |change: &Arc<Change>| {
        let after = converted.next().ok_or_else(lost)?;
        let before = match before(change) {
            Some(_) => Some(converted.next().ok_or_else(lost)?),
            None => None,
        };
        Ok(Change::new(change.kind, after, before))
    };
    changes.iter().map(one).collect()
}

/// The object in the version it is stored in.
///
/// # Errors
/// As [`records`].
pub async fn stored(server: &Server, kind: &Kind, object: Value) -> Result<Value, ApiError> {
    let target = storage_version(kind);
    match hook(kind) {
        Some(hook) if object["apiVersion"] != target.as_str() => {
            let mut converted = ask(server.store(), hook, &target, &[object]).await?;
            converted.pop().ok_or_else(|| ApiError::internal("an object was lost by its conversion"))
        }
        _ => Ok(to_storage(kind, object)),
    }
}

/// Objects that are not stored, in the version of a kind; nulls stay what they are.
///
/// # Errors
/// As [`records`].
pub async fn objects(server: &Server, kind: &Kind, mut objects: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    let target = kind.gvk.api_version();
    let Some(hook) = hook(kind) else {
        let one = |o: Value| if o.is_null() { o } else { to_served(kind, o) };
        return Ok(objects.into_iter().map(one).collect());
    };
    let foreign = |o: &Value| !o.is_null() && o["apiVersion"] != target.as_str();
    let asked: Vec<Value> = objects.iter().filter(|o| foreign(o)).cloned().collect();
    if asked.is_empty() {
        return Ok(objects);
    }
    let mut converted = ask(server.store(), hook, &target, &asked).await?.into_iter();
    for slot in objects.iter_mut().filter(|o| foreign(o)) {
        *slot = converted.next().ok_or_else(|| ApiError::internal("an object was lost by its conversion"))?;
    }
    Ok(objects)
}
