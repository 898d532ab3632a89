//! The response of a webhook.

use std::collections::BTreeMap;

use base64::Engine as _;
use plimsoll_state::collect::InsertEach as _;
use serde_json::{Value, json};

use super::{Stage, Webhook};
use crate::error::{ApiError, Cause, Details};
use crate::json::{at, list, text};

/// The verdict of one webhook.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// The reason why the request is denied; `None`: it is allowed.
    pub denied: Option<ApiError>,
    /// JSON patch to apply; mutating webhooks only.
    pub patch: Option<Value>,
    /// Warnings for the client, also when the request is refused.
    pub warnings: Vec<String>,
    /// Audit annotations, as given.
    pub audit: BTreeMap<String, String>,
}

/// The text for an answer with a status other than 200: `failed to call webhook: …`.
pub fn http_error(status: u16) -> String {
    let what = match status {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        403 => "unknown".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 => "the server was unable to respond with a content type that the client supports".to_owned(),
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be processing the \
                request"
            .to_owned(),
        500.. => "an error on the server (\"unknown\") has prevented the request from succeeding".to_owned(),
        other => format!("the server responded with the status code {other} but did not return more information"),
    };
    format!("failed to call webhook: {what}")
}

impl Webhook {
    /// Reads an answer with status 200 to the review with this `uid`.
    ///
    /// # Errors
    /// The response is invalid; the text is for [`Webhook::failed`].
    pub fn interpret(&self, uid: &str, body: &[u8]) -> Result<Verdict, String> {
        let answer = decode(body).map_err(|e| format!("failed to call webhook: {e}"))?;
        let invalid = |e: String| format!("received invalid webhook response: {e}");
        let response = at(&answer, "response");
        if !response.is_object() {
            return Err(invalid("webhook response was absent".to_owned()));
        }
        if text(response, "uid") != uid {
            return Err(invalid(format!("expected response.uid={uid:?}, got {:?}", text(response, "uid"))));
        }
        let (kind, version) = (text(&answer, "kind"), text(&answer, "apiVersion"));
        if (kind, version) != ("AdmissionReview", "admission.k8s.io/v1") {
            let got = version
                .split_once('/')
                .map_or_else(|| format!("/{version}, Kind={kind}"), |(g, v)| format!("{g}/{v}, Kind={kind}"));
            return Err(invalid(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {got}"
            )));
        }
        let patch = if self.stage == Stage::Mutating { patch_of(response).map_err(invalid)? } else { None };
        let audit = at(response, "auditAnnotations").as_object().into_iter().flatten();
        Ok(Verdict {
            denied: (at(response, "allowed") != true).then(|| self.denial(at(response, "status"))),
            patch,
            warnings: list(response, "warnings")
                .iter()
                .filter_map(|w| w.as_str().map(str::to_owned))
                .collect(),
            audit: audit.map(|(k, v)| (k.clone(), v.as_str().unwrap_or_default().to_owned())).insert_each(),
        })
    }

    /// The error of a refusal (`webhookerrors.ToStatusErr`).
    fn denial(&self, status: &Value) -> ApiError {
        let by = format!("admission webhook {:?} denied the request", self.name);
        let message = match (text(status, "message"), text(status, "reason")) {
            ("", "") => format!("{by} without explanation"),
            ("", reason) => format!("{by}: {reason}"),
            (message, _) => format!("{by}: {message}"),
        };
        let code = at(status, "code").as_u64().and_then(|c| u16::try_from(c).ok());
        let mut error = ApiError::new(code.filter(|c| (400..600).contains(c)).unwrap_or(400), "", message);
        error.reason = text(status, "reason").to_owned();
        let details = at(status, "details");
        if details.is_object() {
            let cause = |c: &Value| Cause {
                reason: text(c, "reason").to_owned(),
                message: text(c, "message").to_owned(),
                field: text(c, "field").to_owned(),
            };
            error.details = Some(Box::new(Details {
                name: text(details, "name").to_owned(),
                group: text(details, "group").to_owned(),
                kind: text(details, "kind").to_owned(),
                uid: text(details, "uid").to_owned(),
                causes: list(details, "causes").iter().map(cause).collect(),
                retry_after_seconds: at(details, "retryAfterSeconds")
                    .as_u64()
                    .and_then(|s| s.try_into().ok())
                    .unwrap_or_default(),
            }));
        }
        error
    }
}

/// Decodes an answer the way upstream's codec does, which takes anything that doesn't start with `{` for YAML.
fn decode(body: &[u8]) -> Result<Value, String> {
    let is_json = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    let value: Value = if is_json {
        crate::decode::depth::from_slice(body)
            .map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))?
    } else {
        json!("")
    };
    let Some(map) = value.as_object() else {
        return Err(
            "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of \
                    type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                    \"json:\\\"kind,omitempty\\\"\" }"
                .to_owned(),
        );
    };
    let version = map.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let kind = map.get("kind").and_then(Value::as_str).unwrap_or_default();
    let known = ["", "admission.k8s.io/v1", "admission.k8s.io/v1beta1"].contains(&version)
        && ["", "AdmissionReview"].contains(&kind);
    if !known {
        return Err(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \
             \"k8s.io/apiserver/pkg/util/webhook/client.go:71\""
        ));
    }
    Ok(value)
}

fn patch_of(response: &Value) -> Result<Option<Value>, String> {
    let encoded = text(response, "patch");
    if encoded.is_empty() {
        return Ok(None);
    }
    match at(response, "patchType").as_str() {
        None => return Err("webhook returned response.patch but not response.patchType".to_owned()),
        Some("JSONPatch") => {}
        Some(other) => return Err(format!("webhook returned invalid response.patchType of {other:?}")),
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|e| e.to_string())?;
    serde_json::from_slice(&bytes).map(Some).map_err(|e| e.to_string())
}

/// Applies a webhook's patch to an object.
///
/// # Errors
/// 500 with upstream's words for the operation that fails.
pub fn apply_patch(object: &Value, patch: &Value) -> Result<Value, ApiError> {
    let mut document = object.clone();
    for operation in patch.as_array().into_iter().flatten() {
        let one = json!([operation]).to_string();
        document = crate::patch::json(&document, one.as_bytes())
            .map_err(|_| ApiError::internal(patch_failure(operation)))?;
    }
    Ok(document)
}

fn patch_failure(operation: &Value) -> String {
    let path = text(operation, "path");
    match text(operation, "op") {
        "test" => format!("testing value {path} failed: test failed"),
        "replace" => format!("replace operation does not apply: doc is missing key: {path}: missing value"),
        op @ ("add" | "remove" | "move" | "copy") => {
            format!("{op} operation does not apply: doc is missing path: {path:?}: missing value")
        }
        other => format!("Unexpected kind: {other}"),
    }
}
