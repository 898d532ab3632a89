//! Evaluation against a budget.
//!
//! The interpreter of the cel crate evaluates everything it is given and copies what it touches. This evaluator asks for
//! a variable when the expression uses it, charges a budget before it works, and lets `&&`, `||` and loops suppress errors
//! as cel-go does. Functions that need none of this are the interpreter's (`library`).

mod access;
mod format;
mod formats;
mod functions;
mod kubernetes;
mod lists;
mod macros;
mod operators;
mod regex;
#[cfg(test)]
mod tests;
mod time;
mod types;

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, ListExpr, MapExpr, operators as op,
};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{IdedExpr, Value};

use crate::activation::{Activation, ListType};
use crate::budget::Budget;
use crate::error::{EvalError, Evaluated};
use crate::{library, value};

pub(crate) use self::time::is_duration;

/// Cost of a list and of a map that are written out (cel-go, `common/cost.go`: `ListCreateBaseCost`,
/// `MapCreateBaseCost`).
const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;

/// Evaluates an expression.
pub(crate) fn evaluate(
    expression: &IdedExpr,
    activation: &mut dyn Activation,
    budget: &mut Budget,
) -> Evaluated {
    Run { activation, budget, locals: Vec::new(), sums: Vec::new() }.eval(expression)
}

/// One evaluation.
struct Run<'e, 's> {
    activation: &'s mut dyn Activation,
    budget: &'s mut Budget,
    /// Variables of macros, the innermost last. The accumulator of a loop may be an error that a later step suppresses.
    locals: Vec<(&'e str, Evaluated)>,
    /// Sums of lists that are sets or maps.
    sums: Vec<(Arc<Vec<Value>>, ListType)>,
}

impl<'e> Run<'e, '_> {
    fn eval(&mut self, expr: &'e IdedExpr) -> Evaluated {
        match &expr.expr {
            Expr::Literal(literal) => {
                Value::try_from(literal.to_val().as_ref()).map_err(|e| EvalError::from(&e))
            }
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => {
                self.budget.charge(1)?;
                if let Some(found) = self.qualified(&select.operand, &select.field) {
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
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(c) => self.comprehension(c),
            Expr::Struct(_) | Expr::Unspecified => EvalError::error("unsupported expression"),
        }
    }

    fn list(&mut self, list: &'e ListExpr) -> Evaluated {
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

    fn map(&mut self, map: &'e MapExpr) -> Evaluated {
        self.budget.charge(MAP_COST)?;
        let mut made: HashMap<Key, Value> = HashMap::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { return EvalError::no_such_overload() };
            let key = self.eval(&entry.key)?;
            self.budget.charge_lookup(&key)?;
            let key = access::key(&key)?;
            let value = self.eval(&entry.value)?;
            let value = if entry.optional { access::unwrapped(&value)? } else { Some(value) };
            if let Some(value) = value {
                made.insert(key, value);
            }
        }
        Ok(Value::Map(Map { map: Arc::new(made) }))
    }

    fn ident(&mut self, name: &str) -> Evaluated {
        self.budget.charge(1)?;
        if let Some((_, value)) = self.locals.iter().rev().find(|(n, _)| *n == name) {
            return value.clone();
        }
        let found = self.activation.resolve(name).or_else(|| types::named(name));
        found.map_or_else(|| EvalError::error(format!("no such attribute(s): {name}")), Ok)
    }

    fn is_local(&self, name: &str) -> bool {
        self.locals.iter().any(|(n, _)| *n == name)
    }

    /// The qualified variable `operand.field`; `None`: `operand` is an ordinary value.
    fn qualified(&mut self, operand: &IdedExpr, field: &str) -> Option<Evaluated> {
        let variable = library::ident(operand)?;
        if self.is_local(variable) {
            return None;
        }
        self.activation.select(variable, field, self.budget)
    }

    fn comprehension(&mut self, c: &'e ComprehensionExpr) -> Evaluated {
        let range = self.eval(&c.iter_range)?;
        self.budget.charge_range(&range)?;
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
                _ => return EvalError::no_such_overload(),
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

    /// One step of a loop. A list that accumulates grows in place: a copy in each step would make the loop quadratic.
    fn step(&mut self, step: &'e IdedExpr, accu: &str, base: usize) -> Evaluated {
        let Expr::Call(call) = &step.expr else { return self.eval(step) };
        match (call.func_name.as_str(), call.args.as_slice()) {
            (op::CONDITIONAL, [condition, yes, no]) => {
                let chosen = if self.condition(condition)? { yes } else { no };
                if library::ident(chosen) == Some(accu) {
                    self.take(base)
                } else {
                    self.step(chosen, accu, base)
                }
            }
            (op::ADD, [left, right])
                if library::ident(left) == Some(accu) && matches!(right.expr, Expr::List(_)) =>
            {
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
            .map_or(EvalError::no_such_overload(), |accu| std::mem::replace(&mut accu.1, Ok(Value::Null)))
    }

    fn condition(&mut self, expr: &'e IdedExpr) -> Result<bool, EvalError> {
        match self.eval(expr)? {
            Value::Bool(b) => Ok(b),
            _ => EvalError::no_such_overload(),
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

    /// `&&` and `||`: an operand that decides the result suppresses an error of the other one.
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
            _ => EvalError::no_such_overload(),
        }
    }

    fn optional_select(&mut self, operand: &'e IdedExpr, field: &'e IdedExpr) -> Evaluated {
        let Value::String(field) = self.eval(field)? else { return EvalError::no_such_overload() };
        if let Some(found) = self.qualified(operand, &field) {
            return found.map(|v| value::optional(Some(v)));
        }
        let operand = self.eval(operand)?;
        access::optional_field(&operand, &field)
    }
}
