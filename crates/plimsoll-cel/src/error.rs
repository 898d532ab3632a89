//! Errors, in cel-go's words.

use kube_cel::cel::{ExecutionError as E, Value};

/// Longest error text of an evaluation, in characters.
const MAX_ERROR: usize = 2000;

/// An expression that doesn't compile. The text is cel-go's: a line `ERROR: <input>:LINE:COLUMN: …` for each error, with
/// the source and a caret below it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CompileError(pub(crate) String);

/// Why an evaluation gave no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvalError {
    /// The expression failed, with cel-go's text. `&&`, `||` and loops suppress it where their result doesn't depend on
    /// the operand that failed.
    #[error("{0}")]
    Error(String),
    /// The cost of one evaluation exceeded the limit of a call (cel-go's text).
    #[error("operation cancelled: actual cost limit exceeded")]
    CallLimit,
    /// The cost of all evaluations together exceeded the budget.
    #[error("cost budget exceeded")]
    Budget,
}

impl EvalError {
    pub(crate) fn error<T>(text: impl Into<String>) -> Result<T, Self> {
        Err(Self::Error(text.into()))
    }

    pub(crate) fn no_such_overload<T>() -> Result<T, Self> {
        Self::error("no such overload")
    }

    /// Whether no operator may suppress it.
    pub(crate) const fn is_final(&self) -> bool {
        !matches!(self, Self::Error(_))
    }
}

impl From<&E> for EvalError {
    fn from(error: &E) -> Self {
        Self::Error(text(error).chars().take(MAX_ERROR).collect())
    }
}

/// A value, or why there is none.
pub type Evaluated = Result<Value, EvalError>;

/// The text that cel-go has for an error of the interpreter.
fn text(error: &E) -> String {
    match error {
        E::NoSuchKey(key) => format!("no such key: {key}"),
        E::NoSuchOverload
        | E::ValuesNotComparable(..)
        | E::UnsupportedUnaryOperator(..)
        | E::UnsupportedBinaryOperator(..)
        | E::UnsupportedTargetType { .. }
        | E::NotSupportedAsMethod { .. }
        | E::UnexpectedType { .. }
        | E::InvalidArgumentCount { .. }
        | E::MissingArgumentOrTarget => "no such overload".to_owned(),
        E::DivisionByZero(_) => "division by zero".to_owned(),
        E::RemainderByZero(_) => "modulus by zero".to_owned(),
        E::Overflow(..) => "integer overflow".to_owned(),
        E::IndexOutOfBounds(Value::Int(i)) => format!("index out of bounds: {i}"),
        E::UndeclaredReference(name) => format!("undeclared reference to '{name}' (in container '')"),
        E::FunctionError { function, .. } if function == "quantity" => {
            "quantities must match the regular expression \
             '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned()
        }
        E::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

/// An error at a place of a source as cel-go shows it (`common.Error.ToDisplayString`). `line` counts from 1, `column`
/// counts characters from 0. Wide characters have wide dots.
pub fn display_error(line: usize, column: usize, message: &str, source: &str) -> String {
    let shown = source.split('\n').nth(line.saturating_sub(1)).unwrap_or_default().replace('\t', " ");
    let dots: String = shown.chars().take(column).map(|c| if c.is_ascii() { '.' } else { '．' }).collect();
    let caret = if shown.chars().nth(column).is_none_or(|c| c.is_ascii()) { '^' } else { '＾' };
    format!("ERROR: <input>:{line}:{}: {message}\n | {shown}\n | {dots}{caret}", column + 1)
}

/// The parser's errors, shown as cel-go shows them.
pub(crate) fn display_parser_errors(text: &str, source: &str) -> String {
    let mut found = Vec::new();
    for one in text.split("ERROR: <input>:").skip(1) {
        let head = one.split("\n| ").next().unwrap_or_default().trim_end_matches('\n');
        let mut parts = head.splitn(3, ':');
        let mut number = || parts.next().and_then(|n| n.parse::<usize>().ok());
        let (Some(line), Some(column)) = (number(), number()) else { return text.to_owned() };
        let message = parts.next().unwrap_or_default().trim_start();
        found.push(if source.is_empty() {
            format!("ERROR: <input>:1:0: {message}")
        } else {
            display_error(line, column.saturating_sub(1), message, source)
        });
    }
    if found.is_empty() { text.to_owned() } else { found.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parser_errors_are_shown_as_upstream() {
        for (text, source, want) in [
            (
                "ERROR: <input>:1:2: Syntax error: x\n| a b\n| .^",
                "a b",
                "ERROR: <input>:1:2: Syntax error: x\n | a b\n | .^",
            ),
            ("ERROR: <input>:1:1: y", "ü", "ERROR: <input>:1:1: y\n | ü\n | ＾"),
            ("ERROR: <input>:1:1: y", "", "ERROR: <input>:1:0: y"),
            ("too deep", "a", "too deep"),
        ] {
            assert_eq!(display_parser_errors(text, source), want);
        }
    }
}
