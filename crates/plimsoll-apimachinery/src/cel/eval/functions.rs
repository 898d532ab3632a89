//! Functions: a few of our own, where the crate's are too lenient or too costly; all others are the crate's.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{ExecutionError, IdedExpr};
use regex::Regex;

use super::{Evaluated, Fail, Run, Value, access, authorizer, operators};
use crate::cel::{FUNCTIONS, errors};

/// Namespaces of functions (`math.abs`).
pub(crate) const NAMESPACES: &[&str] =
    &["math", "sets", "optional", "lists", "base64", "strings", "ip", "format", "jsonpatch", "cel"];
/// Cost of compiling a regular expression, beside its length.
const REGEX_COST: u64 = 10_000;
/// Most regular expressions that are kept.
const MAX_REGEXES: usize = 8;
/// Largest compiled regular expression, in bytes.
const REGEX_SIZE: usize = 1 << 20;
/// Longest error text, in characters.
const MAX_ERROR: usize = 2000;
/// Most digits of a width or precision in `format`.
const MAX_DIGITS: usize = 3;

/// An error of the crate in cel-go's words.
pub(super) fn failed(error: &ExecutionError) -> Fail {
    use ExecutionError as E;
    let text = match error {
        E::UnsupportedTargetType { .. }
        | E::NotSupportedAsMethod { .. }
        | E::UnexpectedType { .. }
        | E::InvalidArgumentCount { .. }
        | E::MissingArgumentOrTarget => "no such overload".to_owned(),
        other => errors::text(other),
    };
    Fail::Error(text.chars().take(MAX_ERROR).collect())
}

/// A type as a value (`type(x) == string`).
#[derive(Debug, PartialEq, Eq)]
struct TypeValue(String);

impl Opaque for TypeValue {
    fn runtime_type_name(&self) -> &'static str {
        "type"
    }
}

/// Names of types, as expressions have them.
pub(crate) const TYPES: &[&str] =
    &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// The type of this name.
pub(super) fn type_named(name: &str) -> Option<Value> {
    TYPES.contains(&name).then(|| Value::Opaque(Arc::new(TypeValue(name.to_owned()))))
}

pub(super) fn type_of(value: &Value) -> &str {
    match value {
        Value::Bool(_) => "bool",
        Value::Bytes(_) => "bytes",
        Value::Float(_) => "double",
        Value::Int(_) => "int",
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Null => "null_type",
        Value::String(_) => "string",
        Value::UInt(_) => "uint",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Opaque(opaque) => opaque.runtime_type_name(),
        Value::Function(..) => "function",
    }
}

/// How Go names the type of a value in messages.
pub(super) fn go_type(value: &Value) -> String {
    let name = match value {
        Value::Bool(_) => "Bool",
        Value::Bytes(_) => "Bytes",
        Value::Float(_) => "Double",
        Value::Int(_) => "Int",
        Value::List(_) => "List",
        Value::Map(_) => "Map",
        Value::Null => "Null",
        Value::String(_) => "String",
        Value::UInt(_) => "Uint",
        Value::Timestamp(_) => "Timestamp",
        Value::Duration(_) => "Duration",
        Value::Opaque(opaque) => match opaque.runtime_type_name() {
            "type" => return "*types.Type".to_owned(),
            "optional_type" => return "*types.Optional".to_owned(),
            other => return other.replacen("kubernetes.", "cel.", 1),
        },
        Value::Function(..) => "Function",
    };
    format!("types.{name}")
}

thread_local! {
    /// The regular expressions compiled last, `None` for what is none: loops use one many times.
    static REGEXES: RefCell<VecDeque<(String, Option<Regex>)>> = const { RefCell::new(VecDeque::new()) };
}

