//! Values made of JSON and of strings.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, Map, OptionalValue};
use serde_json::{Number, Value as Json};

use crate::error::{EvalError, Evaluated};
use crate::library;
use crate::quantity::Quantity;

/// Words that can't be identifiers in CEL (`k8s.io/apiserver/pkg/cel/escaping.go`, `celReservedSymbols`).
pub const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name under which an expression reaches a field: `namespace` → `__namespace__`, `a-b` → `a__dash__b`
/// (`k8s.io/apiserver/pkg/cel`, `Escape`).
pub fn escape_field_name(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['.', '-', '/']) && !name.contains("__") {
        return name.to_owned();
    }
    let marked = name.replace("__", "\u{0}");
    let mut out = String::with_capacity(name.len() + 12);
    for c in marked.chars() {
        match c {
            '\u{0}' => out.push_str("__underscores__"),
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c => out.push(c),
        }
    }
    out
}

/// The value of JSON without a schema: whole numbers are `int`, others `double`, objects are maps from strings.
pub fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(b) => Value::Bool(*b),
        Json::Number(n) => from_number(n, false),
        Json::String(s) => string(s),
        Json::Array(all) => Value::List(Arc::new(all.iter().map(from_json).collect())),
        Json::Object(map) => from_entries(map.iter().map(|(k, v)| (k.clone(), from_json(v)))),
    }
}

/// The value of a JSON number: an `int` where it is one, unless its field is a `double`.
pub fn from_number(n: &Number, double: bool) -> Value {
    match (n.as_i64(), double) {
        (Some(i), false) => Value::Int(i),
        _ => Value::Float(n.as_f64().unwrap_or(f64::NAN)),
    }
}

/// A map from strings.
pub fn from_entries(entries: impl IntoIterator<Item = (String, Value)>) -> Value {
    let map: HashMap<Key, Value> = entries.into_iter().map(|(k, v)| (Key::String(Arc::new(k)), v)).collect();
    Value::Map(Map { map: Arc::new(map) })
}

/// The value of a string with an OpenAPI format: a timestamp for `date-time` and `date`, a duration, bytes for `byte`;
/// the string itself where the format means nothing or the string doesn't have it
/// (`k8s.io/apiserver/pkg/cel/common/valuesunstructured.go`, `UnstructuredToVal`).
pub fn from_formatted(s: &str, format: &str) -> Value {
    let found = match format {
        "date-time" => library::of_string("timestamp", s).ok(),
        "date" => library::of_string("timestamp", &format!("{s}T00:00:00Z")).ok(),
        "duration" => library::of_string("duration", s).ok(),
        "byte" => base64::engine::general_purpose::STANDARD.decode(s).ok().map(|b| Value::Bytes(Arc::new(b))),
        _ => None,
    };
    found.unwrap_or_else(|| string(s))
}

/// A quantity of Kubernetes (`100m`, `1Gi`).
///
/// # Errors
/// The string is no quantity.
pub fn quantity(s: &str) -> Evaluated {
    match Quantity::parse(s) {
        Ok(quantity) => Ok(Value::Opaque(Arc::new(quantity))),
        Err(why) => EvalError::error(why),
    }
}

/// A semantic version (`1.2.3`).
///
/// # Errors
/// The string is no version.
pub fn semver(s: &str) -> Evaluated {
    library::of_string("semver", s).map_err(|e| EvalError::from(&e))
}

/// An optional value.
pub fn optional(held: Option<Value>) -> Value {
    Value::Opaque(Arc::new(held.map_or_else(OptionalValue::none, OptionalValue::of)))
}

fn string(s: &str) -> Value {
    Value::String(Arc::new(s.to_owned()))
}
