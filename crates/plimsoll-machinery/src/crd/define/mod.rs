//! Checks of CustomResourceDefinitions themselves (apiextensions `validation.go`), and their names' acceptance.

mod names;
mod rules;
mod schema;
mod sizes;
mod structural;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::{Value, json};

pub use self::names::accept;
use super::{at, list, text};
use crate::error::FieldError;
use crate::jsonpath::JsonPath;

const DNS_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
     an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used \
     for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const DNS_1123_SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
     characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
     used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// What is wrong with a new definition; defaults are filled in and `status.storedVersions` is set.
pub fn validate_create(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = at(definition, "spec");
    let name = text(at(definition, "metadata"), "name");
    if name != format!("{}.{}", text(at(spec, "names"), "plural"), text(spec, "group")) {
        let what = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", &json!(name), what));
    }
    validate(definition, &mut errors);
    errors
}

/// What is wrong with a changed definition.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate(new, &mut errors);
    let (before, after) = (at(old, "spec"), at(new, "spec"));
    let mut fixed = |field: &str, a: &Value, b: &Value| {
        if a != b {
            errors.push(FieldError::invalid(field, b, "field is immutable"));
        }
    };
    let names = |spec| at(spec, "names");
    if names::has_condition(old, "Established", "True") {
        fixed("spec.scope", at(before, "scope"), at(after, "scope"));
        fixed("spec.names.kind", at(names(before), "kind"), at(names(after), "kind"));
    }
    fixed("spec.group", at(before, "group"), at(after, "group"));
    fixed("spec.names.plural", at(names(before), "plural"), at(names(after), "plural"));
    errors
}

fn validate(definition: &Value, errors: &mut Vec<FieldError>) {
    let spec = at(definition, "spec");
    group(definition, text(spec, "group"), errors);
    match text(spec, "scope") {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            errors.push(FieldError::not_supported("spec.scope", &json!(other), &["Cluster", "Namespaced"]));
        }
    }
    versions(spec, errors);
    names::validate(at(spec, "names"), "spec.names", true, errors);
    if at(spec, "preserveUnknownFields") == &json!(true) {
        let what = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                    spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), what));
    }
    conversion(at(spec, "conversion"), errors);
    let status = at(definition, "status");
    names::validate(at(status, "acceptedNames"), "status.acceptedNames", false, errors);
    stored_versions(status, list(spec, "versions"), errors);
}

fn group(definition: &Value, group: &str, errors: &mut Vec<FieldError>) {
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !is_subdomain(group) {
        errors.push(FieldError::invalid("spec.group", &json!(group), DNS_1123_SUBDOMAIN));
    } else if !group.contains('.') {
        let what = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &json!(group), what));
    }
    if names::is_protected(group) {
        let annotations = at(at(definition, "metadata"), "annotations");
        let field = "metadata.annotations[api-approved.kubernetes.io]";
        match names::approval(annotations) {
            names::Approval::Missing => errors.push(FieldError::required(
                field,
                "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
                 https://github.com/kubernetes/enhancements/pull/1111",
            )),
            names::Approval::Invalid(value) => errors.push(FieldError::invalid(
                field,
                &json!(value),
                "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a \
                 URL or a reason starting with \"unapproved\", see \
                 https://github.com/kubernetes/enhancements/pull/1111",
            )),
            _ => {}
        }
    }
}

/// Whether all versions say the same under a key: upstream then keeps it once for all of them, and messages
/// name that place.
fn identical(versions: &[Value], key: &str) -> bool {
    versions.windows(2).all(|pair| pair.first().map(|v| at(v, key)) == pair.get(1).map(|v| at(v, key)))
}

fn versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = list(spec, "versions");
    let mut seen = HashSet::new();
    for (i, version) in versions.iter().enumerate() {
        let name = text(version, "name");
        if !is_label_1035(name) {
            errors.push(FieldError::invalid(format!("spec.versions[{i}].name"), &json!(name), DNS_1035));
        }
    }
    let mut about_all = |what: &str| {
        let mut error = FieldError::invalid("spec.versions", &Value::Null, what);
        error.value = Some(dump_versions(versions));
        errors.push(error);
    };
    if !versions.iter().all(|v| seen.insert(text(v, "name"))) {
        about_all("must contain unique version names");
    }
    if versions.iter().filter(|v| at(v, "storage") == &json!(true)).count() != 1 {
        about_all("must have exactly one version marked as storage version");
    }
    parts_of_versions(versions, errors);
}

