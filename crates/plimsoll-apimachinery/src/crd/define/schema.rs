//! Checks of a version's schema (`validateCustomResourceDefinitionValidation`).

use serde_json::{Value, json};

use super::rules::{self, Cardinality, Costs};
use super::structural::{self, children};
use super::{at, defaults, is_true, list, lists, shown, text};
use crate::crd::node::MAX_DEPTH;
use crate::error::FieldError;

/// The place of a schema in its definition.
pub struct Of {
    /// The version has the status subresource.
    pub status: bool,
    /// Whether the old version had the same schema.
    pub unchanged: bool,
}

/// The fields that the root of a schema with a status subresource may have.
const AT_ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Checks a schema.
pub fn validate(raw: &Value, of: &Of, path: &str, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    if of.status {
        at_root(raw, path, errors);
    }
    if is_true(raw, "nullable") {
        errors.push(FieldError::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = structural::unsupported(raw, 0);
    let mut cel = false;
    if unsupported.is_none() {
        let mut found = Vec::new();
        structural::validate(raw, path, &mut found);
        found.sort_by_key(ToString::to_string);
        if found.is_empty() {
            defaults::validate(raw, path, &mut found);
        }
        cel = found.is_empty();
        errors.extend(found);
    }
    let mut walk = Walk { cel, unchanged: of.unchanged, costs: Costs::default() };
    let found = walk.schema(raw, path, &Place::root());
    errors.extend(found.schema);
    errors.extend(found.cel);
    match unsupported {
        Some(why) if errors.len() == before => {
            errors.push(FieldError::invalid(path, &json!(""), why));
        }
        _ => {}
    }
    walk.costs.report(path, errors);
}

fn at_root(raw: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (name, _) in shown::set_fields(raw) {
        if name == "Type" {
            if text(raw, "type") != "object" {
                let what = "only \"object\" is allowed as the type at the root of the schema if the status \
                            subresource is enabled";
                errors.push(FieldError::invalid(format!("{path}.type"), at(raw, "type"), what));
                return;
            }
        } else if !AT_ROOT.contains(&name) {
            let what = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                AT_ROOT.join(" ")
            );
            let mut error = FieldError::invalid(path, &Value::Null, what);
            error.value = Some(shown::schema(raw));
            errors.push(error);
            return;
        }
    }
}

/// Whether a schema has defaults anywhere.
pub fn has_defaults(raw: &Value, depth: usize) -> bool {
    let mut found = raw.get("default").is_some_and(|d| !d.is_null());
    if depth <= MAX_DEPTH {
        children(raw, "", |child, _| found |= has_defaults(child, depth + 1));
    }
    found
}

/// The position of a schema.
#[derive(Clone)]
struct Place {
    depth: usize,
    root: bool,
    /// Inside `apiVersion`, `kind` or `metadata`.
    meta: bool,
    /// The reason why the schema may have no default.
    no_default: Option<String>,
    /// The enclosing schema whose values are not correlated before and after an update.
    uncorrelated: Option<String>,
    /// Inside `allOf`, `anyOf`, `oneOf` or `not`, where rules don't apply.
    nested: bool,
    /// How many values of the schema an object can have.
    times: Cardinality,
}

impl Place {
    fn root() -> Self {
        Self {
            depth: 0,
            root: true,
            meta: false,
            no_default: None,
            uncorrelated: None,
            nested: false,
            times: Cardinality::once(),
        }
    }

    fn inside(&self) -> Self {
        Self { depth: self.depth + 1, root: false, ..self.clone() }
    }

    fn within_junctor(&self) -> Self {
        Self { nested: true, ..self.inside() }
    }
}

/// Errors by kind: upstream compiles rules only where the schema has no error.
#[derive(Default)]
struct Found {
    schema: Vec<FieldError>,
    cel: Vec<FieldError>,
}

struct Walk {
    cel: bool,
    unchanged: bool,
    costs: Costs,
}

impl Walk {
    /// `ValidateCustomResourceDefinitionOpenAPISchema`.
    fn schema(&mut self, raw: &Value, path: &str, place: &Place) -> Found {
        let mut found = Found::default();
        if place.depth > MAX_DEPTH {
            found.schema.push(FieldError::forbidden(path, "is nested too deeply"));
            return found;
        }
        keywords(raw, place, path, &mut found.schema);
        self.inner(raw, path, place, &mut found);
        if at(raw, "x-kubernetes-preserve-unknown-fields") == &json!(false) {
            let field = format!("{path}.x-kubernetes-preserve-unknown-fields");
            found.schema.push(FieldError::invalid(field, &json!(false), "must be true or undefined"));
        }
        lists::validate(raw, path, &mut found.schema);
        let all = list(raw, "x-kubernetes-validations");
        rules::texts(all, raw, path, &mut found.schema);
        if !all.is_empty() && found.schema.is_empty() && self.cel && !place.nested {
            let of = rules::Of {
                raw,
                root: place.root,
                times: place.times,
                uncorrelated: place.uncorrelated.as_deref(),
                unchanged: self.unchanged,
            };
            rules::validate(all, &of, path, &mut self.costs, &mut found.cel);
        }
        found
    }

    fn add(&mut self, raw: &Value, path: &str, place: &Place, found: &mut Found) {
        let inner = self.schema(raw, path, place);
        found.schema.extend(inner.schema);
        found.cel.extend(inner.cel);
    }

    fn inner(&mut self, raw: &Value, path: &str, place: &Place, found: &mut Found) {
        let times = place.times.of(raw);
        let additional = at(raw, "additionalProperties");
        let properties = at(raw, "properties").as_object();
        if properties.is_some_and(|p| !p.is_empty())
            && (additional.is_object() || additional == &json!(false))
        {
            let what = "additionalProperties and properties are mutual exclusive";
            found.schema.push(FieldError::forbidden(format!("{path}.additionalProperties"), what));
        }
        if additional.is_object() {
            let mut inside = Place { times, ..place.inside() };
            if place.meta {
                let why = "inside additionalProperties applying to object metadata";
                inside.no_default = Some(why.to_owned());
            }
            self.add(additional, &format!("{path}.additionalProperties"), &inside, found);
        }
        for (name, property) in properties.into_iter().flatten() {
            let mut inside = Place { times, ..place.inside() };
            let map_type = raw.get("x-kubernetes-map-type").and_then(Value::as_str);
            if !matches!(map_type, None | Some("granular" | "atomic")) {
                inside.uncorrelated.get_or_insert_with(|| path.to_owned());
            }
            let meta = matches!(name.as_str(), "metadata" | "kind" | "apiVersion");
            if meta && (place.root || is_true(raw, "x-kubernetes-embedded-resource")) {
                inside.meta = true;
                if place.root {
                    inside.no_default = Some(format!("in top-level {name}"));
                }
            }
            self.add(property, &format!("{path}.properties[{name}]"), &inside, found);
        }
        if at(raw, "not").is_object() {
            self.add(at(raw, "not"), &format!("{path}.not"), &place.within_junctor(), found);
        }
        for key in ["allOf", "oneOf", "anyOf"] {
            for (i, child) in list(raw, key).iter().enumerate() {
                self.add(child, &format!("{path}.{key}[{i}]"), &place.within_junctor(), found);
            }
        }
        for (name, child) in at(raw, "definitions").as_object().into_iter().flatten() {
            self.add(child, &format!("{path}.definitions[{name}]"), &place.within_junctor(), found);
        }
        let mut inside = Place { times, ..place.inside() };
        if text(raw, "x-kubernetes-list-type") != "map" {
            inside.uncorrelated.get_or_insert_with(|| path.to_owned());
        }
        match at(raw, "items") {
            Value::Array(all) => {
                for (i, child) in all.iter().enumerate() {
                    self.add(child, &format!("{path}.items[{i}]"), &inside, found);
                }
            }
            items @ Value::Object(_) => self.add(items, &format!("{path}.items"), &inside, found),
            _ => {}
        }
        for (name, child) in at(raw, "dependencies").as_object().into_iter().flatten() {
            if child.is_object() {
                self.add(child, &format!("{path}.dependencies[{name}]"), &place.within_junctor(), found);
            }
        }
    }
}

/// Keywords that aren't supported (`specStandardValidatorV3`), and `uniqueItems`.
fn keywords(raw: &Value, place: &Place, path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let kind = text(raw, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(format!("{path}.type"), &json!(kind), &TYPES));
    }
    let mut forbidden = |key: &str, what: &str| {
        errors.push(FieldError::forbidden(format!("{path}.{key}"), what));
    };
    if let Some(why) = &place.no_default
        && raw.get("default").is_some_and(|d| !d.is_null())
    {
        forbidden("default", &format!("must not be set {why}"));
    }
    let given = |key: &str| match at(raw, key) {
        Value::Null => false,
        Value::String(text) => !text.is_empty() || key == "$ref",
        Value::Object(all) => !all.is_empty() || matches!(key, "additionalItems" | "dependencies"),
        _ => true,
    };
    for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if given(key) {
            forbidden(key, &format!("{key} is not supported"));
        }
    }
    if kind == "null" {
        forbidden("type", "type cannot be set to null, use nullable as an alternative");
    }
    if at(raw, "items").as_array().is_some_and(|a| !a.is_empty()) {
        forbidden("items", "items must be a schema object and not an array");
    }
    if place.meta && is_true(raw, "x-kubernetes-embedded-resource") {
        forbidden("x-kubernetes-embedded-resource", "must not be used inside of resource meta");
    }
    if is_true(raw, "uniqueItems") {
        let what = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        forbidden("uniqueItems", what);
    }
}
