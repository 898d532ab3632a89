//! Objects parsed without `managedFields`: no reader here uses them, and as a tree of maps they take more memory, and more time
//! to make, than all the rest of an object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Parses an object; `metadata.managedFields` is left out.
///
/// # Errors
/// When it is no object, or not JSON.
pub fn parse(bytes: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let object = Part::Object.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(object)
}

/// An object's metadata alone, in an object, without `managedFields`; `None` when it can't be read.
pub fn metadata(bytes: &[u8]) -> Option<Value> {
    Part::Head.deserialize(&mut serde_json::Deserializer::from_slice(bytes)).ok()
}

/// The text of an object without `managedFields`, where they are found beside other metadata, and after kind and version: then
/// [`parse`] makes the same of both, if no key is there twice. What follows is not read.
pub fn lean(text: &[u8]) -> Option<[&[u8]; 2]> {
    let mut found = Managed::default();
    // It ends where they are found, which is an error to the parser.
    let _ = Find(&mut found, Part::Object).deserialize(&mut serde_json::Deserializer::from_slice(text));
    let value = found.value.filter(|_| found.typed == 2)?.get();
    let start = value.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    let (before, after) = (text.get(..start)?, text.get(start + value.len()..)?);
    let before = before.trim_ascii_end().strip_suffix(b":")?.trim_ascii_end();
    let before = before.strip_suffix(b"\"managedFields\"")?;
    match after.trim_ascii_start().strip_prefix(b",") {
        Some(after) => Some([before, after]),
        None => Some([before.trim_ascii_end().strip_suffix(b",")?, after]),
    }
}

/// What [`lean`] looks for.
#[derive(Default)]
struct Managed<'de> {
    /// How many of kind and version were seen.
    typed: u8,
    value: Option<&'de RawValue>,
}

/// Looks for it in an object or its metadata.
struct Find<'a, 'de>(&'a mut Managed<'de>, Part);

