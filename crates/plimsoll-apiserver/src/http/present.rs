//! Objects in the form asked for.

use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, Kind};
use serde_json::{Value, json};

use super::Req;
use super::negotiate::{Format, MetaVersion, Transform};
use super::reply::Reply;
use crate::pipeline::Updated;
use crate::{machine, representation};

/// `*core.ConfigMap`: how Go names the type in messages.
fn go_type(kind: &Kind, list: bool) -> String {
    if kind.custom.is_some() {
        return format!("*unstructured.Unstructured{}", if list { "List" } else { "" });
    }
    let package = kind.gvk.group.split('.').next().filter(|g| !g.is_empty()).unwrap_or("core");
    format!("*{package}.{}", if list { &kind.list_kind } else { &kind.gvk.kind })
}

/// Puts one object into the form asked for.
pub fn present(req: &Req, kind: &Arc<Kind>, status: u16, object: Value) -> Result<Reply, ApiError> {
    if object["kind"] == "Status" && object["apiVersion"] == "v1" {
        return Ok(Reply::object(status, object));
    }
    Ok(match req.accepted.transform {
        Transform::None => Reply::object(status, object),
        Transform::Table(version) => {
            let options = machine::table_options(&req.query, Value::Null, false)?;
            Reply::object(status, machine::table(kind, &[object], &options, version, req.server.now()))
        }
        Transform::Partial(version) => Reply::object(status, partial(&object, version)),
        Transform::PartialList(_) if kind.custom.is_some() => {
            return Err(ApiError::new(500, "", "content is not a list"));
        }
        Transform::PartialList(_) => {
            return Err(ApiError::new(
                406,
                "NotAcceptable",
                format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                    go_type(kind, false)
                ),
            ));
        }
    })
}

/// 406 for a list asked for as one object.
pub fn list_as_object(kind: &Kind) -> ApiError {
    ApiError::new(
        406,
        "NotAcceptable",
        format!(
            "you requested PartialObjectMetadata, but the requested object is a list ({})",
            go_type(kind, true)
        ),
    )
}

/// Metadata only.
pub fn partial(object: &Value, version: MetaVersion) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": version.api_version(), "metadata": object["metadata"],
    })
}

/// Whether the answer is the object itself as JSON.
pub fn is_plain(req: &Req) -> bool {
    req.accepted.transform == Transform::None && req.accepted.format == Format::Json
}

/// Answers what was written: as it is stored, if that is what the client wants to see.
pub async fn present_written(req: &Req, kind: &Arc<Kind>, done: Updated) -> Result<Reply, ApiError> {
    let status = if done.created { 201 } else { 200 };
    if wants_nothing(req) {
        return Ok(Reply::nothing(status));
    }
    if is_plain(req)
        && let Some(json) = done.record.as_deref().and_then(|r| representation::raw(kind, r))
    {
        return Ok(Reply::json(status, json.clone()));
    }
    let object = done.into_object(&req.server, kind).await?;
    present(req, kind, status, object)
}

/// `Prefer: return=minimal` (RFC 7240): the client doesn't look at the body of a success. Upstream sends it anyway.
pub fn wants_nothing(req: &Req) -> bool {
    req.headers.get("prefer").is_some_and(|v| v.as_bytes() == b"return=minimal")
}
