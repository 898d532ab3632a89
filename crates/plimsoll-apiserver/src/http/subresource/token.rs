//! `serviceaccounts/token`: refused; this server signs no tokens.

use std::sync::Arc;

use plimsoll_machinery::{ApiError, FieldError, Kind, Subresource};
use serde_json::json;

use super::super::Req;
use super::super::options::WriteOptions;
use super::super::reply::Reply;
use super::{body_format, decode_own, read};

/// Shortest life of a token, in seconds.
const MIN_SECONDS: i64 = 600;

/// POST to `serviceaccounts/NAME/token`.
pub async fn create(req: &mut Req, kind: &Arc<Kind>, sub: &Subresource) -> Result<Reply, ApiError> {
    body_format(req, true)?;
    let options = WriteOptions::parse(&req.query, "CreateOptions", false)?;
    let request = decode_own(req, sub, &options)?;
    read(req, kind)?;
    if let Some(seconds) = request["spec"]["expirationSeconds"].as_i64().filter(|s| *s < MIN_SECONDS) {
        let detail = "may not specify a duration less than 10 minutes";
        let e = FieldError::invalid("spec.expirationSeconds", &json!(seconds), detail);
        return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", &[e]));
    }
    Err(ApiError::new(
        501,
        "NotImplemented",
        "this server does not issue service account tokens; use the credentials of its kubeconfig",
    ))
}
