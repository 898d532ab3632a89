//! Between the requests that clients make as data ([`plimsoll_api::request`]) and those of the API model.

use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::request::{Error, PatchKind, Request as ClientRequest};
use serde_json::Value;

use super::{ApiError, Kind, Request, Style};

impl Request {
    /// The request of a client; `None`: the API model does not serve its resource, subresource or encoding.
    pub fn of_client(request: ClientRequest) -> Option<Self> {
        Some(match request {
            ClientRequest::Get { resource, namespace, name } => {
                Self::Get(Kind::of(resource)?, (namespace, name))
            }
            ClientRequest::Find { resource, namespace, name } => {
                Self::Find(Kind::of(resource)?, (namespace, name))
            }
            ClientRequest::Create { resource, object } => Self::Create(Kind::of(resource)?, object),
            ClientRequest::CreateSubresource { namespace, name, subresource: "binding", body, .. } => {
                let text = |path: &[&str]| json::text(&body, path).to_owned();
                let (uid, node) = (text(&["metadata", "uid"]), text(&["target", "name"]));
                Self::Bind { name: (namespace, name), uid, node }
            }
            ClientRequest::CreateSubresource { .. } => return None,
            ClientRequest::Patch { resource, namespace, name, subresource, kind: encoding, body } => {
                let style = match encoding {
                    PatchKind::Merge => Style::Merge,
                    PatchKind::Strategic => Style::Strategic,
                    PatchKind::Json => return None,
                };
                let status = match subresource {
                    "" => false,
                    "status" => true,
                    _ => return None,
                };
                Self::Patch { kind: Kind::of(resource)?, name: (namespace, name), status, style, body }
            }
            ClientRequest::Delete { resource, namespace, name, uid, grace_seconds: grace } => {
                Self::Delete { kind: Kind::of(resource)?, name: (namespace, name), uid, grace }
            }
        })
    }
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        match error.code {
            0 => Self::Transport(error.message),
            code => Self::Status { code, reason: String::new(), message: error.message, retry_after: 0 },
        }
    }
}

/// An answer as a client decodes it.
pub fn response(answer: Result<Arc<Value>, ApiError>) -> Result<Value, Error> {
    answer.map(Arc::unwrap_or_clone).map_err(Error::from)
}
