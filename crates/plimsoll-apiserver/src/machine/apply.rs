//! Server-side apply.

use jiff::Timestamp;
use plimsoll_apimachinery::decode::{self as codec, FieldValidation};
use plimsoll_apimachinery::{ApiError, Kind, apply as owners, crd, go};
use serde_json::{Value, json};

use super::default;

/// Parses the body of an apply: the configuration as it is written, without defaults or zero fields.
///
/// # Errors
/// 400 for what is neither YAML nor JSON, or no object.
pub fn parse_apply(bytes: &[u8]) -> Result<Value, ApiError> {
    let value = match codec::depth::from_slice(bytes) {
        Ok(mut value) => {
            go::normalise_numbers(&mut value);
            value
        }
        Err(e) if e.is_syntax() && codec::depth::explain(bytes).is_some() && is_json(bytes) => {
            let why = codec::depth::explain(bytes).unwrap_or_default();
            return Err(ApiError::bad_request(format!(
                "error decoding YAML: error converting YAML to JSON: {why}"
            )));
        }
        Err(_) => codec::yaml(bytes).map_err(|e| {
            ApiError::bad_request(format!("error decoding YAML: error converting YAML to JSON: {e}"))
        })?,
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(json!({})),
        other => Err(ApiError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} \
             into Go value of type map[string]interface {{}}",
            codec::json_kind(&other)
        ))),
    }
}

/// Whether a body is JSON, however deep it is nested.
fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

/// What a strict reader says of keys that are there twice in the body of an apply, as warnings.
///
/// # Errors
/// 400 if they are refused.
pub fn strict_apply(bytes: &[u8], validation: FieldValidation) -> Result<Vec<String>, ApiError> {
    if validation == FieldValidation::Ignore || is_json(bytes) {
        return Ok(Vec::new());
    }
    let twice = codec::yaml_strict(bytes).map(|(_, twice)| twice).unwrap_or_default();
    if validation == FieldValidation::Strict && !twice.is_empty() {
        let why = codec::strict_yaml(&twice);
        return Err(ApiError::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: {why}"
        )));
    }
    Ok(twice)
}

/// Checks that a configuration is one of a kind.
///
/// # Errors
/// As [`apply`].
pub fn check_apply(kind: &Kind, intent: &Value) -> Result<(), ApiError> {
    owners::check_applied(kind, intent)
}

/// Server-side apply.
///
/// # Errors
/// Conflicts with other managers.
pub fn apply<'a>(
    kind: impl Into<owners::Served<'a>>,
    old: Option<&Value>,
    intent: &Value,
    manager: &str,
    subresource: &str,
    force: bool,
    now: Timestamp,
) -> Result<Value, ApiError> {
    let served = kind.into();
    let kind = served.kind;
    let now = crate::time::seconds(now);
    let merged = served.apply(subresource, old, intent, manager, force, &now)?;
    let conformed = codec::conform(kind, merged).map_err(|why| ApiError::new(500, "", why))?;
    let mut object = conformed.object;
    if kind.custom.is_some() {
        crd::default_applied(kind, &mut object);
    } else {
        default(kind, &mut object);
    }
    Ok(object)
}
