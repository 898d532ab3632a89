//! Strict decoding with the path of the field in every error, and all errors at once.
//!
//! serde stops at the first error. Here that error is noted, the part it is about is taken out, and decoding begins
//! again with the rest. As in Go, `null` is the same as a field that is not there.

pub(crate) mod fields;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::error::{ConfigError, nearest, unsupported};

/// Most errors that are gathered; a file with more is of another kind altogether.
const MOST: usize = 20;

/// YAML or JSON as a value. `yes`, `no`, `on` and `off` are words and not truth values, as in YAML 1.2.
///
/// # Errors
/// What is wrong and in which line; keys that are there twice are errors too.
pub fn parse(text: &str) -> Result<Value, ConfigError> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        // The parser speaks to programmers.
        let text = e.to_string().replace(", set DuplicateKeyPolicy in Options if acceptable", "");
        ConfigError::Syntax(text.trim_start_matches("error: ").to_owned())
    })
}

/// Decodes what can be decoded; the texts of everything else go to `errors`, each with its path below `path`.
pub fn decode<T: DeserializeOwned + Default>(value: Value, path: &str, errors: &mut Vec<String>) -> T {
    let (decoded, broken) = lenient(value);
    errors.extend(broken.into_iter().map(|error| error.text(path)));
    decoded
}

/// What can be decoded, and what is wrong with the rest.
fn lenient<T: DeserializeOwned + Default>(mut value: Value) -> (T, Vec<Error>) {
    let mut errors = Vec::new();
    while errors.len() < MOST {
        let error = match T::deserialize(Node(&value)) {
            Ok(decoded) => return (decoded, errors),
            Err(error) => error,
        };
        let taken_out = error.take_out(&mut value);
        errors.push(error);
        if !taken_out {
            break;
        }
    }
    (T::default(), errors)
}

/// Errors of decoding, then those of values that don't follow from them.
pub(super) fn with_consequences(broken: Vec<String>, values: Vec<String>) -> Vec<String> {
    let more: Vec<String> = values.into_iter().filter(|error| !follows(error, &broken)).collect();
    broken.into_iter().chain(more).collect()
}

/// Whether an error is about a field that could not be decoded, or about something in or around one: it follows from
/// the error that is there already.
fn follows(error: &str, broken: &[String]) -> bool {
    let path =
        |text: &str| text.split_once(": ").map_or_else(|| text.to_owned(), |(path, _)| path.to_owned());
    let inside = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let found = path(error);
    broken.iter().map(|b| path(b)).any(|b| inside(&found, &b) || inside(&b, &found))
}

/// A step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Field(String),
    Key(String),
    Index(usize),
}

/// serde's error about one part.
#[derive(Debug)]
struct Error {
    /// From the inside out.
    path: Vec<Step>,
    unknown: bool,
    text: String,
}

impl Error {
    fn new(text: String) -> Self {
        Self { path: Vec::new(), unknown: false, text }
    }

    fn unknown(field: &str, known: &[&str]) -> Self {
        let text = match nearest(field, known.iter().copied()) {
            Some(name) => format!("did you mean {name:?}?"),
            None => format!("known fields: {}", known.join(", ")),
        };
        Self { path: vec![Step::Field(field.to_owned())], unknown: true, text }
    }

