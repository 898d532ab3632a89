//! The request to a conversion webhook, and its response
//! (`k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/webhook_converter.go`).

use serde_json::{Map, Value, json};

use super::conversion::Conversion;
use crate::gvk::Gvk;
use crate::json::{at, text};
use crate::obj::go_type;
use crate::validate;

/// Conversions of one request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Kind as stored: how messages name it.
    pub from: &'a Gvk,
    /// `apiVersion` wanted.
    pub to: &'a str,
    /// Number of the request.
    pub uid: &'a str,
    /// The objects, none of them in the version wanted.
    pub objects: &'a [Value],
}

impl Conversion {
    /// The ConversionReview to post.
    ///
    /// # Errors
    /// The webhook wants a version of it that isn't supported.
    pub fn review(&self, request: &Request<'_>) -> Result<Value, String> {
        let version = self.review_version.ok_or("no supported conversion review versions")?;
        Ok(json!({
            "kind": "ConversionReview",
            "apiVersion": format!("apiextensions.k8s.io/{version}"),
            "request": {"uid": request.uid, "desiredAPIVersion": request.to, "objects": request.objects},
        }))
    }

    /// The converted objects out of an answer, in order, with their own metadata but for labels and annotations.
    ///
    /// # Errors
    /// The error, in upstream's words.
    pub fn interpret(&self, request: &Request<'_>, body: &[u8]) -> Result<Vec<Value>, String> {
        let kind = shown(&request.from.api_version(), &request.from.kind);
        let failed = |why: String| format!("conversion webhook for {kind} failed: {why}");
        let mut answer: Value = serde_json::from_slice(body).map_err(|e| failed(e.to_string()))?;
        self.accepted(request, &answer).map_err(failed)?;
        let converted = match answer["response"]["convertedObjects"].take() {
            Value::Array(objects) => objects,
            _ => Vec::new(),
        };
        let (got, wanted) = (converted.len(), request.objects.len());
        if got != wanted {
            return Err(format!("conversion webhook for {kind} returned {got} objects, expected {wanted}"));
        }
        let pairs = converted.into_iter().zip(request.objects).enumerate();
        pairs
            .map(|(i, (object, original))| {
                let invalid = |why| match wanted {
                    1 => format!("conversion webhook for {kind} returned invalid object: {why}"),
                    _ => format!(
                        "conversion webhook for {kind} returned invalid converted object at index {i}: {why}"
                    ),
                };
                restored(request.to, original, object).map_err(invalid)
            })
            .collect()
    }

    /// Whether the answer is one to this request and a success.
    fn accepted(&self, request: &Request<'_>, answer: &Value) -> Result<(), String> {
        let response = at(answer, "response");
        // v1beta1 doesn't check these fields.
        if self.review_version == Some("v1") {
            let (version, kind) = (text(answer, "apiVersion"), text(answer, "kind"));
            if (version, kind) != ("apiextensions.k8s.io/v1", "ConversionReview") {
                let wanted = "apiextensions.k8s.io/v1, Kind=ConversionReview";
                return Err(format!("expected webhook response of {wanted}, got {}", shown(version, kind)));
            }
        }
        if !response.is_object() {
            return Err("no response provided".to_owned());
        }
        if self.review_version == Some("v1") && text(response, "uid") != request.uid {
            return Err(format!("expected response.uid={:?}, got {:?}", request.uid, text(response, "uid")));
        }
        let result = at(response, "result");
        match (text(result, "status"), text(result, "message")) {
            ("Success", _) => Ok(()),
            (other, "") => Err(format!("response.result.status was '{other}', not 'Success'")),
            (_, message) => Err(message.to_owned()),
        }
    }
}

/// `group/version, Kind=kind`.
fn shown(api_version: &str, kind: &str) -> String {
    if api_version.contains('/') {
        format!("{api_version}, Kind={kind}")
    } else {
        format!("/{api_version}, Kind={kind}")
    }
}

/// Checks that the converted object is the same object, and restores its metadata.
fn restored(to: &str, original: &Value, mut converted: Value) -> Result<Value, String> {
    let (version, kind) = (text(&converted, "apiVersion"), text(original, "kind"));
    if version != to {
        return Err(format!("invalid groupVersion (expected {to}, received {version})"));
    }
    if text(&converted, "kind") != kind {
        return Err(format!("invalid kind (expected {kind}, received {})", text(&converted, "kind")));
    }
    let (before, after) = (at(original, "metadata"), at(&converted, "metadata"));
    for (field, name) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        if text(before, field) != text(after, field) {
            let (a, b) = (text(before, field), text(after, field));
            return Err(format!("must have the same {name}: {a} != {b}"));
        }
    }
    let meta = restored_metadata(before, after)?;
    converted["metadata"] = Value::Object(meta);
    Ok(converted)
}

fn restored_metadata(before: &Value, after: &Value) -> Result<Map<String, Value>, String> {
    if after.is_null() {
        return Err("missing metadata in converted object".to_owned());
    }
    let mut meta = before.as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let new = at(after, field);
        let Some(pairs) = new.as_object() else {
            if !new.is_null() {
                return Err(format!("invalid metadata.{field} of type {} in converted object", go_type(new)));
            }
            meta.remove(field);
            continue;
        };
        if let Some((key, value)) = pairs.iter().find(|(_, v)| !v.is_string()) {
            let found = go_type(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {found} in converted object"
            ));
        }
        if new != at(before, field) {
            // Upstream's path of annotations lacks the s.
            let name = if field == "labels" { "labels" } else { "annotation" };
            let errors = validate::pairs(field, pairs, "metadata", name);
            if !errors.is_empty() {
                let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
                return Err(if all.len() == 1 { all.concat() } else { format!("[{}]", all.join(", ")) });
            }
        }
        meta.insert(field.to_owned(), new.clone());
    }
    Ok(meta)
}
