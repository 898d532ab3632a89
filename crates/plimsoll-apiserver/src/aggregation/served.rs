//! A version of a group that is served beside the server's own, and who answers for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Uri};
use serde_json::Value;

use super::remote::Remote;

/// A group of the API that another part of this process serves, as an aggregated API server would.
pub trait LocalApi: Send + Sync + 'static {
    /// The group.
    fn group(&self) -> &'static str;

    /// Its versions.
    fn versions(&self) -> &'static [&'static str];

    /// The APIResourceList of a version.
    fn resources(&self, version: &str) -> Value;

    /// Answers a request that its user may make: for what is below its versions, and for its OpenAPI documents
    /// (`/openapi/v3`, `/openapi/v2`).
    fn answer(&self, request: LocalRequest) -> BoxFuture<'static, LocalAnswer>;
}

/// A request to a [`LocalApi`].
#[derive(Clone, Debug)]
pub struct LocalRequest {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
    /// The header `Accept`.
    pub accept: String,
    /// Body.
    pub body: Bytes,
}

/// The answer of a [`LocalApi`].
#[derive(Clone, Debug)]
pub struct LocalAnswer {
    /// HTTP status.
    pub status: u16,
    /// Media type of the body.
    pub content_type: &'static str,
    /// Body.
    pub body: Bytes,
}

/// What answers.
#[derive(Clone)]
pub(crate) enum Backend {
    /// A part of this process.
    Local(Arc<dyn LocalApi>),
    /// Another server.
    Remote(Arc<Remote>),
}

/// A version of a group that is served beside the server's own.
#[derive(Clone)]
pub(crate) struct Served {
    /// Group.
    pub group: String,
    /// Version.
    pub version: String,
    /// What answers.
    pub backend: Backend,
    /// `groupPriorityMinimum`: groups of higher priority are shown first.
    pub group_priority: i64,
    /// `versionPriority`: versions of higher priority are preferred.
    pub version_priority: i64,
    /// Its APIResourceList; `None`: not known yet, or the server does not answer.
    pub resources: Option<Value>,
    /// Its OpenAPI documents as they were read last; `None`: not yet.
    pub documents: Option<Arc<Documents>>,
}

/// The documents of a version.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// Entries of the index by name (`apis/GROUP/VERSION`); none: the server has no documents of version 3.
    pub index: BTreeMap<String, Value>,
    /// Its part of the Swagger document; null: the server has none.
    pub swagger: Value,
    /// The ETag of the Swagger document.
    pub etag: Option<HeaderValue>,
}

impl Served {
    /// The other server, if it is one.
    pub fn remote(&self) -> Option<&Remote> {
        match &self.backend {
            Backend::Local(_) => None,
            Backend::Remote(remote) => Some(remote),
        }
    }
}
