//! Filling in defaults of a schema.

use serde_json::Value;

use super::node::{Additional, Node};

/// Drops nulls where neither null nor a default is allowed for (`PruneNonNullableNullsWithoutDefaults`), then
/// fills in defaults.
pub fn default(value: &mut Value, node: &Node) {
    drop_nulls(value, node);
    fill(value, node);
}

fn refused_null(value: &Value, node: &Node) -> bool {
    value.is_null() && !node.nullable
}

fn drop_nulls(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => map.retain(|key, value| match node.child(key) {
            Some(child) if refused_null(value, child) && child.default.is_none() => false,
            Some(child) => {
                drop_nulls(value, child);
                true
            }
            None => true,
        }),
        Value::Array(all) => {
            if let Some(items) = &node.items {
                all.iter_mut().for_each(|v| drop_nulls(v, items));
            }
        }
        _ => {}
    }
}

/// Fills in defaults, also for nulls that aren't allowed.
pub fn fill(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                if map.get(name).is_none_or(|v| refused_null(v, property)) {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(property) = node.properties.get(key) {
                    fill(value, property);
                } else if let Additional::Schema(of) = &node.additional {
                    fill_element(value, of);
                }
            }
        }
        Value::Array(all) => {
            if let Some(items) = &node.items {
                all.iter_mut().for_each(|v| fill_element(v, items));
            }
        }
        _ => {}
    }
}

fn fill_element(value: &mut Value, node: &Node) {
    if let Some(default) = node.default.as_ref().filter(|_| refused_null(value, node)) {
        *value = default.clone();
    }
    fill(value, node);
}
