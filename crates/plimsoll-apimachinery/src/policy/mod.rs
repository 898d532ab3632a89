//! ValidatingAdmissionPolicies and their bindings, the part without a store: what they match, what their expressions
//! say of a request (apiserver `admission/plugin/policy/validating`).

mod evaluate;
mod matching;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

pub(crate) use self::evaluate::CONDITIONS_BUDGET;
pub use self::evaluate::{Annotation, Authorize, Outcome, Request, Verdict};
pub use self::matching::is_exempt;
use crate::cel::Program;
use crate::kinds::Gvk;
use crate::webhook::{at, list, text};

/// An expression, compiled.
#[derive(Debug)]
pub(crate) struct Compiled {
    source: String,
    program: Result<Program, String>,
}

impl Compiled {
    fn new(source: &str) -> Self {
        Self { source: source.to_owned(), program: Program::compile(source) }
    }
}

/// A validation of a policy.
#[derive(Debug)]
struct Validation {
    expression: Compiled,
    message: String,
    message_expression: Option<Compiled>,
    reason: String,
}

/// A policy, ready for use.
#[derive(Debug)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Whether errors let the request pass (`failurePolicy: Ignore`).
    pub ignore_failures: bool,
    /// Kind of its parameters; an error: its `apiVersion` can't be read.
    pub param_kind: Option<Gvk>,
    constraints: Value,
    conditions: Vec<(String, Compiled)>,
    variables: Vec<(String, Compiled)>,
    validations: Vec<Validation>,
    annotations: Vec<(String, Compiled)>,
}

impl Policy {
    /// Makes a policy of its object.
    pub fn compile(object: &Value) -> Self {
        let spec = at(object, "spec");
        let named = |key: &str, name: &str, expression: &str| -> Vec<(String, Compiled)> {
            let one = |v: &Value| (text(v, name).to_owned(), Compiled::new(text(v, expression)));
            list(spec, key).iter().map(one).collect()
        };
        let param_kind = at(spec, "paramKind").is_object().then(|| {
            let kind = at(spec, "paramKind");
            let version = text(kind, "apiVersion");
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            Gvk { group: group.to_owned(), version: version.to_owned(), kind: text(kind, "kind").to_owned() }
        });
        let validation = |v: &Value| Validation {
            expression: Compiled::new(text(v, "expression")),
            message: text(v, "message").trim().to_owned(),
            message_expression: Some(text(v, "messageExpression"))
                .filter(|e| !e.is_empty())
                .map(Compiled::new),
            reason: Some(text(v, "reason")).filter(|r| !r.is_empty()).unwrap_or("Invalid").to_owned(),
        };
        Self {
            name: text(at(object, "metadata"), "name").to_owned(),
            ignore_failures: text(spec, "failurePolicy") == "Ignore",
            param_kind,
            constraints: at(spec, "matchConstraints").clone(),
            conditions: named("matchConditions", "name", "expression"),
            variables: named("variables", "name", "expression"),
            validations: list(spec, "validations").iter().map(validation).collect(),
            annotations: named("auditAnnotations", "key", "valueExpression"),
        }
    }
}

/// What is done about a validation that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The request is refused.
    Deny,
    /// Its answer has a warning.
    Warn,
    /// The audit event has an annotation.
    Audit,
}

impl Action {
    /// As bindings name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Deny => "Deny",
            Self::Warn => "Warn",
            Self::Audit => "Audit",
        }
    }
}

/// Which parameters a binding names.
#[derive(Clone, Debug)]
pub struct ParamRef {
    /// Name; empty: by selector.
    pub name: String,
    /// Namespace; empty: that of the request.
    pub namespace: String,
    /// Label selector.
    pub selector: Option<Value>,
    /// Whether a request is refused when there are none.
    pub deny_missing: bool,
}

impl ParamRef {
    /// Whether the selector fits an object with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.as_ref().is_some_and(|s| crate::webhook::selector_matches(s, labels))
    }
}

/// A binding of a policy.
#[derive(Debug)]
pub struct Binding {
    /// Its name.
    pub name: String,
    /// Name of the policy.
    pub policy: String,
    /// What is done, in order.
    pub actions: Vec<Action>,
    /// Its parameters.
    pub params: Option<ParamRef>,
    resources: Option<Value>,
}

impl Binding {
    /// Makes a binding of its object.
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
