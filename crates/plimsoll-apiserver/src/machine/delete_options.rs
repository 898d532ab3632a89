//! The DeleteOptions in the body of a deletion.

use plimsoll_apimachinery::{ApiError, decode as codec, proto};
use serde_json::{Value, json};

use super::json_error;
use crate::http::negotiate::Format;

/// Kinds besides DeleteOptions that are registered for it in every group (`metav1.AddToGroupVersion`).
const META_KINDS: [&str; 15] = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "CreateOptions",
    "GetOptions",
    "ListOptions",
    "PartialObjectMetadata",
    "PartialObjectMetadataList",
    "PatchOptions",
    "Status",
    "Table",
    "TableOptions",
    "UpdateOptions",
    "WatchEvent",
];

/// Decodes the DeleteOptions in the body of a deletion.
pub fn decode_delete_options(bytes: &[u8], format: Format) -> Result<Value, ApiError> {
    let mut value: Value = match format {
        Format::Yaml => codec::yaml(bytes).map_err(|e| {
            ApiError::bad_request(format!("couldn't get version/kind; json parse error: {e}"))
        })?,
        Format::Protobuf => proto::decode_body(bytes)?,
        Format::Json => serde_json::from_slice(bytes).map_err(|_| {
            let why = json_error(bytes);
            ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
        })?,
    };
    type_meta(&mut value).map_err(|why| {
        ApiError::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    let text = |field: &str| value[field].as_str().unwrap_or("");
    let (kind, version) = (text("kind"), text("apiVersion"));
    if version.matches('/').count() > 1 {
        return Err(ApiError::bad_request(format!("unexpected GroupVersion string: {version}")));
    }
    if !matches!(kind, "" | "DeleteOptions") {
        if META_KINDS.contains(&kind) && matches!(version, "" | "v1" | "meta.k8s.io/v1") {
            let why = format!("converting (v1.{kind}) to (v1.DeleteOptions): unknown conversion");
            return Err(ApiError::bad_request(why));
        }
        let version = if version.is_empty() { "meta.k8s.io/v1" } else { version };
        return Err(ApiError::bad_request(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \
             \"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27\""
        )));
    }
    match delete_option_fault(&value) {
        Some(why) => Err(ApiError::bad_request(why)),
        None => Ok(value),
    }
}

/// The first of the fields of `DeleteOptions` that is of another type than it must be, in Go's words.
fn delete_option_fault(options: &Value) -> Option<String> {
    const FIELDS: [(&str, &str, &str); 7] = [
        ("/dryRun", "DeleteOptions", "[]string"),
        ("/gracePeriodSeconds", "DeleteOptions", "int64"),
        ("/orphanDependents", "DeleteOptions", "bool"),
        ("/preconditions", "DeleteOptions", "v1.Preconditions"),
        ("/preconditions/resourceVersion", "Preconditions", "string"),
        ("/preconditions/uid", "Preconditions", "types.UID"),
        ("/propagationPolicy", "DeleteOptions", "v1.DeletionPropagation"),
    ];
    FIELDS.into_iter().find_map(|(path, owner, wanted)| {
        let value = options.pointer(path).filter(|v| !v.is_null())?;
        let fits = match wanted {
            "[]string" => value.is_array(),
            "int64" => value.is_i64(),
            "bool" => value.is_boolean(),
            "v1.Preconditions" => value.is_object(),
            _ => value.is_string(),
        };
        let got = match value {
            Value::Number(n) if wanted == "int64" => format!("number {n}"),
            other => codec::json_kind(other).to_owned(),
        };
        let field = path.trim_start_matches('/').replace('/', ".");
        let text =
            format!("json: cannot unmarshal {got} into Go struct field {owner}.{field} of type {wanted}");
        (!fits).then_some(text)
    })
}

/// Reads `apiVersion` and `kind` as Go does, which looks at no case.
fn type_meta(value: &mut Value) -> Result<(), String> {
    if value.is_null() {
        *value = json!({});
    }
    let Some(map) = value.as_object_mut() else {
        return Err(format!(
            "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            codec::json_kind(value)
        ));
    };
    for field in ["apiVersion", "kind"] {
        let Some(found) = map.keys().find(|k| k.eq_ignore_ascii_case(field)).cloned() else { continue };
        let Some(text) = map.remove(&found) else { continue };
        match text {
            Value::String(_) => map.insert(field.to_owned(), text),
            Value::Null => None,
            other => {
                let what = codec::json_kind(&other);
                return Err(format!(
                    "json: cannot unmarshal {what} into Go struct field .{field} of type string"
                ));
            }
        };
    }
    Ok(())
}
