//! Parts of a version of a definition beside its schema.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{at, list, text};
use crate::crd::fieldpath;
use crate::crd::format::is_supported;
use crate::crd::node_type::NodeType;
use crate::error::{FieldError, FieldErrorKind};

/// `validateDeprecationWarning`.
pub fn deprecation(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let warning = at(version, "deprecationWarning");
    let Some(warning_text) = warning.as_str() else { return };
    let field = format!("{path}.deprecationWarning");
    let mut bad = |what: String| errors.push(FieldError::invalid(field.clone(), warning, what));
    if at(version, "deprecated") != &json!(true) {
        bad("can only be set for deprecated versions".to_owned());
        return;
    }
    if warning_text.len() > 256 {
        bad("must be <= 256 characters long".to_owned());
    }
    if warning_text.is_empty() {
        bad("must not be an empty string".to_owned());
    }
    let unprintable = |c: char| c.is_control() || (c.is_whitespace() && c != ' ');
    if let Some((i, _)) = warning_text.char_indices().find(|(_, c)| unprintable(*c)) {
        bad(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {i}"
        ));
    }
}

/// `ValidateCustomResourceDefinitionSubresources`.
pub fn subresources(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let scale = at(subresources, "scale");
    if !scale.is_object() {
        return;
    }
    for (key, under, needed) in [
        ("specReplicasPath", ".spec.", true),
        ("statusReplicasPath", ".status.", true),
        ("labelSelectorPath", "", false),
    ] {
        let (value, field) = (text(scale, key), format!("{path}.scale.{key}"));
        let mut bad = |what: &str| errors.push(FieldError::invalid(field.clone(), &json!(value), what));
        if value.is_empty() {
            if needed {
                errors.push(FieldError::required(field, ""));
            }
        } else if !value.starts_with('.') {
            bad("must be a simple json path starting with .");
        } else if needed && !value.starts_with(under) {
            bad(&format!("should be a json path under {}", under.trim_end_matches('.')));
        } else if !needed && !value.starts_with(".status.") && !value.starts_with(".spec.") {
            bad("should be a json path under either .spec or .status");
        }
    }
}

/// `ValidateCustomResourceColumnDefinition` of all columns.
pub fn columns(columns: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (i, column) in columns.iter().enumerate() {
        let at = |field: &str| format!("{path}[{i}].{field}");
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        }
        for (field, allowed, needed) in [("type", &TYPES[..], true), ("format", &FORMATS[..], false)] {
            let value = text(column, field);
            let what = format!("must be one of {}", allowed.join(","));
            if value.is_empty() {
                if needed {
                    errors.push(FieldError::required(at(field), what));
                }
            } else if !allowed.contains(&value) {
                errors.push(FieldError::invalid(at(field), &json!(value), what));
            }
        }
        let json_path = text(column, "jsonPath");
        if json_path.is_empty() {
            errors.push(FieldError::required(at("JSONPath"), ""));
        } else if !json_path.starts_with('.') {
            let what = "must be a simple json path starting with .";
            errors.push(FieldError::invalid(at("JSONPath"), &json!(json_path), what));
        }
    }
}

/// `ValidateCustomResourceSelectableFields`; `as_before`: the old version had the same fields.
pub fn selectable(
    fields: &[Value],
    schema: &Value,
    as_before: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    const MOST: usize = 8;
    let mut seen: HashSet<Vec<fieldpath::Step>> = HashSet::new();
    for (i, field) in fields.iter().enumerate() {
        let (json_path, at_path) = (text(field, "jsonPath"), format!("{path}[{i}].jsonPath"));
        if json_path.is_empty() {
            errors.push(FieldError::required(at_path, ""));
            continue;
        }
        let mut bad = |what: &str| errors.push(FieldError::invalid(at_path.clone(), &json!(json_path), what));
        let (steps, found) = match fieldpath::find(json_path, schema, false) {
            Ok(found) => found,
            Err(why) => {
                bad(&format!("is an invalid path: {why}"));
                continue;
            }
        };
        if steps.first().is_some_and(|s| s.name() == "metadata") {
            bad("must not point to fields in metadata");
        }
        if !["string", "integer", "boolean"].contains(&text(found, "type")) {
            bad(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                 formats are allowed.",
            );
        }
        if !seen.insert(steps) {
            errors.push(FieldError::duplicate(at_path, &json!(json_path)));
        }
    }
    if seen.len() > MOST && !as_before {
        errors.push(FieldError {
            kind: FieldErrorKind::TooMany,
            field: path.to_owned(),
            value: Some(seen.len().to_string()),
            detail: format!("must have at most {MOST} items"),
        });
    }
}

/// Formats in a schema that mean nothing to the server (`getUnrecognizedFormatsInSchema`).
pub fn unknown_formats(raw: &Value, depth: usize, found: &mut Vec<String>) {
    if depth > crate::crd::node::MAX_DEPTH {
        return;
    }
    let format = text(raw, "format");
    // none at all is taken for one of texts
    let kind = text(raw, "type");
    let known = match NodeType::parse(kind) {
        None if !kind.is_empty() => false,
        kind => is_supported(kind, format),
    };
    if !format.is_empty() && !known {
        found.push(format.to_owned());
    }
    super::structural::children(raw, "", |child, _| unknown_formats(child, depth + 1, found));
}

/// Schemas of all versions, as often as upstream keeps them.
pub fn schemas(definition: &Value) -> impl Iterator<Item = &Value> {
    let versions = list(at(definition, "spec"), "versions");
    let once = super::identical(versions, "schema");
    versions
        .iter()
        .take(if once { 1 } else { versions.len() })
        .map(|v| at(at(v, "schema"), "openAPIV3Schema"))
}
