//! The one way in for every write: POST, PUT, PATCH, apply and DELETE, from the network, from the server's own
//! controllers and from in-process clients.
//!
//! Order, as upstream has it: decode and default → field ownership → mutating admission → strategy → validation →
//! validating admission → commit. A dry run stops before the commit.

mod authorize;
mod create;
mod delete;
mod devices;
mod meta;
mod owners;
mod service;
mod update;

use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, Kind};
use serde_json::Value;

use crate::server::Server;
use crate::store::{Key, Record};

pub use crate::write::{Admission, Write};
pub use create::create;
pub use delete::{Deleted, delete, preconditions, returns_object};
pub use meta::ensure_namespace;
pub(crate) use meta::generate_name;
pub use update::{Change, Part, check_identity, update};

/// What became of a write.
pub struct Updated {
    /// As it was handed to the store; in the version of the request when nothing was stored. `null`: as in the record.
    object: Value,
    /// As it is stored; `None` when nothing was.
    pub record: Option<Arc<Record>>,
    /// It was created.
    pub created: bool,
}

impl Updated {
    /// A write that stopped before the commit.
    fn dry(object: Value, created: bool) -> Self {
        Self { object, record: None, created }
    }

    /// A write of an object that no check has seen as a whole.
    const fn unseen(record: Arc<Record>) -> Self {
        Self { object: Value::Null, record: Some(record), created: false }
    }

    /// A write of an object that has been pruned and given its defaults in the version of the request.
    fn stored(w: &Write, object: Value, record: Arc<Record>, created: bool) -> Self {
        if let Some(custom) = &w.kind.custom
            && crate::convert::is_served_as(&record, &w.kind.gvk)
        {
            record.set_fits(custom.fingerprint);
        }
        Self { object, record: Some(record), created }
    }

    /// The object as it is now, in the version of the request.
    ///
    /// # Errors
    /// What is stored can't be read.
    pub async fn into_object(self, server: &Server, kind: &Kind) -> Result<Value, ApiError> {
        let Self { mut object, record, .. } = self;
        let Some(record) = record else { return Ok(object) };
        if object.is_null() || !crate::convert::is_served_as(&record, &kind.gvk) {
            return crate::representation::in_version(server, kind, &record).await;
        }
        if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.insert("resourceVersion".to_owned(), Value::String(record.revision.to_string()));
        }
        Ok(object)
    }
}

/// An answer without a write of its own follows from writes of others: it waits until they are durable, so that a crash
/// can't revert what a client was told.
async fn settled<T>(w: &Write, result: Result<T, ApiError>) -> Result<T, ApiError> {
    if result.is_err() || w.dry_run {
        w.server.store().settled().await.map_err(|e| w.store_error(&e, &w.name))?;
    }
    result
}

/// Whether the write is of a core Service itself.
fn is_service(w: &Write) -> bool {
    w.kind.gvk.group.is_empty() && w.kind.plural == "services" && w.subresource.is_empty()
}

/// The path of an object in upstream's etcd, which shows in messages about preconditions.
pub fn etcd_path(kind: &Kind, key: &Key) -> String {
    let prefix = match (kind.custom.is_some(), kind.plural.as_str()) {
        (true, plural) => format!("{}/{plural}", kind.gvk.group),
        (false, "nodes") => "minions".to_owned(),
        (false, "services") => "services/specs".to_owned(),
        (false, "endpoints") => "services/endpoints".to_owned(),
        (false, "replicationcontrollers") => "controllers".to_owned(),
        (false, "ingresses") => "ingress".to_owned(),
        (false, "customresourcedefinitions") => "apiextensions.k8s.io/customresourcedefinitions".to_owned(),
        (false, plural) => plural.to_owned(),
    };
    format!("/registry/{prefix}/{}", key.path())
}

/// 409 for another UID than the one asked for, in the storage layer's words.
///
/// A dry run never comes to etcd, which puts its prefix before keys.
pub fn uid_conflict(kind: &Kind, key: &Key, wanted: &str, found: &str, dry_run: bool) -> ApiError {
    let path = etcd_path(kind, key);
    let path = if dry_run { path.trim_start_matches("/registry") } else { path.as_str() };
    ApiError::conflict(
        &kind.gvk.group,
        &kind.plural,
        &key.name,
        &format!(
            "StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        ),
    )
}
