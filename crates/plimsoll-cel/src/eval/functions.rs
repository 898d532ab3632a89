//! Functions: those that the interpreter's library evaluates too leniently or at too high a cost; all others are the
//! library's.

use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::common::ast::CallExpr;

use super::{Run, access, format, formats, kubernetes, lists, operators, regex, time, types};
use crate::error::{EvalError, Evaluated};
use crate::{library, value};

/// Most digits of a width or precision in `format`.
const MAX_DIGITS: usize = 3;

impl<'e> Run<'e, '_> {
    /// Calls a function or a method.
    pub(super) fn function(&mut self, call: &'e CallExpr) -> Evaluated {
        let name = call.func_name.as_str();
        let target = call.target.as_deref();
        let namespace = target.and_then(library::namespace).filter(|n| !self.is_local(n));
        let mut values = Vec::with_capacity(call.args.len() + 1);
        if let (Some(target), None) = (target, namespace) {
            let receiver = self.eval(target)?;
            // The alternative is evaluated only where it is needed.
            if let ("or" | "orValue", [_], Some(Some(held))) =
                (name, call.args.as_slice(), access::optional(&receiver))
            {
                return Ok(if name == "or" { receiver } else { held });
            }
            values.push(receiver);
        }
        for arg in &call.args {
            values.push(self.eval(arg)?);
        }
        let method = target.is_some() && namespace.is_none();
        if let (true, [Value::Opaque(receiver), args @ ..]) = (method, values.as_slice())
            && let Some(found) = self.activation.call(receiver.as_ref(), name, args, self.budget)
        {
            return found;
        }
        if let (true, [Value::Opaque(receiver), args @ ..]) = (method, values.as_slice())
            && let Some(found) = kubernetes::method(receiver.as_ref(), name, args)
        {
            self.charge_library(name, &values)?;
            return found;
        }
        match self.own(name, namespace, method, &values)? {
            Some(found) => Ok(found),
            None => {
                self.charge_library(name, &values)?;
                library::call(name, namespace, method, values).map_err(|e| EvalError::from(&e))
            }
        }
    }

    /// A function of this crate's own; `None`: the library has it.
    fn own(
        &mut self,
        name: &str,
        namespace: Option<&str>,
        method: bool,
        values: &[Value],
    ) -> Result<Option<Value>, EvalError> {
        Ok(match (namespace, name, values) {
            (None, "size", [of]) => Some(self.size(of)?),
            (None, "contains" | "startsWith" | "endsWith", [of, part]) if method => {
                Some(self.search(name, of, part)?)
            }
            (None, "matches" | "find" | "findAll", _) => Some(self.regex(name, method, values)?),
            (None, "dyn", [of]) => Some(of.clone()),
            (None, "type", [of]) => Some(types::of(of)),
            (
                None,
                "string" | "bool",
                [
                    Value::Bool(_)
                    | Value::String(_)
                    | Value::Float(_)
                    | Value::List(_)
                    | Value::Map(_)
                    | Value::Null
                    | Value::Opaque(_),
                ],
            ) => converted(name, &values[0])?,
            (None, "quantity" | "isQuantity" | "url" | "isURL", [Value::String(text)]) if !method => {
                self.charge_library(name, values)?;
                Some(kubernetes::function(name, text)?)
            }
            (None, "format", [Value::String(form), Value::List(args)]) if method => {
                self.charge_library(name, values)?;
                Some(format::format(form, args)?)
            }
            (None, "sum", [Value::List(list)]) if method => {
                self.charge_library(name, values)?;
                Some(lists::sum(list)?)
            }
            (None, "indexOf", [Value::String(_), Value::String(_), Value::Int(at @ ..0)]) if method => {
                return EvalError::error(format!("index out of range: {at}"));
            }
            (None, "lastIndexOf", [Value::String(of), Value::String(part), Value::Int(at)]) if method => {
                self.charge_library(name, values)?;
                Some(last_index(of, part, *at)?)
            }
            (Some("optional"), ..) => made_optional(name, values),
            (Some("format"), ..) => formats::call(name, values),
            (
                None,
                "replace",
                [Value::String(of), Value::String(old), Value::String(new), Value::Int(..0)],
            ) => {
                self.charge_library(name, values)?;
                Some(Value::from(of.replace(old.as_str(), new)))
            }
            (None, "split", [Value::String(of), Value::String(between), limit @ ..])
                if between.is_empty() =>
            {
                self.charge_library(name, values)?;
                Some(characters(of, limit)?)
            }
            (None, "hasValue" | "value" | "or" | "orValue", [of, rest @ ..]) => {
                Some(of_optional(name, of, rest)?)
            }
            (None, ..) => {
                let Some(found) = time::call(name, method, values) else { return Ok(None) };
                self.charge_library(name, values)?;
                Some(found?)
            }
            _ => None,
        })
    }

    fn size(&mut self, of: &Value) -> Evaluated {
        let size = match of {
            Value::String(s) => {
                self.budget.charge_string(s.len())?;
                s.chars().count()
            }
            Value::List(l) => l.len(),
            Value::Map(m) => m.map.len(),
            Value::Bytes(b) => b.len(),
            other => return operators::no_overload_for("size", other, false),
        };
        Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
    }

    /// `contains`, `startsWith` and `endsWith` of strings.
    fn search(&mut self, name: &str, of: &Value, part: &Value) -> Evaluated {
        let (Value::String(of), Value::String(part)) = (of, part) else {
            return EvalError::no_such_overload();
        };
        self.budget.charge_string(of.len())?;
        Ok(Value::Bool(match name {
            "contains" => of.contains(part.as_str()),
            "startsWith" => of.starts_with(part.as_str()),
            _ => of.ends_with(part.as_str()),
        }))
    }

    /// `matches`, `find` and `findAll`.
    fn regex(&mut self, name: &str, method: bool, values: &[Value]) -> Evaluated {
        let [Value::String(of), Value::String(pattern), rest @ ..] = values else {
            return EvalError::no_such_overload();
        };
        match (name, rest) {
            ("matches", []) => {
                regex::apply(self.budget, of.len(), pattern, |r| r.is_match(of)).map(Value::Bool)
            }
            ("find", []) if method => {
                let find = |r: &::regex::Regex| r.find(of).map_or("", |m| m.as_str()).to_owned();
                regex::apply(self.budget, of.len(), pattern, find).map(Value::from)
            }
            ("findAll", rest) if method => {
                let most = match rest {
                    [] => usize::MAX,
                    // A negative limit is none.
                    [Value::Int(n)] => usize::try_from(*n).unwrap_or(usize::MAX),
                    _ => return EvalError::no_such_overload(),
                };
                self.budget.charge(of.len().min(most) as u64)?;
                let find = |r: &::regex::Regex| {
                    r.find_iter(of).take(most).map(|m| Value::from(m.as_str().to_owned())).collect()
                };
                regex::apply(self.budget, of.len(), pattern, find).map(|all| Value::List(Arc::new(all)))
            }
            _ => EvalError::no_such_overload(),
        }
    }

    /// Charges a function of the library: the values that it reads, and the value that it may make.
    fn charge_library(&mut self, name: &str, values: &[Value]) -> Result<(), EvalError> {
        let mut costs = Vec::with_capacity(values.len());
        for value in values {
            costs.push(usize::try_from(self.budget.charge_value(value)?).unwrap_or(usize::MAX));
        }
        let cost = |i: usize| costs.get(i).copied().unwrap_or(usize::MAX);
        let made = match (name, values) {
            ("replace", [Value::String(of), Value::String(old), Value::String(new), ..]) => {
                of.matches(old.as_str()).count().saturating_mul(new.len()) / 10
            }
            ("join", [Value::List(list), Value::String(between)]) => {
                list.len().saturating_mul(between.len()) / 10
            }
            ("range", [Value::Int(n)]) => usize::try_from(*n).unwrap_or(0),
            ("format", [Value::String(form), Value::List(args)]) => {
                check_precision(form)?;
                let mut most = 0;
                for arg in args.iter() {
                    most = most.max(self.budget.charge_value(arg)?);
                }
                form.matches('%').count().saturating_mul(usize::try_from(most).unwrap_or(usize::MAX))
            }
            ("split", [Value::String(of), Value::String(between), ..]) => {
                of.matches(between.as_str()).count().saturating_add(1)
            }
            ("distinct" | "sort", [Value::List(list)]) => list.len().saturating_mul(cost(0)) / 4,
            // Each element of one is compared with each of the other; a comparison ends with the smaller one.
            ("contains" | "intersects" | "equivalent", [Value::List(a), Value::List(b)]) => {
                a.len().saturating_mul(cost(1)).min(b.len().saturating_mul(cost(0)))
            }
            ("indexOf" | "lastIndexOf", [Value::String(a), Value::String(b), ..]) => {
                a.len().saturating_mul(b.len()) / 100
            }
            _ => 0,
        };
        self.budget.charge(made as u64)
    }
}

