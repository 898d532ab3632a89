//! admissionregistration.k8s.io/v1 webhook configurations.

use std::collections::BTreeSet;

use serde_json::Value;

use super::path::{Errors, Path};
use super::{checks, client, match_conditions, selector};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// Either kind of configuration.
pub(super) fn configuration(config: &Obj, errors: &mut Errors) {
    let path = Path::new("webhooks");
    let mut names = BTreeSet::new();
    for (i, hook) in list(config, "webhooks").iter().map(as_obj).enumerate() {
        let at = path.index(i);
        webhook(hook, &at, errors);
        let name = text(hook, "name");
        review_versions(hook, &at.field("admissionReviewVersions"), errors);
        if !name.is_empty() && !names.insert(name) {
            errors.duplicate(&at.field("name"), name);
        }
    }
}

fn review_versions(hook: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let versions = list(hook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.required(path, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen = BTreeSet::new();
    for (i, version) in versions.iter().enumerate() {
        let text = version.as_str().unwrap_or_default();
        if !seen.insert(text) {
            errors.invalid(&path.index(i), text, "duplicate version");
            continue;
        }
        errors.invalid_all(&path.index(i), text, &checks::dns_1035_label(text));
    }
    if !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
        errors.invalid(path, Value::Array(versions.to_vec()), "must include at least one of v1, v1beta1");
    }
}

fn webhook(hook: &Obj, path: &Path<'_>, errors: &mut Errors) {
    qualified(text(hook, "name"), &path.field("name"), errors);
    let rules = path.field("rules");
    for (i, rule) in list(hook, "rules").iter().map(as_obj).enumerate() {
        self::rule(rule, &rules.index(i), errors);
    }
    let choices: [(&str, &[&str]); 3] = [
        ("failurePolicy", &["Fail", "Ignore"]),
        ("matchPolicy", &["Equivalent", "Exact"]),
        ("reinvocationPolicy", &["IfNeeded", "Never"]),
    ];
    for (key, allowed) in &choices[..2] {
        if let Some(value) = hook.get(*key).and_then(Value::as_str) {
            errors.one_of(&path.field(key), value, allowed);
        }
    }
    let at = path.field("sideEffects");
    match hook.get("sideEffects").and_then(Value::as_str) {
        None => errors.required(&at, "must specify one of None, NoneOnDryRun"),
        Some(value) => errors.one_of(&at, value, &["None", "NoneOnDryRun"]),
    }
    if let Some(seconds) = int(hook, "timeoutSeconds").filter(|s| !(1..=30).contains(s)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.field("timeoutSeconds"), seconds, detail);
    }
    for key in ["namespaceSelector", "objectSelector"] {
        if has(hook, key) {
            selector::label_selector(object(hook, key), &path.field(key), errors);
        }
    }
    client::config(object(hook, "clientConfig"), &path.field("clientConfig"), errors);
    for (key, allowed) in &choices[2..] {
        if let Some(value) = hook.get(*key).and_then(Value::as_str) {
            errors.one_of(&path.field(key), value, allowed);
        }
    }
    match_conditions::conditions(
        list(hook, "matchConditions"),
        false,
        &path.field("matchConditions"),
        errors,
    );
}

/// A name of at least three parts (`IsFullyQualifiedName`).
fn qualified(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path, "");
        return;
    }
    let faults = checks::dns_subdomain(name);
    errors.invalid_all(path, name, &faults);
    if faults.is_empty() && name.split('.').count() < 3 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

pub(super) fn rule(rule: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let operations = list(rule, "operations");
    let at = path.field("operations");
    if operations.is_empty() {
        errors.required(&at, "");
    }
    if operations.len() > 1 && operations.iter().any(|o| o == "*") {
        errors.invalid(
            &at,
            Value::Array(operations.to_vec()),
            "if '*' is present, must not specify other operations",
        );
    }
    let known = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (i, operation) in operations.iter().enumerate() {
        errors.one_of(&at.index(i), operation.as_str().unwrap_or_default(), &known);
    }
    for key in ["apiGroups", "apiVersions", "resources"] {
        let values = list(rule, key);
        let at = path.field(key);
        if values.is_empty() {
            errors.required(&at, "");
        }
        if key != "resources" && values.len() > 1 && values.iter().any(|v| v == "*") {
            let what = if key == "apiGroups" { "API groups" } else { "API versions" };
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.invalid(&at, Value::Array(values.to_vec()), &detail);
        }
        if key == "resources" {
            resources(values, &at, errors);
            continue;
        }
        for (i, value) in values.iter().enumerate() {
            if value == "" && key != "apiGroups" {
                errors.required(&at.index(i), "");
            }
        }
    }
    if let Some(scope) = rule.get("scope").and_then(Value::as_str) {
        errors.one_of(&path.field("scope"), scope, &["*", "Cluster", "Namespaced"]);
    }
}

/// `validateResources`.
fn resources(all: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let (mut any_sub, mut any_resource) = (BTreeSet::new(), BTreeSet::new());
    let mut last_is_plain = false;
    for (i, one) in all.iter().map(|v| v.as_str().unwrap_or_default()).enumerate() {
        if one.is_empty() {
            errors.required(&path.index(i), "");
            continue;
        }
        let Some((resource, sub)) = one.split_once('/') else {
            last_is_plain = one != "*";
            continue;
        };
        if any_sub.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {one}");
            errors.invalid(&path.index(i), one, &detail);
        }
        if any_resource.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {one}");
            errors.invalid(&path.index(i), one, &detail);
        }
        if sub == "*" {
            any_sub.insert(resource);
        }
        if resource == "*" {
            any_resource.insert(sub);
        }
    }
    let given = || Value::Array(all.to_vec());
    if all.len() > 1 && all.iter().any(|r| r == "*/*") {
        errors.invalid(path, given(), "if '*/*' is present, must not specify other resources");
    }
    if last_is_plain && all.iter().any(|r| r == "*") {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, given(), detail);
    }
}
