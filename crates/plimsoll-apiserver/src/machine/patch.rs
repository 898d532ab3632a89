//! Patches: JSON, merge and strategic.

use plimsoll_machinery::decode::{self as codec, FieldValidation};
use plimsoll_machinery::{ApiError, Kind, builtin, patch};
use serde_json::Value;

use super::read::gvk_of;

/// Type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Strategic merge.
    Strategic,
    /// Server-side apply.
    Apply,
}

/// Applies a patch to an object of a kind; the second part: warnings.
///
/// # Errors
/// The patch doesn't fit, or the result isn't an object of the kind.
pub fn apply_patch(
    kind: &Kind,
    patch_type: PatchType,
    body: &[u8],
    old: &Value,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiError> {
    let document = || match (patch_type, &kind.schema) {
        (PatchType::Json, _) => patch::json(old, body),
        (PatchType::Strategic, Some(schema)) => patch::strategic(schema, old, body),
        _ => patch::merge(old, body),
    };
    // only shown in errors, so made again rather than kept
    let shown = || match patch_type {
        PatchType::Strategic => patch::go_text(&serde_json::from_slice(body).unwrap_or(Value::Null)),
        _ => document().map(|d| d.to_string()).unwrap_or_default(),
    };
    let document_of_kind = document()?;
    if kind.custom.is_some() && document_of_kind["apiVersion"].is_null() {
        return Err(ApiError::internal("Object 'apiVersion' is missing in 'object has no apiVersion field'"));
    }
    if let Some(why) = other_kind(kind, &document_of_kind) {
        return Err(patch::refused(&shown(), &why));
    }
    let conformed = codec::conform(kind, document_of_kind).map_err(|why| match patch_type {
        PatchType::Strategic => patch::refused(&shown(), &codec::converter_error(&why)),
        _ => patch::refused(&shown(), &why),
    })?;
    if validation == FieldValidation::Strict && !conformed.strict.is_empty() {
        let why = format!("strict decoding error: {}", conformed.strict.join(", "));
        return Err(patch::refused(&shown(), &why));
    }
    let warnings = if validation == FieldValidation::Warn { conformed.strict } else { Vec::new() };
    Ok((conformed.object, warnings))
}

/// Why it can't be read what a custom resource says that it is.
fn type_fault(document: &Value) -> Option<String> {
    let lead = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    for field in ["apiVersion", "kind"] {
        if let Some(wrong) = document.get(field).filter(|v| !v.is_null() && !v.is_string()) {
            let got = codec::json_kind(wrong);
            return Some(format!("{lead} {got} into Go struct field .{field} of type string"));
        }
    }
    let version = document["apiVersion"].as_str().unwrap_or_default();
    if version.matches('/').count() > 1 {
        return Some(format!("unexpected GroupVersion string: {version}"));
    }
    let named = document["kind"].as_str().is_some_and(|k| !k.is_empty());
    (!named).then(|| format!("Object 'Kind' is missing in '{document}'"))
}

/// What Go says when a patch made another kind of an object of a built-in kind.
fn other_kind(kind: &Kind, document: &Value) -> Option<String> {
    let found = gvk_of(document);
    if found == kind.gvk {
        return None;
    }
    if kind.custom.is_some() {
        return type_fault(document);
    }
    let version = found.api_version();
    if found.kind.is_empty() {
        return Some(format!("Object 'Kind' is missing in '{document}'"));
    }
    if version.is_empty() {
        return Some(format!("Object 'apiVersion' is missing in '{document}'"));
    }
    let Some(schema) = builtin::definition(&found) else {
        let name = &found.kind;
        return Some(format!(
            "no kind {name:?} is registered for version {version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        ));
    };
    let other = Kind { gvk: found.clone(), schema: Some(schema), ..Kind::default() };
    if let Err(why) = codec::conform(&other, document.clone()) {
        return Some(why);
    }
    let into = format!("*{}.{}", kind.gvk.version, kind.gvk.kind);
    Some(format!("unable to decode {}/{}, Kind={} into {into}", found.group, found.version, found.kind))
}

/// Custom resources have no strategic merge patch.
pub fn unsupported_patch() -> ApiError {
    ApiError::new(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
    )
}