/// `string` and `bool` of values that the library converts differently; `None`: the library converts the value.
fn converted(name: &str, of: &Value) -> Result<Option<Value>, EvalError> {
    Ok(match (name, of) {
        ("string", Value::Bool(b)) => Some(Value::from(b.to_string())),
        ("string", Value::Float(f)) => Some(Value::from(format::double_text(*f))),
        ("string", Value::Opaque(of)) if matches!(of.runtime_type_name(), "net.IP" | "net.CIDR") => None,
        ("string", Value::List(_) | Value::Map(_) | Value::Null | Value::Opaque(_)) => {
            return EvalError::no_such_overload();
        }
        ("bool", Value::Bool(b)) => Some(Value::Bool(*b)),
        ("bool", Value::String(s)) => match s.as_str() {
            "true" | "True" | "TRUE" | "t" | "1" => Some(Value::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Some(Value::Bool(false)),
            _ => return EvalError::error("Type conversion error"),
        },
        _ => None,
    })
}

/// Where a string has another one for the last time, at or before a place.
fn last_index(of: &str, part: &str, at: i64) -> Evaluated {
    if part.is_empty() {
        return Ok(Value::Int(at));
    }
    let Ok(last) = usize::try_from(at) else { return EvalError::error(format!("index out of range: {at}")) };
    let (of, part): (Vec<char>, Vec<char>) = (of.chars().collect(), part.chars().collect());
    if last >= of.len() {
        return Ok(Value::Int(-1));
    }
    let found = of.windows(part.len()).take(last + 1).rposition(|window| window == part);
    Ok(Value::Int(found.and_then(|i| i64::try_from(i).ok()).unwrap_or(-1)))
}

/// The characters of a string, at most as many as the limit says; the last one has the rest.
fn characters(of: &str, limit: &[Value]) -> Evaluated {
    let most = match limit {
        [] | [Value::Int(..0)] => usize::MAX,
        [Value::Int(n)] => usize::try_from(*n).unwrap_or(usize::MAX),
        _ => return EvalError::no_such_overload(),
    };
    let mut out = Vec::new();
    let mut rest = of;
    while let Some(c) = rest.chars().next().filter(|_| out.len() < most) {
        let end = if out.len() + 1 == most { rest.len() } else { c.len_utf8() };
        let (piece, after) = rest.split_at(end);
        out.push(Value::from(piece.to_owned()));
        rest = after;
    }
    Ok(Value::List(Arc::new(out)))
}

/// `optional.none()`, `optional.of(x)` and `optional.ofNonZeroValue(x)`.
fn made_optional(name: &str, values: &[Value]) -> Option<Value> {
    Some(value::optional(match (name, values) {
        ("none", []) => None,
        ("of", [of]) => Some(of.clone()),
        ("ofNonZeroValue", [of]) => (!of.is_zero()).then(|| of.clone()),
        _ => return None,
    }))
}

/// Methods of optional values.
fn of_optional(name: &str, of: &Value, rest: &[Value]) -> Evaluated {
    let Some(held) = access::optional(of) else { return EvalError::no_such_overload() };
    match (name, rest) {
        ("hasValue", []) => Ok(Value::Bool(held.is_some())),
        ("value", []) => held.map_or_else(|| EvalError::error("optional.none() dereference"), Ok),
        ("or", [other]) => Ok(if held.is_some() { of.clone() } else { other.clone() }),
        ("orValue", [other]) => Ok(held.unwrap_or_else(|| other.clone())),
        _ => EvalError::no_such_overload(),
    }
}

/// Refuses long widths and precisions, because `format` writes them out (`%.1000000000f`).
fn check_precision(form: &str) -> Result<(), EvalError> {
    let long = form.split('%').skip(1).any(|rest| {
        let digits = rest.trim_start_matches('.').chars().take_while(char::is_ascii_digit).count();
        digits > MAX_DIGITS
    });
    if long { EvalError::error("precision or width is too large") } else { Ok(()) }
}
