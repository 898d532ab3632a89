//! admissionregistration.k8s.io/v1 `ValidatingAdmissionPolicy` and its binding.

use std::collections::BTreeSet;

use plimsoll_cel::{Environment, RESERVED, Type};
use serde_json::Value;

use super::match_conditions::{conditions, expression};
use super::path::{Errors, Path};
use super::webhook::rule;
use super::{checks, selector};
use crate::admission::environment;
use crate::obj::{Obj, as_obj, has, list, object, text};

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const MAX_ANNOTATIONS: usize = 20;
/// Longest expression of an audit annotation, in bytes.
const MAX_ANNOTATION_EXPRESSION: usize = 5 * 1024;
const EMPTY_POLICY: &str = "validations or auditAnnotations must contain at least one item";
const EXCLUSIVE: &str = "name and selector are mutually exclusive";
const BOTH: &str = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                    API response and headers serves no purpose)";
/// A policy.
pub(super) fn policy(policy: &Obj, errors: &mut Errors) {
    let (spec, path) = (object(policy, "spec"), Path::new("spec"));
    match spec.get("failurePolicy").and_then(Value::as_str) {
        None => errors.required(&path.field("failurePolicy"), ""),
        Some(value) => errors.one_of(&path.field("failurePolicy"), value, &["Fail", "Ignore"]),
    }
    let params = has(spec, "paramKind");
    if params {
        param_kind(object(spec, "paramKind"), &path.field("paramKind"), errors);
    }
    let at = path.field("matchConstraints");
    if has(spec, "matchConstraints") {
        let constraints = object(spec, "matchConstraints");
        resources(constraints, &at, errors);
        if list(constraints, "resourceRules").is_empty() {
            errors.required(&at.field("resourceRules"), "");
        }
    } else {
        errors.required(&at, "");
    }
    conditions(list(spec, "matchConditions"), params, &path.field("matchConditions"), errors);
    let mut variables = Environments { full: environment(params, true), message: environment(params, false) };
    variables.declare(list(spec, "variables"), &path.field("variables"), errors);
    if list(spec, "validations").is_empty() && list(spec, "auditAnnotations").is_empty() {
        errors.required(&path.field("validations"), EMPTY_POLICY);
        errors.required(&path.field("auditAnnotations"), EMPTY_POLICY);
        return;
    }
    let at = path.field("validations");
    for (i, v) in list(spec, "validations").iter().map(as_obj).enumerate() {
        validation(v, &variables, &at.index(i), errors);
    }
    let name = text(object(policy, "metadata"), "name");
    annotations(
        list(spec, "auditAnnotations"),
        name,
        &variables.full,
        &path.field("auditAnnotations"),
        errors,
    );
}

fn param_kind(kind: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (version, at) = (text(kind, "apiVersion"), path.field("apiVersion"));
    if version.is_empty() {
        errors.required(&at, "");
    } else {
        match version.matches('/').count() {
            0 | 1 => {
                let (group, plain) = version.split_once('/').unwrap_or(("", version));
                if !group.is_empty() && !checks::dns_subdomain(group).is_empty() {
                    errors.invalid(&at, group, &checks::dns_subdomain(group).join(","));
                }
                if plain.is_empty() {
                    errors.invalid(&at, version, "version must be specified");
                } else if !checks::dns_1035_label(plain).is_empty() {
                    errors.invalid(&at, plain, &checks::dns_1035_label(plain).join(","));
                }
            }
            _ => errors.invalid(&at, version, &format!("unexpected GroupVersion string: {version}")),
        }
    }
    let (name, at) = (text(kind, "kind"), path.field("kind"));
    if name.is_empty() {
        errors.required(&at, "");
        return;
    }
    let faults = checks::dns_1035_label(&name.to_lowercase());
    if !faults.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", faults.join(","));
        errors.invalid(&at, name, &detail);
    }
}

fn resources(matching: &Obj, path: &Path<'_>, errors: &mut Errors) {
    match matching.get("matchPolicy").and_then(Value::as_str) {
        None => errors.required(&path.field("matchPolicy"), ""),
        Some(value) => errors.one_of(&path.field("matchPolicy"), value, &["Equivalent", "Exact"]),
    }
    for key in ["namespaceSelector", "objectSelector"] {
        let at = path.field(key);
        if has(matching, key) {
            selector::label_selector(object(matching, key), &at, errors);
        } else {
            errors.required(&at, "");
        }
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        let at = path.field(key);
        for (i, r) in list(matching, key).iter().map(as_obj).enumerate() {
            named_rule(r, &at.index(i), errors);
        }
    }
}

fn named_rule(r: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("resourceNames");
    let names = list(r, "resourceNames");
    let mut seen = BTreeSet::new();
    for (i, name) in names.iter().enumerate() {
        let shown = name.as_str().unwrap_or_default();
        errors.invalid_all(&at.index(i), shown, &checks::path_segment(shown, false));
        if !seen.insert(shown) {
            errors.duplicate(&at.index(i), shown);
        }
    }
    rule(r, path, errors);
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !RESERVED.contains(&name)
}

/// The variables of the expressions of a policy.
struct Environments {
    full: Environment,
    /// The variables of `messageExpression`, which has no authorizer.
    message: Environment,
}

