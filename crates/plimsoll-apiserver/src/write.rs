//! One write on its way through the pipeline: what admission, the pipeline and its callers know of it.

use std::sync::Arc;

use jiff::Timestamp;
use plimsoll_apimachinery::{ApiError, Kind, KindTable};
use serde_json::Value;

use crate::audit::Annotations;
use crate::auth::User;
use crate::server::Server;
use crate::store::{Key, Record, StoreError};

/// How a write is admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Admission {
    /// By name.
    #[default]
    Named,
    /// As one of a collection: webhooks are not told the name.
    Collection,
    /// It has been already, as what it follows from (an eviction).
    Done,
}

/// One write: verb, object and user.
pub struct Write {
    /// The server.
    pub server: Arc<Server>,
    /// The kinds.
    pub table: Arc<KindTable>,
    /// Kind of the object.
    pub kind: Arc<Kind>,
    /// Subresource written through, empty for none.
    pub subresource: String,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Name; empty for a create.
    pub name: String,
    /// The user.
    pub user: User,
    /// Field manager.
    pub manager: String,
    /// Whether it stops before the commit.
    pub dry_run: bool,
    /// Options as admission webhooks see them.
    pub options: Value,
    /// How it is admitted.
    pub admission: Admission,
    /// Whether the request was authorized as `create`. An update or a patch that finds no object to change, and so
    /// creates one, is authorized a second time.
    pub may_create: bool,
    /// Warnings collected on the way.
    pub warnings: Vec<String>,
    /// Annotations for the audit event of the request.
    pub annotations: Annotations,
    /// Whether the labels of a new Job are those of its template, as it has none of its own: then it gets those as well
    /// that are generated for its pods (one map upstream).
    pub follows_template: bool,
    /// Time of the write.
    pub now: Timestamp,
}

impl Write {
    /// Where the object lives.
    pub fn key(&self, name: &str) -> Key {
        let namespace = if self.kind.namespaced { self.namespace.as_str() } else { "" };
        Key::new(self.kind.storage.as_str(), namespace, name)
    }

    /// The object is not there.
    pub fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.kind.gvk.group, &self.kind.plural, name)
    }

    /// The object in the version of the request.
    pub async fn read(&self, record: &Arc<Record>) -> Result<Value, ApiError> {
        crate::representation::in_version(&self.server, &self.kind, record).await
    }

    /// A store's error as the API words it.
    pub fn store_error(&self, error: &StoreError, name: &str) -> ApiError {
        error.to_api(&self.kind.gvk.group, &self.kind.plural, name)
    }
}
