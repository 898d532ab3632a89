//! What a policy says of a request.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::{Compiled, Policy, Validation};
use crate::cel::eval::{self, Asked, Budget, Decision, Evaluated, Fail, Scope, Value};
use crate::webhook::{Attributes, Target, request_for_conditions};

/// Cost of all validations of a policy for one binding and parameter (apiserver `RuntimeCELCostBudget`).
const BUDGET: u64 = 10_000_000;
/// Cost of all match conditions of a policy or webhook (`RuntimeCELCostBudgetMatchConditions`).
pub(crate) const CONDITIONS_BUDGET: u64 = 2_500_000;
/// Longest message an expression may make, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
/// Longest value of an audit annotation, in bytes.
const MAX_ANNOTATION: usize = 10 * 1024;

/// Asks the authorizer.
pub type Authorize<'a> = &'a dyn Fn(&Asked) -> Decision;

/// A request as expressions see it: made once, for all policies that match it as the same kind.
pub struct Request {
    object: Value,
    old: Value,
    request: Value,
    namespace: Value,
    resource: Asked,
}

impl Request {
    /// A request that was matched as `target`, with its objects in that version. `namespace`: the Namespace it is
    /// in, null for none.
    pub fn new(
        attributes: &Attributes,
        target: &Target,
        object: &Json,
        old: &Json,
        namespace: &Json,
    ) -> Self {
        let at = attributes.target.resource_version.as_ref().unwrap_or(&attributes.target.gvk);
        Self {
            object: eval::value_of(object),
            old: eval::value_of(old),
            request: eval::value_of(&request_for_conditions(attributes, target)),
            namespace: eval::value_of(&exposed(namespace)),
            resource: Asked {
                group: at.group.clone(),
                resource: attributes.target.plural.clone(),
                subresource: attributes.subresource.clone(),
                namespace: attributes.namespace.clone(),
                name: attributes.name.clone(),
                ..Asked::default()
            },
        }
    }

    /// What every expression about a request sees.
    pub(crate) fn variable(&self, name: &str) -> Option<Value> {
        Some(match name {
            "object" => self.object.clone(),
            "oldObject" => self.old.clone(),
            "request" => self.request.clone(),
            "authorizer" => eval::authorizer(),
            "authorizer.requestResource" => eval::request_resource(self.resource.clone()),
            _ => return None,
        })
    }
}

/// What expressions may see of a namespace (`CreateNamespaceObject`).
fn exposed(namespace: &Json) -> Json {
    let mut seen = namespace.clone();
    if let Some(meta) = seen.get_mut("metadata").and_then(Json::as_object_mut) {
        for hidden in ["managedFields", "ownerReferences", "selfLink"] {
            meta.remove(hidden);
        }
    }
    seen
}

/// What a validation says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is wrong, or errors are ignored.
    Admit,
    /// It fails.
    Deny {
        /// Why.
        message: String,
        /// Reason of the Status; empty for an error.
        reason: String,
    },
}

/// What becomes of an audit annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// Key (without the policy's name) and value.
    Publish(String, String),
    /// It failed, and with it the request.
    Error(String),
}

/// All a policy says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Of each validation, in order.
    pub verdicts: Vec<Verdict>,
    /// Audit annotations.
    pub annotations: Vec<Annotation>,
}

/// What one evaluation sees.
struct Seen<'a> {
    policy: &'a Policy,
    request: &'a Request,
    params: Option<&'a Value>,
    authorize: Authorize<'a>,
    /// Match conditions see no namespace.
    namespace: bool,
    /// Values of variables that were used.
    known: HashMap<usize, Evaluated>,
    /// A variable sees those before it only.
    first: usize,
}

impl Scope for Seen<'_> {
    fn variable(&mut self, name: &str) -> Option<Value> {
        Some(match name {
            "namespaceObject" if self.namespace => self.request.namespace.clone(),
            "namespaceObject" => Value::Null,
            "params" if self.policy.param_kind.is_some() => self.params.cloned().unwrap_or(Value::Null),
            name => return self.request.variable(name),
        })
    }

    fn composed(&mut self, name: &str, budget: &mut Budget) -> Option<Evaluated> {
        let policy = self.policy;
        let before = policy.variables.get(..self.first)?;
        let at = before.iter().rposition(|(n, _)| n == name)?;
        if let Some(known) = self.known.get(&at) {
            return Some(known.clone());
        }
        let (_, expression) = policy.variables.get(at)?;
        let found = match &expression.program {
            Ok(program) => {
                let first = std::mem::replace(&mut self.first, at);
                let found = program.evaluate_variable(self, budget);
                self.first = first;
                found.map_err(|fail| match fail {
                    Fail::Budget => Fail::Budget,
                    fail => Fail::Error(format!("composited variable {name:?} fails to evaluate: {fail}")),
                })
            }
            Err(why) => Err(Fail::Error(format!(
                "composited variable {name:?} fails to compile: compilation failed: {why}"
            ))),
        };
        self.known.insert(at, found.clone());
        Some(found)
    }

    fn authorize(&mut self, asked: &Asked) -> Decision {
        (self.authorize)(asked)
    }
}

