//! Evaluation of a policy for a request.

use std::collections::HashMap;

use plimsoll_cel::{Activation, Budget, EvalError, Evaluated, Opaque, Value, from_json};
use serde_json::Value as Json;

use super::{Policy, Validation};
use crate::admission::authorizer::{self, Authorize};
use crate::admission::{Expression, ExpressionError, Request, all_hold};
use crate::cel::{CONDITIONS_BUDGET, MAX_MESSAGE, OUT_OF_BUDGET, RUNTIME_BUDGET};

/// Longest value of an audit annotation, in bytes
/// (`k8s.io/apiserver/pkg/admission/plugin/policy/validating`, `maxAuditAnnotationValueLength`).
const MAX_ANNOTATION: usize = 10 * 1024;

/// The verdict of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The validation holds, or it failed and failures are ignored.
    Admit,
    /// The validation does not hold.
    Deny {
        /// The message for the user.
        message: String,
        /// Reason of the Status; empty for an error.
        reason: String,
    },
}

/// The result of an audit annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// Key (without the policy's name) and value.
    Publish(String, String),
    /// The expression failed, so the request is denied.
    Error(String),
}

/// The result of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict of each validation, in order.
    pub verdicts: Vec<Verdict>,
    /// Audit annotations.
    pub annotations: Vec<Annotation>,
}

/// The variables of one evaluation.
struct Variables<'a> {
    policy: &'a Policy,
    request: &'a Request,
    params: Option<&'a Value>,
    authorize: Authorize<'a>,
    /// Whether there is `namespaceObject`; match conditions have none.
    namespace: bool,
    /// Values of `variables` that are evaluated, by index.
    known: HashMap<usize, Evaluated>,
    /// The number of `variables` that the running expression may use: a variable sees only those before it.
    visible: usize,
}

impl Activation for Variables<'_> {
    fn resolve(&mut self, name: &str) -> Option<Value> {
        Some(match name {
            "namespaceObject" if self.namespace => self.request.namespace(),
            "namespaceObject" => Value::Null,
            "params" if self.policy.param_kind.is_some() => self.params.cloned().unwrap_or(Value::Null),
            name => return self.request.resolve(name),
        })
    }

    fn select(&mut self, variable: &str, field: &str, budget: &mut Budget) -> Option<Evaluated> {
        if variable == "variables" {
            let found = self.composed(field, budget);
            return found.or_else(|| Some(Err(EvalError::Error(format!("no such key: {field}")))));
        }
        self.request.select(variable, field)
    }

    fn call(
        &mut self,
        target: &dyn Opaque,
        method: &str,
        args: &[Value],
        budget: &mut Budget,
    ) -> Option<Evaluated> {
        authorizer::call(target, method, args, self.authorize, budget)
    }
}

impl Variables<'_> {
    /// The value of a field of `variables`; `None`: there is no such field.
    fn composed(&mut self, name: &str, budget: &mut Budget) -> Option<Evaluated> {
        let policy = self.policy;
        let visible = policy.variables.get(..self.visible)?;
        let at = visible.iter().rposition(|(n, _)| n == name)?;
        if let Some(known) = self.known.get(&at) {
            return Some(known.clone());
        }
        let (_, expression) = policy.variables.get(at)?;
        let found = match &expression.program {
            Ok(program) => {
                let outer = std::mem::replace(&mut self.visible, at);
                let found = program.evaluate_nested(self, budget);
                self.visible = outer;
                found.map_err(|error| match error {
                    EvalError::Budget => EvalError::Budget,
                    error => {
                        EvalError::Error(format!("composited variable {name:?} fails to evaluate: {error}"))
                    }
                })
            }
            Err(why) => Err(EvalError::Error(format!(
                "composited variable {name:?} fails to compile: compilation failed: {why}"
            ))),
        };
        self.known.insert(at, found.clone());
        Some(found)
    }
}

/// The value of an expression, or the error in upstream's words.
fn value(
    expression: &Expression,
    variables: &mut Variables<'_>,
    budget: &mut Budget,
) -> Result<Value, ExpressionError> {
    let program = expression
        .program
        .as_ref()
        .map_err(|why| ExpressionError::Failed(format!("compilation error: compilation failed: {why}")))?;
    program.evaluate(variables, budget).map_err(|error| match error {
        EvalError::Budget => ExpressionError::OutOfBudget,
        error => {
            let source = &expression.source;
            ExpressionError::Failed(format!("expression '{source}' resulted in error: {error}"))
        }
    })
}

