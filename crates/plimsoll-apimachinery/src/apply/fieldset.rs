//! The fields an applied configuration names, and whether it fits the schema.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::fields::{self, Fields, MAX_DEPTH};
use super::types::{ListType, MapType, Shape, Type};
use crate::obj::go_type;
use crate::schema::SchemaType;

/// Every leaf and list item that a value mentions.
pub fn field_set(ty: Type<'_>, value: &Value) -> Fields {
    let mut out = Fields::new();
    collect(ty, value, &mut out, 0);
    out
}

/// Adds the fields below a value; returns whether the value itself belongs to the set.
fn collect(ty: Type<'_>, value: &Value, out: &mut Fields, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return true;
    }
    match (ty.shape(Some(value)), value) {
        (Shape::Map(map), _) if map.atomic => true,
        (Shape::Map(map), Value::Object(entries)) => {
            for (name, child) in entries {
                let mut below = Fields::new();
                let mut member =
                    collect(map.field(name).unwrap_or(Type::Deduced), child, &mut below, depth + 1);
                member |= child.is_null() || child.as_object().is_some_and(Map::is_empty);
                member |= !map.declares(name);
                if let Some(node) = fields::node(member, below) {
                    out.insert(format!("f:{name}"), node);
                }
            }
            false
        }
        (Shape::List(list), _) if list.keys.is_none() => true,
        (Shape::List(list), Value::Array(items)) => {
            collect_items(list, items, out, depth);
            false
        }
        (Shape::Map(_) | Shape::List(_), _) => false,
        (Shape::Scalar(_), _) => true,
    }
}

fn collect_items(list: ListType<'_>, items: &[Value], out: &mut Fields, depth: usize) {
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    let elements: Vec<Option<String>> = items.iter().map(|i| list.element(i).ok()).collect();
    for element in elements.iter().flatten() {
        if !seen.insert(element) {
            twice.insert(element);
        }
    }
    for (item, element) in items.iter().zip(&elements) {
        let Some(element) = element else { continue };
        let mut below = Fields::new();
        if !twice.contains(element) {
            collect(list.items, item, &mut below, depth + 1);
        }
        if let Some(node) = fields::node(true, below) {
            out.insert(element.clone(), node);
        }
    }
}

/// Whether every item of every keyed list has its keys. Fields of other objects have no owner.
pub fn is_keyed(ty: Type<'_>, value: &Value, depth: usize) -> bool {
    if depth > MAX_DEPTH {
        return true;
    }
    match (ty.shape(Some(value)), value) {
        (Shape::Map(map), Value::Object(entries)) if !map.atomic => entries
            .iter()
            .all(|(name, child)| map.field(name).is_none_or(|field| is_keyed(field, child, depth + 1))),
        (Shape::List(list), Value::Array(items)) if list.keys.is_some() => {
            items.iter().all(|item| list.has_key(item) && is_keyed(list.items, item, depth + 1))
        }
        _ => true,
    }
}

/// Whether a value has the types of its schema, as far as field ownership depends on them: fields of other objects have
/// no owner. A string with a format may be any scalar, null has every type, and items may occur twice.
pub fn fits(ty: Type<'_>, value: &Value, depth: usize) -> bool {
    if depth > MAX_DEPTH || value.is_null() || matches!(ty, Type::Deduced) {
        return true;
    }
    match (ty.shape(Some(value)), value) {
        (Shape::Scalar(kind), value) => {
            let kind = if ty.is_formatted() { SchemaType::Any } else { kind };
            scalar_error(kind, value).is_none()
        }
        (Shape::Map(map), Value::Object(entries)) => {
            entries.iter().all(|(name, child)| map.field(name).is_some_and(|ty| fits(ty, child, depth + 1)))
        }
        (Shape::List(list), Value::Array(items)) => items
            .iter()
            .all(|item| (list.keys.is_none() || list.has_key(item)) && fits(list.items, item, depth + 1)),
        (Shape::Map(_) | Shape::List(_), _) => false,
    }
}