impl<'e> Run<'e, '_> {
    /// A function or a method.
    pub(super) fn function(&mut self, call: &'e CallExpr) -> Evaluated {
        let name = call.func_name.as_str();
        let target = call.target.as_deref();
        let space = target.and_then(|t| match &t.expr {
            Expr::Ident(n) if NAMESPACES.contains(&n.as_str()) && !self.is_local(n) => Some(n.as_str()),
            _ => None,
        });
        let mut values = Vec::with_capacity(call.args.len() + 1);
        if let (Some(target), None) = (target, space) {
            values.push(self.eval(target)?);
        }
        for arg in &call.args {
            values.push(self.eval(arg)?);
        }
        let method = target.is_some() && space.is_none();
        match self.own(name, space, method, &values)? {
            Some(found) => Ok(found),
            None => {
                self.price(name, &values)?;
                delegate(name, space, method, values)
            }
        }
    }

    fn own(
        &mut self,
        name: &str,
        space: Option<&str>,
        method: bool,
        values: &[Value],
    ) -> Result<Option<Value>, Fail> {
        if let (true, [Value::Opaque(opaque), args @ ..]) = (method, values)
            && let Some(found) = authorizer::call(opaque.as_ref(), name, args, self.scope)
        {
            self.budget.charge(if name == "check" { authorizer::CHECK_COST } else { 1 })?;
            return found.map(Some);
        }
        let found = match (space, name, values) {
            (None, "size", [of]) => match of {
                Value::String(s) => {
                    self.budget.text(s.len())?;
                    int(s.chars().count())
                }
                Value::List(l) => int(l.len()),
                Value::Map(m) => int(m.map.len()),
                Value::Bytes(b) => int(b.len()),
                other => return operators::unfit(name, other, false),
            },
            (None, "contains" | "startsWith" | "endsWith", [of, what]) if method => {
                let (Value::String(of), Value::String(what)) = (of, what) else { return Fail::overload() };
                self.budget.text(of.len())?;
                Value::Bool(match name {
                    "contains" => of.contains(what.as_str()),
                    "startsWith" => of.starts_with(what.as_str()),
                    _ => of.ends_with(what.as_str()),
                })
            }
            (None, "matches", [Value::String(of), Value::String(pattern)]) => {
                Value::Bool(self.regex(of, pattern, |regex| regex.is_match(of))?)
            }
            (None, "matches", _) => return Fail::overload(),
            (None, "find", [Value::String(of), Value::String(pattern)]) if method => {
                let found = |regex: &Regex| regex.find(of).map_or("", |m| m.as_str()).to_owned();
                Value::from(self.regex(of, pattern, found)?)
            }
            (None, "findAll", [Value::String(of), Value::String(pattern), rest @ ..]) if method => {
                let most = match rest {
                    [] => usize::MAX,
                    // less than none: all of them
                    [Value::Int(n)] => usize::try_from(*n).unwrap_or(usize::MAX),
                    _ => return Fail::overload(),
                };
                self.budget.charge(of.len().min(most) as u64)?;
                let found = |regex: &Regex| {
                    regex.find_iter(of).take(most).map(|m| Value::from(m.as_str().to_owned())).collect()
                };
                Value::List(Arc::new(self.regex(of, pattern, found)?))
            }
            (None, "find" | "findAll", _) => return Fail::overload(),
            (None, "dyn", [of]) => of.clone(),
            (None, "type", [of]) => Value::Opaque(Arc::new(TypeValue(type_of(of).to_owned()))),
            (None, "string", [Value::Bool(b)]) => Value::from(b.to_string()),
            (None, "string", [Value::List(_) | Value::Map(_) | Value::Null | Value::Opaque(_)]) => {
                return Fail::overload();
            }
            (None, "bool", [Value::Bool(b)]) => Value::Bool(*b),
            (None, "bool", [Value::String(s)]) => match s.as_str() {
                "true" | "True" | "TRUE" | "t" | "1" => Value::Bool(true),
                "false" | "False" | "FALSE" | "f" | "0" => Value::Bool(false),
                _ => return Fail::error("Type conversion error"),
            },
            (Some("optional"), "none", []) => access::some(None),
            (Some("optional"), "of", [of]) => access::some(Some(of.clone())),
            (Some("optional"), "ofNonZeroValue", [of]) => access::some((!of.is_zero()).then(|| of.clone())),
            (None, "hasValue" | "value" | "or" | "orValue", [of, rest @ ..]) => {
                let Some(held) = access::optional(of) else { return Fail::overload() };
                match (name, rest) {
                    ("hasValue", []) => Value::Bool(held.is_some()),
                    ("value", []) => match held {
                        Some(value) => value,
                        None => return Fail::error("optional.none() dereference"),
                    },
                    ("or", [other]) => {
                        if held.is_some() {
                            of.clone()
                        } else {
                            other.clone()
                        }
                    }
                    ("orValue", [other]) => held.unwrap_or_else(|| other.clone()),
                    _ => return Fail::overload(),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(found))
    }

    /// Uses a regular expression on a text.
    fn regex<R>(&mut self, text: &str, pattern: &str, find: impl FnOnce(&Regex) -> R) -> Result<R, Fail> {
        self.budget.charge((text.len() as u64 / 10 + 1).saturating_mul(pattern.len() as u64 / 4 + 1))?;
        REGEXES.with_borrow_mut(|known| {
            if !known.iter().any(|(p, _)| p == pattern) {
                self.budget.charge(REGEX_COST.saturating_add(pattern.len() as u64))?;
                let built = regex::RegexBuilder::new(pattern).size_limit(REGEX_SIZE).build().ok();
                known.truncate(MAX_REGEXES - 1);
                known.push_front((pattern.to_owned(), built));
            }
            match known.iter().find(|(p, _)| p == pattern) {
                Some((_, Some(regex))) => Ok(find(regex)),
                _ => Err(Fail::Error(format!("error parsing regexp: `{pattern}`"))),
            }
        })
    }

    /// What a function of the crate costs: what it reads, and what it may make.
    fn price(&mut self, name: &str, values: &[Value]) -> Result<(), Fail> {
        let mut wholes = Vec::with_capacity(values.len());
        for value in values {
            let before = self.budget.left;
            self.budget.whole(value)?;
            wholes.push(usize::try_from(before - self.budget.left).unwrap_or(usize::MAX));
        }
        let whole = |i: usize| wholes.get(i).copied().unwrap_or(usize::MAX);
        let made = match (name, values) {
            ("replace", [Value::String(of), Value::String(old), Value::String(new), ..]) => {
                of.matches(old.as_str()).count().saturating_mul(new.len()) / 10
            }
            ("join", [Value::List(list), Value::String(between)]) => {
                list.len().saturating_mul(between.len()) / 10
            }
            ("range", [Value::Int(n)]) => usize::try_from(*n).unwrap_or(0),
            ("format", [Value::String(form), Value::List(args)]) => {
                self.check_form(form)?;
                let mut most = 0;
                for arg in args.iter() {
                    let before = self.budget.left;
                    self.budget.whole(arg)?;
                    most = most.max(before - self.budget.left);
                }
                form.matches('%').count().saturating_mul(usize::try_from(most).unwrap_or(usize::MAX))
            }
            ("split", [Value::String(of), Value::String(between), ..]) => {
                of.matches(between.as_str()).count().saturating_add(1)
            }
            ("distinct" | "sort", [Value::List(list)]) => list.len().saturating_mul(whole(0)) / 4,
            // Each of one is compared with each of the other, as far as the smaller one goes.
            ("contains" | "intersects" | "equivalent", [Value::List(a), Value::List(b)]) => {
                a.len().saturating_mul(whole(1)).min(b.len().saturating_mul(whole(0)))
            }
            ("indexOf" | "lastIndexOf", [Value::String(a), Value::String(b), ..]) => {
                a.len().saturating_mul(b.len()) / 100
            }
            _ => 0,
        };
        self.budget.charge(made as u64)
    }

    /// Widths and precisions are written out: `%.1000000000f` is long.
    fn check_form(&self, form: &str) -> Result<(), Fail> {
        let long = form.split('%').skip(1).any(|rest| {
            let digits = rest.trim_start_matches('.').chars().take_while(char::is_ascii_digit).count();
            digits > MAX_DIGITS
        });
        if long { Fail::error("precision or width is too large") } else { Ok(()) }
    }
}

fn int(n: usize) -> Value {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// Calls a function of the crate.
fn delegate(name: &str, space: Option<&str>, method: bool, values: Vec<Value>) -> Evaluated {
    let mut scope = FUNCTIONS.new_inner_scope();
    let ident = |name: String| IdedExpr { id: 0, expr: Expr::Ident(name) };
    let mut args = Vec::with_capacity(values.len());
    for (i, value) in values.into_iter().enumerate() {
        let name = format!("@{i}");
        scope.add_variable_from_value(name.as_str(), value);
        args.push(ident(name));
    }
    let target = match space {
        Some(space) => Some(Box::new(ident(space.to_owned()))),
        None if method && !args.is_empty() => Some(Box::new(args.remove(0))),
        None => None,
    };
    let call = Expr::Call(CallExpr { func_name: name.to_owned(), target, args });
    Value::resolve(&IdedExpr { id: 0, expr: call }, &scope).map_err(|e| failed(&e))
}
