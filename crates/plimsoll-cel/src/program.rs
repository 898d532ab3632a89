//! Compiled expressions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kube_cel::cel::IdedExpr;
use kube_cel::cel::parser::Parser;

use crate::activation::Activation;
use crate::budget::Budget;
use crate::check;
use crate::environment::{Environment, Type};
use crate::error::{CompileError, EvalError, Evaluated, display_parser_errors};
use crate::eval;
use crate::limits::Size;

/// Longest expression, in bytes.
const MAX_EXPRESSION: usize = 16 * 1024;

/// A compiled expression. Compile once, evaluate often: an evaluation doesn't change the program.
pub struct Program {
    expression: IdedExpr,
    size: Size,
    source: String,
    output: Type,
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Program").field(&self.source).finish()
    }
}

impl Program {
    /// Parses an expression and checks its types.
    ///
    /// # Errors
    /// The errors of [`Self::parse`], or all type errors: an undeclared variable or function, an undefined field, an
    /// operator without a meaning for its operands.
    pub fn compile(source: &str, environment: &Environment) -> Result<Self, CompileError> {
        let mut program = Self::parse(source)?;
        program.output = program.with_stack(|| check::check(&program.expression, source, environment))?;
        Ok(program)
    }

    /// Parses an expression without a type check; its [`output_type`](Self::output_type) is unknown.
    ///
    /// # Errors
    /// Syntax errors, and when the expression is longer than 16 KiB, nested more than 64 levels deep or has more than
    /// 1000 operators.
    pub fn parse(source: &str) -> Result<Self, CompileError> {
        if source.len() > MAX_EXPRESSION {
            return Err(CompileError(format!("expression is longer than {MAX_EXPRESSION} bytes")));
        }
        let size = Size::of(source).map_err(CompileError)?;
        let parser = Parser::default().enable_optional_syntax(true);
        let parse = || size.parse(|| parser.parse(source), |expression| expression);
        // The parser panics on some texts, which are user input.
        match catch_unwind(AssertUnwindSafe(parse)) {
            Ok(Ok((expression, size))) => {
                Ok(Self { expression, size, source: source.to_owned(), output: Type::Unknown })
            }
            Ok(Err(why)) => Err(CompileError(display_parser_errors(&why, source))),
            Err(_) => Err(CompileError("the expression can't be parsed".to_owned())),
        }
    }

    /// The expression as written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The type of the expression's value (cel-go's `OutputType`); [`Type::Unknown`] where the check didn't follow it.
    pub const fn output_type(&self) -> &Type {
        &self.output
    }

    /// Whether the expression uses a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.with_stack(|| self.expression.references().has_variable(variable))
    }

    /// The syntax tree, for a caller's own checks; walk it within [`Self::with_stack`].
    pub const fn expression(&self) -> &IdedExpr {
        &self.expression
    }

    /// Runs `f`, which recurses into the syntax tree, on a stack that is large enough.
    pub fn with_stack<R>(&self, f: impl FnOnce() -> R) -> R {
        self.size.with_stack(f)
    }

    /// Evaluates the expression as one call: `budget` bounds its cost, and so does the limit of a call.
    ///
    /// # Errors
    /// The expression failed or exceeded a cost limit.
    pub fn evaluate(&self, activation: &mut dyn Activation, budget: &mut Budget) -> Evaluated {
        budget.begin_call();
        self.run(activation, budget)
    }

    /// Evaluates the expression as a variable of another expression, whose evaluation called
    /// [`Activation::select`]. It has a call limit of its own.
    ///
    /// # Errors
    /// Like [`Self::evaluate`], and when more than 64 variables use one another.
    pub fn evaluate_nested(&self, activation: &mut dyn Activation, budget: &mut Budget) -> Evaluated {
        let outer = budget.begin_nested()?;
        let found = self.run(activation, budget).and_then(|value| {
            // The size of the value counts as well, because the outer expression may use it many times.
            budget.charge_value(&value).map(|_| value)
        });
        budget.end_nested(outer);
        found
    }

    fn run(&self, activation: &mut dyn Activation, budget: &mut Budget) -> Evaluated {
        // An expression is user input; a fault in a function must not end the process.
        let run = || self.with_stack(|| eval::evaluate(&self.expression, activation, budget));
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|_| EvalError::error("internal error evaluating the expression"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn deep_expressions_are_evaluated_or_refused() {
        let run = |source: &str| {
            let program = Program::parse(source).map_err(|e| e.to_string())?;
            let mut none: HashMap<&str, kube_cel::cel::Value> = HashMap::new();
            program.evaluate(&mut none, &mut Budget::new(1_000_000)).map_err(|e| e.to_string())
        };
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
