//! Checks of CustomResourceDefinitions themselves (apiextensions `validation.go`), and their names' acceptance.

mod conversion;
mod defaults;
mod lists;
mod names;
mod rule_cost;
mod rule_types;
mod rules;
mod schema;
mod shown;
mod sizes;
mod structural;
#[cfg(test)]
mod tests;
mod version;

use std::collections::HashSet;

use serde_json::{Value, json};

pub use self::names::accept;
use super::{at, list, text};
use crate::error::FieldError;
use crate::validate::{dns_1035_label, dns_subdomain};

/// Validates a new definition, with its defaults and `status.storedVersions` set.
pub fn validate_create(definition: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (spec, meta) = (at(definition, "spec"), at(definition, "metadata"));
    let wanted = format!("{}.{}", text(at(spec, "names"), "plural"), text(spec, "group"));
    for key in ["generateName", "name"] {
        let name = text(meta, key);
        if !name.is_empty() && name != wanted {
            let what = "must be spec.names.plural+\".\"+spec.group";
            errors.push(FieldError::invalid(format!("metadata.{key}"), &json!(name), what));
        }
    }
    validate(definition, None, &mut errors);
    errors
}

/// Validates an update of a definition.
pub fn validate_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    validate(new, Some(old), &mut errors);
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

/// Validates an update of a definition's status.
pub fn validate_status(new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    names::validate(at(at(new, "status"), "acceptedNames"), "status.acceptedNames", &mut errors);
    errors
}

/// Warnings about a definition; `old` is the one it replaces.
pub fn warnings(old: Option<&Value>, new: &Value) -> Vec<String> {
    let formats = |definition: &Value| {
        let mut found = Vec::new();
        version::schemas(definition).for_each(|raw| version::unknown_formats(raw, 0, &mut found));
        found
    };
    let known = old.map(formats).unwrap_or_default();
    let mut found = formats(new);
    found.retain(|format| !known.contains(format));
    found.iter().map(|format| format!("unrecognized format {}", crate::go::go_quote(format))).collect()
}

fn is_true(value: &Value, key: &str) -> bool {
    at(value, key) == &json!(true)
}

fn validate(definition: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = at(definition, "spec");
    group(text(spec, "group"), errors);
    match text(spec, "scope") {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            errors.push(FieldError::not_supported("spec.scope", &json!(other), &["Cluster", "Namespaced"]));
        }
    }
    let preserves = is_true(spec, "preserveUnknownFields");
    if preserves && version::schemas(definition).any(|raw| schema::has_defaults(raw, 0)) {
        let what = "must be false in order to use defaults in the schema";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), what));
    }
    versions(spec, old, errors);
    let recognized = old.is_none_or(|old| {
        let webhook = at(at(at(old, "spec"), "conversion"), "webhook");
        let versions = list(webhook, "conversionReviewVersions");
        versions.is_empty() || versions.iter().any(|v| v == "v1" || v == "v1beta1")
    });
    conversion::validate(at(spec, "conversion"), !preserves, recognized, errors);
    let status = at(definition, "status");
    names::validate(at(status, "acceptedNames"), "status.acceptedNames", errors);
    stored_versions(status, list(spec, "versions"), errors);
    approval(definition, old, text(spec, "group"), errors);
    if preserves && !old.is_some_and(|old| is_true(at(old, "spec"), "preserveUnknownFields")) {
        let what = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                    spec.versions[*].schema instead";
        errors.push(FieldError::invalid("spec.preserveUnknownFields", &json!(true), what));
    }
}

fn group(group: &str, errors: &mut Vec<FieldError>) {
    let faults = dns_subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !faults.is_empty() {
        errors.push(FieldError::invalid("spec.group", &json!(group), faults.join(",")));
    } else if !group.contains('.') {
        let what = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &json!(group), what));
    }
}

/// `validateAPIApproval`: definitions in Kubernetes' own groups need an annotation.
fn approval(definition: &Value, old: Option<&Value>, group: &str, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "metadata.annotations[api-approved.kubernetes.io]";
    if !names::is_protected(group) {
        return;
    }
    let of = |d| names::approval(at(at(d, "metadata"), "annotations"));
    let state = of(definition);
    if old.is_some_and(|old| std::mem::discriminant(&of(old)) == std::mem::discriminant(&state)) {
        return;
    }
    match state {
        names::Approval::Missing => errors.push(FieldError::required(
            FIELD,
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        )),
        names::Approval::Invalid(value) => errors.push(FieldError::invalid(
            FIELD,
            &json!(value),
            "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a \
             URL or a reason starting with \"unapproved\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        )),
        _ => {}
    }
}

/// The fields of versions that upstream keeps once when they are equal.
const SHARED: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];

/// Whether all versions have the same value under a key: upstream then keeps it once for all of them, and messages name
/// that place.
fn identical(versions: &[Value], key: &str) -> bool {
    versions.windows(2).all(|pair| pair.first().map(|v| at(v, key)) == pair.get(1).map(|v| at(v, key)))
}

/// The fields that all versions share.
struct Shared<'a> {
    versions: &'a [Value],
    old: &'a [Value],
    keys: Vec<&'static str>,
}

