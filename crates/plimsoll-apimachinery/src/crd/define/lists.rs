//! `x-kubernetes-list-type`, `-list-map-keys` and `-map-type`.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{at, is_true, list, text};
use crate::error::FieldError;

/// Most keys of a list that are checked.
const MAX_KEYS: usize = 100;

/// Validates the list and map types of a schema.
pub fn validate(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(map_type) = raw.get("x-kubernetes-map-type").and_then(Value::as_str) {
        of_type(raw, "object", "x-kubernetes-map-type", path, errors);
        if !["atomic", "granular"].contains(&map_type) {
            let field = format!("{path}.x-kubernetes-map-type");
            errors.push(FieldError::not_supported(field, &json!(map_type), &["atomic", "granular"]));
        }
    }
    let given = raw.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = list(raw, "x-kubernetes-list-map-keys");
    let type_field = format!("{path}.x-kubernetes-list-type");
    if given.is_some() && text(raw, "type") != "array" {
        of_type(raw, "array", "x-kubernetes-list-type", path, errors);
    } else if given == Some("set") {
        atomic_items(at(raw, "items"), &format!("{path}.items"), errors);
    }
    if let Some(list_type) = given.filter(|g| !["atomic", "set", "map"].contains(g)) {
        let allowed = ["atomic", "set", "map"];
        errors.push(FieldError::not_supported(type_field.clone(), &json!(list_type), &allowed));
    }
    if !keys.is_empty() && given != Some("map") {
        let what = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match given {
            None => FieldError::required(type_field, what),
            Some(other) => FieldError::invalid(type_field, &json!(other), what),
        });
    }
    if given == Some("map") {
        map_list(raw, keys, path, errors);
    }
    if matches!(given, Some("map" | "set")) && at(raw, "items").is_object() {
        never_null(raw, keys, given.unwrap_or_default(), path, errors);
    }
}

fn of_type(raw: &Value, wanted: &str, keyword: &str, path: &str, errors: &mut Vec<FieldError>) {
    let (kind, what) = (text(raw, "type"), format!("must be {wanted} if {keyword} is specified"));
    let field = format!("{path}.type");
    match kind {
        "" => errors.push(FieldError::required(field, what)),
        k if k == wanted => {}
        k => errors.push(FieldError::invalid(field, &json!(k), what)),
    }
}

/// Elements of a set are taken as a whole. The value shown is that of the list type, also where the map type is meant,
/// as upstream has it.
fn atomic_items(items: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let what = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = at(items, "x-kubernetes-list-type");
    let wrong = match text(items, "type") {
        "array" if !list_type.is_null() && list_type != "atomic" => "x-kubernetes-list-type",
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
        _ => return,
    };
    errors.push(FieldError::invalid(format!("{path}.{wrong}"), list_type, what));
}

fn map_list(raw: &Value, keys: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let keys_field = format!("{path}.x-kubernetes-list-map-keys");
    let items = at(raw, "items");
    if keys.is_empty() {
        let what = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(keys_field.clone(), what));
    }
    if items.is_null() {
        let what = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), what));
        return;
    }
    if !items.is_object() {
        return;
    }
    let kind = json!(text(items, "type"));
    if kind != "object" {
        let what = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), &kind, what));
        return;
    }
    let mut seen = HashSet::new();
    // Each message shows all keys: of very many wrong ones, some are enough.
    for key in keys.iter().take(MAX_KEYS) {
        let name = key.as_str().unwrap_or_default();
        let mut bad = |what: &str| {
            errors.push(FieldError::invalid(keys_field.clone(), &json!(keys), what));
        };
        let property = at(at(items, "properties"), name);
        if property.is_null() {
            bad("entries must all be names of item properties");
        }
        if !seen.insert(key) {
            bad("must not contain duplicate entries");
        }
        if ["array", "object"].contains(&text(property, "type")) {
            let what = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            let field = format!("{path}.items.properties[{name}].type");
            errors.push(FieldError::invalid(field, &kind, what));
        }
    }
}

/// `validateMapListKeysMapSet`: elements of sets and maps, and their keys, are always there.
fn never_null(raw: &Value, keys: &[Value], list_type: &str, path: &str, errors: &mut Vec<FieldError>) {
    let items = at(raw, "items");
    if is_true(items, "nullable") {
        let what = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(format!("{path}.items.nullable"), what));
    }
    if list_type != "map" {
        return;
    }
    const LEAD: &str = "this property is in x-kubernetes-list-map-keys, so it";
    for key in keys.iter().take(MAX_KEYS) {
        let name = key.as_str().unwrap_or_default();
        let Some(property) = at(items, "properties").get(name) else { continue };
        let place = format!("{path}.items.properties[{name}]");
        if at(property, "default").is_null() && !list(items, "required").contains(key) {
            let what = format!("{LEAD} must have a default or be a required property");
            errors.push(FieldError::required(format!("{place}.default"), what));
        }
        if is_true(property, "nullable") {
            let what = format!("{LEAD} cannot be nullable");
            errors.push(FieldError::forbidden(format!("{place}.nullable"), what));
        }
    }
}
