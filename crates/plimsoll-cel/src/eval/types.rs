//! Types of values, when an expression is evaluated.

use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::Opaque;

use crate::library;

/// A type as a value (`type(x) == string`).
#[derive(Debug, PartialEq, Eq)]
struct TypeValue(String);

impl Opaque for TypeValue {
    fn runtime_type_name(&self) -> &'static str {
        "type"
    }
}

/// The type of this name; `None`: there is none.
pub(super) fn named(name: &str) -> Option<Value> {
    library::is_type(name).then(|| Value::Opaque(Arc::new(TypeValue(name.to_owned()))))
}

/// The type of a value.
pub(super) fn of(value: &Value) -> Value {
    Value::Opaque(Arc::new(TypeValue(name(value).to_owned())))
}

/// The name that a type has as text; `None`: the value is no type.
pub(super) fn shown(value: &Value) -> Option<&str> {
    match value {
        Value::Opaque(of) => of.downcast_ref::<TypeValue>().map(|of| of.0.as_str()),
        _ => None,
    }
}

/// The name of a value's type.
pub(super) fn name(value: &Value) -> &str {
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

/// The name of a value's Go type, which cel-go shows in errors.
pub(super) fn go_name(value: &Value) -> String {
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