impl Environments {
    /// Checks `variables` and declares each for the expressions after it.
    fn declare(&mut self, all: &[Value], path: &Path<'_>, errors: &mut Errors) {
        if !all.is_empty() {
            self.update(|environment| environment.scope("variables"));
        }
        for (i, variable) in all.iter().map(as_obj).enumerate() {
            let at = path.index(i);
            let (name, source) = (text(variable, "name"), text(variable, "expression"));
            if name.trim().is_empty() {
                errors.required(&at.field("name"), "name is not specified");
            } else if !is_identifier(name) {
                errors.invalid(&at.field("name"), name, "must be a valid CEL identifier");
            }
            let mut ty = Type::Unknown;
            if source.trim().is_empty() {
                errors.required(&at.field("expression"), "expression is not specified");
            } else {
                ty = expression(source, source, &self.full, &[], &at.field("expression"), errors);
            }
            self.update(|environment| environment.variable(format!("variables.{name}"), ty.clone()));
        }
    }

    fn update(&mut self, declare: impl Fn(Environment) -> Environment) {
        for environment in [&mut self.full, &mut self.message] {
            *environment = declare(std::mem::take(environment));
        }
    }
}

fn validation(v: &Obj, variables: &Environments, path: &Path<'_>, errors: &mut Errors) {
    let (source, message, made) = (text(v, "expression"), text(v, "message"), text(v, "messageExpression"));
    if source.trim().is_empty() {
        errors.required(&path.field("expression"), "expression is not specified");
    } else {
        expression(source, source, &variables.full, &[Type::Bool], &path.field("expression"), errors);
    }
    let at = path.field("messageExpression");
    if !made.is_empty() && made.trim().is_empty() {
        errors.invalid(&at, made, "must be non-empty if specified");
    } else if !made.is_empty() {
        expression(made, made, &variables.message, &[Type::String], &at, errors);
    }
    let at = path.field("message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.invalid(&at, message, "must be non-empty if specified");
    } else if message.trim().contains(['\n', '\r']) {
        errors.invalid(&at, message, "must not contain line breaks");
    }
    if let Some(reason) = v.get("reason").and_then(Value::as_str) {
        errors.one_of(&path.field("reason"), reason, &REASONS);
    }
}

fn annotations(all: &[Value], policy: &str, variables: &Environment, path: &Path<'_>, errors: &mut Errors) {
    if all.len() > MAX_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        errors.invalid(path, Value::Array(all.to_vec()), &detail);
    }
    let mut keys = BTreeSet::new();
    for (i, annotation) in all.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        let (key, source) = (text(annotation, "key"), text(annotation, "valueExpression").trim());
        if policy.is_empty() {
            errors.invalid(&at.field("key"), key, "requires metadata.name be non-empty");
        } else {
            let whole = format!("{policy}/{key}");
            errors.invalid_all(&at.field("key"), &whole, &checks::qualified_name(&whole));
        }
        let field = at.field("valueExpression");
        if source.is_empty() {
            errors.required(&field, "valueExpression is not specified");
        } else if source.len() > MAX_ANNOTATION_EXPRESSION {
            errors.required(&field, &format!("must not exceed {MAX_ANNOTATION_EXPRESSION} bytes in length"));
        } else {
            let shown = text(annotation, "valueExpression");
            expression(source, shown, variables, &[Type::String, Type::Null], &field, errors);
        }
        if !keys.insert(key) {
            errors.duplicate(&at.field("key"), key);
        }
    }
}

/// A binding.
pub(super) fn binding(binding: &Obj, errors: &mut Errors) {
    let (spec, path) = (object(binding, "spec"), Path::new("spec"));
    let (name, at) = (text(spec, "policyName"), path.field("policyName"));
    errors.named(&at, name, checks::dns_subdomain);
    if has(spec, "paramRef") {
        param_ref(object(spec, "paramRef"), &path.field("paramRef"), errors);
    }
    if has(spec, "matchResources") {
        resources(object(spec, "matchResources"), &path.field("matchResources"), errors);
    }
    actions(list(spec, "validationActions"), &path.field("validationActions"), errors);
}

fn param_ref(params: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (name, selects) = (text(params, "name"), has(params, "selector"));
    if !name.is_empty() {
        errors.invalid_all(&path.field("name"), name, &checks::path_segment(name, false));
        if selects {
            errors.forbidden(&path.field("name"), EXCLUSIVE);
        }
    }
    if selects {
        selector::label_selector(object(params, "selector"), &path.field("selector"), errors);
        if !name.is_empty() {
            errors.forbidden(&path.field("selector"), EXCLUSIVE);
        }
    }
    if name.is_empty() && !selects {
        errors.required(path, "one of name or selector must be specified");
    }
    let at = path.field("parameterNotFoundAction");
    errors.choice(&at, text(params, "parameterNotFoundAction"), &["Deny", "Allow"]);
}

fn actions(all: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (i, action) in all.iter().enumerate() {
        let shown = action.as_str().unwrap_or_default();
        errors.one_of(&path.index(i), shown, &["Audit", "Deny", "Warn"]);
        if !seen.insert(shown) {
            errors.duplicate(&path.index(i), shown);
        }
    }
    let has = |name: &str| all.iter().any(|a| a == name);
    if has("Deny") && has("Warn") {
        errors.invalid(path, Value::Array(all.to_vec()), BOTH);
    }
    if all.is_empty() {
        errors.required(path, "at least one validation action is required");
    }
}
