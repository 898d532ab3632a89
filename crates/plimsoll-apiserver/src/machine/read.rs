//! Bodies as objects of their kind.

use plimsoll_apimachinery::decode::{self as codec, FieldValidation};
use plimsoll_apimachinery::{ApiError, Gvk, Kind, proto};
use serde_json::Value;

use crate::http::negotiate::Format;

/// Decodes a body into an object of a kind. The second part: warnings.
pub fn decode(
    kind: &Kind,
    bytes: &[u8],
    format: Format,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiError> {
    let decoded = match format {
        Format::Json => codec::decode(kind, bytes, codec::Format::Json, validation)?,
        Format::Yaml => codec::decode(kind, bytes, codec::Format::Yaml, validation)?,
        Format::Protobuf => {
            let message = match proto::decode_body(bytes) {
                Err(_) if !bytes.starts_with(b"k8s\0") => {
                    return Err(codec::unrecognized(kind, proto::NO_MESSAGE, bytes));
                }
                other => other?,
            };
            let json = message.to_string();
            codec::decode(kind, json.as_bytes(), codec::Format::Json, validation)?
        }
    };
    Ok((decoded.object, decoded.warnings))
}

/// Warnings about a custom resource whose body was refused: fields, when they are of a version that there isn't.
pub fn unread(kind: &Kind, body: &[u8], validation: FieldValidation) -> Vec<String> {
    let other = |object: &Value| object["apiVersion"].as_str() != Some(kind.gvk.api_version().as_str());
    match codec::depth::from_slice::<Value>(body) {
        Ok(object) if kind.custom.is_some() && validation == FieldValidation::Warn && other(&object) => {
            codec::conform(kind, object).map_or_else(|_| Vec::new(), |c| c.strict)
        }
        _ => Vec::new(),
    }
}

/// What Go says about bytes that are no JSON.
pub fn json_error(bytes: &[u8]) -> String {
    codec::explain(bytes).unwrap_or_else(|| "unexpected end of JSON input".to_owned())
}

/// What an object says it is.
pub(super) fn gvk_of(object: &Value) -> Gvk {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    Gvk { group: group.to_owned(), version: version.to_owned(), kind: text("kind").to_owned() }
}
