//! JSON to CEL values.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Program, Value as Cel};
use serde_json::Value;

use crate::crd::node::{Additional, Node, NodeType};

static TIMESTAMP: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("timestamp(x)").ok());
static DURATION: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("duration(x)").ok());

/// Words that can't be field names in CEL.
const RESERVED: &[&str] = &[
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

/// The name under which a rule reaches a field: `namespace` → `__namespace__`, `a-b` → `a__dash__b`
/// (apiserver `cel.Escape`).
pub fn escape_name(name: &str) -> String {
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

/// A value without a schema.
pub fn untyped(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => number(n, false),
        Value::String(s) => string(s),
        Value::Array(all) => Cel::List(Arc::new(all.iter().map(untyped).collect())),
        Value::Object(map) => object(map.iter().map(|(k, v)| (k.clone(), untyped(v)))),
    }
}

/// A value with the schema of its place.
pub fn to_cel(value: &Value, node: &Node) -> Cel {
    match value {
        Value::Number(n) => number(n, node.kind == Some(NodeType::Number)),
        Value::String(s) if node.kind == Some(NodeType::String) => formatted(s, &node.format),
        Value::Array(all) => match &node.items {
            Some(items) => Cel::List(Arc::new(all.iter().map(|v| to_cel(v, items)).collect())),
            None => untyped(value),
        },
        Value::Object(map) => {
            let entry = |(key, v): (&String, &Value)| {
                if let Some(property) = node.properties.get(key) {
                    (escape_name(key), to_cel(v, property))
                } else if let Additional::Schema(of) = &node.additional {
                    (key.clone(), to_cel(v, of))
                } else {
                    (key.clone(), untyped(v))
                }
            };
            object(map.iter().map(entry))
        }
        other => untyped(other),
    }
}

fn object(entries: impl Iterator<Item = (String, Cel)>) -> Cel {
    let map: HashMap<Key, Cel> = entries.map(|(k, v)| (Key::String(Arc::new(k)), v)).collect();
    Cel::Map(Map { map: Arc::new(map) })
}

fn string(s: &str) -> Cel {
    Cel::String(Arc::new(s.to_owned()))
}

fn number(n: &serde_json::Number, double: bool) -> Cel {
    match (n.as_i64(), double) {
        (Some(i), false) => Cel::Int(i),
        _ => Cel::Float(n.as_f64().unwrap_or(f64::NAN)),
    }
}

fn formatted(s: &str, format: &str) -> Cel {
    let through = |program: &Option<Program>, text: String| {
        let program = program.as_ref()?;
        let mut scope = super::FUNCTIONS.new_inner_scope();
        scope.add_variable_from_value("x", Cel::String(Arc::new(text)));
        program.execute(&scope).ok()
    };
    let found = match format {
        "date-time" => through(&TIMESTAMP, s.to_owned()),
        "date" => through(&TIMESTAMP, format!("{s}T00:00:00Z")),
        "duration" => through(&DURATION, s.to_owned()),
        "byte" => base64::engine::general_purpose::STANDARD.decode(s).ok().map(|b| Cel::Bytes(Arc::new(b))),
        _ => None,
    };
    found.unwrap_or_else(|| string(s))
}
