//! Lists that are sets or maps have no duplicates.

use serde_json::{Map, Value};

use super::node::Node;
use crate::error::FieldError;

/// Duplicates in lists of type `set` and `map`.
pub fn check(value: &Value, node: &Node, path: &str, out: &mut Vec<FieldError>) {
    if !node.has_lists {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(child) = node.child(key) {
                    check(value, child, &super::check::join(path, key, node), out);
                }
            }
        }
        Value::Array(all) => {
            match node.list_type.as_str() {
                "set" => duplicates(all.iter().cloned(), path, out),
                "map" => duplicates(all.iter().map(|item| keys_of(item, node)), path, out),
                _ => {}
            }
            if let Some(items) = &node.items {
                for (i, item) in all.iter().enumerate() {
                    check(item, items, &format!("{path}[{i}]"), out);
                }
            }
        }
        _ => {}
    }
}

/// The keys of an element of a map list, with the defaults of keys that are missing.
pub fn keys_of(item: &Value, node: &Node) -> Value {
    let mut keys = Map::new();
    for key in &node.list_map_keys {
        let default = || node.items.as_deref()?.properties.get(key)?.default.clone();
        if let Some(value) = item.get(key).cloned().or_else(default) {
            keys.insert(key.clone(), value);
        }
    }
    Value::Object(keys)
}

fn duplicates(values: impl Iterator<Item = Value>, path: &str, out: &mut Vec<FieldError>) {
    let mut seen = std::collections::HashSet::new();
    for (i, value) in values.enumerate() {
        if !seen.insert(value.to_string()) {
            out.push(FieldError::duplicate(format!("{path}[{i}]"), &value));
        }
    }
}
