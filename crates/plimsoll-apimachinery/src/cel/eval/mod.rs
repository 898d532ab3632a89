//! Evaluation against a budget, for expressions whose variables are only known when they are reached.
//!
//! The interpreter of the CEL crate evaluates everything it is given and copies what it touches. Admission policies
//! need more: variables that are evaluated when they are first used, a cost that stops what runs away, and errors
//! that `&&`, `||` and loops absorb as cel-go does. Functions are still the crate's.

mod access;
mod authorizer;
mod functions;
mod macros;
mod operators;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators as op};
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use serde_json::Value as Json;

pub use self::authorizer::{Asked, Decision};
pub(crate) use self::functions::{NAMESPACES, TYPES};
pub(crate) use self::macros::variables_of;
pub use kube_cel::cel::Value;

/// What one evaluation of an expression may cost (apiserver `PerCallLimit`).
const PER_CALL: u64 = 1_000_000;
/// Cost of a list and of a map that are written out (cel-go's cost tracker).
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;
/// Deepest nesting of variables that use one another.
const MAX_CHAIN: u32 = 64;
/// Deepest nesting of a value.
const MAX_DEPTH: u32 = 256;

/// Why an evaluation gave no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fail {
    /// An error, in cel-go's words.
    Error(String),
    /// One evaluation was too expensive.
    CallLimit,
    /// All evaluations together were too expensive.
    Budget,
}

impl Fail {
    fn error<T>(text: impl Into<String>) -> Result<T, Self> {
        Err(Self::Error(text.into()))
    }

    fn overload<T>() -> Result<T, Self> {
        Self::error("no such overload")
    }

    /// Whether nothing may absorb it.
    const fn is_final(&self) -> bool {
        !matches!(self, Self::Error(_))
    }
}

impl std::fmt::Display for Fail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(text) => f.write_str(text),
            Self::CallLimit => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::Budget => f.write_str(
                "validation failed due to running out of cost budget, no further validation rules will be run",
            ),
        }
    }
}

/// A value or why there is none.
pub type Evaluated = Result<Value, Fail>;

/// What evaluations may still cost, in upstream's units: about a step each, ten characters or an element looked at.
#[derive(Clone, Debug)]
pub struct Budget {
    left: u64,
    call: u64,
    chain: u32,
}

impl Budget {
    /// A budget of so many steps.
    pub const fn new(steps: u64) -> Self {
        Self { left: steps, call: PER_CALL, chain: 0 }
    }

    fn charge(&mut self, steps: u64) -> Result<(), Fail> {
        if steps > self.left {
            self.left = 0;
            return Err(Fail::Budget);
        }
        self.left -= steps;
        if steps > self.call {
            self.call = 0;
            return Err(Fail::CallLimit);
        }
        self.call -= steps;
        Ok(())
    }

    /// Charges a text of so many bytes.
    fn text(&mut self, bytes: usize) -> Result<(), Fail> {
        self.charge(bytes as u64 / 10 + 1)
    }

    /// Charges looking at a whole value.
    fn whole(&mut self, value: &Value) -> Result<(), Fail> {
        self.walk(value, 0)
    }

    fn walk(&mut self, value: &Value, depth: u32) -> Result<(), Fail> {
        if depth > MAX_DEPTH {
            return Fail::error("value is nested too deeply");
        }
        match value {
            Value::String(s) => self.text(s.len()),
            Value::Bytes(b) => self.text(b.len()),
            Value::List(list) => {
                self.charge(1)?;
                list.iter().try_for_each(|v| self.walk(v, depth + 1))
            }
            Value::Map(map) => {
                self.charge(1)?;
                map.map.iter().try_for_each(|(key, v)| {
                    self.charge(key_cost(key))?;
                    self.walk(v, depth + 1)
                })
            }
            Value::Opaque(opaque) => {
                self.charge(1)?;
                match opaque.downcast_ref::<OptionalValue>().and_then(OptionalValue::value) {
                    Some(held) => self.walk(held, depth + 1),
                    None => Ok(()),
                }
            }
            _ => self.charge(1),
        }
    }