/// Adds the declared fields on the way to the set's fields: `a.b.c` makes `a` a field of the set when it is a
/// declared one, not when it is a map's entry.
pub fn with_named_parents(ty: Type<'_>, set: &Fields) -> Fields {
    let mut out = Fields::new();
    for (element, below) in set {
        let Value::Object(below) = below else { continue };
        if element == "." {
            continue;
        }
        let mut member = fields::is_member(below);
        let empty_map = Value::Object(Map::new());
        let child = match element.strip_prefix("f:") {
            Some(name) => match ty.shape(Some(&empty_map)) {
                Shape::Map(map) => {
                    member |= map.declares(name);
                    map.field(name).unwrap_or(Type::Deduced)
                }
                _ => Type::Deduced,
            },
            None => match ty.shape(Some(&Value::Array(Vec::new()))) {
                Shape::List(list) => list.items,
                _ => Type::Deduced,
            },
        };
        if let Some(node) = fields::node(member, with_named_parents(child, below)) {
            out.insert(element.clone(), node);
        }
    }
    out
}

/// Checks a value against its type, as structured-merge-diff does.
///
/// # Errors
/// Upstream's text, one error or a list.
pub fn validate(ty: Type<'_>, value: &Value) -> Result<(), String> {
    let mut errors = Vec::new();
    check(ty, value, "", &mut errors, 0);
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

/// Errors after which checking stops.
const MAX_ERRORS: usize = 100;

fn check(ty: Type<'_>, value: &Value, path: &str, errors: &mut Vec<String>, depth: usize) {
    if errors.len() >= MAX_ERRORS {
        return;
    }
    // A deeper value is owned as a whole and checked as a leaf.
    if depth > MAX_DEPTH {
        return;
    }
    let mut add = |text: String| errors.push(if path.is_empty() { text } else { format!("{path}: {text}") });
    match (ty.shape(Some(value)), value) {
        (_, Value::Null) => {}
        (Shape::Scalar(kind), value) => {
            let kind = if ty.is_formatted() { SchemaType::Any } else { kind };
            if let Some(text) = scalar_error(kind, value) {
                add(text);
            }
        }
        (Shape::Map(map), Value::Object(entries)) => check_map(&map, entries, path, errors, depth),
        (Shape::List(list), Value::Array(items)) => check_list(list, items, path, errors, depth),
        (Shape::Map(_), other) => add(format!("expected map, got {}", go_pointer(other))),
        (Shape::List(_), other) => add(format!("expected list, got {}", go_pointer(other))),
    }
}

fn check_map(
    map: &MapType<'_>,
    entries: &Map<String, Value>,
    path: &str,
    errors: &mut Vec<String>,
    depth: usize,
) {
    for (name, child) in entries {
        let path = format!("{path}.{name}");
        match map.field(name) {
            Some(field) => check(field, child, &path, errors, depth + 1),
            None => {
                errors.push(format!("{path}: field not declared in schema"));
                return;
            }
        }
    }
}

fn check_list(list: ListType<'_>, items: &[Value], path: &str, errors: &mut Vec<String>, depth: usize) {
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let element = if list.keys.is_none() {
            format!("i:{i}")
        } else {
            match list.element(item) {
                Ok(element) => element,
                Err(e) => {
                    errors.push(format!("{path}: element {i}: {e}"));
                    return;
                }
            }
        };
        let text = fields::element_text(&element);
        if !seen.insert(element) {
            errors.push(format!("{path}: duplicate entries for key {text}"));
        }
        check(list.items, item, &format!("{path}{text}"), errors, depth + 1);
    }
}

fn scalar_error(kind: SchemaType, value: &Value) -> Option<String> {
    match (kind, value) {
        (SchemaType::String, Value::String(_))
        | (SchemaType::Boolean, Value::Bool(_))
        | (SchemaType::Integer | SchemaType::Number, Value::Number(_)) => None,
        (SchemaType::String, v) => Some(format!("expected string, got {}", go_struct(v))),
        (SchemaType::Boolean, v) => Some(format!("expected boolean, got {}", go_pointer(v))),
        (SchemaType::Integer | SchemaType::Number, v) => {
            Some(format!("expected numeric (int or float), got {}", go_type(v)))
        }
        (_, v @ (Value::Array(_) | Value::Object(_))) => {
            Some(format!("expected any scalar, got {}", go_pointer(v)))
        }
        _ => None,
    }
}

/// `%#v` of upstream's wrapper of a value.
fn go_struct(value: &Value) -> String {
    let inner = match value {
        Value::Object(_) => format!("map[string]interface {{}}{value}"),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(Value::to_string).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        other => other.to_string(),
    };
    format!("&value.valueUnstructured{{Value:{inner}}}")
}

/// `%v` of upstream's wrapper of a value.
fn go_pointer(value: &Value) -> String {
    format!("&{{{}}}", crate::patch::go_text(value))
}
