//! Sizes and numbers of values of a schema within the largest request, from which upstream estimates the cost of a rule
//! (`k8s.io/apiserver/pkg/cel/common/schemas.go`; apiextensions, `maxCardinality`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::text;
use crate::crd::node::{Additional, Node};
use crate::crd::node_type::NodeType;

/// Bytes of the largest request (`MaxRequestSizeBytes`).
const REQUEST: u64 = 3 * 1024 * 1024;
/// Deepest schema that is measured; deeper ones count as nothing.
const DEPTH: u8 = 64;

/// Fewest bytes of a value as JSON (`MinSerializedSize`).
pub fn least(node: &Node) -> u64 {
    least_at(node, 0)
}

fn least_at(node: &Node, depth: u8) -> u64 {
    if node.int_or_string || depth > DEPTH {
        return 1;
    }
    match node.kind {
        Some(NodeType::Boolean) => 4,
        Some(NodeType::Integer | NodeType::Number) => 1,
        Some(NodeType::String) => match node.format.as_str() {
            "duration" => 3,
            "date" => 12,
            "date-time" => 21,
            _ => 2,
        },
        Some(NodeType::Object) if !matches!(node.additional, Additional::Schema(_)) => {
            // Requests may omit fields with defaults. A name that is required twice counts once; otherwise sizes would
            // double with every level.
            let required: BTreeSet<&String> = node.required.iter().collect();
            let sizes = required.into_iter().filter_map(|name| {
                let property = node.properties.get(name).filter(|p| p.default.is_none())?;
                Some((name.len() as u64).saturating_add(least_at(property, depth + 1)).saturating_add(4))
            });
            sizes.fold(2, u64::saturating_add)
        }
        _ => 2,
    }
}

/// Most elements a list, map or string can have (`MaxElements`).
pub fn most(node: &Node) -> f64 {
    let bounds = &node.bounds;
    let most = match (&node.kind, &node.items, &node.additional) {
        (Some(NodeType::Array), Some(items), _) => {
            bounds.max_items.unwrap_or_else(|| (REQUEST - 2) / least(items).saturating_add(1))
        }
        (Some(NodeType::Object), _, Additional::Schema(of)) => {
            bounds.max_properties.unwrap_or_else(|| (REQUEST - 2) / least(of).saturating_add(6))
        }
        (Some(NodeType::String), ..) => match (bounds.max_length, node.format.as_str()) {
            (_, "duration" | "date-time") => 32,
            (_, "date") => 12,
            // Characters of up to four bytes.
            (Some(length), _) => length.saturating_mul(4),
            (None, _) if !node.enumeration.is_empty() => {
                let lengths = node.enumeration.iter().filter_map(|v| v.as_str()).map(|v| v.len() as u64);
                lengths.max().unwrap_or(0)
            }
            (None, _) => REQUEST - 2,
        },
        _ => bounds.max_items.or(bounds.max_properties).unwrap_or(REQUEST - 2),
    };
    most as f64
}

/// How many values of a schema one object can have where no list or map around them has a limit.
pub fn anywhere(node: &Node) -> f64 {
    (REQUEST / least(node).saturating_add(1)) as f64
}

/// How many values of each inner schema a value of this schema has; `None`: no limit is given (`extractMaxElements`).
pub fn each(raw: &Value) -> Option<f64> {
    let limit = |key: &str| Some(raw.get(key)?.as_f64()?.max(0.0));
    let given = |key: &str| raw.get(key).is_some_and(|v| !v.is_null());
    match text(raw, "type") {
        "object" if given("additionalProperties") => limit("maxProperties"),
        "array" => limit("maxItems"),
        _ => Some(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_follow_required_fields() {
        // name: [least bytes, most elements, how often anywhere]
        let condition = json!({"type": "object", "required": ["type", "status", "lastTransitionTime"], "properties": {
            "type": {"type": "string"}, "status": {"type": "string", "enum": ["True", "False"]},
            "lastTransitionTime": {"type": "string", "format": "date-time"}, "message": {"type": "string"}}});
        let size = 2 + (4 + 2 + 4) + (6 + 2 + 4) + (18 + 21 + 4);
        let node = Node::build(&condition);
        assert_eq!(least(&node), size);
        assert_eq!(anywhere(&node) as u64, 3_145_728 / (size + 1));
        assert_eq!(each(&condition), Some(1.0));
        for (schema, most_elements, of_each) in [
            (json!({"type": "array", "items": condition}), 3_145_726 / (size + 1), None),
            (json!({"type": "array", "items": condition, "maxItems": 8}), 8, Some(8.0)),
            (json!({"type": "object", "additionalProperties": {"type": "boolean"}}), 3_145_726 / 10, None),
            (json!({"type": "string", "maxLength": 10}), 40, Some(1.0)),
            (json!({"type": "string", "enum": ["a", "abc"]}), 3, Some(1.0)),
            (json!({"type": "string", "format": "date-time"}), 32, Some(1.0)),
            (json!({"type": "string"}), 3_145_726, Some(1.0)),
        ] {
            let node = Node::build(&schema);
            assert_eq!((most(&node) as u64, each(&schema)), (most_elements, of_each), "{schema}");
        }
    }

    #[test]
    fn names_that_are_required_twice_are_measured_once() {
        let nested = (0..60).fold(
            json!({"type": "object"}),
            |inner, _| json!({"type": "object", "required": ["a", "a"], "properties": {"a": inner}}),
        );
        assert_eq!(least(&Node::build(&nested)), 60 * (1 + 4) + 2 * 61);
    }

    #[test]
    fn a_default_is_not_in_the_request() {
        let schema = json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "default": 1}}});
        assert_eq!(least(&Node::build(&schema)), 2);
    }
}
