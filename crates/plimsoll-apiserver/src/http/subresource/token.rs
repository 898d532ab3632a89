//! `serviceaccounts/token`: an opaque token, see [`crate::auth::tokens`].

use std::sync::Arc;

use plimsoll_machinery::{ApiError, FieldError, Kind, Subresource};
use serde_json::json;

use super::super::Req;
use super::super::generic::write_of;
use super::super::options::WriteOptions;
use super::super::reply::Reply;
use super::{body_format, decode_own, own_kind, present_own, read};
use crate::auth::tokens::service_account;
use crate::{machine, time};

/// Shortest life of a token, in seconds.
const MIN_SECONDS: i64 = 600;
/// Life of a token unless the client says otherwise, in seconds.
const DEFAULT_SECONDS: i64 = 3600;
/// Longest life of a token, in seconds (`1 << 32` upstream).
const MAX_SECONDS: i64 = 1 << 32;
/// Whom tokens are for unless the client says otherwise.
const AUDIENCE: &str = "https://kubernetes.default.svc";

/// POST to `serviceaccounts/NAME/token`.
pub async fn create(req: &mut Req, kind: &Arc<Kind>, sub: &Subresource) -> Result<Reply, ApiError> {
    body_format(req, true)?;
    let options = WriteOptions::parse(&req.query, "CreateOptions", false)?;
    let request = decode_own(req, sub, &options)?;
    let account = read(req, kind)?;
    let wanted = request["spec"]["expirationSeconds"].as_i64();
    if let Some(seconds) = wanted.filter(|s| *s < MIN_SECONDS) {
        let detail = "may not specify a duration less than 10 minutes";
        let e = FieldError::invalid("spec.expirationSeconds", &json!(seconds), detail);
        return Err(ApiError::invalid("authentication.k8s.io", "TokenRequest", "", &[e]));
    }
    let own = own_kind(req, sub)?;
    let write = write_of(req, kind, &options, "CreateOptions");
    let seconds = wanted.unwrap_or(DEFAULT_SECONDS).min(MAX_SECONDS);
    let mut answer = request;
    machine::own_update(&own, None, &mut answer, &write.manager, "token", write.now)?;
    let (name, namespace) = (req.info.name.clone(), req.info.namespace.clone());
    let uid = account["metadata"]["uid"].as_str().unwrap_or("");
    let user = service_account(&namespace, &name, uid);
    let (token, end) = if options.dry_run {
        (String::new(), write.now)
    } else {
        req.server.tokens().issue(user, seconds, write.now)
    };
    for (field, value) in [("name", name.as_str()), ("namespace", &namespace), ("uid", uid)] {
        answer["metadata"][field] = json!(value);
    }
    answer["metadata"]["creationTimestamp"] = json!(time::seconds(write.now));
    answer["spec"]["expirationSeconds"] = json!(seconds);
    if answer["spec"]["audiences"].as_array().is_none_or(Vec::is_empty) {
        answer["spec"]["audiences"] = json!([AUDIENCE]);
    }
    if answer["spec"].get("boundObjectRef").is_none() {
        answer["spec"]["boundObjectRef"] = json!(null);
    }
    answer["status"] = json!({"token": token, "expirationTimestamp": time::seconds(end)});
    present_own(req, &own, 201, answer)
}
