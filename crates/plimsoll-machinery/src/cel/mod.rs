//! CEL, the language of validation rules and match conditions.
//!
//! Programs are compiled once and run against JSON values. A value is converted with the schema it has, so
//! that date-times are timestamps, fields with odd names are reachable under their escaped names and integers
//! in number fields are doubles, as upstream's typed CEL has them.

pub mod check;
mod convert;
mod errors;
pub mod eval;
mod types;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt as _;
use kube_cel::cel::objects::OptionalValue;
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{self, Context, Value as CelValue};
use plimsoll_api::cel_limits::Size;
use serde_json::Value;

pub use self::convert::{escape_name, to_cel};
pub use self::errors::displayed;
pub use self::types::{TypeError, check_message, check_rule, loop_cost};

/// Longest expression compiled, in bytes.
const MAX_EXPRESSION: usize = 16 * 1024;

static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// A compiled expression.
pub struct Program {
    expression: cel::IdedExpr,
    size: Size,
    source: String,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Program").field(&self.source).finish()
    }
}

/// A variable of an expression.
#[derive(Clone)]
pub enum Binding {
    /// A plain value.
    Value(CelValue),
    /// An optional one (`oldSelf` of rules with `optionalOldSelf`).
    Optional(Option<CelValue>),
}

impl Program {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The parser's complaint.
    pub fn compile(source: &str) -> Result<Self, String> {
        Self::parse(source, Parser::default())
    }

    /// As [`Self::compile`], with the syntax of optional values (`a.?b`), which only [`eval`] knows.
    ///
    /// # Errors
    /// The parser's complaint.
    pub fn compile_with_optionals(source: &str) -> Result<Self, String> {
        Self::parse(source, Parser::default().enable_optional_syntax(true))
    }

    fn parse(source: &str, parser: Parser) -> Result<Self, String> {
        if source.len() > MAX_EXPRESSION {
            return Err(format!("expression is longer than {MAX_EXPRESSION} bytes"));
        }
        let size = Size::of(source)?;
        let parse = || size.parsed(|| parser.parse(source), |expression| expression);
        match catch_unwind(AssertUnwindSafe(parse)) {
            Ok(parsed) => parsed
                .map(|(expression, size)| Self { expression, size, source: source.to_owned() })
                .map_err(|why| errors::as_displayed(&why, source)),
            Err(_) => Err("the expression can't be parsed".to_owned()),
        }
    }

    /// The expression as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the expression mentions a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.size.nested(|| self.expression.references().has_variable(variable))
    }

    /// The syntax tree, for type checks.
    pub(crate) fn expression(&self) -> &cel::IdedExpr {
        &self.expression
    }

    /// Runs the expression.
    ///
    /// # Errors
    /// What went wrong, in upstream's words as far as they are known.
    pub fn run(&self, variables: &[(&str, &Binding)]) -> Result<CelValue, String> {
        let run = || {
            let mut scope = FUNCTIONS.new_inner_scope();
            for (name, binding) in variables {
                let value = match binding {
                    Binding::Value(value) => value.clone(),
                    Binding::Optional(Some(value)) => optional(OptionalValue::of(value.clone())),
                    Binding::Optional(None) => optional(OptionalValue::none()),
                };
                scope.add_variable_from_value(*name, value);
            }
            CelValue::resolve(&self.expression, &scope)
        };
        // A rule is user input; a fault in the interpreter must not take the server down.
        match catch_unwind(AssertUnwindSafe(|| self.size.running(run))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(errors::text(&error)),
            Err(_) => Err("internal error evaluating the expression".to_owned()),
        }
    }

    /// Runs an expression that must give a boolean.
    ///
    /// # Errors
    /// As [`Program::run`], and when the result is something else.
    pub fn run_bool(&self, variables: &[(&str, &Binding)]) -> Result<bool, String> {
        match self.run(variables)? {
            CelValue::Bool(b) => Ok(b),
            other => Err(format!("expected bool, got {}", other.type_of())),
        }
    }

    /// Runs an expression that must give a string.
    ///
    /// # Errors
    /// As [`Program::run`], and when the result is something else.
    pub fn run_string(&self, variables: &[(&str, &Binding)]) -> Result<String, String> {
        match self.run(variables)? {
            CelValue::String(s) => Ok(s.as_ref().clone()),
            other => Err(format!("expected string, got {}", other.type_of())),
        }
    }
}

fn optional(value: OptionalValue) -> CelValue {
    CelValue::Opaque(Arc::new(value))
}

/// A JSON value without a schema, for match conditions: names stay as they are.
pub fn plain(value: &Value) -> Binding {
    Binding::Value(convert::untyped(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_expressions_are_run_or_refused() {
        let run = |source: &str| Program::compile(source).and_then(|p| p.run(&[]).map(|_| ()));
        assert!(run(&format!("1{}", "+1".repeat(1000))).is_ok());
        assert!(run(&format!("{}1{}", "(".repeat(64), ")".repeat(64))).is_ok());
        assert!(run(&format!("{}true", "!".repeat(999))).is_ok());
        for source in ["[".repeat(3000), "(".repeat(3000), "-".repeat(3000), "{\"a\":".repeat(2000)] {
            assert!(run(&source).is_err());
        }
        for hidden in ["1 // '\n", "r'\\' + ''", "'''''a''' + 1", "'\n"] {
            let source = format!("{hidden}{}", "+1".repeat(7000));
            assert!(run(&source).is_err());
        }
    }
}
