//! Requests to an API server as data, and how they fail. A client sends a [`Request`] (HTTP in `plimsoll-runtime`); the
//! simulator applies it to a model of the API. Nothing here waits.

use serde_json::{Value, json};

use crate::json;
use crate::resource::Resource;

/// Encoding of a patch (`types.PatchType` of apimachinery).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// JSON merge patch, RFC 7386.
    Merge,
    /// JSON patch, RFC 6902.
    Json,
    /// Strategic merge patch: lists merge by key.
    Strategic,
}

impl PatchKind {
    /// The `Content-Type` of the request.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Merge => "application/merge-patch+json",
            Self::Json => "application/json-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }
}

/// One request to an API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// GET of one object.
    Get {
        /// Resource.
        resource: Resource,
        /// Namespace, empty for cluster scope.
        namespace: String,
        /// Name.
        name: String,
    },
    /// Reads one object that may not be there, by a list with a field selector: unlike the 404 of a GET, which a proxy may
    /// have sent, an empty list is the API server's word. The response is null then.
    Find {
        /// Resource.
        resource: Resource,
        /// Namespace, empty for cluster scope.
        namespace: String,
        /// Name.
        name: String,
    },
    /// POST of an object to the namespace that it names.
    Create {
        /// Resource.
        resource: Resource,
        /// The object.
        object: Value,
    },
    /// POST of a subresource such as `pods/binding`. The response has no body of interest.
    CreateSubresource {
        /// Resource.
        resource: Resource,
        /// Namespace.
        namespace: String,
        /// Name of the parent object.
        name: String,
        /// Subresource.
        subresource: &'static str,
        /// Body.
        body: Value,
    },
    /// PATCH of an object or of its subresource.
    Patch {
        /// Resource.
        resource: Resource,
        /// Namespace, empty for cluster scope.
        namespace: String,
        /// Name.
        name: String,
        /// Subresource, or empty.
        subresource: &'static str,
        /// Encoding of `body`.
        kind: PatchKind,
        /// The patch. `metadata.uid` and `metadata.resourceVersion` are preconditions.
        body: Value,
    },
    /// DELETE of an object.
    Delete {
        /// Resource.
        resource: Resource,
        /// Namespace, empty for cluster scope.
        namespace: String,
        /// Name.
        name: String,
        /// Precondition on `metadata.uid`; empty: none.
        uid: String,
        /// `gracePeriodSeconds`; `None`: that of the object.
        grace_seconds: Option<i64>,
    },
}

impl Request {
    /// GET of one object.
    pub fn get(resource: Resource, namespace: &str, name: &str) -> Self {
        Self::Get { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Reads one object that may not be there.
    pub fn find(resource: Resource, namespace: &str, name: &str) -> Self {
        Self::Find { resource, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Patch of an object, or of its subresource where not empty.
    pub fn patch(
        resource: Resource,
        namespace: &str,
        name: &str,
        subresource: &'static str,
        kind: PatchKind,
        body: Value,
    ) -> Self {
        Self::Patch {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource,
            kind,
            body,
        }
    }

    /// DELETE of the object with this UID, with the grace period of the object.
    pub fn delete(resource: Resource, namespace: &str, name: &str, uid: &str) -> Self {
        Self::Delete {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            grace_seconds: None,
        }
    }

    /// Resource, namespace and name of the object; the name is empty where the server generates it.
    pub fn target(&self) -> (Resource, &str, &str) {
        match self {
            Self::Get { resource, namespace, name }
            | Self::Find { resource, namespace, name }
            | Self::CreateSubresource { resource, namespace, name, .. }
            | Self::Patch { resource, namespace, name, .. }
            | Self::Delete { resource, namespace, name, .. } => (*resource, namespace, name),
            Self::Create { resource, object } => (*resource, json::namespace(object), json::name(object)),
        }
    }
}

/// Body of a DELETE: preconditions and grace period (`metav1.DeleteOptions`).
pub fn delete_options(uid: &str, grace_seconds: Option<i64>) -> Value {
    let mut options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    if !uid.is_empty() {
        options["preconditions"] = json!({ "uid": uid });
    }
    if let Some(grace) = grace_seconds {
        options["gracePeriodSeconds"] = grace.into();
    }
    options
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The server answered with a Status.
    #[error("{message}")]
    Status {
        /// HTTP code.
        code: u16,
        /// Reason, such as `Conflict`.
        reason: String,
        /// Text.
        message: String,
        /// Seconds to wait before the next attempt (`Retry-After`); 0: not given.
        retry_after: u32,
    },
    /// The connection could not be opened or broke. The server may have carried out the request.
    #[error("{0}")]
    Transport(String),
    /// The response could not be decoded.
    #[error("unexpected answer: {0}")]
    Malformed(String),
}

impl Error {
    /// HTTP code, 0 when there is none.
    pub const fn code(&self) -> u16 {
        match self {
            Self::Status { code, .. } => *code,
            Self::Transport(_) | Self::Malformed(_) => 0,
        }
    }

    /// Whether the object does not exist (`apierrors.IsNotFound`).
    pub const fn is_not_found(&self) -> bool {
        self.code() == 404
    }

    /// Whether the object has changed, or exists already (409: `IsConflict` or `IsAlreadyExists`).
    pub const fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// Whether the server asks for fewer requests (`apierrors.IsTooManyRequests`).
    pub const fn is_too_many(&self) -> bool {
        self.code() == 429
    }

    /// Whether the server may have carried out the request: there is no response of its own.
    pub const fn may_be_done(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(*code, 500 | 502 | 504),
            Self::Transport(_) | Self::Malformed(_) => true,
        }
    }

    /// Whether the same request may succeed later.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(*code, 408 | 429 | 500..=504),
            Self::Transport(_) => true,
            Self::Malformed(_) => false,
        }
    }
}
