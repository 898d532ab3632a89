//! JSON values as values of expressions, by their schema (`k8s.io/apiserver/pkg/cel/common/valuesunstructured.go`,
//! `UnstructuredToVal`).

use std::sync::Arc;

use plimsoll_cel::{Value as Cel, escape_field_name, from_entries, from_formatted, from_json, from_number};
use serde_json::Value;

use super::node::{Additional, Node};

use super::node_type::NodeType;

/// Converts a value. Dates are timestamps, whole numbers in number fields are doubles, and expressions reach fields
/// under their escaped names.
pub fn to_cel(value: &Value, node: &Node) -> Cel {
    match value {
        Value::Number(n) => from_number(n, node.kind == Some(NodeType::Number)),
        Value::String(s) if node.kind == Some(NodeType::String) => from_formatted(s, &node.format),
        Value::Array(all) => match &node.items {
            Some(items) => Cel::List(Arc::new(all.iter().map(|v| to_cel(v, items)).collect())),
            None => from_json(value),
        },
        Value::Object(map) => from_entries(map.iter().map(|(key, v)| {
            if let Some(property) = node.properties.get(key) {
                (escape_field_name(key), to_cel(v, property))
            } else if let Additional::Schema(of) = &node.additional {
                (key.clone(), to_cel(v, of))
            } else {
                (key.clone(), from_json(v))
            }
        })),
        other => from_json(other),
    }
}