impl Shared<'_> {
    fn has(&self, key: &str) -> bool {
        self.keys.contains(&key)
    }

    /// The old version of a name.
    fn before(&self, name: &str) -> Option<&Value> {
        self.old.iter().find(|v| text(v, "name") == name)
    }

    /// Whether a version's schema is that of the old version.
    fn same_schema(&self, version: &Value) -> bool {
        self.before(text(version, "name")).is_some_and(|old| at(old, "schema") == at(version, "schema"))
    }
}

fn versions(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let versions = list(spec, "versions");
    let shared = Shared {
        versions,
        old: old.map_or(&[], |old| list(at(old, "spec"), "versions")),
        keys: SHARED.into_iter().filter(|key| identical(versions, key)).collect(),
    };
    let raw = |version| at(at(version, "schema"), "openAPIV3Schema");
    for (i, version) in versions.iter().enumerate() {
        if raw(version).is_null() {
            errors.push(FieldError::required(format!("spec.versions[{i}].schema.openAPIV3Schema"), ""));
        }
    }
    for (i, version) in versions.iter().enumerate() {
        let (name, path) = (text(version, "name"), format!("spec.versions[{i}]"));
        let faults = dns_1035_label(name);
        if !faults.is_empty() {
            errors.push(FieldError::invalid(format!("{path}.name"), &json!(name), faults.join(",")));
        }
        version::deprecation(version, &path, errors);
        version_fields(version, &shared, false, &path, errors);
    }
    about_all(spec, &shared, errors);
    if let Some(first) = versions.first() {
        let name = text(first, "name");
        let faults = dns_1035_label(name);
        if !name.is_empty() && !faults.is_empty() {
            errors.push(FieldError::invalid("spec.version", &json!(name), faults.join(",")));
        }
    }
    let names = at(spec, "names");
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(names, key).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{key}"), ""));
        }
    }
    names::validate(names, "spec.names", errors);
    if let Some(first) = versions.first() {
        version_fields(first, &shared, true, "spec", errors);
    }
}

fn about_all(spec: &Value, shared: &Shared<'_>, errors: &mut Vec<FieldError>) {
    let mut bad = |what: &str| {
        let mut error = FieldError::invalid("spec.versions", &Value::Null, what);
        error.value = Some(shown::versions(spec.get("versions"), &shared.keys));
        errors.push(error);
    };
    let mut seen = HashSet::new();
    if !shared.versions.iter().all(|v| seen.insert(text(v, "name"))) {
        bad("must contain unique version names");
    }
    if shared.versions.iter().filter(|v| is_true(v, "storage")).count() != 1 {
        bad("must have exactly one version marked as storage version");
    }
}

/// Validates schema, subresources, columns and selectable fields: those of all versions (`once`), or of one version.
fn version_fields(
    version: &Value,
    shared: &Shared<'_>,
    once: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let here = |key: &str| shared.has(key) == once;
    let raw = at(at(version, "schema"), "openAPIV3Schema");
    let status = |v: &Value| at(at(v, "subresources"), "status").is_object();
    if here("schema") && !raw.is_null() {
        let key = if once { "validation" } else { "schema" };
        let of = schema::Of {
            status: if once { shared.versions.iter().any(status) } else { status(version) },
            unchanged: shared.same_schema(version),
        };
        schema::validate(raw, &of, &format!("{path}.{key}.openAPIV3Schema"), errors);
    }
    if here("subresources") {
        version::subresources(at(version, "subresources"), &format!("{path}.subresources"), errors);
    }
    if here("additionalPrinterColumns") {
        let columns = list(version, "additionalPrinterColumns");
        version::columns(columns, &format!("{path}.additionalPrinterColumns"), errors);
    }
    let fields = list(version, "selectableFields");
    if !here("selectableFields") || fields.is_empty() {
        return;
    }
    let path = format!("{path}.selectableFields");
    if here("schema") && !raw.is_null() {
        let before = shared.before(text(version, "name"));
        let as_before = before.is_some_and(|old| list(old, "selectableFields") == fields);
        version::selectable(fields, raw, as_before, &path, errors);
    } else {
        let what = if once {
            "may only be set when validations.schema is included"
        } else {
            "may only be set when `version.schema.openAPIV3Schema` is not included"
        };
        errors.push(FieldError::invalid(path, &json!(""), what));
    }
}

fn stored_versions(status: &Value, versions: &[Value], errors: &mut Vec<FieldError>) {
    let (field, value) = ("status.storedVersions", at(status, "storedVersions"));
    let stored: Vec<&str> = list(status, "storedVersions").iter().filter_map(Value::as_str).collect();
    if stored.is_empty() {
        errors.push(FieldError::invalid(field, &Value::Null, "must have at least one stored version"));
        return;
    }
    let known: HashSet<&str> = stored.iter().copied().collect();
    let mut names = HashSet::new();
    for version in versions {
        let name = text(version, "name");
        // a name counts once
        let first = names.insert(name);
        if is_true(version, "storage") && !(first && known.contains(name)) {
            errors.push(FieldError::invalid(field, value, format!("must have the storage version {name}")));
        }
    }
    for (i, name) in stored.iter().enumerate() {
        if !names.contains(name) {
            let what = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {name} and removes \
                 {name} from status.storedVersions"
            );
            errors.push(FieldError::invalid(format!("{field}[{i}]"), &json!(name), what));
        }
    }
}
