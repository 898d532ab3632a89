//! Lists that are sets or maps have no duplicates (apiextensions `schema/listtype/validation.go`).

use std::collections::HashMap;

use plimsoll_state::collect::InsertEach as _;
use serde_json::Value;

use super::correlate::join;
use super::node::{Additional, Node};

use crate::error::FieldError;

/// Duplicates in lists of type `set` and `map`.
pub fn check(value: &Value, node: &Node, path: &str, out: &mut Vec<FieldError>) {
    if !node.has_lists {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match (node.properties.get(key), &node.additional) {
                    (Some(child), _) => check(value, child, &join(path, key), out),
                    (None, Additional::Schema(of)) => check(value, of, &format!("{path}[{key}]"), out),
                    _ => {}
                }
            }
        }
        Value::Array(all) => {
            match node.list_type.as_str() {
                "set" => duplicates(all.iter().cloned(), path, out),
                "map" => map_list(all, node, path, out),
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

fn map_list(all: &[Value], node: &Node, path: &str, out: &mut Vec<FieldError>) {
    let odd = all.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some((i, item)) = odd.and_then(|i| Some((i, all.get(i)?))) {
        let what = "must be an object for an array of list-type map";
        out.push(FieldError::invalid(format!("{path}[{i}]"), item, what));
        return;
    }
    let own = |item: &Value| {
        let given = |key: &String| Some((key.clone(), item.get(key)?.clone()));
        Value::Object(node.list_map_keys.iter().filter_map(given).insert_each())
    };
    duplicates(all.iter().map(own), path, out);
}

/// Reports the second occurrence of each duplicate value.
fn duplicates(values: impl Iterator<Item = Value>, path: &str, out: &mut Vec<FieldError>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (i, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            out.push(FieldError::duplicate(format!("{path}[{i}]"), &value));
        }
    }
}
