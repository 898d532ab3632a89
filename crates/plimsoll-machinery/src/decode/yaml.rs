//! YAML as upstream reads it: YAML 1.1, turned into JSON.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// What errors about keys that are no scalars begin with.
pub(super) const INVALID_KEY: &str = "invalid map key: ";

/// What a strict reader's complaints begin with; each is a line of its own, indented by two.
pub const STRICT_LEAD: &str = "yaml: unmarshal errors:";

/// The first document of a YAML text as a JSON value.
///
/// # Errors
/// What is wrong with the text, beginning with `yaml: ` or `json: `.
pub fn yaml(body: &[u8]) -> Result<Value, String> {
    yaml_strict(body).map(|(value, _)| value)
}

/// As [`yaml`], with what a strict reader says of keys that are there more than once, in its order.
///
/// # Errors
/// As [`yaml`].
pub fn yaml_strict(body: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = std::str::from_utf8(body).map_err(|_| "yaml: invalid leading UTF-8 octet".to_owned())?;
    if of_other_version(text) {
        return Err("yaml: found incompatible YAML document".to_owned());
    }
    let mut options = serde_saphyr::Options::default();
    options.duplicate_keys = serde_saphyr::DuplicateKeyPolicy::LastWins;
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    let mut twice = Vec::new();
    // What a merge brings along is not there twice.
    let found = if text.contains("<<") { None } else { Some(&mut twice) };
    let value = serde_saphyr::with_deserializer_from_str_with_options(
        first_document(text),
        options,
        |deserializer| Tree { twice: found }.deserialize(deserializer),
    );
    value.map(|value| (value, twice)).map_err(|e| super::syntax::explain_yaml(text, &e))
}

/// Whether a text says that it is of another version than 1.1 (or of 1.1 only in name).
fn of_other_version(text: &str) -> bool {
    let directives = text.lines().take_while(|line| line.is_empty() || line.starts_with(['%', '#']));
    let mut versions = directives.filter_map(|line| line.strip_prefix("%YAML ")).map(str::trim);
    versions.any(|version| version != "1.1")
}

/// Everything up to the second document. JSON ends where its value does, whatever follows.
fn first_document(text: &str) -> &str {
    if text.trim_start().starts_with('{') {
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
        if matches!(values.next(), Some(Ok(_))) {
            return text.get(..values.byte_offset()).unwrap_or(text);
        }
    }
    let mut at = 0;
    let (mut content, mut begun) = (false, false);
    for line in text.split_inclusive('\n') {
        let word = line.trim_end();
        let marker =
            |mark: &str| word.strip_prefix(mark).is_some_and(|r| r.is_empty() || r.starts_with([' ', '\t']));
        if marker("---") || marker("...") {
            if content || (begun && marker("---")) {
                return &text[..at];
            }
            begun |= marker("---");
            content |= word.len() > 3;
        } else {
            content |= !word.is_empty() && !word.starts_with(['#', '%']);
        }
        at += line.len();
    }
    text
}

/// A YAML tree as JSON. Keys are scalars of any type, written as texts: `y: 1` has the key `true`. What is said of keys
/// that are there twice is added to `twice`.
struct Tree<'t> {
    twice: Option<&'t mut Vec<String>>,
}

impl Tree<'_> {
    fn below(&mut self) -> Tree<'_> {
        Tree { twice: self.twice.as_deref_mut() }
    }
}

impl<'de> DeserializeSeed<'de> for Tree<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A key: a tree of which it isn't asked what is in it twice.
struct Key(Value);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Tree { twice: None }.deserialize(deserializer).map(Self)
    }
}

impl<'de> Visitor<'de> for Tree<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
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

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = access.next_element_seed(self.below())? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let mut keys = BTreeSet::new();
        while let Some(Spanned { value: Key(key), referenced, .. }) = access.next_key()? {
            let value = access.next_value_seed(self.below())?;
            if key.is_array() || key.is_object() {
                return Err(A::Error::custom(format!("{INVALID_KEY}{}", go_syntax(&key))));
            }
            if let Some(twice) = self.twice.as_deref_mut()
                && !keys.insert(key.to_string())
            {
                twice.push(format!("line {}: key {key} already set in map", referenced.line()));
            }
            let name = match &key {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}

/// A list or map as Go's `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(map) => {
            let entries: Vec<String> =
                map.iter().map(|(k, v)| format!("{}:{}", Value::from(k.as_str()), go_syntax(v))).collect();
            format!("map[interface {{}}]interface {{}}{{{}}}", entries.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{yaml, yaml_strict};

    #[test]
    fn the_first_document_counts() {
        let rows = [
            ("a: 1\n--- b\n", json!({"a": 1})),
            ("---\na: 1\n...\n}{", json!({"a": 1})),
            ("---\n---\na: 1\n", json!(null)),
            ("%YAML 1.1\n--- # c\na: 1\n", json!({"a": 1})),
            ("{\"a\":1} b", json!({"a": 1})),
            ("{\"a\":1}{\"a\":2}", json!({"a": 1})),
            ("a: 1.0\nb: 1e3", json!({"a": 1, "b": 1000})),
        ];
        for (text, want) in rows {
            assert_eq!(yaml(text.as_bytes()).unwrap(), want, "{text}");
        }
    }

    #[test]
    fn keys_that_are_there_twice() {
        let rows: &[(&str, &[&str])] = &[
            ("a: 1\nb: 1", &[]),
            ("a: {k: 1}\nb: {k: 1}", &[]),
            (
                "a: 1\n\na: 2\n\"a\": 3",
                &[r#"line 3: key "a" already set in map"#, r#"line 4: key "a" already set in map"#],
            ),
            (
                "a:\n  b: 1\na:\n  b: 1\n  b: 2\n",
                &[r#"line 5: key "b" already set in map"#, r#"line 3: key "a" already set in map"#],
            ),
            ("y: a\ntrue: b", &["line 2: key true already set in map"]),
            ("a: &x {k: 1}\nb: {<<: *x, k: 2}", &[]),
        ];
        for (text, want) in rows {
            assert_eq!(yaml_strict(text.as_bytes()).unwrap().1, *want, "{text}");
        }
    }

    #[test]
    fn errors_are_worded_as_upstream() {
        for (text, want) in [
            ("a: *nope", "yaml: unknown anchor 'nope' referenced"),
            ("a: &x\n  b: *x\n", "yaml: anchor 'x' value contains itself"),
            ("a:\n\tb: 1\n", "yaml: line 2: found character that cannot start any token"),
            ("a: 1\nb", "yaml: line 3: could not find expected ':'"),
            ("a: .inf", "json: unsupported value: +Inf"),
            ("? [a, 1]\n: b", "yaml: invalid map key: []interface {}{\"a\", 1}"),
            ("%YAML 1.2\n---\na: b", "yaml: found incompatible YAML document"),
        ] {
            assert_eq!(yaml(text.as_bytes()), Err(want.to_owned()), "{text}");
        }
    }

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
