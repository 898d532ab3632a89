//! Lists that are sets or maps by their schema: order does not matter to them.

use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::KeyRef;

use super::{Run, operators};
use crate::activation::ListType;
use crate::error::{EvalError, Evaluated};

/// The values of an element under which a list has it.
fn key<'v>(element: &'v Value, fields: &[String]) -> Option<Vec<Option<&'v Value>>> {
    let Value::Map(map) = element else { return None };
    Some(fields.iter().map(|field| map.get(&KeyRef::String(field))).collect())
}

/// The sum of numbers or durations.
pub(super) fn sum(list: &[Value]) -> Evaluated {
    let Some((first, rest)) = list.split_first() else { return Ok(Value::Int(0)) };
    let mut sum = first.clone();
    for value in rest {
        sum = match (&sum, value) {
            (Value::Int(_), Value::Int(_))
            | (Value::UInt(_), Value::UInt(_))
            | (Value::Float(_), Value::Float(_))
            | (Value::Duration(_), Value::Duration(_)) => operators::plus(sum, value.clone())?,
            _ => return EvalError::no_such_overload(),
        };
    }
    Ok(sum)
}

impl Run<'_, '_> {
    fn list_type(&self, list: &Arc<Vec<Value>>) -> ListType {
        let sum = self.sums.iter().find(|(sum, _)| Arc::ptr_eq(sum, list));
        sum.map_or_else(|| self.activation.list_type(list), |(_, kind)| kind.clone())
    }

    /// Whether values are equal, the lists in them by their types: that of the left one counts.
    pub(super) fn equal_by_type(&mut self, left: &Value, right: &Value) -> Result<bool, EvalError> {
        match (left, right) {
            (Value::List(a), Value::List(b)) if a.len() == b.len() => {
                let kind = self.list_type(a);
                for (at, wanted) in b.iter().enumerate() {
                    let Some(same) = self.counterpart(&kind, a, (at, wanted))? else { return Ok(false) };
                    if !self.equal_by_type(same, wanted)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Map(a), Value::Map(b)) if a.map.len() == b.map.len() => {
                for (key, value) in a.map.iter() {
                    match b.map.get(key) {
                        Some(other) if self.equal_by_type(value, other)? => {}
                        _ => return Ok(false),
                    }
                }
                Ok(true)
            }
            _ => Ok(left == right),
        }
    }

    /// The element of a list that stands for one of another list, which is at this place there: mostly at the same one.
    fn counterpart<'v>(
        &mut self,
        kind: &ListType,
        list: &'v [Value],
        (at, wanted): (usize, &Value),
    ) -> Result<Option<&'v Value>, EvalError> {
        let here = list.get(at);
        let stands = |element: &Value| match kind {
            ListType::Atomic => true,
            ListType::Set => element == wanted,
            ListType::Map(fields) => key(element, fields).is_some_and(|k| Some(k) == key(wanted, fields)),
        };
        if here.is_some_and(stands) {
            return Ok(here);
        }
        self.budget.charge(list.len() as u64)?;
        Ok(list.iter().find(|element| stands(element)))
    }

    /// The sum of a set or map and another list; `None`: the first one is neither.
    pub(super) fn sum_by_type(
        &mut self,
        a: &Arc<Vec<Value>>,
        b: &Arc<Vec<Value>>,
    ) -> Result<Option<Value>, EvalError> {
        let kind = self.list_type(a);
        if kind == ListType::Atomic {
            return Ok(None);
        }
        let mut sum = a.to_vec();
        for element in b.iter() {
            self.budget.charge(sum.len() as u64)?;
            let stands = |known: &&mut Value| match &kind {
                ListType::Map(fields) => key(known, fields) == key(element, fields),
                _ => **known == *element,
            };
            match sum.iter_mut().find(stands) {
                Some(known) => known.clone_from(element),
                None => sum.push(element.clone()),
            }
        }
        let sum = Arc::new(sum);
        self.sums.push((Arc::clone(&sum), kind));
        Ok(Some(Value::List(sum)))
    }
}