impl<'de> DeserializeSeed<'de> for Find<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Find<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.1.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(found, part) = self;
        while let Some(key) = map.next_key::<&str>()? {
            match (part, key) {
                (Part::Object, "metadata") => return map.next_value_seed(Find(found, Part::Metadata)),
                (Part::Metadata, "managedFields") => {
                    found.value = Some(map.next_value()?);
                    return Ok(());
                }
                (part, key) => {
                    let typed = matches!((part, key), (Part::Object, "apiVersion" | "kind"));
                    found.typed += u8::from(typed);
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// The parts of an object that are not taken as they are.
#[derive(Clone, Copy)]
enum Part {
    Object,
    /// The object without all but its metadata.
    Head,
    Metadata,
}

impl<'de> DeserializeSeed<'de> for Part {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object | Self::Head => "an object",
            Self::Metadata => "metadata",
        })
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        match self {
            Self::Object | Self::Head => Err(E::invalid_type(serde::de::Unexpected::Unit, &self)),
            Self::Metadata => Ok(Value::Null),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = match (self, key.as_str()) {
                (Self::Object | Self::Head, "metadata") => map.next_value_seed(Self::Metadata)?,
                (Self::Metadata, "managedFields") | (Self::Head, _) => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                _ => map.next_value()?,
            };
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::metadata as metadata_of;
    use super::*;

    /// The plain way: parse all of it, then remove them.
    fn plain(text: &str) -> Option<Value> {
        let mut object: Value = serde_json::from_str(text).ok()?;
        if !object.is_object() || !matches!(object["metadata"], Value::Object(_) | Value::Null) {
            return None;
        }
        crate::json::remove(&mut object, &["metadata", "managedFields"]);
        Some(object)
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z\"\\\\é]{0,4}".prop_map(Value::from),
        ];
        let key = prop_oneof!["metadata", "managedFields", "spec", "[a-z]{0,3}"];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn objects_are_parsed_as_with_all_fields(
            mut object in value(),
            metadata in prop::option::of(value()),
            managed in prop::option::of(value()),
            typed in any::<bool>(),
            cut in any::<prop::sample::Index>(),
        ) {
            if let Value::Object(map) = &mut object {
                map.extend(metadata.map(|m| ("metadata".to_owned(), m)));
                if typed {
                    map.extend(["apiVersion", "kind"].map(|key| (key.to_owned(), key.into())));
                }
                if let (Some(Value::Object(metadata)), Some(managed)) = (map.get_mut("metadata"), managed) {
                    metadata.insert("managedFields".to_owned(), managed);
                }
            }
            let text = object.to_string();
            let parsed = parse(text.as_bytes()).ok();
            prop_assert_eq!(&parsed, &plain(&text));
            let head = parsed.map(|whole| match whole.get("metadata") {
                Some(metadata) => json!({"metadata": metadata}),
                None => json!({}),
            });
            prop_assert_eq!(metadata_of(text.as_bytes()), head);
            match lean(text.as_bytes()) {
                Some(lean) => prop_assert_eq!(serde_json::from_slice(&lean.concat()).ok(), plain(&text)),
                // There is a comma where there is anything beside them.
                None => prop_assert!(!typed || object["metadata"].get("managedFields").is_none()
                    || object["metadata"].as_object().is_none_or(|metadata| metadata.len() == 1)),
            }
            // What is cut off, or goes on, is an error to both.
            let part: String = text.chars().take(cut.index(text.len())).collect();
            prop_assert_eq!(parse(part.as_bytes()).ok(), plain(&part));
            let more = text + "{}";
            prop_assert_eq!(parse(more.as_bytes()).ok(), plain(&more));
        }
    }

    #[test]
    fn the_last_of_two_values_of_a_key_counts() {
        let text = r#"{"metadata":{"managedFields":1,"name":"a","managedFields":2},"a":1,"metadata":{"name":"b","managedFields":[]},"a":2}"#;
        assert_eq!(parse(text.as_bytes()).ok(), Some(json!({"metadata": {"name": "b"}, "a": 2})));
        assert_eq!(parse(text.as_bytes()).ok(), plain(text));
    }

    #[test]
    fn a_text_is_made_lean() {
        for (text, wanted) in [
            (
                r#"{"kind":"W","apiVersion":"v1","metadata":{"managedFields":[{"a":"]"}],"name":"a"},"spec":1}"#,
                r#"{"kind":"W","apiVersion":"v1","metadata":{"name":"a"},"spec":1}"#,
            ),
            (
                r#"{"apiVersion":"v1","kind":"W", "metadata" : { "name":"a" , "managedFields" : [] } ,"spec":1}"#,
                r#"{"apiVersion":"v1","kind":"W", "metadata" : { "name":"a"  } ,"spec":1}"#,
            ),
            (
                r#"{"apiVersion":"v1","kind":"W","metadata":{"name":"managedFields","managedFields":null}}"#,
                r#"{"apiVersion":"v1","kind":"W","metadata":{"name":"managedFields"}}"#,
            ),
        ] {
            let made = lean(text.as_bytes()).map(|lean| String::from_utf8(lean.concat()).unwrap());
            assert_eq!(made.as_deref(), Some(wanted));
            assert_eq!(serde_json::from_str(wanted).ok(), plain(text));
        }
        for text in [
            r#"{"metadata":{"managedFields":[],"name":"a"},"apiVersion":"v1","kind":"W"}"#,
            r#"{"apiVersion":"v1","kind":"W","metadata":{"name":"a"},"managedFields":[]}"#,
            r#"{"apiVersion":"v1","kind":"W","metadata":{"managedFields":[]}}"#,
            r#"{"apiVersion":"v1","kind":"W","metadata":{"a":{"managedFields":[],"b":1}}}"#,
            r#"{"apiVersion":"v1","kind":"W","metadata":[{"managedFields":[]}]}"#,
            "{",
            "",
        ] {
            assert_eq!(lean(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn managed_fields_elsewhere_stay() {
        let object = json!({"metadata": {"a": {"managedFields": 1}}, "managedFields": 2, "spec": {"metadata": {"managedFields": 3}}});
        assert_eq!(parse(object.to_string().as_bytes()).ok(), Some(object));
    }
}