    fn within(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    fn text(&self, base: &str) -> String {
        let mut path = base.to_owned();
        for step in self.path.iter().rev() {
            match step {
                Step::Field(name) if path.is_empty() => path.push_str(name),
                Step::Field(name) => path.extend([".", name]),
                Step::Key(key) => path.extend(["[", key, "]"]),
                Step::Index(i) => path.push_str(&format!("[{i}]")),
            }
        }
        // Upstream's words for unknown fields (`sigs.k8s.io/json` strict errors), which begin otherwise than all others.
        match (self.unknown, path.is_empty()) {
            (true, _) => format!("strict decoding error: unknown field {path:?}: {}", self.text),
            (false, true) => self.text.clone(),
            (false, false) => format!("{path}: {}", self.text),
        }
    }

    /// Takes the part out that the error is about; `false` where that is everything.
    fn take_out(&self, value: &mut Value) -> bool {
        let Some((last, way)) = self.path.split_first() else { return false };
        let mut at = value;
        for step in way.iter().rev() {
            let next = match step {
                Step::Field(key) | Step::Key(key) => at.get_mut(key),
                Step::Index(i) => at.get_mut(*i),
            };
            let Some(next) = next else { return false };
            at = next;
        }
        match (last, at) {
            (Step::Field(key) | Step::Key(key), Value::Object(map)) => map.remove(key).is_some(),
            (Step::Index(i), Value::Array(list)) => {
                list.get_mut(*i).is_some_and(|v| !std::mem::take(v).is_null())
            }
            _ => false,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text(""))
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: std::fmt::Display>(text: T) -> Self {
        Self::new(format!("Invalid value: {text}"))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("Required value: {field}"))
    }

    fn unknown_variant(value: &str, supported: &'static [&'static str]) -> Self {
        Self::new(unsupported(value, supported))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::unknown(field, known)
    }
}

/// A value that can be decoded.
#[derive(Clone, Copy)]
struct Node<'a>(&'a Value);

impl Node<'_> {
    fn refuse<T>(self, wanted: &str) -> Result<T, Error> {
        let hint = match self.0 {
            Value::String(text) if wanted == "a boolean" && is_boolean(text) => {
                ": true or false, without quotes"
            }
            _ if wanted == "a boolean" => ": true or false",
            Value::String(text) if wanted.contains("number") && text.parse::<f64>().is_ok() => {
                ", without quotes"
            }
            _ => "",
        };
        Err(Error::new(format!("Invalid value: {}: must be {wanted}{hint}", self.0)))
    }
}

fn is_boolean(text: &str) -> bool {
    matches!(text, "true" | "false")
}

/// Integers within the bounds of the field; a whole number may be written with a point or an exponent.
macro_rules! integers {
    ($($name:ident $visit:ident $type:ty,)*) => {
        $(fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = match self.0 {
                Value::Null => Some(0),
                Value::Number(n) => n.as_i128().and_then(|n| <$type>::try_from(n).ok()),
                _ => None,
            };
            match number {
                Some(number) => visitor.$visit(number),
                None if self.0.is_number() => {
                    self.refuse(&format!("a whole number between {} and {}", <$type>::MIN, <$type>::MAX))
                }
                None => self.refuse("a whole number"),
            }
        })*
    };
}

impl<'de> de::Deserializer<'de> for Node<'de> {
    type Error = Error;

    integers! {
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(v) => visitor.visit_bool(*v),
            Value::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(n), _) => visitor.visit_i64(n),
                (_, Some(n)) => visitor.visit_u64(n),
                _ => visitor.visit_f64(n.as_f64().unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_bool(false),
            Value::Bool(v) => visitor.visit_bool(*v),
            _ => self.refuse("a boolean"),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_f64(0.0),
            Value::Number(n) => visitor.visit_f64(n.as_f64().unwrap_or(f64::NAN)),
            _ => self.refuse("a number"),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_borrowed_str(""),
            Value::String(text) => visitor.visit_borrowed_str(text),
            _ => self.refuse("a string"),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_seq(Items { list: [].iter().enumerate() }),
            Value::Array(list) => visitor.visit_seq(Items { list: list.iter().enumerate() }),
            _ => self.refuse("a list"),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.entries(Step::Key, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.entries(Step::Field, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_enum("".into_deserializer()),
            Value::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => self.refuse("a string"),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

impl<'de> Node<'de> {
    fn entries<V: Visitor<'de>>(self, step: fn(String) -> Step, visitor: V) -> Result<V::Value, Error> {
        let map = match self.0 {
            Value::Null => None,
            Value::Object(map) => Some(map),
            _ => return self.refuse("an object"),
        };
        visitor.visit_map(Entries { rest: map.map(Map::iter), current: None, step })
    }
}

/// The elements of a list.
struct Items<'a> {
    list: std::iter::Enumerate<std::slice::Iter<'a, Value>>,
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some((i, value)) = self.list.next() else { return Ok(None) };
        seed.deserialize(Node(value)).map(Some).map_err(|e| e.within(Step::Index(i)))
    }
}