/// All expressions together exceed their budget.
struct OutOfBudget;

impl Policy {
    /// Evaluates the policy for one binding and one parameter (`None`: the binding has none).
    pub fn evaluate(&self, request: &Request, params: Option<&Json>, authorize: Authorize<'_>) -> Outcome {
        let params = params.map(from_json);
        let variables = |namespace| Variables {
            policy: self,
            request,
            params: params.as_ref(),
            authorize,
            namespace,
            known: HashMap::new(),
            visible: self.variables.len(),
        };
        match self.conditions_hold(&mut variables(false)) {
            Ok(true) => self.validate(&mut variables(true)).unwrap_or_else(|OutOfBudget| Outcome {
                verdicts: vec![self.failed(OUT_OF_BUDGET.to_owned())],
                annotations: Vec::new(),
            }),
            Ok(false) => Outcome::default(),
            Err(why) => Outcome { verdicts: vec![self.failed(why)], annotations: Vec::new() },
        }
    }

    /// The verdict on an error: the failure policy decides.
    fn failed(&self, message: String) -> Verdict {
        if self.ignore_failures { Verdict::Admit } else { Verdict::Deny { message, reason: String::new() } }
    }

    fn conditions_hold(&self, variables: &mut Variables<'_>) -> Result<bool, String> {
        let mut budget = Budget::new(CONDITIONS_BUDGET);
        all_hold(&self.conditions, self.ignore_failures, |condition| {
            let found = value(&condition.expression, variables, &mut budget)?;
            Ok(found != Value::Bool(false))
        })
    }

    fn validate(&self, variables: &mut Variables<'_>) -> Result<Outcome, OutOfBudget> {
        let mut outcome = Outcome::default();
        let mut budget = Budget::new(RUNTIME_BUDGET);
        for validation in &self.validations {
            outcome.verdicts.push(self.verdict(validation, variables, &mut budget)?);
        }
        let mut budget = Budget::new(RUNTIME_BUDGET);
        for (key, expression) in &self.annotations {
            outcome.annotations.extend(self.annotate(key, expression, variables, &mut budget)?);
        }
        Ok(outcome)
    }

    fn verdict(
        &self,
        validation: &Validation,
        variables: &mut Variables<'_>,
        budget: &mut Budget,
    ) -> Result<Verdict, OutOfBudget> {
        match value(&validation.expression, variables, budget) {
            Ok(Value::Bool(true)) => return Ok(Verdict::Admit),
            Ok(_) => {}
            Err(ExpressionError::OutOfBudget) => return Err(OutOfBudget),
            Err(ExpressionError::Failed(why)) => return Ok(self.failed(why)),
        }
        let made = match validation.message_expression.as_ref().map(|e| value(e, variables, budget)) {
            Some(Ok(Value::String(text))) => text.trim().to_owned(),
            Some(Err(ExpressionError::OutOfBudget)) => {
                return Ok(self.failed(format!("failed messageExpression: {OUT_OF_BUDGET}")));
            }
            _ => String::new(),
        };
        let usable = !made.is_empty() && made.len() <= MAX_MESSAGE && !made.contains('\n');
        let message = if usable { made } else { validation.default_message() };
        Ok(Verdict::Deny { message, reason: validation.reason.clone() })
    }

    fn annotate(
        &self,
        key: &str,
        expression: &Expression,
        variables: &mut Variables<'_>,
        budget: &mut Budget,
    ) -> Result<Option<Annotation>, OutOfBudget> {
        Ok(match value(expression, variables, budget) {
            Ok(Value::String(text)) if text.trim().is_empty() => None,
            Ok(Value::String(text)) => {
                let text = text.trim();
                let end = text.floor_char_boundary(MAX_ANNOTATION);
                Some(Annotation::Publish(key.to_owned(), text.get(..end).unwrap_or_default().to_owned()))
            }
            Ok(Value::Null) => None,
            Ok(other) => Some(Annotation::Error(format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                expression.source,
                other.type_of()
            ))),
            Err(ExpressionError::Failed(why)) => (!self.ignore_failures).then_some(Annotation::Error(why)),
            Err(ExpressionError::OutOfBudget) => return Err(OutOfBudget),
        })
    }
}

impl Validation {
    /// The message where there is no `messageExpression`, or none that gives a message.
    fn default_message(&self) -> String {
        if self.message.is_empty() {
            format!("failed expression: {}", self.expression.source.trim())
        } else {
            self.message.clone()
        }
    }
}
