//! Rules of structural schemas (apiextensions `schema/validation.go` and `complete.go`).

use serde_json::{Map, Value, json};

use super::{at, list, text};
use crate::crd::node::MAX_DEPTH;
use crate::crd::pattern::compiled;
use crate::error::FieldError;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// The reason why a schema can't be a structural one (`NewStructural`).
pub fn unsupported(raw: &Value, depth: usize) -> Option<String> {
    if depth > MAX_DEPTH {
        return Some("OpenAPIV3Schema is nested too deeply".to_owned());
    }
    let given = |key: &str| match at(raw, key) {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Object(all) => !all.is_empty() || key == "additionalItems",
        _ => true,
    };
    let names =
        ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];
    if let Some(key) = names.into_iter().find(|key| given(key)) {
        return Some(format!(
            "OpenAPIV3Schema '{}' is not supported",
            if key == "$schema" { "schema" } else { key }
        ));
    }
    if at(raw, "x-kubernetes-preserve-unknown-fields") == &json!(false) {
        let why = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(why.to_owned());
    }
    if at(raw, "items").as_array().is_some_and(|a| !a.is_empty()) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let mut found = None;
    children(raw, "", |child, _| {
        if found.is_none() {
            found = unsupported(child, depth + 1);
        }
    });
    found
}

/// Checks that a schema is structural. Errors come in no particular order.
pub fn validate(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    invariants(raw, Level::Root, path, errors);
    complete(raw, path, errors);
}

fn flag(raw: &Value, key: &str) -> bool {
    at(raw, key) == &json!(true)
}

fn invariants(raw: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(raw, "type");
    if kind == "array" && at(raw, "items").is_null() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if at(raw, "items").is_object() {
        invariants(at(raw, "items"), Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in at(raw, "properties").as_object().into_iter().flatten() {
        invariants(property, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    let additional = at(raw, "additionalProperties");
    if !additional.is_null() && level == Level::Root {
        errors.push(FieldError::forbidden(
            format!("{path}.additionalProperties"),
            "must not be used at the root",
        ));
    }
    if additional.is_object() {
        invariants(additional, Level::Field, &format!("{path}.additionalProperties"), errors);
    }
    extensions(raw, path, errors);
    type_of(raw, level, path, errors);
    metadata(raw, level, path, errors);
    value_validation(raw, path, errors);
}

fn extensions(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let what = "must be false if x-kubernetes-int-or-string is true";
    for key in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(raw, "x-kubernetes-int-or-string") && flag(raw, key) {
            errors.push(FieldError::invalid(format!("{path}.{key}"), &json!(true), what));
        }
    }
}

fn type_of(raw: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let (kind, field) = (text(raw, "type"), format!("{path}.type"));
    let embedded = flag(raw, "x-kubernetes-embedded-resource");
    if embedded && kind != "object" {
        let what = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(field, what),
            other => FieldError::invalid(field, &json!(other), what),
        });
    } else if kind.is_empty()
        && !flag(raw, "x-kubernetes-int-or-string")
        && !flag(raw, "x-kubernetes-preserve-unknown-fields")
    {
        let what = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(field, what));
    } else if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(field, &json!(kind), "must be object at the root"));
    }
    if embedded && !at(raw, "additionalProperties").is_null() {
        let what = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), what));
    }
    let empty = at(raw, "properties").as_object().is_none_or(Map::is_empty);
    if embedded && !flag(raw, "x-kubernetes-preserve-unknown-fields") && empty {
        let what = "must not be empty if x-kubernetes-embedded-resource is true without \
                    x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(format!("{path}.properties"), what));
    }
}

/// `apiVersion`, `kind` and `metadata` of the object itself are given.
fn metadata(raw: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    if level != Level::Root && !flag(raw, "x-kubernetes-embedded-resource") {
        return;
    }
    let properties = at(raw, "properties");
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let property = at(properties, name);
        if !property.is_null() && text(property, "type") != wanted {
            let field = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(field, at(property, "type"), format!("must be {wanted}")));
        }
    }
    if level != Level::Root {
        return;
    }
    let Some(metadata) = properties.get("metadata").and_then(Value::as_object) else { return };
    let names_only =
        |p: &Value| p.as_object().is_some_and(|p| p.keys().all(|k| k == "name" || k == "generateName"));
    let allowed = |(key, value): (&String, &Value)| match key.as_str() {
        "type" | "default" => true,
        "properties" => names_only(value),
        _ => false,
    };
    if !metadata.iter().all(allowed) {
        let what = "must not specify anything other than name and generateName, but metadata is implicitly \
                    specified";
        errors.push(FieldError::forbidden(format!("{path}.properties[metadata]"), what));
    }
}

