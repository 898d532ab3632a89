//! Binary and unary operators.

use std::cmp::Ordering;

use kube_cel::cel::Value;
use kube_cel::cel::common::ast::operators as op;
use kube_cel::cel::objects::KeyRef;

use super::{Run, access};
use crate::error::{EvalError, Evaluated};

/// Whether a function is a binary operator.
pub(super) fn is_binary(name: &str) -> bool {
    matches!(
        name,
        op::EQUALS
            | op::NOT_EQUALS
            | op::LESS
            | op::LESS_EQUALS
            | op::GREATER
            | op::GREATER_EQUALS
            | op::ADD
            | op::SUBSTRACT
            | op::MULTIPLY
            | op::DIVIDE
            | op::MODULO
            | op::IN
            | op::INDEX
            | op::OPT_INDEX
    )
}

/// Whether a function is a unary operator.
pub(super) fn is_unary(name: &str) -> bool {
    matches!(name, op::LOGICAL_NOT | op::NEGATE)
}

/// `!x`, `-x`.
pub(super) fn unary(name: &str, value: Value) -> Evaluated {
    use Value::{Bool, Float, Int};
    let takes = matches!(value, Bool(_) | Int(_) | Float(_));
    match (name, value) {
        (op::LOGICAL_NOT, Value::Bool(b)) => Ok(Value::Bool(!b)),
        (op::NEGATE, Value::Int(i)) => i.checked_neg().map_or_else(overflow, |i| Ok(Value::Int(i))),
        (op::NEGATE, Value::Float(f)) => Ok(Value::Float(-f)),
        (_, value) => no_overload_for(name, &value, takes),
    }
}

/// The error of an operator or function that is not defined for its first operand or, where `takes` says that it is
/// defined for that, for the other operands. cel-go names the function only where it dispatches on the first operand
/// itself (`interpreter/interpretable.go`, `evalBinary`); strings, timestamps and durations dispatch on their own.
pub(super) fn no_overload_for<T>(name: &str, first: &Value, takes: bool) -> Result<T, EvalError> {
    if takes || matches!(first, Value::String(_) | Value::Timestamp(_) | Value::Duration(_)) {
        return EvalError::no_such_overload();
    }
    EvalError::error(format!("no such overload: {name}"))
}

fn overflow() -> Evaluated {
    EvalError::error("integer overflow")
}

impl Run<'_, '_> {
    /// A binary operator.
    pub(super) fn binary(&mut self, name: &str, left: Value, right: Value) -> Evaluated {
        match name {
            op::EQUALS => self.equal(&left, &right).map(Value::Bool),
            op::NOT_EQUALS => self.equal(&left, &right).map(|same| Value::Bool(!same)),
            op::LESS => self.ordered(name, (&left, &right), Ordering::is_lt),
            op::LESS_EQUALS => self.ordered(name, (&left, &right), Ordering::is_le),
            op::GREATER => self.ordered(name, (&left, &right), Ordering::is_gt),
            op::GREATER_EQUALS => self.ordered(name, (&left, &right), Ordering::is_ge),
            op::IN => self.is_in(&left, &right),
            op::INDEX => {
                self.budget.charge_lookup(&right)?;
                access::element(&left, &right)
            }
            op::OPT_INDEX => {
                self.budget.charge_lookup(&right)?;
                access::optional_element(&left, &right)
            }
            op::ADD => self.add(left, right),
            _ if !arithmetic(&left, &right) => no_overload_for(name, &left, is_number(&left)),
            op::SUBSTRACT => (left - right).map_err(|e| EvalError::from(&e)).and_then(in_range),
            op::MULTIPLY => (left * right).map_err(|e| EvalError::from(&e)),
            op::DIVIDE => divide(left, right),
            op::MODULO => (left % right).map_err(|e| EvalError::from(&e)),
            _ => EvalError::no_such_overload(),
        }
    }

    /// Whether two values are equal. A comparison costs as much as the smaller value has to read.
    pub(super) fn equal(&mut self, left: &Value, right: &Value) -> Result<bool, EvalError> {
        match (left, right) {
            (Value::List(a), Value::List(b)) if a.len() != b.len() => return Ok(false),
            (Value::Map(a), Value::Map(b)) if a.map.len() != b.map.len() => return Ok(false),
            (Value::String(a), Value::String(b)) => self.budget.charge_string(a.len().min(b.len()))?,
            (Value::Bytes(a), Value::Bytes(b)) => self.budget.charge_string(a.len().min(b.len()))?,
            (Value::List(_), Value::List(_))
            | (Value::Map(_), Value::Map(_))
            | (Value::Opaque(_), Value::Opaque(_)) => {
                self.budget.charge_value(left)?;
                self.budget.charge_value(right)?;
            }
            _ => {}
        }
        if self.activation.has_list_types() { self.equal_by_type(left, right) } else { Ok(left == right) }
    }

