//! Values before and after an update: paths, and the elements of map lists that correspond to each other
//! (`k8s.io/apiextensions-apiserver/pkg/apiserver/validation/ratcheting.go`).

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::node::Node;

/// The path of a field inside `path`; keys of maps are written in brackets only where upstream does so
/// (duplicates and rules), here with a dot.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
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

/// The elements of an old map list by their keys; other lists have no correlated elements.
pub struct Before<'a> {
    node: &'a Node,
    by_keys: HashMap<Value, &'a Value>,
}

impl<'a> Before<'a> {
    /// The elements of `old`, a list with the schema `node`.
    pub fn of(old: Option<&'a Value>, node: &'a Node) -> Self {
        let known = old.filter(|_| node.list_type == "map").and_then(Value::as_array);
        let mut by_keys = HashMap::new();
        for element in known.into_iter().flatten() {
            by_keys.entry(keys_of(element, node)).or_insert(element);
        }
        Self { node, by_keys }
    }

    /// The old element that corresponds to `item`.
    pub fn of_item(&self, item: &Value) -> Option<&'a Value> {
        if self.by_keys.is_empty() { None } else { self.by_keys.get(&keys_of(item, self.node)).copied() }
    }
}
