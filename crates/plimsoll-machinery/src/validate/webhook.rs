//! admissionregistration.k8s.io/v1 webhook configurations.

use serde_json::Value;

use super::path::{Errors, Path};
use super::{checks, expression, selector};
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// Either kind of configuration.
pub(super) fn configuration(config: &Obj, errors: &mut Errors) {
    let path = Path::new("webhooks");
    let mut names: Vec<&str> = Vec::new();
    for (i, hook) in list(config, "webhooks").iter().map(as_obj).enumerate() {
        let at = path.index(i);
        webhook(hook, &at, errors);
        let name = text(hook, "name");
        review_versions(hook, &at.field("admissionReviewVersions"), errors);
        if names.contains(&name) && !name.is_empty() {
            errors.duplicate(&at.field("name"), name);
        }
        names.push(name);
    }
}

fn review_versions(hook: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let versions = list(hook, "admissionReviewVersions");
    if versions.is_empty() {
        errors.required(path, "must specify one of v1, v1beta1");
        return;
    }
    let mut seen: Vec<&Value> = Vec::new();
    for (i, version) in versions.iter().enumerate() {
        if seen.contains(&version) {
            errors.invalid(&path.index(i), version.clone(), "duplicate version");
        }
        seen.push(version);
        let text = version.as_str().unwrap_or_default();
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
    client(object(hook, "clientConfig"), &path.field("clientConfig"), errors);
    for (key, allowed) in &choices[2..] {
        if let Some(value) = hook.get(*key).and_then(Value::as_str) {
            errors.one_of(&path.field(key), value, allowed);
        }
    }
    conditions(hook, path, errors);
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

fn client(config: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let url = config.get("url").and_then(Value::as_str);
    let service = config.get("service").and_then(Value::as_object);
    match (url, service) {
        (None, None) | (Some(_), Some(_)) => {
            errors.required(path, "exactly one of url or service is required");
        }
        (Some(url), None) => self::url(url, &path.field("url"), errors),
        (None, Some(service)) => {
            let at = path.field("service");
            for key in ["name", "namespace"] {
                if text(service, key).is_empty() {
                    errors.required(&at.field(key), &format!("service {key} is required"));
                }
            }
            if let Some(port) = int(service, "port").filter(|p| !(1..=65_535).contains(p)) {
                let detail = "port is not valid: must be between 1 and 65535, inclusive";
                errors.invalid(&at.field("port"), port, detail);
            }
            if let Some(target) = service.get("path").and_then(Value::as_str)
                && !target.starts_with('/')
            {
                errors.invalid(&at.field("path"), target, "must start with a '/'");
            }
        }
    }
}

fn url(url: &str, path: &Path<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.invalid(path, scheme, &detail);
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.is_empty() {
        errors.invalid(path, host, &format!("host must be specified{FORM}"));
    }
    if let Some((user, _)) = authority.split_once('@') {
        errors.invalid(path, user, "user information is not permitted in the URL");
    }
    if let Some((_, fragment)) = rest.split_once('#') {
        errors.invalid(path, fragment, "fragments are not permitted in the URL");
    }
    if let Some((_, query)) = rest.split('#').next().unwrap_or_default().split_once('?') {
        errors.invalid(path, query, "query parameters are not permitted in the URL");
    }
}

/// Match conditions have names and expressions.
fn conditions(hook: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let conditions = list(hook, "matchConditions");
    let at = path.field("matchConditions");
    if conditions.len() > 64 {
        errors.too_many(&at, conditions.len(), 64);
    }
    let mut names: Vec<&str> = Vec::new();
    for (i, condition) in conditions.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let (name, source) = (text(condition, "name"), text(condition, "expression"));
        if source.trim().is_empty() {
            errors.required(&here.field("expression"), "");
        } else {
            expression::check(source, expression::Place::Condition, &here.field("expression"), errors);
        }
        if name.is_empty() {
            errors.required(&here.field("name"), "");
        } else {
            errors.invalid_all(&here.field("name"), name, &checks::qualified_name(name));
            if names.contains(&name) {
                errors.duplicate(&here.field("name"), name);
            }
            names.push(name);
        }
    }
}