/// Schemas, subresources, columns and selectable fields, once where all versions agree.
fn parts_of_versions(versions: &[Value], errors: &mut Vec<FieldError>) {
    let one = |key: &str| identical(versions, key);
    let (schema_once, sub_once) = (one("schema"), one("subresources"));
    let (columns_once, fields_once) = (one("additionalPrinterColumns"), one("selectableFields"));
    for (i, version) in versions.iter().enumerate() {
        let own = format!("spec.versions[{i}]");
        let place = |once: bool| if once { "spec" } else { own.as_str() };
        let raw = at(at(version, "schema"), "openAPIV3Schema");
        let status = at(version, "subresources").get("status").is_some_and(Value::is_object);
        if raw.is_null() {
            errors.push(FieldError::required(format!("{own}.schema.openAPIV3Schema"), ""));
        } else if !schema_once || i == 0 {
            let path = if schema_once { "spec.validation" } else { &format!("{own}.schema") };
            schema::validate(raw, status, &format!("{path}.openAPIV3Schema"), errors);
        }
        if !sub_once || i == 0 {
            subresources(at(version, "subresources"), &format!("{}.subresources", place(sub_once)), errors);
        }
        if !columns_once || i == 0 {
            let path = format!("{}.additionalPrinterColumns", place(columns_once));
            columns(list(version, "additionalPrinterColumns"), &path, errors);
        }
        let fields = list(version, "selectableFields");
        let seen = fields_once && i > 0;
        if !seen && !fields.is_empty() {
            let path = format!("{}.selectableFields", place(fields_once));
            if schema_once && !fields_once {
                let mut error = FieldError::invalid(
                    path,
                    &json!(""),
                    "may only be set when `version.schema.openAPIV3Schema` is not included",
                );
                error.value = Some("\"\"".to_owned());
                errors.push(error);
            } else {
                selectable(fields, raw, &path, errors);
            }
        }
    }
}

/// The versions as Go prints its internal structs.
fn dump_versions(versions: &[Value]) -> String {
    let shown: Vec<String> = versions
        .iter()
        .map(|v| {
            let flag = |key: &str| at(v, key) == &json!(true);
            format!(
                "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\
                 \"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\
                 \"SelectableFields\":null}}",
                json!(text(v, "name")),
                flag("served"),
                flag("storage"),
                flag("deprecated"),
                at(v, "deprecationWarning"),
            )
        })
        .collect();
    format!("[{}]", shown.join(","))
}

fn subresources(subresources: &Value, path: &str, errors: &mut Vec<FieldError>) {
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
        if value.is_empty() {
            if needed {
                errors.push(FieldError::required(field, ""));
            }
        } else if !value.starts_with('.') {
            errors.push(FieldError::invalid(
                field,
                &json!(value),
                "must be a simple json path starting with .",
            ));
        } else if value.contains('[') {
            errors.push(FieldError::invalid(field, &json!(value), "must be a json path in the dot notation"));
        } else if needed && !value.starts_with(under) {
            let what = format!("should be a json path under {}", under.trim_end_matches('.'));
            errors.push(FieldError::invalid(field, &json!(value), what));
        } else if !needed && !value.starts_with(".status.") && !value.starts_with(".spec.") {
            let what = "should be a json path under either .spec or .status";
            errors.push(FieldError::invalid(field, &json!(value), what));
        }
    }
}

