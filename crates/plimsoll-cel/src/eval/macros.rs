//! Macros that the parser leaves as calls: `cel.bind`, `optMap`, `sortBy`, loops over keys and values.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::CallExpr;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{IdedExpr, Value};

use super::{Run, access, types};
use crate::error::{EvalError, Evaluated};
use crate::{library, value};

impl<'e> Run<'e, '_> {
    /// The value of a macro; `None`: the call is that of a function.
    pub(super) fn expand(&mut self, call: &'e CallExpr) -> Option<Evaluated> {
        let target = call.target.as_deref()?;
        let (name, args) = (call.func_name.as_str(), call.args.as_slice());
        if let (Some("cel"), "bind", [variable, value, body]) = (library::ident(target), name, args)
            && !self.is_local("cel")
        {
            let variable = library::ident(variable)?;
            return Some(self.eval(value).and_then(|v| self.with(&[(variable, v)], body)));
        }
        match (library::macro_variables(name, args.len()), args) {
            (1, [variable, body]) => {
                let variable = library::ident(variable)?;
                let value = match self.eval(target) {
                    Ok(value) => value,
                    Err(fail) => return Some(Err(fail)),
                };
                Some(if name == "sortBy" {
                    self.sort_by(&value, variable, body)
                } else {
                    self.opt_map(&value, variable, body, name == "optFlatMap")
                })
            }
            (2, [key, value, rest @ ..]) => {
                let (key, value) = (library::ident(key)?, library::ident(value)?);
                Some(self.eval(target).and_then(|range| self.pairs(name, &range, (key, value), rest)))
            }
            _ => None,
        }
    }

    fn with(&mut self, variables: &[(&'e str, Value)], body: &'e IdedExpr) -> Evaluated {
        let base = self.locals.len();
        self.locals.extend(variables.iter().map(|(n, v)| (*n, Ok(v.clone()))));
        let found = self.eval(body);
        self.locals.truncate(base);
        found
    }

    fn opt_map(&mut self, value: &Value, variable: &'e str, body: &'e IdedExpr, flat: bool) -> Evaluated {
        let Some(held) = access::optional(value) else { return EvalError::no_such_overload() };
        let Some(held) = held else { return Ok(value::optional(None)) };
        let made = self.with(&[(variable, held)], body)?;
        Ok(if flat { made } else { value::optional(Some(made)) })
    }

    fn sort_by(&mut self, value: &Value, variable: &'e str, body: &'e IdedExpr) -> Evaluated {
        let Value::List(list) = value else { return access::not_iterable(value) };
        let mut keyed = Vec::with_capacity(list.len());
        let times = u64::from(list.len().checked_ilog2().unwrap_or(0)) + 1;
        for item in list.iter() {
            self.budget.charge(1)?;
            let key = self.with(&[(variable, item.clone())], body)?;
            // Sorting compares every key about `times` times; a key that is no string costs one unit.
            let length = if let Value::String(s) = &key { s.len() as u64 } else { 0 };
            self.budget.charge((length / 10 + 1).saturating_mul(times))?;
            keyed.push((key, item.clone()));
        }
        self.budget.charge(keyed.len() as u64)?;
        if keyed.windows(2).any(|w| matches!(w, [a, b] if a.0.partial_cmp(&b.0).is_none())) {
            return EvalError::error("list elements must have the same type");
        }
        keyed.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
        Ok(Value::List(Arc::new(keyed.into_iter().map(|(_, v)| v).collect())))
    }

    /// Loops with two variables: index and element of a list, key and value of a map.
    fn pairs(
        &mut self,
        name: &str,
        range: &Value,
        names: (&'e str, &'e str),
        rest: &'e [IdedExpr],
    ) -> Evaluated {
        self.budget.charge_range(range)?;
        let all: Vec<(Value, Value)> = match range {
            Value::List(list) => {
                self.budget.charge(list.len() as u64)?;
                (0_i64..).map(Value::Int).zip(list.iter().cloned()).collect()
            }
            Value::Map(map) => {
                let mut all: Vec<(&Key, &Value)> = map.map.iter().collect();
                all.sort_by_key(|(k, _)| *k);
                all.into_iter().map(|(k, v)| (Value::from(k), v.clone())).collect()
            }
            other => {
                let found = types::go_name(other);
                return EvalError::error(format!("unsupported comprehension range type: {found}"));
            }
        };
        let (filter, body) = match rest {
            [body] => (None, body),
            [filter, body] => (Some(filter), body),
            _ => return EvalError::no_such_overload(),
        };
        let mut made = Accumulated::default();
        for (key, value) in all {
            self.budget.charge(2)?;
            let variables = [(names.0, key.clone()), (names.1, value)];
            if let Some(filter) = filter {
                match self.with(&variables, filter)? {
                    Value::Bool(true) => {}
                    Value::Bool(false) => continue,
                    _ => return EvalError::no_such_overload(),
                }
            }
            let found = self.with(&variables, body);
            if made.add(name, &key, found)? {
                break;
            }
        }
        made.result(name)
    }
}

/// The accumulated result of a loop.
#[derive(Default)]
struct Accumulated {
    list: Vec<Value>,
    map: HashMap<Key, Value>,
    /// Elements for which a predicate held.
    count: usize,
    decided: bool,
    failed: Option<EvalError>,
}

impl Accumulated {
    /// Adds a step's value; whether the loop is over.
    fn add(&mut self, name: &str, key: &Value, found: Evaluated) -> Result<bool, EvalError> {
        match (name, found) {
            (_, Err(fail)) if fail.is_final() => return Err(fail),
            ("all" | "exists", Err(fail)) => self.failed = Some(fail),
            (_, Err(fail)) => return Err(fail),
            ("all", Ok(Value::Bool(b))) => self.decided = !b,
            ("exists", Ok(Value::Bool(b))) => self.decided = b,
            ("all" | "exists", Ok(_)) => self.failed = EvalError::no_such_overload::<()>().err(),
            ("existsOne" | "exists_one", Ok(Value::Bool(b))) => self.count += usize::from(b),
            ("transformList", Ok(value)) => self.list.push(value),
            ("transformMap", Ok(value)) => {
                self.map.insert(access::key(key)?, value);
            }
            ("transformMapEntry", Ok(Value::Map(entry))) => {
                for (key, value) in entry.map.iter() {
                    if self.map.insert(key.clone(), value.clone()).is_some() {
                        return EvalError::error("insert failed: key already exists");
                    }
                }
            }
            _ => return EvalError::no_such_overload(),
        }
        Ok(self.decided)
    }

    fn result(self, name: &str) -> Evaluated {
        Ok(match name {
            "all" | "exists" if self.decided => Value::Bool(name == "exists"),
            "all" | "exists" => match self.failed {
                Some(fail) => return Err(fail),
                None => Value::Bool(name == "all"),
            },
            "transformList" => Value::List(Arc::new(self.list)),
            "transformMap" | "transformMapEntry" => Value::Map(Map { map: Arc::new(self.map) }),
            _ => Value::Bool(self.count == 1),
        })
    }
}
