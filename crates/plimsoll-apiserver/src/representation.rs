//! Records as clients of a kind see them.
//!
//! Most records are stored just as they are sent: then their bytes are sent unparsed. A custom resource
//! may have been stored under another schema; whether pruning and defaults change anything is found out once for each
//! record and schema.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_apimachinery::{ApiError, Kind};
use serde_json::Value;

use crate::server::Server;
use crate::store::{Record, StoreError};
use crate::{convert, machine};

/// The JSON of a record, if that is what a client of this kind sees.
pub fn raw<'r>(kind: &Kind, record: &'r Record) -> Option<&'r Bytes> {
    if !convert::is_served_as(record, &kind.gvk) {
        return None;
    }
    match &kind.custom {
        Some(custom) if !record.fits(custom.fingerprint) => {
            let value = record.value().ok()?;
            let fits = machine::serve(kind, value.clone()) == value;
            fits.then(|| {
                record.set_fits(custom.fingerprint);
                &record.json
            })
        }
        _ => Some(&record.json),
    }
}

/// The object in the version of a kind, by its webhook if it has one.
///
/// # Errors
/// The webhook fails, or the record isn't JSON.
pub async fn in_version(server: &Server, kind: &Kind, record: &Arc<Record>) -> Result<Value, ApiError> {
    if convert::webhook::is_hooked(kind) {
        let converted = convert::webhook::record(server, kind, Arc::clone(record)).await?;
        return value(kind, &converted).map_err(ApiError::internal);
    }
    value(kind, record).map_err(ApiError::internal)
}

/// The object in the version of a kind, pruned and with its defaults; a [`convert::webhook`] has been asked already.
///
/// # Errors
/// The record isn't JSON.
pub fn value(kind: &Kind, record: &Record) -> Result<Value, StoreError> {
    let value = record.value()?;
    let known = kind.custom.as_ref().is_none_or(|c| record.fits(c.fingerprint));
    if known && convert::is_served_as(record, &kind.gvk) {
        return Ok(value);
    }
    Ok(machine::serve(kind, convert::to_served(kind, value)))
}
