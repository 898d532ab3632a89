//! A node of a parsed YAML document: keys of any type, merge keys not yet applied, lines kept.

use crate::go::go_float;

/// A node of a document.
#[derive(Clone, Debug)]
pub enum Node {
    Null,
    Bool(bool),
    Int(i64),
    /// A whole number that only fits without a sign.
    Big(u64),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry {
    pub key: Node,
    pub value: Node,
    /// The line where the value begins.
    pub line: usize,
}

impl Node {
    /// Distinguishes keys (Go's `==`); `None`: the key equals no other key, not even itself.
    pub fn identity(&self) -> Option<String> {
        match self {
            Self::Float(n) if n.is_nan() => None,
            // Both zeros are equal.
            Self::Float(n) => Some(format!("float {}", n + 0.0)),
            Self::Text(text) => Some(format!("text {text}")),
            other => Some(other.go_syntax()),
        }
    }

    /// The name of a key in JSON; `None`: it can't be one.
    pub fn name(&self) -> Option<String> {
        Some(match self {
            Self::Bool(b) => b.to_string(),
            Self::Int(n) => n.to_string(),
            // upstream's converter takes the digits of a float32
            Self::Float(n) if n.is_finite() && (*n as f32).is_finite() => {
                go_float(&(*n as f32).to_string(), &format!("{:e}", *n as f32), 6)
            }
            Self::Float(n) if n.is_nan() => ".nan".to_owned(),
            Self::Float(n) => if *n > 0.0 { ".inf" } else { "-.inf" }.to_owned(),
            Self::Text(text) => text.clone(),
            Self::Null | Self::Big(_) | Self::List(_) | Self::Map(_) => return None,
        })
    }

    /// The type of a scalar as Go prints it.
    pub const fn go_type(&self) -> &'static str {
        match self {
            Self::Null => "%!s(<nil>)",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Big(_) => "uint64",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(_) => "[]interface {}",
            Self::Map(_) => "map[interface {}]interface {}",
        }
    }

    /// As Go's `%#v` prints it.
    pub fn go_syntax(&self) -> String {
        let inside = |node: &Self| match node {
            Self::Null => "interface {}(nil)".to_owned(),
            other => other.go_syntax(),
        };
        match self {
            Self::Null => "<nil>".to_owned(),
            Self::Bool(b) => b.to_string(),
            Self::Int(n) => n.to_string(),
            Self::Big(n) => format!("{n:#x}"),
            Self::Float(n) if n.is_nan() => "NaN".to_owned(),
            Self::Float(n) if n.is_infinite() => if *n > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
            Self::Float(n) => go_float(&n.to_string(), &format!("{n:e}"), 6),
            Self::Text(text) => crate::go::go_quote(text),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(inside).collect();
                format!("{}{{{}}}", self.go_type(), items.join(", "))
            }
            Self::Map(entries) => {
                let mut entries: Vec<String> =
                    entries.iter().map(|e| format!("{}:{}", inside(&e.key), inside(&e.value))).collect();
                entries.sort();
                format!("{}{{{}}}", self.go_type(), entries.join(", "))
            }
        }
    }
}
