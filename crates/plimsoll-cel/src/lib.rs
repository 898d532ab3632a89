//! CEL, the Common Expression Language, with Kubernetes' libraries: parse, check types, evaluate against a cost budget.
//!
//! [`Program::compile`] parses an expression and checks it against an [`Environment`] of typed variables.
//! [`Program::evaluate`] evaluates it with the values that an [`Activation`] gives, within a [`Budget`]. Names follow
//! cel-go, and so do the texts of errors, because Kubernetes shows them to users.
//!
//! An expression is user input. Its length, its nesting and the cost of its evaluation are bounded, and evaluation runs
//! on a stack that is large enough for every expression that [`Program::parse`] accepts.
//!
//! The crate knows no schema and no API: a caller converts its objects to [`Value`]s ([`from_json`]), declares its own
//! types ([`ObjectType`], [`Type::Opaque`]) and gives methods of its own values a meaning
//! ([`Activation::call`]).
//!
//! ```
//! use std::collections::HashMap;
//!
//! use plimsoll_cel::{Budget, Environment, ObjectType, Program, Type, Value, from_json};
//! use serde_json::json;
//!
//! let node = ObjectType::new("Node", [("name", Type::String), ("gpus", Type::Int)]);
//! let environment = Environment::new().variable("node", Type::object(node));
//! let program = Program::compile("node.gpus >= 4 && node.name.startsWith('gpu-')", &environment)?;
//! assert_eq!(program.output_type(), &Type::Bool);
//!
//! let mut variables = HashMap::from([("node", from_json(&json!({"name": "gpu-1", "gpus": 8})))]);
//! let mut budget = Budget::new(10_000);
//! assert_eq!(program.evaluate(&mut variables, &mut budget), Ok(Value::Bool(true)));
//!
//! let error = Program::compile("node.cpus > 1", &environment).unwrap_err();
//! assert!(error.to_string().contains("undefined field 'cpus'"));
//! # Ok::<(), plimsoll_cel::CompileError>(())
//! ```

mod activation;
mod budget;
mod check;
pub mod cost;
mod environment;
mod error;
mod eval;
mod library;
mod limits;
pub mod pattern;
mod program;
mod quantity;
mod url;
mod value;

/// The syntax tree of an expression, for checks of a caller's own ([`Program::expression`]).
pub mod ast {
    pub use kube_cel::cel::IdedExpr;
    pub use kube_cel::cel::common::ast::{EntryExpr, Expr, LiteralValue, operators};
}

pub use kube_cel::cel::Value;
pub use kube_cel::cel::objects::Opaque;

pub use self::activation::{Activation, ListType};
pub use self::budget::Budget;
pub use self::environment::{Environment, ObjectType, Type};
pub use self::error::{CompileError, EvalError, Evaluated, display_error};
pub use self::program::Program;
pub use self::value::{
    RESERVED, escape_field_name, from_entries, from_formatted, from_json, from_number, optional, quantity,
    semver,
};
