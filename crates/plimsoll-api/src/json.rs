//! Small helpers over JSON objects. Reading never fails: what is missing is empty.
//!
//! Those that search are not inlined: the many copies of the search took longer to compile than all the rest.

use serde_json::{Map, Value};

/// Text at `path`, or empty.
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// Whole number at `path`.
pub fn int(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).as_i64()
}

/// Whether the value at `path` is `true`.
pub fn flag(value: &Value, path: &[&str]) -> bool {
    at(value, path).as_bool().unwrap_or(false)
}

/// The value at `path`, or null.
#[inline(never)]
pub fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |v, key| &v[*key])
}

/// The list at `path`, or an empty one.
pub fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// The object at `path`, if there.
pub fn map<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Map<String, Value>> {
    at(value, path).as_object()
}

/// A label, or empty.
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    text(object, &["metadata", "labels", key])
}

/// A label, if there.
pub fn label_opt<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    at(object, &["metadata", "labels", key]).as_str()
}

/// An annotation, if there.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    at(object, &["metadata", "annotations", key]).as_str()
}

/// `metadata.name`.
pub fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

/// `metadata.namespace`.
pub fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

/// `metadata.uid`.
pub fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

/// `metadata.resourceVersion`.
pub fn version(object: &Value) -> &str {
    text(object, &["metadata", "resourceVersion"])
}

/// Whether deletion has been asked for.
pub fn deleting(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_string()
}

/// Sets the value at `path`, making objects on the way.
#[inline(never)]
pub fn set(root: &mut Value, path: &[&str], value: Value) {
    let mut here = root;
    for key in path {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        let Value::Object(map) = here else { return };
        here = map.entry(*key).or_insert(Value::Null);
    }
    *here = value;
}

/// Removes the key at the end of `path`, if there.
#[inline(never)]
pub fn remove(root: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut here = root;
    for key in parents {
        here = here.as_object_mut()?.get_mut(*key)?;
    }
    here.as_object_mut()?.remove(*last)
}

/// The condition of this type in `status.conditions`.
#[inline(never)]
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, &["status", "conditions"]).iter().find(|c| c["type"] == kind)
}

/// Whether the condition of this type is there and `True`.
pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|c| c["status"] == "True")
}

/// The owner reference with `controller: true`.
#[inline(never)]
pub fn controller(object: &Value) -> Option<&Value> {
    list(object, &["metadata", "ownerReferences"]).iter().find(|o| o["controller"] == true)
}

/// Whether `finalizer` is among `metadata.finalizers`.
#[inline(never)]
pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    list(object, &["metadata", "finalizers"]).iter().any(|f| f == finalizer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn set_makes_its_way() {
        let mut v = json!({"a": null, "b": 1});
        set(&mut v, &["a", "c"], json!(2));
        set(&mut v, &["b"], json!(3));
        assert_eq!(v, json!({"a": {"c": 2}, "b": 3}));
        assert_eq!(remove(&mut v, &["a", "c"]), Some(json!(2)));
        assert_eq!(remove(&mut v, &["x", "c"]), None);
        assert_eq!(text(&v, &["a", "nothing"]), "");
    }
}
