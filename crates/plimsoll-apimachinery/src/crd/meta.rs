//! Metadata of resources inside custom resources (apiextensions `schema/objectmeta/validation.go`).

use serde_json::{Map, Value};

use super::correlate::join;
use super::node::{Additional, Node};

use crate::decode::json_kind;
use crate::error::FieldError;
use crate::validate::{dns_1035_label, object_meta};

/// Validates `apiVersion`, `kind` and `metadata` of resources inside a value; `resource`: of the value itself, too.
/// `path` is that of the value, empty for the object itself.
pub fn validate(value: &Value, node: &Node, resource: bool, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, node, resource, path, &mut errors);
    errors
}

fn walk(value: &Value, node: &Node, resource: bool, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            if resource || node.embedded {
                embedded(map, path, errors);
            }
            for (key, inner) in map {
                match (node.properties.get(key), &node.additional) {
                    (Some(property), _) => walk(inner, property, false, &join(path, key), errors),
                    (None, Additional::Schema(of)) => {
                        walk(inner, of, false, &format!("{path}[{key}]"), errors);
                    }
                    _ => {}
                }
            }
        }
        Value::Array(all) => {
            let Some(items) = &node.items else { return };
            for (i, item) in all.iter().enumerate() {
                walk(item, items, false, &format!("{path}[{i}]"), errors);
            }
        }
        _ => {}
    }
}

fn embedded(map: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["apiVersion", "kind"] {
        if !map.contains_key(key) {
            errors.push(FieldError::required(join(path, key), ""));
        }
    }
    for (key, value) in map {
        let field = join(path, key);
        let mut bad = |what: &str| errors.push(FieldError::invalid(field.clone(), value, what));
        match (key.as_str(), value) {
            ("apiVersion" | "kind", Value::String(empty)) if empty.is_empty() => bad("must not be empty"),
            ("apiVersion", Value::String(version)) if version.matches('/').count() > 1 => {
                bad(&format!("unexpected GroupVersion string: {version}"));
            }
            ("kind", Value::String(kind)) => {
                let faults = dns_1035_label(&kind.to_lowercase());
                if !faults.is_empty() {
                    let lead = "may have mixed case, but should otherwise match: ";
                    bad(&format!("{lead}{}", faults.join(",")));
                }
            }
            ("apiVersion" | "kind", other) if !other.is_string() => bad("must be a string"),
            ("metadata", Value::Object(meta)) => errors.extend(object_meta(meta, &field)),
            ("metadata", other) if !other.is_null() => {
                let what = json_kind(other);
                bad(&format!("json: cannot unmarshal {what} into Go value of type v1.ObjectMeta"));
            }
            _ => {}
        }
    }
}
