//! CEL expressions of a declaration: compiled once, within a bound of their cost, and evaluated for an object.

use std::collections::HashMap;

use plimsoll_cel::cost::{self, SizeEstimate};
use plimsoll_cel::{Budget, Environment, EvalError, Program, Type, from_json};
use serde_json::{Value, json};

/// Highest estimated cost of an expression, for objects with lists of up to [`LENGTH`] items and texts of as many bytes.
const MAX_COST: u64 = 10_000_000;
/// Cost of all expressions of an object together.
const BUDGET: u64 = 1_000_000;
const LENGTH: u64 = 1024;
/// Variables: the job, and the item of the list that `forEachPath` names.
const OBJECT: &str = "object";
const ITEM: &str = "item";

/// An expression and the field that has it.
#[derive(Debug)]
pub(super) struct Expression {
    field: String,
    program: Program,
}

impl Expression {
    /// Compiles an expression with a result of this type; `item`: for each item of a list.
    ///
    /// # Errors
    /// What is wrong with it, with its field.
    pub fn compile(field: String, text: &str, of: &Type, item: bool) -> Result<Self, String> {
        let mut environment = Environment::new().variable(OBJECT, Type::Dyn);
        if item {
            environment = environment.variable(ITEM, Type::Dyn);
        }
        let invalid = |why: &str| Err(format!("{field}: Invalid value: {text:?}: {why}"));
        let program = match Program::compile(text, &environment) {
            Ok(program) => program,
            Err(why) => return invalid(&format!("compilation failed: {why}")),
        };
        let output = program.output_type();
        let fits = match (of, output) {
            (_, Type::Dyn | Type::Unknown) | (Type::Map(_), Type::Map(_)) => true,
            (of, output) => of == output,
        };
        if !fits {
            return invalid(&format!("must evaluate to {}", shown(of)));
        }
        let size = || SizeEstimate::collection(LENGTH, LENGTH * LENGTH, SizeEstimate::string(LENGTH));
        let cost = cost::upper_bound(&program, &[(OBJECT, size()), (ITEM, size())]);
        if cost > MAX_COST {
            return invalid(&format!(
                "estimated cost {cost} exceeds the limit of {MAX_COST}: avoid loops within loops and regular expressions"
            ));
        }
        Ok(Self { field, program })
    }
}

fn shown(of: &Type) -> &'static str {
    match of {
        Type::Bool => "bool",
        Type::Int => "int",
        Type::String => "string",
        _ => "a map from names of podsets to int",
    }
}

/// The variables of an object, and the cost that its expressions may still have.
pub(super) struct Evaluation {
    variables: HashMap<&'static str, plimsoll_cel::Value>,
    budget: Budget,
}

impl Evaluation {
    /// Of a job. One without status has an empty one, so that `has(object.status.phase)` is false and no error.
    pub fn of(object: &Value) -> Self {
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            for key in ["spec", "status"] {
                fields.entry(key).or_insert_with(|| json!({}));
            }
        }
        Self { variables: HashMap::from([(OBJECT, from_json(&object))]), budget: Budget::new(BUDGET) }
    }

    /// The item for the next expressions.
    pub fn set_item(&mut self, item: &Value) {
        self.variables.insert(ITEM, from_json(item));
    }

    fn value(&mut self, of: &Expression) -> Result<plimsoll_cel::Value, String> {
        let value = of.program.evaluate(&mut self.variables, &mut self.budget);
        value.map_err(|e| match e {
            EvalError::Error(why) => format!("{}: {why}", of.field),
            bound => format!("{}: {bound}", of.field),
        })
    }

    /// The value of a boolean expression.
    ///
    /// # Errors
    /// It failed, cost too much, or has another type.
    pub fn bool(&mut self, of: &Expression) -> Result<bool, String> {
        match self.value(of)? {
            plimsoll_cel::Value::Bool(value) => Ok(value),
            _ => Err(format!("{}: must evaluate to bool", of.field)),
        }
    }

    /// The value of a text.
    ///
    /// # Errors
    /// As [`Self::bool`].
    pub fn string(&mut self, of: &Expression) -> Result<String, String> {
        match self.value(of)? {
            plimsoll_cel::Value::String(value) => Ok(value.to_string()),
            _ => Err(format!("{}: must evaluate to string", of.field)),
        }
    }

    /// The value of a number.
    ///
    /// # Errors
    /// As [`Self::bool`].
    pub fn int(&mut self, of: &Expression) -> Result<i64, String> {
        match self.value(of)? {
            plimsoll_cel::Value::Int(value) => Ok(value),
            _ => Err(format!("{}: must evaluate to int", of.field)),
        }
    }

    /// Numbers by name.
    ///
    /// # Errors
    /// As [`Self::bool`].
    pub fn counts(&mut self, of: &Expression) -> Result<Vec<(String, i64)>, String> {
        let wrong = || format!("{}: must evaluate to {}", of.field, shown(&Type::Dyn));
        let plimsoll_cel::Value::Map(map) = self.value(of)? else { return Err(wrong()) };
        let mut out = Vec::new();
        for (key, value) in map.map.iter() {
            match value {
                plimsoll_cel::Value::Int(n) if *n >= 0 => out.push((key.to_string(), *n)),
                _ => return Err(wrong()),
            }
        }
        out.sort();
        Ok(out)
    }
}
