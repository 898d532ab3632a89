//! JSON values as values of expressions, by their schema (`k8s.io/apiserver/pkg/cel/common/valuesunstructured.go`,
//! `UnstructuredToVal`).

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_cel::{
    ListType, Value as Cel, escape_field_name, from_entries, from_formatted, from_json, from_number,
};
use serde_json::Value;

use super::node::{Additional, Node};

use super::node_type::NodeType;

/// Lists of values that are sets or maps, by where they are in memory.
#[derive(Debug, Default)]
pub struct Lists(HashMap<usize, ListType>);

impl Lists {
    fn note(&mut self, list: &Arc<Vec<Cel>>, node: &Node) {
        let kind = match node.list_type.as_str() {
            "set" => ListType::Set,
            "map" => ListType::Map(node.list_map_keys.iter().map(|key| escape_field_name(key)).collect()),
            _ => return,
        };
        self.0.insert(Arc::as_ptr(list).addr(), kind);
    }

    /// Whether there are any.
    pub fn are_there(&self) -> bool {
        !self.0.is_empty()
    }

    /// How the elements of a list belong together, which has to exist as long as these.
    pub fn of(&self, list: &Arc<Vec<Cel>>) -> ListType {
        self.0.get(&Arc::as_ptr(list).addr()).cloned().unwrap_or_default()
    }
}

/// Converts a value, and notes its lists. Dates are timestamps, whole numbers in number fields are doubles, and expressions reach fields
/// under their escaped names.
pub fn to_cel(value: &Value, node: &Node, lists: &mut Lists) -> Cel {
    match value {
        Value::Number(n) => from_number(n, node.kind == Some(NodeType::Number)),
        Value::String(s) if node.kind == Some(NodeType::String) => from_formatted(s, &node.format),
        Value::Array(all) => match &node.items {
            Some(items) => {
                let list = Arc::new(all.iter().map(|v| to_cel(v, items, lists)).collect());
                lists.note(&list, node);
                Cel::List(list)
            }
            None => from_json(value),
        },
        Value::Object(map) => from_entries(map.iter().map(|(key, v)| {
            if let Some(property) = node.properties.get(key) {
                (escape_field_name(key), to_cel(v, property, lists))
            } else if let Additional::Schema(of) = &node.additional {
                (key.clone(), to_cel(v, of, lists))
            } else {
                (key.clone(), from_json(v))
            }
        })),
        other => from_json(other),
    }
}
