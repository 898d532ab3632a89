//! Macros the crate's parser leaves as calls: `cel.bind`, `optMap`, `sortBy`, loops over keys and values.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::objects::{Key, Map};

use super::{Evaluated, Fail, Run, Value, access, functions};

fn name_of(expr: &IdedExpr) -> Option<&str> {
    match &expr.expr {
        Expr::Ident(name) => Some(name),
        _ => None,
    }
}

/// Methods that are macros, with the number of their arguments that name variables.
pub(crate) fn variables_of(method: &str, args: usize) -> usize {
    match (method, args) {
        ("optMap" | "optFlatMap" | "sortBy", 2) => 1,
        ("all" | "exists" | "existsOne" | "exists_one", 3) => 2,
        ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => 2,
        _ => 0,
    }
}

impl<'e> Run<'e, '_> {
    /// The value of a macro; `None`: it is a function.
    pub(super) fn expand(&mut self, call: &'e CallExpr) -> Option<Evaluated> {
        let target = call.target.as_deref()?;
        let (name, args) = (call.func_name.as_str(), call.args.as_slice());
        if let (Some("cel"), "bind", [variable, value, body]) = (name_of(target), name, args)
            && !self.is_local("cel")
        {
            let variable = name_of(variable)?;
            return Some(self.eval(value).and_then(|v| self.with(&[(variable, v)], body)));
        }
        match (variables_of(name, args.len()), args) {
            (1, [variable, body]) => {
                let variable = name_of(variable)?;
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
                let (key, value) = (name_of(key)?, name_of(value)?);
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
        let Some(held) = access::optional(value) else { return Fail::overload() };
        let Some(held) = held else { return Ok(access::some(None)) };
        let made = self.with(&[(variable, held)], body)?;
        Ok(if flat { made } else { access::some(Some(made)) })
    }

    fn sort_by(&mut self, value: &Value, variable: &'e str, body: &'e IdedExpr) -> Evaluated {
        let Value::List(list) = value else { return access::not_iterable(value) };
        let mut keyed = Vec::with_capacity(list.len());
        let times = u64::from(list.len().checked_ilog2().unwrap_or(0)) + 1;
        for item in list.iter() {
            self.budget.charge(1)?;
            let key = self.with(&[(variable, item.clone())], body)?;
            // Every key is compared about so often; what is no text is compared at once.
            let length = if let Value::String(s) = &key { s.len() as u64 } else { 0 };
            self.budget.charge((length / 10 + 1).saturating_mul(times))?;
            keyed.push((key, item.clone()));
        }
        self.budget.charge(keyed.len() as u64)?;
        if keyed.windows(2).any(|w| matches!(w, [a, b] if a.0.partial_cmp(&b.0).is_none())) {
            return Fail::error("list elements must have the same type");
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
        self.budget.through(range)?;
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
                let found = functions::go_type(other);
                return Fail::error(format!("unsupported comprehension range type: {found}"));
            }
        };
        let (filter, body) = match rest {
            [body] => (None, body),
            [filter, body] => (Some(filter), body),
            _ => return Fail::overload(),
        };
        let mut made = Gathered::default();
        for (key, value) in all {
            self.budget.charge(2)?;
            let variables = [(names.0, key.clone()), (names.1, value)];
            if let Some(filter) = filter {
                match self.with(&variables, filter)? {
                    Value::Bool(true) => {}
                    Value::Bool(false) => continue,
                    _ => return Fail::overload(),
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

/// What a loop has gathered.
#[derive(Default)]
struct Gathered {
    list: Vec<Value>,
    map: HashMap<Key, Value>,
    /// Elements for which a predicate held.
    count: usize,
    decided: bool,
    failed: Option<Fail>,
}

impl Gathered {
    /// Takes a step's value; whether the loop is over.
    fn add(&mut self, name: &str, key: &Value, found: Evaluated) -> Result<bool, Fail> {
        match (name, found) {
            (_, Err(fail)) if fail.is_final() => return Err(fail),
            ("all" | "exists", Err(fail)) => self.failed = Some(fail),
            (_, Err(fail)) => return Err(fail),
            ("all", Ok(Value::Bool(b))) => self.decided = !b,
            ("exists", Ok(Value::Bool(b))) => self.decided = b,
            ("all" | "exists", Ok(_)) => self.failed = Fail::overload::<()>().err(),
            ("existsOne" | "exists_one", Ok(Value::Bool(b))) => self.count += usize::from(b),
            ("transformList", Ok(value)) => self.list.push(value),
            ("transformMap", Ok(value)) => {
                self.map.insert(access::key(key)?, value);
            }
            ("transformMapEntry", Ok(Value::Map(entry))) => {
                for (key, value) in entry.map.iter() {
                    if self.map.insert(key.clone(), value.clone()).is_some() {
                        return Fail::error("insert failed: key already exists");
                    }
                }
            }
            _ => return Fail::overload(),
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
