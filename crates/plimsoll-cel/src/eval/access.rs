//! Fields, elements and optional values.

use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, KeyRef, OptionalValue};

use super::types;
use crate::error::{EvalError, Evaluated};
use crate::value;

/// The elements that a loop visits.
pub(super) type Items<'v> = Box<dyn Iterator<Item = Value> + 'v>;

/// The elements of a list, or the keys of a map.
pub(super) fn items(range: &Value) -> Result<Items<'_>, EvalError> {
    match range {
        Value::List(list) => Ok(Box::new(list.iter().cloned())),
        Value::Map(map) => {
            // cel-go's order is random; a fixed one gives the same result each time.
            let mut keys: Vec<&Key> = map.map.keys().collect();
            keys.sort();
            Ok(Box::new(keys.into_iter().map(Value::from)))
        }
        other => not_iterable(other),
    }
}

/// The error of a loop over a value that is neither a list nor a map.
pub(super) fn not_iterable<T>(range: &Value) -> Result<T, EvalError> {
    EvalError::error(format!("got '{}', expected iterable type", types::go_name(range)))
}

/// The error of an index of a list that is no number.
fn no_index<T>(index: &str) -> Result<T, EvalError> {
    EvalError::error(format!("unsupported index type '{index}' in list"))
}

/// The value that an optional holds; `None`: the value is no optional.
pub(super) fn optional(value: &Value) -> Option<Option<Value>> {
    let Value::Opaque(opaque) = value else { return None };
    opaque.downcast_ref::<OptionalValue>().map(|o| o.value().cloned())
}

/// The value of an optional, if it has one.
pub(super) fn unwrapped(value: &Value) -> Result<Option<Value>, EvalError> {
    optional(value).map_or_else(EvalError::no_such_overload, Ok)
}

/// A value as the key of a map.
pub(super) fn key(value: &Value) -> Result<Key, EvalError> {
    Ok(match value {
        Value::Int(i) => Key::Int(*i),
        Value::UInt(u) => Key::Uint(*u),
        Value::Bool(b) => Key::Bool(*b),
        Value::String(s) => Key::String(Arc::clone(s)),
        Value::Float(f) if f.fract() == 0.0 && f.abs() < 9e15 => Key::Int(*f as i64),
        _ => return EvalError::error("unsupported key type"),
    })
}

/// `operand.field`.
pub(super) fn field(operand: &Value, name: &str) -> Evaluated {
    if let Some(inner) = optional(operand) {
        return Ok(value::optional(inner.and_then(|v| field(&v, name).ok())));
    }
    let found = match operand {
        Value::Map(map) => map.get(&KeyRef::String(name)).cloned(),
        Value::List(_) => return no_index("string"),
        _ => None,
    };
    found.map_or_else(|| EvalError::error(format!("no such key: {name}")), Ok)
}

/// `has(operand.field)`.
pub(super) fn has(operand: &Value, name: &str) -> Evaluated {
    if let Some(inner) = optional(operand) {
        return inner.map_or(Ok(Value::Bool(false)), |v| has(&v, name));
    }
    match operand {
        Value::Map(map) => Ok(Value::Bool(map.get(&KeyRef::String(name)).is_some())),
        Value::List(_) => no_index("string"),
        _ => Ok(Value::Bool(false)),
    }
}

/// `operand.?field`.
pub(super) fn optional_field(operand: &Value, name: &str) -> Evaluated {
    match optional(operand) {
        Some(None) => Ok(value::optional(None)),
        Some(Some(inner)) => optional_field(&inner, name),
        None => Ok(value::optional(match operand {
            Value::Map(map) => map.get(&KeyRef::String(name)).cloned(),
            _ => None,
        })),
    }
}

/// `operand[index]`.
pub(super) fn element(operand: &Value, index: &Value) -> Evaluated {
    if let Some(inner) = optional(operand) {
        return Ok(value::optional(inner.and_then(|v| element(&v, index).ok())));
    }
    match operand {
        Value::Map(map) => {
            let wanted = key(index).or_else(|_| EvalError::no_such_overload())?;
            let found = map.get(&wanted).cloned();
            found.map_or_else(|| EvalError::error(format!("no such key: {}", shown(index))), Ok)
        }
        Value::List(list) => {
            let at = match index {
                Value::Int(i) => *i,
                Value::UInt(u) => i64::try_from(*u).unwrap_or(i64::MAX),
                Value::Float(f) if f.fract() == 0.0 => *f as i64,
                Value::Float(f) => return EvalError::error(format!("unsupported index value {f} in list")),
                other => return no_index(types::name(other)),
            };
            let found = usize::try_from(at).ok().and_then(|i| list.get(i)).cloned();
            found.map_or_else(|| EvalError::error(format!("index out of bounds: {at}")), Ok)
        }
        _ => EvalError::error(format!("no such key: {}", shown(index))),
    }
}

/// `operand[?index]`.
pub(super) fn optional_element(operand: &Value, index: &Value) -> Evaluated {
    match optional(operand) {
        Some(None) => Ok(value::optional(None)),
        Some(Some(inner)) => optional_element(&inner, index),
        None => match element(operand, index) {
            Ok(found) => Ok(value::optional(Some(found))),
            Err(EvalError::Error(text))
                if !text.starts_with("no such key") && !text.starts_with("index out of bounds") =>
            {
                EvalError::error(text)
            }
            Err(_) => Ok(value::optional(None)),
        },
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(s) => s.as_ref().clone(),
        Value::Int(i) => i.to_string(),
        Value::UInt(u) => u.to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Float(f) => f.to_string(),
        _ => String::new(),
    }
}