fn columns(columns: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
    const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
    for (i, column) in columns.iter().enumerate() {
        let at = |field: &str| format!("{path}[{i}].{field}");
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(at("name"), ""));
        }
        for (field, allowed, needed) in [("type", &TYPES[..], true), ("format", &FORMATS[..], false)] {
            let value = text(column, field);
            if value.is_empty() {
                if needed {
                    let what = format!("must be one of {}", allowed.join(","));
                    errors.push(FieldError::required(at(field), what));
                }
            } else if !allowed.contains(&value) {
                let what = format!("must be one of {}", allowed.join(","));
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

fn selectable(fields: &[Value], schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    const MOST: usize = 8;
    if fields.len() > MOST {
        errors.push(FieldError {
            kind: crate::error::FieldErrorKind::TooMany,
            field: path.to_owned(),
            value: Some(fields.len().to_string()),
            detail: format!("must have at most {MOST} items"),
        });
    }
    let mut seen = HashSet::new();
    for (i, field) in fields.iter().enumerate() {
        let (json_path, at_path) = (text(field, "jsonPath"), format!("{path}[{i}].jsonPath"));
        let mut bad = |what: &str| errors.push(FieldError::invalid(at_path.clone(), &json!(json_path), what));
        if json_path.is_empty() {
            errors.push(FieldError::required(at_path, ""));
            continue;
        }
        let parsed = JsonPath::parse(json_path).ok().filter(|_| json_path.starts_with('.'));
        let Some(names) = parsed.as_ref().and_then(JsonPath::fields) else {
            bad("is an invalid path: must be a simple json path starting with .");
            continue;
        };
        let mut here = schema;
        for name in &names {
            here = at(at(here, "properties"), name);
        }
        if names.first() == Some(&"metadata") {
            bad("must not point to fields in metadata");
        } else if here.is_null() {
            bad("is an invalid path: does not refer to a valid field");
        } else if !["string", "integer", "boolean"].contains(&text(here, "type")) {
            bad(
                "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                 formats are allowed.",
            );
        } else if !seen.insert(json_path) {
            errors.push(FieldError::duplicate(at_path, &json!(json_path)));
        }
    }
}

fn conversion(conversion: &Value, errors: &mut Vec<FieldError>) {
    if conversion.is_null() {
        return;
    }
    let webhook = at(conversion, "webhook");
    let versions = list(webhook, "conversionReviewVersions");
    match text(conversion, "strategy") {
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        "Webhook" => {
            if at(webhook, "clientConfig").is_null() {
                let what = "required when strategy is set to Webhook";
                errors.push(FieldError::required("spec.conversion.webhookClientConfig", what));
            }
            if versions.is_empty() {
                errors.push(FieldError::required("spec.conversion.conversionReviewVersions", ""));
            } else if !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
                let what = "must include at least one of v1, v1beta1";
                errors.push(FieldError::invalid(
                    "spec.conversion.conversionReviewVersions",
                    &json!(versions),
                    what,
                ));
            }
        }
        "None" => {
            let what = "should not be set when strategy is not set to Webhook";
            if !at(webhook, "clientConfig").is_null() {
                errors.push(FieldError::forbidden("spec.conversion.webhookClientConfig", what));
            }
            if !versions.is_empty() {
                errors.push(FieldError::forbidden("spec.conversion.conversionReviewVersions", what));
            }
        }
        other => errors.push(FieldError::not_supported(
            "spec.conversion.strategy",
            &json!(other),
            &["None", "Webhook"],
        )),
    }
}

fn stored_versions(status: &Value, versions: &[Value], errors: &mut Vec<FieldError>) {
    let (field, value) = ("status.storedVersions", at(status, "storedVersions"));
    let stored: Vec<&str> = list(status, "storedVersions").iter().filter_map(Value::as_str).collect();
    if stored.is_empty() {
        errors.push(FieldError::invalid(field, &Value::Null, "must have at least one stored version"));
        return;
    }
    for version in versions.iter().filter(|v| at(v, "storage") == &json!(true)) {
        let name = text(version, "name");
        if !stored.contains(&name) {
            errors.push(FieldError::invalid(field, value, format!("must have the storage version {name}")));
        }
    }
    for (i, name) in stored.iter().enumerate() {
        if versions.iter().all(|v| text(v, "name") != *name) {
            let what = "must appear in spec.versions";
            errors.push(FieldError::invalid(format!("{field}[{i}]"), &json!(name), what));
        }
    }
}

/// A DNS-1035 label: lower case letters, digits and dashes, starting with a letter, at most 63 characters.
fn is_label_1035(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn is_subdomain(text: &str) -> bool {
    let part = |p: &str| {
        !p.is_empty()
            && !p.starts_with('-')
            && !p.ends_with('-')
            && p.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    text.len() <= 253 && text.split('.').all(part)
}
