//! Pruning: removes fields that a schema doesn't specify.

use serde_json::{Map, Value};

use super::node::{Additional, Node};

/// Removes unknown fields of a custom resource and returns their paths, sorted. `apiVersion`, `kind` and
/// `metadata` stay at the root and in embedded resources.
pub fn prune(object: &mut Value, schema: &Node) -> Vec<String> {
    let mut dropped = Vec::new();
    walk(object, Some(schema), true, &mut String::new(), &mut dropped);
    dropped.sort();
    dropped
}

/// As [`prune`], for a value of any schema; `resource`: it is a resource itself.
pub fn prune_as(value: &mut Value, schema: &Node, resource: bool) -> Vec<String> {
    let mut dropped = Vec::new();
    walk(value, Some(schema), resource, &mut String::new(), &mut dropped);
    dropped
}

fn walk(value: &mut Value, node: Option<&Node>, resource: bool, path: &mut String, out: &mut Vec<String>) {
    match value {
        Value::Object(map) => object(map, node, resource, path, out),
        Value::Array(all) => {
            let items = node.and_then(|n| n.items.as_deref());
            let free = node.is_some_and(|n| n.preserve) && items.is_none();
            if free {
                return;
            }
            let length = path.len();
            for (i, item) in all.iter_mut().enumerate() {
                path.push_str(&format!("[{i}]"));
                walk(item, items, items.is_some_and(|n| n.embedded), path, out);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn object(
    map: &mut Map<String, Value>,
    node: Option<&Node>,
    resource: bool,
    path: &mut String,
    out: &mut Vec<String>,
) {
    let length = path.len();
    let keep_all = node.is_some_and(|n| n.preserve || matches!(n.additional, Additional::Allowed(true)));
    map.retain(|key, value| {
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(key);
        let keep = match node.and_then(|n| n.child(key)) {
            _ if resource && matches!(key.as_str(), "apiVersion" | "kind" | "metadata") => true,
            Some(child) => {
                walk(value, Some(child), child.embedded, path, out);
                true
            }
            None if keep_all => true,
            None => {
                out.push(path.clone());
                false
            }
        };
        path.truncate(length);
        keep
    });
}
