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
