//! ValidatingAdmissionPolicies and their bindings: the requests they match and the verdicts of their expressions
//! (`k8s.io/apiserver/pkg/admission/plugin/policy/validating`).

mod evaluate;
mod matching;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

pub use self::evaluate::{Annotation, Outcome, Verdict};
pub use self::matching::is_exempt;
use crate::admission::{Expression, MatchCondition, selector_matches};
use crate::gvk::Gvk;
use crate::json::{at, list, text};

/// A validation of a policy.
#[derive(Debug)]
struct Validation {
    expression: Expression,
    message: String,
    message_expression: Option<Expression>,
    reason: String,
}

/// A policy, its expressions parsed.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Whether errors let the request pass (`failurePolicy: Ignore`).
    pub ignore_failures: bool,
    /// Kind of its parameters; an error: its `apiVersion` can't be read.
    pub param_kind: Option<Gvk>,
    constraints: Value,
    conditions: Vec<MatchCondition>,
    variables: Vec<(String, Expression)>,
    validations: Vec<Validation>,
    annotations: Vec<(String, Expression)>,
}

impl Policy {
    /// Parses a policy.
    pub fn compile(object: &Value) -> Self {
        let spec = at(object, "spec");
        let named = |key: &str, name: &str, expression: &str| -> Vec<(String, Expression)> {
            let one = |v: &Value| (text(v, name).to_owned(), Expression::parse(text(v, expression)));
            list(spec, key).iter().map(one).collect()
        };
        let param_kind = at(spec, "paramKind").is_object().then(|| {
            let kind = at(spec, "paramKind");
            let version = text(kind, "apiVersion");
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            Gvk { group: group.to_owned(), version: version.to_owned(), kind: text(kind, "kind").to_owned() }
        });
        let validation = |v: &Value| Validation {
            expression: Expression::parse(text(v, "expression")),
            message: text(v, "message").trim().to_owned(),
            message_expression: Some(text(v, "messageExpression"))
                .filter(|e| !e.is_empty())
                .map(Expression::parse),
            reason: Some(text(v, "reason")).filter(|r| !r.is_empty()).unwrap_or("Invalid").to_owned(),
        };
        Self {
            name: text(at(object, "metadata"), "name").to_owned(),
            ignore_failures: text(spec, "failurePolicy") == "Ignore",
            param_kind,
            constraints: at(spec, "matchConstraints").clone(),
            conditions: list(spec, "matchConditions").iter().map(MatchCondition::parse).collect(),
            variables: named("variables", "name", "expression"),
            validations: list(spec, "validations").iter().map(validation).collect(),
            annotations: named("auditAnnotations", "key", "valueExpression"),
        }
    }
}

/// The action when a validation does not hold (`validationActions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is denied.
    Deny,
    /// The response has a warning.
    Warn,
    /// The audit event has an annotation.
    Audit,
}

impl Action {
    /// The name that bindings use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }
}

/// The parameters of a binding.
#[derive(Clone, Debug)]
pub struct ParamRef {
    /// Name; empty: by selector.
    pub name: String,
    /// Namespace; empty: that of the request.
    pub namespace: String,
    /// Label selector.
    pub selector: Option<Value>,
    /// Whether a request is denied when there are no parameters.
    pub deny_missing: bool,
}

impl ParamRef {
    /// Whether the selector matches an object with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|s| selector_matches(s, labels))
    }
}

/// A binding of a policy.
#[derive(Debug)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// Name of the policy.
    pub policy: String,
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// Its parameters.
    pub params: Option<ParamRef>,
    resources: Option<Value>,
}

impl Binding {
    /// Parses a binding.
    pub fn new(object: &Value) -> Self {
        let spec = at(object, "spec");
        let action = |v: &Value| match v.as_str() {
            Some("Deny") => Some(Action::Deny),
            Some("Warn") => Some(Action::Warn),
            Some("Audit") => Some(Action::Audit),
            _ => None,
        };
        let params = at(spec, "paramRef");
        Self {
            name: text(at(object, "metadata"), "name").to_owned(),
            policy: text(spec, "policyName").to_owned(),
            actions: list(spec, "validationActions").iter().filter_map(action).collect(),
            params: params.is_object().then(|| ParamRef {
                name: text(params, "name").to_owned(),
                namespace: text(params, "namespace").to_owned(),
                selector: params.get("selector").filter(|s| s.is_object()).cloned(),
                deny_missing: text(params, "parameterNotFoundAction") == "Deny",
            }),
            resources: spec.get("matchResources").filter(|m| m.is_object()).cloned(),
        }
    }
}