/// The entries of an object.
struct Entries<'a> {
    rest: Option<serde_json::map::Iter<'a>>,
    current: Option<(&'a str, &'a Value)>,
    step: fn(String) -> Step,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.as_mut().and_then(Iterator::next) else { return Ok(None) };
        self.current = Some((key, value));
        let key: StrDeserializer<'_, Error> = key.as_str().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let Some((key, value)) = self.current.take() else {
            return Err(Error::new("a value without its key".to_owned()));
        };
        seed.deserialize(Node(value)).map_err(|e| e.within((self.step)(key.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
    struct Sample {
        on: bool,
        count: Option<i32>,
        share: f64,
        name: String,
        rows: Vec<Row>,
        gates: BTreeMap<String, bool>,
        free: Option<Value>,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(deny_unknown_fields, default)]
    struct Row {
        weight: u8,
        names: Vec<String>,
    }

    #[test]
    fn every_error_names_its_path() {
        let value = json!({
            "on": "true", "count": 2_147_483_648_i64, "share": "1", "naem": "a", "rows": [{"weight": 1},
            {"weight": -1, "names": ["a", 2]}, 7], "gates": {"X": "yes", "Y": true}, "free": {"any": [1]},
        });
        let mut errors = Vec::new();
        let sample: Sample = decode(value, "", &mut errors);
        errors.sort();
        let want = [
            "count: Invalid value: 2147483648: must be a whole number between -2147483648 and 2147483647",
            "gates[X]: Invalid value: \"yes\": must be a boolean: true or false",
            "on: Invalid value: \"true\": must be a boolean: true or false, without quotes",
            "rows[1].names[1]: Invalid value: 2: must be a string",
            "rows[1].weight: Invalid value: -1: must be a whole number between 0 and 255",
            "rows[2]: Invalid value: 7: must be an object",
            "share: Invalid value: \"1\": must be a number, without quotes",
            "strict decoding error: unknown field \"naem\": did you mean \"name\"?",
        ];
        assert_eq!(errors, want);
        assert_eq!(sample.gates, [("Y".to_owned(), true)].into());
        assert_eq!((sample.rows.len(), sample.free), (3, Some(json!({"any": [1]}))));
    }

    #[test]
    fn null_is_absent_as_in_go() {
        let value =
            json!({"on": null, "count": null, "share": null, "name": null, "rows": null, "gates": null});
        let mut errors = Vec::new();
        assert_eq!(decode::<Sample>(value, "", &mut errors), Sample::default());
        let _: Sample = decode(json!([1]), "profiles[0].args", &mut errors);
        assert_eq!(errors, ["profiles[0].args: Invalid value: [1]: must be an object"]);
    }

    #[test]
    fn what_follows_from_an_error_is_known() {
        let broken = ["a.b: wrong".to_owned()];
        for (error, want) in [("a.b: x", true), ("a.b[0].c: x", true), ("a: x", true), ("a.bc: x", false)] {
            assert_eq!(follows(error, &broken), want, "{error}");
        }
    }

    #[test]
    fn names_are_guessed_where_they_are_close() {
        let names = ["waitForPodsReady", "webhook", "tls"];
        assert_eq!(nearest("waitForPodReady", names), Some("waitForPodsReady"));
        assert_eq!(nearest("WebHook", names), Some("webhook"));
        assert_eq!(nearest("metrics", names), None);
    }
}
