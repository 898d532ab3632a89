//! Checks of a version's schema.

use serde_json::{Value, json};

use super::{at, list, structural, text};
use crate::crd::check::Checker;
use crate::crd::node::{MAX_DEPTH, Node};
use crate::error::{FieldError, FieldErrorKind};

/// What a schema with a status subresource may have at its root.
const AT_ROOT: &[&str] = &[
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// Checks a schema; `status`: the version has the status subresource.
pub fn validate(raw: &Value, status: bool, path: &str, errors: &mut Vec<FieldError>) {
    if status {
        let other = raw.as_object().into_iter().flatten().find(|(k, v)| {
            !AT_ROOT.contains(&k.as_str()) && !v.is_null() && *v != &json!(false) && *v != &json!([])
        });
        if other.is_some() {
            let what = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum \
                        MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items \
                        Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed \
                        at the root of the schema if the status subresource is enabled";
            errors.push(FieldError::invalid(path, raw, what));
        }
    }
    let before = errors.len();
    keywords(raw, path, 0, errors);
    let mut found = Vec::new();
    structural::validate(raw, path, &mut found);
    found.sort_by_key(ToString::to_string);
    errors.extend(found);
    if errors.len() == before {
        defaults(raw, path, errors);
        super::rules::validate(raw, path, errors);
    }
}

/// Keywords that aren't supported, and those that don't go together.
fn keywords(raw: &Value, path: &str, depth: usize, errors: &mut Vec<FieldError>) {
    if depth > MAX_DEPTH {
        errors.push(FieldError::forbidden(path, "is nested too deeply"));
        return;
    }
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if raw.get(key).is_some_and(|v| !v.is_null()) {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), format!("{key} is not supported")));
        }
    }
    if text(raw, "type") == "null" {
        let what = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(format!("{path}.type"), what));
    }
    if at(raw, "items").is_array() {
        let what = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), what));
    }
    if at(raw, "uniqueItems") == &json!(true) {
        let what = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), what));
    }
    let additional = at(raw, "additionalProperties");
    let has_properties = at(raw, "properties").as_object().is_some_and(|p| !p.is_empty());
    if has_properties && (additional.is_object() || additional == &json!(false)) {
        let what = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), what));
    }
    if at(raw, "x-kubernetes-preserve-unknown-fields") == &json!(false) {
        let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(field, &json!(false), "must be true or undefined"));
    }
    list_and_map(raw, path, errors);
    children(raw, path, |child, path| keywords(child, &path, depth + 1, errors));
}

/// Calls `f` with every schema directly inside another one.
pub fn children(raw: &Value, path: &str, mut f: impl FnMut(&Value, String)) {
    for key in ["items", "additionalProperties", "not"] {
        if let Some(child) = raw.get(key).filter(|c| c.is_object()) {
            f(child, format!("{path}.{key}"));
        }
    }
    for (name, child) in at(raw, "properties").as_object().into_iter().flatten() {
        f(child, format!("{path}.properties[{name}]"));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (i, child) in list(raw, key).iter().enumerate() {
            f(child, format!("{path}.{key}[{i}]"));
        }
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

fn list_and_map(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let map_type = text(raw, "x-kubernetes-map-type");
    if !map_type.is_empty() {
        of_type(raw, "object", "x-kubernetes-map-type", path, errors);
        if !["atomic", "granular"].contains(&map_type) {
            let field = format!("{path}.x-kubernetes-map-type");
            errors.push(FieldError::not_supported(field, &json!(map_type), &["atomic", "granular"]));
        }
    }
    let (list_type, keys) = (text(raw, "x-kubernetes-list-type"), list(raw, "x-kubernetes-list-map-keys"));
    let type_field = format!("{path}.x-kubernetes-list-type");
    if !list_type.is_empty() && text(raw, "type") != "array" {
        of_type(raw, "array", "x-kubernetes-list-type", path, errors);
    } else if !["", "atomic", "map", "set"].contains(&list_type) {
        errors.push(FieldError::not_supported(type_field, &json!(list_type), &["atomic", "map", "set"]));
    } else if !keys.is_empty() && list_type != "map" {
        let what = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            "" => FieldError::required(type_field, what),
            other => FieldError::invalid(type_field, &json!(other), what),
        });
    }
    match list_type {
        "map" => map_list(raw, keys, path, errors),
        "set" => set_items(at(raw, "items"), &format!("{path}.items"), errors),
        _ => {}
    }
}

fn map_list(raw: &Value, keys: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let keys_field = format!("{path}.x-kubernetes-list-map-keys");
    let items = at(raw, "items");
    if keys.is_empty() {
        errors.push(FieldError::required(keys_field, "must not be empty if x-kubernetes-list-type is map"));
        return;
    }
    if items.is_null() {
        let what = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(format!("{path}.items"), what));
        return;
    }
    if text(items, "type") != "object" {
        let what = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(format!("{path}.items.type"), at(items, "type"), what));
        return;
    }
    for (i, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or_default();
        let property = at(at(items, "properties"), name);
        let place = format!("{path}.items.properties[{name}]");
        if property.is_null() {
            let what = "entries must all be names of item properties";
            errors.push(FieldError::invalid(keys_field.clone(), &json!(keys), what));
        } else if ["array", "object"].contains(&text(property, "type")) {
            let what = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(FieldError::invalid(format!("{place}.type"), at(property, "type"), what));
        } else if property.get("default").is_none() && !list(items, "required").contains(key) {
            let what = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a \
                        required property";
            errors.push(FieldError::required(format!("{place}.default"), what));
        }
        if keys.iter().take(i).any(|k| k == key) {
            let what = "must not contain duplicate entries";
            errors.push(FieldError::invalid(keys_field.clone(), &json!(keys), what));
        }
    }
}

fn set_items(items: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if at(items, "nullable") == &json!(true) {
        let what = "cannot be nullable when x-kubernetes-list-type is set";
        errors.push(FieldError::forbidden(format!("{path}.nullable"), what));
    }
    match text(items, "type") {
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => errors.push(FieldError::forbidden(
            format!("{path}.x-kubernetes-map-type"),
            "must be atomic as item of a list with x-kubernetes-list-type=set",
        )),
        "array" if !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic") => {
            errors.push(FieldError::forbidden(
                format!("{path}.x-kubernetes-list-type"),
                "must be atomic as item of a list with x-kubernetes-list-type=set",
            ));
        }
        _ => {}
    }
}

/// Defaults must fit their schema.
fn defaults(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = raw.get("default").filter(|d| !d.is_null()) {
        let node = Node::build(raw);
        let field = format!("{path}.default");
        let mut checker = Checker { base: &field, errors: Vec::new() };
        let mut filled = default.clone();
        crate::crd::default::default(&mut filled, &node);
        checker.check(&filled, None, &node, "");
        let mut pruned = default.clone();
        if !crate::crd::prune::prune(&mut pruned, &node).is_empty() && !node.embedded {
            checker.errors.push(FieldError {
                kind: FieldErrorKind::Invalid,
                field: field.clone(),
                value: Some(default.to_string()),
                detail: "must not have unknown fields".to_owned(),
            });
        }
        errors.extend(checker.errors);
    }
    children(raw, path, |child, path| defaults(child, &path, errors));
}
