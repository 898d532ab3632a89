//! Reading JSON values: a field that is missing or of another type reads as empty.

use serde_json::Value;

static NULL: Value = Value::Null;

/// The value of a field; null where there is none.
pub(crate) fn at<'a>(value: &'a Value, key: &str) -> &'a Value {
    value.get(key).unwrap_or(&NULL)
}

/// The string of a field.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    at(value, key).as_str().unwrap_or_default()
}

/// The elements of a field.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    at(value, key).as_array().map_or(&[], Vec::as_slice)
}
