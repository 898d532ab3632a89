//! Defaults must fit their schema (apiextensions `schema/defaulting/validation.go`).

use serde_json::{Value, json};

use super::{at, is_true, text};
use crate::crd::check::Checker;
use crate::crd::node::{MAX_DEPTH, Node};

use crate::crd::{meta, prune, rules};
use crate::error::FieldError;

/// Checks all defaults of a schema.
pub fn validate(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    walk(raw, &Inside { root: true, meta: Vec::new(), depth: 0 }, path, errors);
}

struct Inside {
    root: bool,
    /// The path from the object to here, when it begins with `metadata`, `apiVersion` or `kind`.
    meta: Vec<String>,
    depth: usize,
}

fn walk(raw: &Value, inside: &Inside, path: &str, errors: &mut Vec<FieldError>) {
    if inside.depth > MAX_DEPTH {
        return;
    }
    let embedded = inside.root || is_true(raw, "x-kubernetes-embedded-resource");
    let steps: &[String] = if embedded { &[] } else { &inside.meta };
    if let Some(default) = raw.get("default").filter(|d| !d.is_null()) {
        one(default, raw, embedded, steps, path, errors);
    }
    let next = |name: &str| {
        let own = embedded && matches!(name, "metadata" | "apiVersion" | "kind");
        let mut meta = if embedded { Vec::new() } else { inside.meta.clone() };
        if own || !meta.is_empty() {
            meta.push(name.to_owned());
        }
        Inside { root: false, meta, depth: inside.depth + 1 }
    };
    // none inside additionalProperties, where defaults are not filled in
    if at(raw, "items").is_object() {
        walk(at(raw, "items"), &next("[]"), &format!("{path}.items"), errors);
    }
    for (name, property) in at(raw, "properties").as_object().into_iter().flatten() {
        walk(property, &next(name), &format!("{path}.properties[{name}]"), errors);
    }
}

fn one(
    default: &Value,
    raw: &Value,
    embedded: bool,
    steps: &[String],
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{path}.default");
    let mut node = Node::build(raw);
    node.embedded = embedded;
    if steps.is_empty() {
        let mut pruned = default.clone();
        if !prune::prune_as(&mut pruned, &node, embedded).is_empty() {
            errors.push(FieldError::invalid(field.clone(), default, "must not have unknown fields"));
        }
        let found = meta::validate(default, &node, embedded, &field);
        if !found.is_empty() {
            errors.extend(found);
            return;
        }
    } else {
        let object = around(steps, default.clone());
        let root = Node { embedded: true, ..Node::default() };
        let found = meta::validate(&object, &root, true, "");
        if !found.is_empty() {
            let all: Vec<String> = found.iter().map(ToString::to_string).collect();
            let faults = if all.len() == 1 { all.join("") } else { format!("[{}]", all.join(", ")) };
            let what = format!("must result in valid metadata: {faults}");
            errors.push(FieldError::invalid(field, default, what));
            return;
        }
    }
    let mut checker = Checker { base: &field, errors: Vec::new() };
    checker.check(default, None, &node, "");
    if checker.errors.is_empty() && node.has_rules {
        let mut found = Vec::new();
        rules::check_as_update(default, &node, &mut found);
        if found.is_empty() {
            rules::check(default, None, &node, "", &mut found);
        }
        for error in &mut found {
            let inner = std::mem::take(&mut error.field);
            error.field = match inner.as_str() {
                "<nil>" => field.clone(),
                inner if inner.starts_with('[') => format!("{field}{inner}"),
                inner => format!("{field}.{inner}"),
            };
        }
        checker.errors.extend(found);
    }
    errors.extend(checker.errors);
}

/// An object that has a value at a place.
fn around(steps: &[String], value: Value) -> Value {
    let wrap = |value: Value, step: &String| match step.as_str() {
        "[]" => json!([value]),
        name => json!({ name: value }),
    };
    let mut object = steps.iter().rev().fold(value, wrap);
    for (key, name) in [("apiVersion", "validation/v1"), ("kind", "Validation")] {
        if text(&object, key).is_empty()
            && let Some(object) = object.as_object_mut()
        {
            object.insert(key.to_owned(), json!(name));
        }
    }
    object
}
