//! Evaluation errors in cel-go's words.

use kube_cel::cel::{ExecutionError as E, Value};

/// The text upstream shows for an evaluation error.
pub fn text(error: &E) -> String {
    match error {
        E::NoSuchKey(key) => format!("no such key: {key}"),
        E::NoSuchOverload
        | E::ValuesNotComparable(..)
        | E::UnsupportedUnaryOperator(..)
        | E::UnsupportedBinaryOperator(..) => "no such overload".to_owned(),
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

/// An error at a place of a source as cel-go shows it: lines count from 1, columns of characters from 0. Wide characters
/// have wide dots.
pub fn displayed(line: usize, column: usize, what: &str, source: &str) -> String {
    let shown = source.split('\n').nth(line.saturating_sub(1)).unwrap_or_default().replace('\t', " ");
    let dots: String = shown.chars().take(column).map(|c| if c.is_ascii() { '.' } else { '．' }).collect();
    let caret = if shown.chars().nth(column).is_none_or(|c| c.is_ascii()) { '^' } else { '＾' };
    format!("ERROR: <input>:{line}:{}: {what}\n | {shown}\n | {dots}{caret}", column + 1)
}

/// The parser's complaints, shown as cel-go shows them.
pub fn as_displayed(text: &str, source: &str) -> String {
    let mut found = Vec::new();
    for one in text.split("ERROR: <input>:").skip(1) {
        let head = one.split("\n| ").next().unwrap_or_default().trim_end_matches('\n');
        let mut parts = head.splitn(3, ':');
        let mut number = || parts.next().and_then(|n| n.parse::<usize>().ok());
        let (Some(line), Some(column)) = (number(), number()) else { return text.to_owned() };
        let what = parts.next().unwrap_or_default().trim_start();
        found.push(if source.is_empty() {
            format!("ERROR: <input>:1:0: {what}")
        } else {
            displayed(line, column.saturating_sub(1), what, source)
        });
    }
    if found.is_empty() { text.to_owned() } else { found.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_as_upstream() {
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
            assert_eq!(as_displayed(text, source), want);
        }
    }
}
