//! The three patches: JSON patch (RFC 6902), JSON merge patch (RFC 7386) and strategic merge patch.
//!
//! A patch makes a document; the server then decodes it as its kind ([`crate::decode::conform`]) and answers
//! [`refused`] when that fails.

mod json;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

pub use json::{MAX_OPERATIONS, json};
pub use merge::merge;
pub use strategic::{Merged, strategic};

use crate::decode;
use crate::error::{ApiError, FieldError};

/// 422 for a patched document that doesn't conform to its kind. The message quotes `shown`: the document's JSON for
/// JSON and merge patches, [`go_text`] of the patch for strategic merge patches.
pub fn refused(shown: &str, why: &str) -> ApiError {
    ApiError::invalid("", "", "", &[FieldError::invalid("patch", &Value::from(shown), why)])
}

/// What a strict reader says of the body of a patch: fields that are there twice, and, if it is a JSON patch, those that
/// its operations don't have.
pub fn strict(body: &[u8], operations: bool) -> Vec<String> {
    let mut found = decode::duplicates(body);
    if operations {
        found.extend(json::unknown_fields(body));
        for text in &mut found {
            text.insert_str(0, "json patch ");
        }
    }
    found
}

/// 422 for a patch that cannot be applied; upstream gives no reason.
fn unprocessable() -> ApiError {
    let mut e =
        ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request");
    e.details = Some(Box::default());
    e
}

/// The beginning of errors in the JSON of a patch, except those of a strategic merge patch.
const LEAD: &str = "error decoding patch: ";

/// Parses the body of a patch; `lead`: the beginning of errors.
fn parse(body: &[u8], lead: &str) -> Result<Value, ApiError> {
    decode::depth::from_slice(body).map_err(|e| {
        let why = decode::syntax::explain(body).or_else(|| decode::depth::explain(body));
        let why = why.unwrap_or_else(|| e.to_string());
        ApiError::bad_request(format!("{lead}{why}"))
    })
}

fn parse_map(body: &[u8], lead: &str) -> Result<Map<String, Value>, ApiError> {
    match parse(body, lead)? {
        Value::Object(map) => Ok(map),
        Value::Null => Ok(Map::new()),
        other => Err(ApiError::bad_request(format!(
            "{lead}json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            decode::json_kind(&other)
        ))),
    }
}

/// A value as Go's `%v` prints it: `map[a:1 b:[x y]]`.
pub fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(s) => s.clone(),
        Value::Number(n) if n.is_f64() => crate::go::go_number(n.as_f64().unwrap_or_default()),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => go_map(map),
    }
}

fn go_map(map: &Map<String, Value>) -> String {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_by_key(|(k, _)| *k);
    let entries: Vec<String> = entries.iter().map(|(k, v)| format!("{k}:{}", go_text(v))).collect();
    format!("map[{}]", entries.join(" "))
}