/// Validates `allOf`, `anyOf`, `oneOf`, `not` and patterns.
fn value_validation(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let int_or_string = json!([{ "type": "integer" }, { "type": "string" }]);
    let allowed = |any: &Value| flag(raw, "x-kubernetes-int-or-string") && any == &int_or_string;
    if !allowed(at(raw, "anyOf")) {
        for (i, nested) in list(raw, "anyOf").iter().enumerate() {
            inside(nested, false, &format!("{path}.anyOf[{i}]"), errors);
        }
    }
    for (i, nested) in list(raw, "allOf").iter().enumerate() {
        let skip = i == 0 && allowed(at(nested, "anyOf"));
        inside(nested, skip, &format!("{path}.allOf[{i}]"), errors);
    }
    for (i, nested) in list(raw, "oneOf").iter().enumerate() {
        inside(nested, false, &format!("{path}.oneOf[{i}]"), errors);
    }
    if at(raw, "not").is_object() {
        inside(at(raw, "not"), false, &format!("{path}.not"), errors);
    }
    pattern(raw, path, errors);
}

fn pattern(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let pattern = text(raw, "pattern");
    if !pattern.is_empty()
        && let Err(e) = compiled(pattern)
    {
        let what = format!("must be a valid regular expression, but isn't: {e}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &json!(pattern), what));
    }
}

/// A schema inside `allOf`, `anyOf`, `oneOf` or `not` may only restrict values.
fn inside(raw: &Value, skip_any: bool, path: &str, errors: &mut Vec<FieldError>) {
    for (key, what) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let value = at(raw, key);
        let empty = match value {
            Value::Null | Value::Bool(false) => true,
            // a list or map type that is empty is still one
            Value::String(text) => text.is_empty() && !key.starts_with("x-kubernetes-"),
            Value::Array(all) => all.is_empty() && key != "default",
            _ => false,
        };
        if !empty {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), what));
        }
    }
    if at(raw, "properties").get("metadata").is_some() {
        let field = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(field, "must not be specified in a nested context"));
    }
    children(raw, path, |child, place| {
        let skipped = skip_any && place.starts_with(&format!("{path}.anyOf["));
        if !skipped && place != format!("{path}.additionalProperties") {
            inside(child, false, &place, errors);
        }
    });
    pattern(raw, path, errors);
}

/// Fields named inside `allOf`, `anyOf`, `oneOf` and `not` must be specified outside
/// (`validateStructuralCompleteness`). Like upstream, this checks only the fields at the root.
fn complete(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    junctors(raw, Some(raw), path, path, errors);
}

fn junctors(
    validation: &Value,
    structural: Option<&Value>,
    path: &str,
    inside: &str,
    errors: &mut Vec<FieldError>,
) {
    if at(validation, "not").is_object() {
        specified(at(validation, "not"), structural, path, &format!("{inside}.not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (i, nested) in list(validation, key).iter().enumerate() {
            specified(nested, structural, path, &format!("{inside}.{key}[{i}]"), errors);
        }
    }
}

fn specified(
    nested: &Value,
    structural: Option<&Value>,
    path: &str,
    inside: &str,
    errors: &mut Vec<FieldError>,
) {
    let missing =
        |place: &str, named: &str| FieldError::required(place, format!("because it is defined in {named}"));
    let Some(outer) = structural else {
        errors.push(missing(path, inside));
        return;
    };
    junctors(nested, Some(outer), path, inside, errors);
    if at(nested, "items").is_object() {
        let items = outer.get("items").filter(|i| i.is_object());
        specified(at(nested, "items"), items, &format!("{path}.items"), &format!("{inside}.items"), errors);
    }
    for (name, inner) in at(nested, "properties").as_object().into_iter().flatten() {
        let place = format!("{path}.properties[{name}]");
        let named = format!("{inside}.properties[{name}]");
        match at(outer, "properties").get(name) {
            Some(found) => specified(inner, Some(found), &place, &named, errors),
            None => errors.push(missing(&place, &named)),
        }
    }
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