    /// Charges finding a value among the keys of a map.
    fn key(&mut self, key: &Value) -> Result<(), Fail> {
        match key {
            Value::String(s) => self.charge(s.len() as u64 / 10),
            _ => Ok(()),
        }
    }

    /// Charges going through a list or map from its beginning, before it is copied and its keys are sorted.
    fn through(&mut self, range: &Value) -> Result<(), Fail> {
        match range {
            Value::Map(map) => {
                self.charge(map.map.len() as u64)?;
                map.map.keys().try_for_each(|key| self.charge(key_cost(key)))
            }
            _ => Ok(()),
        }
    }
}

/// What reading a key costs beside the value under it.
fn key_cost(key: &Key) -> u64 {
    match key {
        Key::String(s) => s.len() as u64 / 10,
        _ => 0,
    }
}

/// The variables an expression sees.
pub trait Scope {
    /// A variable.
    fn variable(&mut self, name: &str) -> Option<Value>;

    /// A field of `variables`.
    fn composed(&mut self, _name: &str, _budget: &mut Budget) -> Option<Evaluated> {
        None
    }

    /// What the authorizer says.
    fn authorize(&mut self, _asked: &Asked) -> Decision {
        Decision::default()
    }
}

/// A JSON value without a schema.
pub fn value_of(json: &Json) -> Value {
    super::convert::untyped(json)
}

/// An optional value.
pub fn optional(held: Option<Value>) -> Value {
    access::some(held)
}

/// The variable `authorizer`: what the user of the request may do.
pub fn authorizer() -> Value {
    authorizer::root()
}

/// The variable `authorizer.requestResource`.
pub fn request_resource(asked: Asked) -> Value {
    authorizer::resource(asked)
}

impl super::Program {
    /// Evaluates the expression: one call, of which the cost is bounded.
    ///
    /// # Errors
    /// What went wrong, in upstream's words as far as they are known.
    pub fn evaluate(&self, scope: &mut dyn Scope, budget: &mut Budget) -> Evaluated {
        budget.call = PER_CALL;
        self.part(scope, budget)
    }

    /// Evaluates the expression as a variable of another that is being evaluated.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub fn evaluate_variable(&self, scope: &mut dyn Scope, budget: &mut Budget) -> Evaluated {
        if budget.chain >= MAX_CHAIN {
            return Fail::error("variables use one another too deeply");
        }
        budget.chain += 1;
        let outer = std::mem::replace(&mut budget.call, PER_CALL);
        let found = self.part(scope, budget).and_then(|value| {
            // What it can be used for is bounded as well, since it may be used many times.
            budget.whole(&value).map(|()| value)
        });
        budget.call = outer;
        budget.chain -= 1;
        found
    }

    fn part(&self, scope: &mut dyn Scope, budget: &mut Budget) -> Evaluated {
        // An expression is user input; a fault in a function must not take the server down.
        let run = || self.size.nested(|| Run { scope, budget, locals: Vec::new() }.eval(self.expression()));
        catch_unwind(AssertUnwindSafe(run))
            .unwrap_or_else(|_| Fail::error("internal error evaluating the expression"))
    }
}

