//! Conversion of custom resources by webhook: before objects are shown in another version than the one they are stored
//! in, and before what was written in another version is stored.
//!
//! What a webhook made of a record is kept with the record, so that many watchers cost one call.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_machinery::crd::{Conversion, ConversionRequest};
use plimsoll_machinery::webhook::http_error;
use plimsoll_machinery::{ApiError, Gvk, Kind};
use serde_json::Value;

use super::{is_served_as, storage_version, to_storage};
use crate::callout;
use crate::server::Server;
use crate::store::{Change, Record};

/// Time of one call, in seconds (`defaultTimeoutSeconds` of webhook clients).
const TIMEOUT: u32 = 30;
/// Objects put into one call, at most.
const MAX_OBJECTS: usize = 100;
/// Bytes of objects put into one call; one object may have more.
const MAX_BYTES: usize = 1024 * 1024;

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
    let mut batch = Vec::new();
    let mut bytes = 0;
    for i in 0..records.len() {
        let Some(record) = records.get(i) else { break };
        if is_served_as(record, &kind.gvk) {
            continue;
        }
        let known = record.converted(hook.fingerprint).filter(|c| is_served_as(c, &kind.gvk));
        if let Some(known) = known {
            if let Some(slot) = records.get_mut(i) {
                *slot = known;
            }
            continue;
        }
        if batch.len() == MAX_OBJECTS || (bytes + record.json.len() > MAX_BYTES && !batch.is_empty()) {
            convert_batch(server, kind, hook, &mut records, &std::mem::take(&mut batch)).await?;
            bytes = 0;
        }
        bytes += records.get(i).map_or(0, |r| r.json.len());
        batch.push(i);
    }
    convert_batch(server, kind, hook, &mut records, &batch).await?;
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

/// As [`records`], for a change with its state before.
///
/// # Errors
/// As there.
pub async fn change(server: &Server, kind: &Kind, change: &Change) -> Result<Change, ApiError> {
    let after = record(server, kind, Arc::clone(&change.record)).await?;
    let before = match &change.previous {
        Some(previous) => Some(record(server, kind, Arc::clone(previous)).await?),
        None => None,
    };
    Ok(Change::new(change.kind, after, before))
}

/// The object in the version it is stored in.
///
/// # Errors
/// As [`records`].
pub async fn stored(server: &Server, kind: &Kind, object: Value) -> Result<Value, ApiError> {
    let target = storage_version(kind);
    match hook(kind) {
        Some(hook) if object["apiVersion"] != target.as_str() => {
            let mut converted = ask(server, hook, &target, &[object]).await?;
            converted.pop().ok_or_else(|| ApiError::internal("an object was lost by its conversion"))
        }
        _ => Ok(to_storage(kind, object)),
    }
}

/// Converts the records at these places.
async fn convert_batch(
    server: &Server,
    kind: &Kind,
    hook: &Conversion,
    records: &mut [Arc<Record>],
    batch: &[usize],
) -> Result<(), ApiError> {
    let chosen = batch.iter().filter_map(|i| records.get(*i));
    let objects: Result<Vec<Value>, _> = chosen.map(|r| r.value()).collect();
    let objects = objects.map_err(ApiError::internal)?;
    if objects.is_empty() {
        return Ok(());
    }
    let converted = ask(server, hook, &kind.gvk.api_version(), &objects).await?;
    for (i, object) in batch.iter().zip(converted) {
        if let Some(slot) = records.get_mut(*i) {
            *slot = slot.set_converted(hook.fingerprint, &object).map_err(ApiError::internal)?;
        }
    }
    Ok(())
}

/// One call.
async fn ask(
    server: &Server,
    hook: &Conversion,
    target: &str,
    objects: &[Value],
) -> Result<Vec<Value>, ApiError> {
    let error = |message: String| ApiError::new(500, "", message);
    let uid = uuid::Uuid::new_v4().to_string();
    let from = objects.first().map(kind_of).unwrap_or_default();
    let request = ConversionRequest { from: &from, to: target, uid: &uid, objects };
    let review = hook.review(&request).map_err(error)?;
    let url = plimsoll_machinery::webhook::url(&hook.client, TIMEOUT);
    let limit = Duration::from_secs(u64::from(TIMEOUT));
    let failed = |why: &str| {
        let kind = format!("{}, Kind={}", from.api_version(), from.kind);
        error(format!("conversion webhook for {kind} failed: {why}"))
    };
    match callout::post(server.store(), &url, &hook.client, &review, limit).await {
        Ok(answer) => hook.interpret(&request, &answer).map_err(error),
        Err(callout::Failure::Status(status)) => {
            let why = http_error(status);
            Err(failed(why.strip_prefix("failed to call webhook: ").unwrap_or(&why)))
        }
        Err(callout::Failure::Unreachable(why)) => Err(failed(&format!("Post {url:?}: {why}"))),
    }
}

fn kind_of(object: &Value) -> Gvk {
    let (group, version) = object["apiVersion"].as_str().and_then(|v| v.split_once('/')).unwrap_or_default();
    Gvk {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: object["kind"].as_str().unwrap_or("").to_owned(),
    }
}
