//! The cost budget of evaluations.

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, OptionalValue};

use crate::error::EvalError;

/// Cost limit of one evaluation (`k8s.io/apiserver/pkg/apis/cel`, `PerCallLimit`).
const CALL_LIMIT: u64 = 1_000_000;
/// Deepest nesting of expressions that are evaluated within one another.
const MAX_NESTED: u32 = 64;
/// Deepest nesting of a value.
const MAX_DEPTH: u32 = 256;

/// The cost that evaluations may still have, in cel-go's units: about one for each step, each element and each ten
/// characters read. Several evaluations may share a budget; one evaluation alone may cost at most 1,000,000.
#[derive(Clone, Debug)]
pub struct Budget {
    left: u64,
    call: u64,
    nested: u32,
}

impl Budget {
    /// A budget of `limit` units for all evaluations together.
    pub const fn new(limit: u64) -> Self {
        Self { left: limit, call: CALL_LIMIT, nested: 0 }
    }

    /// The units that are left.
    pub const fn remaining(&self) -> u64 {
        self.left
    }

    /// Charges `cost` units.
    ///
    /// # Errors
    /// [`EvalError::Budget`] when less is left, [`EvalError::CallLimit`] when the running evaluation may not cost as
    /// much.
    pub fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        if cost > self.left {
            self.left = 0;
            return Err(EvalError::Budget);
        }
        self.left -= cost;
        if cost > self.call {
            self.call = 0;
            return Err(EvalError::CallLimit);
        }
        self.call -= cost;
        Ok(())
    }

    /// Starts an evaluation, which has the whole limit of a call.
    pub(crate) fn begin_call(&mut self) {
        self.call = CALL_LIMIT;
    }

    /// Starts an evaluation within another one; returns the outer one's remaining call limit for
    /// [`Self::end_nested`].
    pub(crate) fn begin_nested(&mut self) -> Result<u64, EvalError> {
        if self.nested >= MAX_NESTED {
            return EvalError::error("variables use one another too deeply");
        }
        self.nested += 1;
        Ok(std::mem::replace(&mut self.call, CALL_LIMIT))
    }

    /// Ends an evaluation within another one.
    pub(crate) fn end_nested(&mut self, outer: u64) {
        self.call = outer;
        self.nested -= 1;
    }

    /// Charges reading a string of so many bytes.
    pub(crate) fn charge_string(&mut self, bytes: usize) -> Result<(), EvalError> {
        self.charge(bytes as u64 / 10 + 1)
    }

    /// Charges reading all of a value; returns the cost.
    pub(crate) fn charge_value(&mut self, value: &Value) -> Result<u64, EvalError> {
        let before = self.left;
        self.charge_nested_value(value, 0)?;
        Ok(before - self.left)
    }

    fn charge_nested_value(&mut self, value: &Value, depth: u32) -> Result<(), EvalError> {
        if depth > MAX_DEPTH {
            return EvalError::error("value is nested too deeply");
        }
        match value {
            Value::String(s) => self.charge_string(s.len()),
            Value::Bytes(b) => self.charge_string(b.len()),
            Value::List(list) => {
                self.charge(1)?;
                list.iter().try_for_each(|v| self.charge_nested_value(v, depth + 1))
            }
            Value::Map(map) => {
                self.charge(1)?;
                map.map.iter().try_for_each(|(key, v)| {
                    self.charge(key_cost(key))?;
                    self.charge_nested_value(v, depth + 1)
                })
            }
            Value::Opaque(opaque) => {
                self.charge(1)?;
                match opaque.downcast_ref::<OptionalValue>().and_then(OptionalValue::value) {
                    Some(held) => self.charge_nested_value(held, depth + 1),
                    None => Ok(()),
                }
            }
            _ => self.charge(1),
        }
    }

    /// Charges finding a value among the keys of a map.
    pub(crate) fn charge_lookup(&mut self, key: &Value) -> Result<(), EvalError> {
        match key {
            Value::String(s) => self.charge(s.len() as u64 / 10),
            _ => Ok(()),
        }
    }

    /// Charges copying and sorting the keys of a map, before a loop does so.
    pub(crate) fn charge_range(&mut self, range: &Value) -> Result<(), EvalError> {
        match range {
            Value::Map(map) => {
                self.charge(map.map.len() as u64)?;
                map.map.keys().try_for_each(|key| self.charge(key_cost(key)))
            }
            _ => Ok(()),
        }
    }
}

/// Cost of reading a key, beside the value under it.
fn key_cost(key: &Key) -> u64 {
    match key {
        Key::String(s) => s.len() as u64 / 10,
        _ => 0,
    }
}
