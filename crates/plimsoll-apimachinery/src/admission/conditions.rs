//! Match conditions (KEP-3716): expressions that must all hold for a webhook or a policy to apply.

use plimsoll_cel::{CompileError, Program};
use serde_json::Value;

use crate::cel::OUT_OF_BUDGET;
use crate::json::text;

/// An expression of a webhook or policy, parsed once.
#[derive(Debug)]
pub(crate) struct Expression {
    /// The expression as written.
    pub source: String,
    /// The program, or why the expression can't be parsed.
    pub program: Result<Program, CompileError>,
}

impl Expression {
    /// Parses an expression. Its types were checked when the object was written.
    pub(crate) fn parse(source: &str) -> Self {
        Self { source: source.to_owned(), program: Program::parse(source) }
    }
}

/// A match condition.
#[derive(Debug)]
pub(crate) struct MatchCondition {
    /// Its name, for errors.
    pub name: String,
    /// The condition.
    pub expression: Expression,
}

impl MatchCondition {
    /// Parses an element of `matchConditions`.
    pub(crate) fn parse(raw: &Value) -> Self {
        Self { name: text(raw, "name").to_owned(), expression: Expression::parse(text(raw, "expression")) }
    }
}

/// Why an expression has no value.
pub(crate) enum ExpressionError {
    /// It failed, with the text for the user.
    Failed(String),
    /// The budget that it shares with other expressions is exceeded.
    OutOfBudget,
}

/// Whether all conditions hold (`k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions`, `Match`). A condition
/// that is false decides, also where others fail; failures count as false with `ignore_failures`. `evaluate` gives
/// the value of a condition.
///
/// # Errors
/// The errors of all conditions that failed.
pub(crate) fn all_hold(
    conditions: &[MatchCondition],
    ignore_failures: bool,
    mut evaluate: impl FnMut(&MatchCondition) -> Result<bool, ExpressionError>,
) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in conditions {
        match evaluate(condition) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(ExpressionError::Failed(why)) => errors.push(why),
            Err(ExpressionError::OutOfBudget) => {
                errors = vec![OUT_OF_BUDGET.to_owned()];
                break;
            }
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        _ if ignore_failures => Ok(false),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}
