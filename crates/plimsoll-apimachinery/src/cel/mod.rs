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
use std::sync::LazyLock;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{self, Context};
use plimsoll_api::cel_limits::Size;

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

impl Program {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The parser's complaint.
    pub fn compile(source: &str) -> Result<Self, String> {
        if source.len() > MAX_EXPRESSION {
            return Err(format!("expression is longer than {MAX_EXPRESSION} bytes"));
        }
        let size = Size::of(source)?;
        let parser = Parser::default().enable_optional_syntax(true);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl eval::Scope for Nothing {
        fn variable(&mut self, _name: &str) -> Option<eval::Value> {
            None
        }
    }

    #[test]
    fn deep_expressions_are_run_or_refused() {
        let run = |source: &str| {
            let program = Program::compile(source)?;
            program.evaluate(&mut Nothing, &mut eval::Budget::new(1_000_000)).map_err(|e| e.to_string())
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