    fn ordered(
        &mut self,
        name: &str,
        (left, right): (&Value, &Value),
        is: fn(Ordering) -> bool,
    ) -> Evaluated {
        match (left, right) {
            (Value::List(_) | Value::Map(_) | Value::Null | Value::Opaque(_), _) => {
                return no_overload_for(name, left, false);
            }
            (Value::String(a), Value::String(b)) => self.budget.charge_string(a.len().min(b.len()))?,
            (Value::Bytes(a), Value::Bytes(b)) => {
                self.budget.charge_string(a.len().min(b.len()))?;
                return Ok(Value::Bool(is(a.cmp(b))));
            }
            (_, Value::Null) => return EvalError::no_such_overload(),
            (Value::Float(a), Value::Float(b)) if a.is_nan() || b.is_nan() => return Ok(Value::Bool(false)),
            _ => {}
        }
        left.partial_cmp(right).map_or_else(EvalError::no_such_overload, |order| Ok(Value::Bool(is(order))))
    }

    fn is_in(&mut self, left: &Value, right: &Value) -> Evaluated {
        match right {
            Value::List(list) => {
                for item in list.iter() {
                    self.budget.charge(1)?;
                    if self.equal(left, item)? {
                        return Ok(Value::Bool(true));
                    }
                }
                Ok(Value::Bool(false))
            }
            Value::Map(map) => {
                self.budget.charge_lookup(left)?;
                Ok(Value::Bool(match left {
                    Value::String(s) => map.get(&KeyRef::String(s)).is_some(),
                    other => access::key(other).is_ok_and(|k| map.get(&k).is_some()),
                }))
            }
            _ => EvalError::no_such_overload(),
        }
    }

    fn add(&mut self, left: Value, right: Value) -> Evaluated {
        match (&left, &right) {
            (Value::String(a), Value::String(b)) => {
                self.budget.charge_string(a.len().saturating_add(b.len()))?;
            }
            (Value::List(a), Value::List(b)) => {
                self.budget.charge((a.len() as u64).saturating_add(b.len() as u64))?;
                if self.activation.has_list_types()
                    && let Some(sum) = self.sum_by_type(a, b)?
                {
                    return Ok(sum);
                }
            }
            (Value::Bytes(a), Value::Bytes(b)) => {
                self.budget.charge_string(a.len().saturating_add(b.len()))?;
                return Ok(Value::Bytes([a.as_slice(), b.as_slice()].concat().into()));
            }
            _ if arithmetic(&left, &right) => {}
            _ => {
                let takes = is_number(&left) || matches!(left, Value::List(_) | Value::Bytes(_));
                return no_overload_for(op::ADD, &left, takes);
            }
        }
        plus(left, right)
    }
}

/// The sum of two values that have one.
pub(super) fn plus(left: Value, right: Value) -> Evaluated {
    (left + right).map_err(|e| EvalError::from(&e)).and_then(in_range)
}

/// Durations have 64 bits of nanoseconds.
fn in_range(value: Value) -> Evaluated {
    match &value {
        Value::Duration(of) if of.num_nanoseconds().is_none() => overflow(),
        _ => Ok(value),
    }
}

/// Whether both are numbers of one type, or timestamps and durations.
fn arithmetic(left: &Value, right: &Value) -> bool {
    matches!(
        (left, right),
        (Value::Int(_), Value::Int(_))
            | (Value::UInt(_), Value::UInt(_))
            | (Value::Float(_), Value::Float(_))
            | (Value::Timestamp(_) | Value::Duration(_), Value::Timestamp(_) | Value::Duration(_))
    )
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::UInt(_) | Value::Float(_))
}

fn divide(left: Value, right: Value) -> Evaluated {
    match (&left, &right) {
        (Value::Int(_), Value::Int(0)) | (Value::UInt(_), Value::UInt(0)) => {
            EvalError::error("division by zero")
        }
        (Value::Int(i64::MIN), Value::Int(-1)) => overflow(),
        _ => (left / right).map_err(|e| EvalError::from(&e)),
    }
}
