//! Patches: JSON, merge and strategic, and the patched document, read as an object of its kind again.

use plimsoll_apimachinery::decode::{self as codec, FieldValidation};
use plimsoll_apimachinery::{ApiError, Gvk, Kind, builtin, patch};
use serde_json::{Map, Value};

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
    let (document, patch) = match (patch_type, &kind.schema) {
        (PatchType::Strategic, Some(schema)) => {
            let merged = patch::strategic(schema, old, body)?;
            (merged.document, Some(merged.patch))
        }
        _ => (unstructured(patch_type, body, old)?, None),
    };
    if kind.custom.is_some() && document["apiVersion"].is_null() {
        return Err(ApiError::internal("Object 'apiVersion' is missing in 'object has no apiVersion field'"));
    }
    let refuse = |why: &str| match &patch {
        Some(patch) => patch::refused(&patch::go_text(patch), &codec::converter_error(why)),
        // only shown in errors, so made again rather than kept
        None => {
            let shown = unstructured(patch_type, body, old).map(|d| d.to_string());
            patch::refused(&shown.unwrap_or_default(), why)
        }
    };
    // a strategic merge patch fills the type it began with, whatever the document calls itself
    let found = if patch.is_some() { Found::Own } else { found(kind, &document).map_err(|e| refuse(&e))? };
    let (mut object, strict) = match found {
        Found::Own => {
            let conformed = codec::conform(kind, document).map_err(|why| refuse(&why))?;
            (conformed.object, conformed.strict)
        }
        Found::Internal => (Value::Object(Map::new()), unknown_fields(&document)),
    };
    if kind.custom.is_none() {
        object["apiVersion"] = Value::from(kind.gvk.api_version());
        object["kind"] = Value::from(kind.gvk.kind.as_str());
    }
    if validation == FieldValidation::Ignore {
        return Ok((object, Vec::new()));
    }
    let mut notes = patch::strict(body, patch_type == PatchType::Json);
    notes.extend(strict);
    if validation == FieldValidation::Strict && !notes.is_empty() {
        return Err(refuse(&format!("strict decoding error: {}", notes.join(", "))));
    }
    Ok((object, notes))
}

fn unstructured(patch_type: PatchType, body: &[u8], old: &Value) -> Result<Value, ApiError> {
    if patch_type == PatchType::Json { patch::json(old, body) } else { patch::merge(old, body) }
}

/// As what a patched document is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// As an object of its kind.
    Own,
    /// As the type inside the server, which has no field that JSON could name.
    Internal,
}

/// As what a document is read, or what Go says when a patch made another kind of it. A built-in kind that isn't named
/// is the one the patch began with, a version that isn't is the internal one, in which that object was.
fn found(kind: &Kind, document: &Value) -> Result<Found, String> {
    let mut found = gvk_of(document);
    if found == kind.gvk && document["apiVersion"] == kind.gvk.api_version() {
        return Ok(Found::Own);
    }
    if let Some(why) = type_fault(document) {
        return Err(why);
    }
    if kind.custom.is_some() {
        let missing = found.kind.is_empty().then(|| format!("Object 'Kind' is missing in '{document}'"));
        return missing.map_or(Ok(Found::Own), Err);
    }
    if found.kind.is_empty() {
        found.kind.clone_from(&kind.gvk.kind);
    }
    let internal = found.version.is_empty() && (found.group.is_empty() || found.group == kind.gvk.group);
    if internal {
        found.group.clone_from(&kind.gvk.group);
        found.version.clone_from(&kind.gvk.version);
    } else if found.version.is_empty() {
        return Err(format!("Object 'apiVersion' is missing in '{document}'"));
    }
    if found == kind.gvk {
        return Ok(if internal { Found::Internal } else { Found::Own });
    }
    Err(another(kind, &found, internal, document))
}

/// What Go says of a document of another kind.
fn another(kind: &Kind, found: &Gvk, internal: bool, document: &Value) -> String {
    let name = &found.kind;
    let Some(schema) = builtin::definition(found) else {
        let version = if internal {
            format!("the internal version of group {:?}", found.group)
        } else {
            format!("version {:?}", found.api_version())
        };
        return format!(
            "no kind {name:?} is registered for {version} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        );
    };
    if !internal {
        let other = Kind { gvk: found.clone(), schema: Some(schema), ..Kind::default() };
        if let Err(why) = codec::conform(&other, document.clone()) {
            return why;
        }
    }
    let version = if internal { package(&found.group) } else { &found.version };
    let (into, own) = (package(&kind.gvk.group), &kind.gvk.kind);
    format!("converting ({version}.{name}) to ({into}.{own}): unknown conversion")
}

/// The Go package of a group's internal types.
fn package(group: &str) -> &str {
    match group.split('.').next().unwrap_or_default() {
        "" | "events" => "core",
        name => name,
    }
}

/// Why it can't be read what a document says that it is.
fn type_fault(document: &Value) -> Option<String> {
    let lead = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    for field in ["apiVersion", "kind"] {
        if let Some(wrong) = document.get(field).filter(|v| !v.is_null() && !v.is_string()) {
            let got = codec::json_kind(wrong);
            return Some(format!("{lead} {got} into Go struct field .{field} of type string"));
        }
    }
    let version = document["apiVersion"].as_str().unwrap_or_default();
    (version.matches('/').count() > 1).then(|| format!("unexpected GroupVersion string: {version}"))
}

fn unknown_fields(document: &Value) -> Vec<String> {
    let fields = document.as_object().into_iter().flat_map(Map::keys);
    fields
        .filter(|f| !matches!(f.as_str(), "apiVersion" | "kind"))
        .map(|f| format!("unknown field {f:?}"))
        .collect()
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
