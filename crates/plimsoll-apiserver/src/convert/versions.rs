//! Objects in the versions in which managers of their fields wrote.
//!
//! Field ownership asks for these on its way and does not wait: what a webhook converts is noted, converted, and the work
//! done again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_apimachinery::apply::Versions;
use plimsoll_apimachinery::{ApiError, Gvk, Kind, KindTable};
use serde_json::Value;

use super::{to_served, webhook};
use crate::write::Write;

/// How often work is done again; pruning converts an object several times, one after the other.
const MAX_ROUNDS: usize = 64;

/// A conversion by webhook.
struct Call {
    object: Value,
    api_version: String,
    /// `None`: to be made.
    result: Option<Result<Value, ApiError>>,
}

/// The versions of the kind of a write.
pub struct OtherVersions {
    table: Arc<KindTable>,
    kind: Arc<Kind>,
    calls: Mutex<Vec<Call>>,
}

impl OtherVersions {
    /// Those of a write, with nothing converted yet.
    pub fn of(w: &Write) -> Self {
        Self { table: Arc::clone(&w.table), kind: Arc::clone(&w.kind), calls: Mutex::default() }
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version in which an object is.
    fn target(&self, api_version: &str) -> Arc<Kind> {
        self.kind(api_version).unwrap_or_else(|| Arc::clone(&self.kind))
    }

    /// A conversion that is to be made.
    fn wanted(&self) -> Option<(Value, String)> {
        let calls = self.calls();
        let call = calls.iter().find(|call| call.result.is_none())?;
        Some((call.object.clone(), call.api_version.clone()))
    }

    fn made(&self, object: &Value, api_version: &str, result: Result<Value, ApiError>) {
        let mut calls = self.calls();
        let call = calls.iter_mut().find(|c| c.api_version == api_version && c.object == *object);
        if let Some(call) = call {
            call.result = Some(result);
        }
    }
}

impl Versions for OtherVersions {
    fn kind(&self, api_version: &str) -> Option<Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        if group != self.kind.gvk.group {
            return None;
        }
        let kind = self.kind.gvk.kind.clone();
        let gvk = Gvk { group: group.to_owned(), version: version.to_owned(), kind };
        self.table.kind(&gvk).cloned()
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, ApiError> {
        if !webhook::is_hooked(&self.kind) {
            return Ok(to_served(&self.target(api_version), object.clone()));
        }
        let mut calls = self.calls();
        let known = calls.iter().find(|c| c.api_version == api_version && c.object == *object);
        let waits = || Err(ApiError::internal("a conversion is under way"));
        if let Some(call) = known {
            return call.result.clone().unwrap_or_else(waits);
        }
        calls.push(Call { object: object.clone(), api_version: api_version.to_owned(), result: None });
        waits()
    }
}

/// Does work that needs an object in other versions, again and again until all conversions are made that it asks for.
///
/// # Errors
/// Those of the work, with failed conversions among them.
pub async fn with_versions<T: Send>(
    w: &Write,
    work: impl Fn(&OtherVersions) -> Result<T, ApiError> + Send + Sync,
) -> Result<T, ApiError> {
    let versions = OtherVersions::of(w);
    for _ in 0..MAX_ROUNDS {
        let result = work(&versions);
        if versions.wanted().is_none() {
            return result;
        }
        drop(result);
        while let Some((object, api_version)) = versions.wanted() {
            let target = versions.target(&api_version);
            let converted = webhook::objects(&w.server, &target, vec![object.clone()]).await;
            let lost = || ApiError::internal("an object was lost by its conversion");
            let one = converted.and_then(|mut objects| objects.pop().ok_or_else(lost));
            versions.made(&object, &api_version, one);
        }
    }
    Err(ApiError::internal("an object is converted too often"))
}