/// An expression's value, or the error in upstream's words; `Err(None)`: the budget is spent.
fn value(expression: &Compiled, seen: &mut Seen<'_>, budget: &mut Budget) -> Result<Value, Option<String>> {
    let program = match &expression.program {
        Ok(program) => program,
        Err(why) => return Err(Some(format!("compilation error: compilation failed: {why}"))),
    };
    program.evaluate(seen, budget).map_err(|fail| match fail {
        Fail::Budget => None,
        fail => Some(format!("expression '{}' resulted in error: {fail}", expression.source)),
    })
}

impl Policy {
    /// Runs the policy for one binding and one parameter (`None`: it has none).
    pub fn evaluate(&self, request: &Request, params: Option<&Json>, authorize: Authorize<'_>) -> Outcome {
        let params = params.map(eval::value_of);
        let fresh = |namespace| Seen {
            policy: self,
            request,
            params: params.as_ref(),
            authorize,
            namespace,
            known: HashMap::new(),
            first: self.variables.len(),
        };
        match self.conditions_hold(&mut fresh(false)) {
            Ok(true) => {}
            Ok(false) => return Outcome::default(),
            Err(why) => return Outcome { verdicts: vec![self.failed(why)], annotations: Vec::new() },
        }
        let (mut seen, mut budget) = (fresh(true), Budget::new(BUDGET));
        let mut verdicts = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            match self.judge(validation, &mut seen, &mut budget) {
                Some(verdict) => verdicts.push(verdict),
                None => {
                    return Outcome {
                        verdicts: vec![self.failed(Fail::Budget.to_string())],
                        annotations: Vec::new(),
                    };
                }
            }
        }
        let mut budget = Budget::new(BUDGET);
        let mut annotations = Vec::new();
        for (key, expression) in &self.annotations {
            match self.annotate(key, expression, &mut seen, &mut budget) {
                Ok(annotation) => annotations.extend(annotation),
                Err(()) => {
                    return Outcome {
                        verdicts: vec![self.failed(Fail::Budget.to_string())],
                        annotations: Vec::new(),
                    };
                }
            }
        }
        Outcome { verdicts, annotations }
    }

    /// An error, as the failure policy has it.
    fn failed(&self, message: String) -> Verdict {
        if self.ignore_failures { Verdict::Admit } else { Verdict::Deny { message, reason: String::new() } }
    }

    fn conditions_hold(&self, seen: &mut Seen<'_>) -> Result<bool, String> {
        let mut budget = Budget::new(CONDITIONS_BUDGET);
        let mut errors = Vec::new();
        for (_, condition) in &self.conditions {
            match value(condition, seen, &mut budget) {
                Ok(Value::Bool(false)) => return Ok(false),
                Ok(_) => {}
                Err(Some(why)) => errors.push(why),
                Err(None) => {
                    errors = vec![Fail::Budget.to_string()];
                    break;
                }
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if self.ignore_failures => Ok(false),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    /// `None`: the budget is spent.
    fn judge(&self, validation: &Validation, seen: &mut Seen<'_>, budget: &mut Budget) -> Option<Verdict> {
        match value(&validation.expression, seen, budget) {
            Ok(Value::Bool(true)) => Some(Verdict::Admit),
            Err(None) => None,
            Err(Some(why)) => Some(self.failed(why)),
            Ok(_) => {
                let made = match &validation.message_expression {
                    Some(expression) => value(expression, seen, budget),
                    None => Ok(Value::Null),
                };
                let made = match made {
                    Ok(Value::String(text)) => text.trim().to_owned(),
                    Err(None) => {
                        return Some(self.failed(format!("failed messageExpression: {}", Fail::Budget)));
                    }
                    _ => String::new(),
                };
                let message = match made.as_str() {
                    "" => validation.words(),
                    long if long.len() > MAX_MESSAGE || long.contains('\n') => validation.words(),
                    text => text.to_owned(),
                };
                Some(Verdict::Deny { message, reason: validation.reason.clone() })
            }
        }
    }

    fn annotate(
        &self,
        key: &str,
        expression: &Compiled,
        seen: &mut Seen<'_>,
        budget: &mut Budget,
    ) -> Result<Option<Annotation>, ()> {
        let failed = |why: String| Ok((!self.ignore_failures).then_some(Annotation::Error(why)));
        match value(expression, seen, budget) {
            Ok(Value::String(text)) if text.trim().is_empty() => Ok(None),
            Ok(Value::String(text)) => {
                let text = text.trim();
                let end = text.floor_char_boundary(MAX_ANNOTATION);
                Ok(Some(Annotation::Publish(key.to_owned(), text.get(..end).unwrap_or_default().to_owned())))
            }
            Ok(Value::Null) => Ok(None),
            Ok(other) => Ok(Some(Annotation::Error(format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                expression.source,
                other.type_of()
            )))),
            Err(Some(why)) => failed(why),
            Err(None) => Err(()),
        }
    }
}

impl Validation {
    fn words(&self) -> String {
        if self.message.is_empty() {
            format!("failed expression: {}", self.expression.source.trim())
        } else {
            self.message.clone()
        }
    }
}