/// One evaluation.
struct Run<'e, 's> {
    scope: &'s mut dyn Scope,
    budget: &'s mut Budget,
    /// Variables of loops; what a loop has gathered may be an error that a later step absorbs.
    locals: Vec<(&'e str, Evaluated)>,
}

impl<'e> Run<'e, '_> {
    fn eval(&mut self, expr: &'e IdedExpr) -> Evaluated {
        match &expr.expr {
            Expr::Literal(literal) => {
                Value::try_from(literal.to_val().as_ref()).map_err(|e| functions::failed(&e))
            }
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => {
                self.budget.charge(1)?;
                if let Some(found) = self.special(&select.operand, &select.field) {
                    return if select.test { found.map(|_| Value::Bool(true)) } else { found };
                }
                let operand = self.eval(&select.operand)?;
                if select.test {
                    access::has(&operand, &select.field)
                } else {
                    access::field(&operand, &select.field)
                }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                self.budget.charge(LIST_COST)?;
                let mut made = Vec::with_capacity(list.elements.len());
                for (i, element) in list.elements.iter().enumerate() {
                    let value = self.eval(element)?;
                    if list.optional_indices.contains(&i) {
                        made.extend(access::unwrapped(&value)?);
                    } else {
                        made.push(value);
                    }
                }
                Ok(Value::List(Arc::new(made)))
            }
            Expr::Map(map) => {
                self.budget.charge(MAP_COST)?;
                let mut made: HashMap<Key, Value> = HashMap::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { return Fail::overload() };
                    let key = self.eval(&entry.key)?;
                    self.budget.key(&key)?;
                    let key = access::key(&key)?;
                    let value = self.eval(&entry.value)?;
                    let value = if entry.optional { access::unwrapped(&value)? } else { Some(value) };
                    if let Some(value) = value {
                        made.insert(key, value);
                    }
                }
                Ok(Value::Map(Map { map: Arc::new(made) }))
            }
            Expr::Comprehension(c) => self.comprehension(c),
            Expr::Struct(_) | Expr::Unspecified => Fail::error("unsupported expression"),
        }
    }

    fn ident(&mut self, name: &str) -> Evaluated {
        self.budget.charge(1)?;
        if let Some((_, value)) = self.locals.iter().rev().find(|(n, _)| *n == name) {
            return value.clone();
        }
        let found = self.scope.variable(name).or_else(|| functions::type_named(name));
        found.map_or_else(|| Err(Fail::Error(format!("no such attribute(s): {name}"))), Ok)
    }

    fn is_local(&self, name: &str) -> bool {
        self.locals.iter().any(|(n, _)| *n == name)
    }

    /// `variables.x` and `authorizer.requestResource`, which are no maps.
    fn special(&mut self, operand: &IdedExpr, field: &str) -> Option<Evaluated> {
        let Expr::Ident(name) = &operand.expr else { return None };
        match name.as_str() {
            "variables" if !self.is_local("variables") => Some(
                self.scope
                    .composed(field, self.budget)
                    .unwrap_or_else(|| Err(Fail::Error(format!("no such key: {field}")))),
            ),
            "authorizer" if field == "requestResource" && !self.is_local("authorizer") => {
                self.scope.variable("authorizer.requestResource").map(Ok)
            }
            _ => None,
        }
    }

    fn comprehension(&mut self, c: &'e ComprehensionExpr) -> Evaluated {
        let range = self.eval(&c.iter_range)?;
        self.budget.through(&range)?;
        let items = access::items(&range)?;
        let start = self.eval(&c.accu_init);
        let base = self.locals.len();
        self.locals.push((&c.accu_var, start));
        let found = self.steps(c, items, base);
        self.locals.truncate(base);
        found
    }

    fn steps(&mut self, c: &'e ComprehensionExpr, items: access::Items<'_>, base: usize) -> Evaluated {
        for item in items {
            self.budget.charge(1)?;
            match self.eval(&c.loop_cond)? {
                Value::Bool(true) => {}
                Value::Bool(false) => break,
                _ => return Fail::overload(),
            }
            self.locals.push((&c.iter_var, Ok(item)));
            let next = self.step(&c.loop_step, &c.accu_var, base);
            self.locals.truncate(base + 1);
            match next {
                Err(fail) if fail.is_final() => return Err(fail),
                next => {
                    if let Some(accu) = self.locals.get_mut(base) {
                        accu.1 = next;
                    }
                }
            }
        }
        self.eval(&c.result)
    }

    /// One step of a loop. A list that is gathered grows in place.
    fn step(&mut self, step: &'e IdedExpr, accu: &str, base: usize) -> Evaluated {
        let Expr::Call(call) = &step.expr else { return self.eval(step) };
        match (call.func_name.as_str(), call.args.as_slice()) {
            (op::CONDITIONAL, [condition, yes, no]) => {
                let chosen = if self.condition(condition)? { yes } else { no };
                if is_ident(chosen, accu) { self.take(base) } else { self.step(chosen, accu, base) }
            }
            (op::ADD, [left, right]) if is_ident(left, accu) && matches!(right.expr, Expr::List(_)) => {
                self.budget.charge(2)?;
                let added = self.eval(right);
                match (self.take(base)?, added?) {
                    (Value::List(mut all), Value::List(more)) => {
                        Arc::make_mut(&mut all).extend(more.iter().cloned());
                        Ok(Value::List(all))
                    }
                    (left, right) => self.binary(op::ADD, left, right),
                }
            }
            _ => self.eval(step),
        }
    }

    fn take(&mut self, base: usize) -> Evaluated {
        self.locals
            .get_mut(base)
            .map_or(Fail::overload(), |accu| std::mem::replace(&mut accu.1, Ok(Value::Null)))
    }

    fn condition(&mut self, expr: &'e IdedExpr) -> Result<bool, Fail> {
        match self.eval(expr)? {
            Value::Bool(b) => Ok(b),
            _ => Fail::overload(),
        }
    }

    fn call(&mut self, call: &'e CallExpr) -> Evaluated {
        self.budget.charge(1)?;
        match (call.func_name.as_str(), call.args.as_slice()) {
            (op::CONDITIONAL, [condition, yes, no]) => {
                if self.condition(condition)? {
                    self.eval(yes)
                } else {
                    self.eval(no)
                }
            }
            (op::LOGICAL_OR, [left, right]) => self.logical(left, right, true),
            (op::LOGICAL_AND, [left, right]) => self.logical(left, right, false),
            (op::NOT_STRICTLY_FALSE, [arg]) => match self.eval(arg) {
                Ok(Value::Bool(b)) => Ok(Value::Bool(b)),
                Err(fail) if fail.is_final() => Err(fail),
                _ => Ok(Value::Bool(true)),
            },
            (op::OPT_SELECT, [operand, field]) => self.optional_select(operand, field),
            (name, [left, right]) if call.target.is_none() && operators::is_binary(name) => {
                let (left, right) = (self.eval(left)?, self.eval(right)?);
                self.binary(name, left, right)
            }
            (name, [arg]) if call.target.is_none() && operators::is_unary(name) => {
                let value = self.eval(arg)?;
                operators::unary(name, value)
            }
            _ => match self.expand(call) {
                Some(found) => found,
                None => self.function(call),
            },
        }
    }

    /// `&&` and `||`: the side that decides wins over an error on the other.
    fn logical(&mut self, left: &'e IdedExpr, right: &'e IdedExpr, deciding: bool) -> Evaluated {
        let left = self.eval(left);
        match &left {
            Ok(Value::Bool(b)) if *b == deciding => return left,
            Err(fail) if fail.is_final() => return left,
            _ => {}
        }
        let right = self.eval(right);
        match (left, right) {
            (_, Err(fail)) if fail.is_final() => Err(fail),
            (_, Ok(Value::Bool(b))) if b == deciding => Ok(Value::Bool(deciding)),
            (Ok(Value::Bool(_)), Ok(Value::Bool(b))) => Ok(Value::Bool(b)),
            (Err(fail), _) | (Ok(Value::Bool(_)), Err(fail)) => Err(fail),
            _ => Fail::overload(),
        }
    }

    fn optional_select(&mut self, operand: &'e IdedExpr, field: &'e IdedExpr) -> Evaluated {
        let Value::String(field) = self.eval(field)? else { return Fail::overload() };
        if let Some(found) = self.special(operand, &field) {
            return found.map(|v| access::some(Some(v)));
        }
        let operand = self.eval(operand)?;
        access::optional_field(&operand, &field)
    }
}

fn is_ident(expr: &IdedExpr, name: &str) -> bool {
    matches!(&expr.expr, Expr::Ident(n) if n == name)
}
