//! Values of scalars in YAML 1.1, as upstream's reader resolves them (yaml.v2, `resolve`).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_saphyr::granit_parser::Tag;

use super::node::Node;

/// The value of a scalar; the form of a plain scalar determines its type.
///
/// # Errors
/// The scalar doesn't have the type of its tag.
pub fn resolve(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Node, String> {
    let Some(tag) = tag else {
        return Ok(if plain { of_form(text) } else { Node::Text(text.to_owned()) });
    };
    let name = tag.to_string();
    let name = name.strip_prefix("tag:yaml.org,2002:").or_else(|| name.strip_prefix("!!")).unwrap_or("");
    let found = match name {
        "binary" => {
            let packed: String = text.split_ascii_whitespace().collect();
            let bytes = BASE64_STANDARD.decode(packed);
            let bytes = bytes.map_err(|_| "yaml: !!binary value contains invalid base64 data".to_owned())?;
            return Ok(Node::Text(String::from_utf8_lossy(&bytes).into_owned()));
        }
        "int" | "float" | "bool" | "null" => of_form(text),
        _ => return Ok(Node::Text(text.to_owned())),
    };
    let is = match &found {
        Node::Null => "null",
        Node::Bool(_) => "bool",
        Node::Int(n) if name == "float" => return Ok(Node::Float(*n as f64)),
        Node::Int(_) | Node::Big(_) => "int",
        Node::Float(_) => "float",
        Node::Text(_) | Node::List(_) | Node::Map(_) => "str",
    };
    if is == name { Ok(found) } else { Err(format!("yaml: cannot decode !!{is} `{text}` as a !!{name}")) }
}

/// The value of a plain scalar.
fn of_form(text: &str) -> Node {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Node::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Node::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Node::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Node::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Node::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Node::Float(f64::NEG_INFINITY),
        _ => number(text).unwrap_or_else(|| Node::Text(text.to_owned())),
    }
}

fn number(text: &str) -> Option<Node> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let digits = text.replace('_', "");
    let digits = if text.starts_with('.') { text } else { &digits };
    whole(digits).or_else(|| {
        let decimal = digits.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
        let number: f64 = digits.parse().ok().filter(|_| decimal)?;
        number.is_finite().then_some(Node::Float(number))
    })
}

/// A whole number: decimal, or in the base of its prefix.
fn whole(digits: &str) -> Option<Node> {
    let (negative, plain) = match digits.strip_prefix('-') {
        Some(plain) => (true, plain),
        None => (false, digits.strip_prefix('+').unwrap_or(digits)),
    };
    let lower = plain.to_ascii_lowercase();
    let (base, number) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, lower.get(2..)?),
        [b'0', b'b', ..] => (2, lower.get(2..)?),
        [b'0', b'o', ..] => (8, lower.get(2..)?),
        [b'0', _, ..] => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    if !number.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let size = i128::from(u64::from_str_radix(number, base).ok()?);
    match i64::try_from(if negative { -size } else { size }) {
        Ok(number) => Some(Node::Int(number)),
        // only without a sign
        Err(_) => u64::try_from(size).ok().filter(|_| plain.len() == digits.len()).map(Node::Big),
    }
}
