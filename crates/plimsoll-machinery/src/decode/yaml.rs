//! YAML as upstream reads it: YAML 1.1, turned into JSON.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The first document of a YAML text as a JSON value.
///
/// # Errors
/// What is wrong with the text, beginning with `yaml: `.
pub fn yaml(body: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(body).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    let mut options = serde_saphyr::Options::default();
    options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::LastWins;
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    let value = serde_saphyr::from_str_with_options::<Tree>(first_document(text), options);
    value.map(|tree| tree.0).map_err(|e| super::syntax::explain_yaml(text, &e))
}

/// Everything up to the second document.
fn first_document(text: &str) -> &str {
    let mut at = 0;
    let mut seen = false;
    for line in text.split_inclusive('\n') {
        let word = line.trim_end();
        if (word == "---" || word == "...") && seen {
            return &text[..at];
        }
        seen |= !word.is_empty() && word != "---" && !word.starts_with(['#', '%']);
        at += line.len();
    }
    text
}

/// A YAML tree as JSON. Keys are scalars of any type, written as texts: `y: 1` has the key `true`.
struct Tree(Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Tree)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        let mut number = Number::from_f64(value).map_or(Value::Null, Value::Number);
        // upstream makes JSON of it, where whole numbers have no fraction
        crate::crd::normalise_numbers(&mut number);
        Ok(number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Tree(value)) = access.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((Tree(key), Tree(value))) = access.next_entry()? {
            let key = match key {
                Value::String(text) => text,
                other => other.to_string(),
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::yaml;

    #[test]
    fn keys_and_values_are_yaml_1_1() {
        for (text, want) in [
            ("y: no", json!({"true": false})),
            ("'y': 'no'", json!({"y": "no"})),
            ("1: 0777", json!({"1": 511})),
            ("a: ~\nb: [1, 2.5]", json!({"a": null, "b": [1, 2.5]})),
            ("a: 1\n---\na: 2", json!({"a": 1})),
            ("a: 1\na: 2", json!({"a": 2})),
            ("a: &x {k: v}\nb: *x", json!({"a": {"k": "v"}, "b": {"k": "v"}})),
        ] {
            assert_eq!(yaml(text.as_bytes()).unwrap(), want, "{text}");
        }
    }
}
