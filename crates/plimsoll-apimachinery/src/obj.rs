//! Small helpers for walking JSON objects without panics.
//!
//! Those that search a map are not inlined: thousands of copies of the search were a third of this crate's code, and of the
//! time to compile it.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// A JSON object.
pub(crate) type Obj = Map<String, Value>;

static EMPTY: LazyLock<Obj> = LazyLock::new(Map::new);

/// An object without fields.
pub(crate) fn empty() -> &'static Obj {
    &EMPTY
}

/// The name of a decoded value's Go type.
pub(crate) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Sets a field that is missing.
pub(crate) fn set(map: &mut Obj, key: &str, value: impl Into<Value>) {
    if !contains(map, key) {
        insert(map, key, value.into());
    }
}

#[inline(never)]
fn contains(map: &Obj, key: &str) -> bool {
    map.contains_key(key)
}

#[inline(never)]
fn insert(map: &mut Obj, key: &str, value: Value) {
    map.insert(key.to_owned(), value);
}

/// Sets a field that is missing, `null`, empty text or 0.
pub(crate) fn set_zero(map: &mut Obj, key: &str, value: impl Into<Value>) {
    if is_zero(map, key) {
        insert(map, key, value.into());
    }
}

#[inline(never)]
fn is_zero(map: &Obj, key: &str) -> bool {
    match map.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(s)) => s.is_empty(),
        Some(Value::Number(n)) => n.as_i64() == Some(0),
        _ => false,
    }
}

/// The object at a key.
#[inline(never)]
pub(crate) fn child<'a>(map: &'a mut Obj, key: &str) -> Option<&'a mut Obj> {
    map.get_mut(key).and_then(Value::as_object_mut)
}

/// Runs `f` on the object at a key, which is created if missing.
pub(crate) fn with_child<R>(map: &mut Obj, key: &str, f: impl FnOnce(&mut Obj) -> R) -> R {
    if let Some(inner) = child(map, key) {
        return f(inner);
    }
    let mut inner = Map::new();
    let result = f(&mut inner);
    insert(map, key, Value::Object(inner));
    result
}

/// The objects in the list at a key.
pub(crate) fn children<'a>(map: &'a mut Obj, key: &str) -> impl Iterator<Item = &'a mut Obj> {
    map.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The object at a key; empty if missing.
#[inline(never)]
pub(crate) fn object<'a>(map: &'a Obj, key: &str) -> &'a Obj {
    map.get(key).and_then(Value::as_object).unwrap_or_else(|| empty())
}

/// The list at a key; empty if missing.
#[inline(never)]
pub(crate) fn list<'a>(map: &'a Obj, key: &str) -> &'a [Value] {
    map.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The text at a key; empty if missing.
#[inline(never)]
pub(crate) fn text<'a>(map: &'a Obj, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The integer at a key.
#[inline(never)]
pub(crate) fn int(map: &Obj, key: &str) -> Option<i64> {
    map.get(key).and_then(Value::as_i64)
}

/// Whether a field is `true`.
#[inline(never)]
pub(crate) fn flag(map: &Obj, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// Whether a field exists and is not `null`.
#[inline(never)]
pub(crate) fn has(map: &Obj, key: &str) -> bool {
    map.get(key).is_some_and(|v| !v.is_null())
}

/// A value as an object; empty if it is none.
pub(crate) fn as_obj(value: &Value) -> &Obj {
    value.as_object().unwrap_or_else(|| empty())
}
