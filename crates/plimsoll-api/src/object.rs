//! Objects parsed without `managedFields`: no reader here uses them, and as a tree of maps they take more memory, and more time
//! to make, than all the rest of an object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
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
            cut in any::<prop::sample::Index>(),
        ) {
            if let Value::Object(map) = &mut object {
                map.extend(metadata.map(|m| ("metadata".to_owned(), m)));
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
    fn managed_fields_elsewhere_stay() {
        let object = json!({"metadata": {"a": {"managedFields": 1}}, "managedFields": 2, "spec": {"metadata": {"managedFields": 3}}});
        assert_eq!(parse(object.to_string().as_bytes()).ok(), Some(object));
    }
}
