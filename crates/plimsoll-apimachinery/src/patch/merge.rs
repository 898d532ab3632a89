//! JSON merge patch.

use serde_json::{Map, Value};

use super::{LEAD, parse_map};
use crate::error::ApiError;

/// Deepest nesting of a patch that is followed.
const MAX_DEPTH: usize = crate::decode::depth::MAX_DEPTH;

/// Applies a JSON merge patch.
///
/// # Errors
/// 400 for a malformed patch.
pub fn merge(object: &Value, body: &[u8]) -> Result<Value, ApiError> {
    if body.trim_ascii() == b"null" {
        return Err(ApiError::bad_request("Invalid JSON Patch"));
    }
    let patch = parse_map(body, LEAD)?;
    let mut document = object.clone();
    if let Value::Object(document) = &mut document {
        maps(document, patch, 0);
    }
    Ok(document)
}

fn maps(document: &mut Map<String, Value>, patch: Map<String, Value>, depth: usize) {
    for (key, new) in patch {
        match (document.get_mut(&key), new) {
            (_, Value::Null) => {
                document.remove(&key);
            }
            (Some(Value::Object(old)), Value::Object(new)) if depth < MAX_DEPTH => maps(old, new, depth + 1),
            // A value replaces an object as a whole.
            (Some(slot @ Value::Object(_)), new) => *slot = new,
            (_, mut new) => {
                prune(&mut new, 0);
                document.insert(key, new);
            }
        }
    }
}

/// Removes nulls from the objects of a new value; nulls in lists stay.
fn prune(value: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(map) => {
            map.retain(|_, v| !v.is_null());
            map.values_mut().for_each(|v| prune(v, depth + 1));
        }
        Value::Array(list) => list.iter_mut().for_each(|v| prune(v, depth + 1)),
        _ => {}
    }
}
