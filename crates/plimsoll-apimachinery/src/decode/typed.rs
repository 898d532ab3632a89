//! Decoding of a value that has a schema.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::go_types::{add_always, base64_fault, go_type, is_map, is_zero, zero_value};
use super::time;
use super::walk::{Frame, Walk};
use crate::schema::{Leaf, Presence, Schema, SchemaId, SchemaType};

impl<'s> Walk<'s> {
    /// The seed that reads the whole object.
    pub fn root<'w>(&'w mut self, id: SchemaId) -> Root<'w, 's> {
        Root { walk: self, id }
    }
}

/// Reads an object; a missing one (`null`) is the zero object.
pub(super) struct Root<'w, 's> {
    walk: &'w mut Walk<'s>,
    id: SchemaId,
}

impl<'de> DeserializeSeed<'de> for Root<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let (schemas, id) = (self.walk.schemas, self.id);
        let found = Node { walk: self.walk, id }.deserialize(deserializer)?;
        Ok(found.unwrap_or_else(|| zero_value(schemas, id)))
    }
}

/// Reads one value; `None` for `null`.
struct Node<'w, 's> {
    walk: &'w mut Walk<'s>,
    id: SchemaId,
}

impl<'s> Node<'_, 's> {
    fn schema(&self) -> &'s Schema {
        self.walk.schemas.get(self.id)
    }

    fn wrong(self, got: &str) -> Option<Value> {
        let wanted = go_type(self.walk.schemas, self.id);
        self.walk.mismatch(got, &wanted);
        None
    }

    /// A quantity from its text.
    fn quantity(self, text: &str) -> Option<Value> {
        match plimsoll_api::Quantity::canonical(text) {
            Ok(text) => Some(Value::String(text)),
            Err(e) => {
                self.walk.stop(e.to_string());
                None
            }
        }
    }

    fn integer(self, value: i64) -> Option<Value> {
        let schema = self.schema();
        match (schema.leaf, schema.kind) {
            (Leaf::Quantity, _) => self.quantity(&value.to_string()),
            (Leaf::IntOrString, _) => match i32::try_from(value) {
                Ok(v) => Some(Value::from(v)),
                Err(_) => self.wrong(&format!("number {value}")),
            },
            (Leaf::Raw, _) | (_, SchemaType::Any | SchemaType::Number) => Some(Value::from(value)),
            (_, SchemaType::Integer) if schema.format == "int32" && i32::try_from(value).is_err() => {
                self.wrong(&format!("number {value}"))
            }
            (_, SchemaType::Integer) => Some(Value::from(value)),
            _ => self.wrong("number"),
        }
    }

    fn text<E: Error>(self, text: &str, owned: Option<String>) -> Result<Option<Value>, E> {
        let schema = self.schema();
        Ok(match (schema.leaf, schema.kind) {
            (Leaf::Quantity, _) => self.quantity(text),
            (Leaf::Time | Leaf::MicroTime, _) => {
                match time::normalise(text, schema.leaf == Leaf::MicroTime) {
                    Ok(time) => time.map(Value::String),
                    Err(why) => {
                        self.walk.stop(why);
                        None
                    }
                }
            }
            (Leaf::Bytes, _) => self.bytes(text),
            (Leaf::Raw | Leaf::IntOrString, _) | (_, SchemaType::Any | SchemaType::String) => {
                Some(Value::String(owned.unwrap_or_else(|| text.to_owned())))
            }
            _ => self.wrong("string"),
        })
    }

    fn bytes(self, text: &str) -> Option<Value> {
        use base64::Engine as _;
        let engine = base64::engine::general_purpose::STANDARD;
        let plain: String;
        let input = if text.contains(['\n', '\r']) {
            plain = text.replace(['\n', '\r'], "");
            &plain
        } else {
            text
        };
        match engine.decode(input) {
            Ok(_) => Some(Value::String(input.to_owned())),
            Err(_) => {
                let at = base64_fault(input.as_bytes());
                self.walk.fail(format!("illegal base64 data at input byte {at}"));
                None
            }
        }
    }

    /// A struct: known fields in, the rest reported.
    fn fields<'de, A: MapAccess<'de>>(self, mut access: A) -> Result<Option<Value>, A::Error> {
        let schema = self.schema();
        let owner = schema.name.as_deref().unwrap_or_default();
        let mut map = Map::new();
        let mut seen: Vec<&str> = Vec::with_capacity(schema.properties.len().min(16));
        while let Some(Key(key)) = access.next_key::<Key<'de>>()? {
            let Some((name, property)) = schema.properties.get_key_value(&*key) else {
                self.walk.strict("unknown", &key);
                access.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen.contains(&name.as_str()) {
                self.walk.strict("duplicate", &key);
            }
            seen.push(name);
            self.walk.frames.push(Frame::Field(owner, name));
            let value = access.next_value_seed(Node { walk: self.walk, id: property.id })?;
            self.walk.frames.pop();
            let Some(value) = value else { continue };
            match property.presence {
                Presence::Omit if is_zero(&value) => {}
                Presence::Null
                    if matches!(&value, Value::Object(o) if o.is_empty())
                        && is_map(self.walk.schemas, property.id) => {}
                _ => {
                    map.insert(name.clone(), value);
                }
            }
        }
        add_always(self.walk.schemas, schema, &mut map);
        Ok(Some(Value::Object(map)))
    }

    /// A map with free keys.
    fn entries<'de, A: MapAccess<'de>>(
        self,
        mut access: A,
        values: SchemaId,
    ) -> Result<Option<Value>, A::Error> {
        let mut map = Map::new();
        let amounts = self.walk.schemas.get(values).leaf == Leaf::Quantity;
        while let Some(key) = access.next_key::<String>()? {
            if map.contains_key(&key) {
                self.walk.strict("duplicate", &key);
            }
            self.walk.frames.push(Frame::Key(key));
            let value = access.next_value_seed(Node { walk: self.walk, id: values })?;
            let mut value = value.unwrap_or_else(|| zero_value(self.walk.schemas, values));
            if amounts && value.as_str().is_some_and(is_fine) && self.walk.in_resource_list() {
                whole_thousandths(&mut value);
            }
            if let Some(Frame::Key(key)) = self.walk.frames.pop() {
                map.insert(key, value);
            }
        }
        Ok(Some(Value::Object(map)))
    }
}

/// Whether an amount may be finer than thousandths, by its canonical form.
fn is_fine(amount: &str) -> bool {
    amount.ends_with(['u', 'n']) || amount.contains("e-")
}

/// Amounts of resources are no finer than thousandths (core/v1 `SetDefaults_ResourceList`).
fn whole_thousandths(value: &mut Value) {
    const MILLI: i128 = 1_000_000;
    let Some(Ok(amount)) = value.as_str().map(str::parse::<plimsoll_api::Quantity>) else { return };
    let rest = amount.nanos() % MILLI;
    if rest != 0 {
        let up = amount.nanos().saturating_add(rest.signum() * MILLI - rest);
        *value = Value::String(plimsoll_api::Quantity::from_nanos(up, amount.format()).to_string());
    }
}

/// A key, borrowed where the input allows it.
struct Key<'de>(std::borrow::Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(key.into()))
            }
            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(key.to_owned().into()))
            }
            fn visit_string<E>(self, key: String) -> Result<Key<'de>, E> {
                Ok(Key(key.into()))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Option<Value>, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Option<Value>, E> {
        let schema = self.schema();
        Ok(match (schema.leaf, schema.kind) {
            (Leaf::Quantity, _) => self.quantity(if value { "true" } else { "false" }),
            (Leaf::Raw, _) | (_, SchemaType::Any | SchemaType::Boolean) => Some(Value::Bool(value)),
            _ => self.wrong("bool"),
        })
    }

    fn visit_i64<E>(self, value: i64) -> Result<Option<Value>, E> {
        Ok(self.integer(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Option<Value>, E> {
        Ok(match i64::try_from(value) {
            Ok(value) => self.integer(value),
            Err(_) => match (self.schema().leaf, self.schema().kind) {
                (Leaf::Quantity, _) => self.quantity(&value.to_string()),
                (Leaf::Raw, _) | (_, SchemaType::Any | SchemaType::Number) => Some(Value::from(value)),
                (_, SchemaType::Integer | SchemaType::IntOrString) => self.wrong(&format!("number {value}")),
                _ => self.wrong("number"),
            },
        })
    }

    fn visit_f64<E>(self, value: f64) -> Result<Option<Value>, E> {
        let schema = self.schema();
        Ok(match (schema.leaf, schema.kind) {
            (Leaf::Quantity, _) => self.quantity(&value.to_string()),
            (Leaf::Raw, _) | (_, SchemaType::Any | SchemaType::Number) => {
                Number::from_f64(value).map(Value::Number)
            }
            (_, SchemaType::Integer | SchemaType::IntOrString) => self.wrong(&format!("number {value:?}")),
            _ => self.wrong("number"),
        })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Value>, E> {
        self.text(text, None)
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Option<Value>, E> {
        let schema = self.schema();
        if schema.leaf == Leaf::Plain && schema.kind == SchemaType::String {
            return Ok(Some(Value::String(text)));
        }
        self.text(&text, None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Option<Value>, A::Error> {
        let schema = self.schema();
        if schema.leaf == Leaf::Raw || schema.kind == SchemaType::Any {
            let seq = serde::de::value::SeqAccessDeserializer::new(access);
            return <Value as serde::Deserialize>::deserialize(seq).map(Some);
        }
        let (SchemaType::Array, Some(items)) = (schema.kind, schema.items) else {
            while access.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(if schema.leaf == Leaf::Quantity { self.quantity("[]") } else { self.wrong("array") });
        };
        let mut list = Vec::new();
        loop {
            self.walk.frames.push(Frame::Index(list.len()));
            let element = access.next_element_seed(Node { walk: self.walk, id: items })?;
            self.walk.frames.pop();
            let Some(element) = element else { break };
            list.push(element.unwrap_or_else(|| zero_value(self.walk.schemas, items)));
        }
        Ok(Some(Value::Array(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Option<Value>, A::Error> {
        let schema = self.schema();
        if schema.leaf == Leaf::Raw || schema.kind == SchemaType::Any {
            // `JSONSchemaPropsOrBool`, `JSONSchemaPropsOrArray`: an object is a schema.
            if let Some(object) = schema.items {
                // Their own decoder ignores unknown and duplicate fields.
                let known = self.walk.findings.strict.len();
                let found = Node { walk: self.walk, id: object }.fields(access);
                self.walk.findings.strict.truncate(known);
                return found;
            }
            let map = serde::de::value::MapAccessDeserializer::new(access);
            return <Value as serde::Deserialize>::deserialize(map).map(Some);
        }
        if schema.kind != SchemaType::Object {
            while access.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(if schema.leaf == Leaf::Quantity {
                self.quantity("{}")
            } else {
                self.wrong("object")
            });
        }
        match schema.additional {
            Some(values) => self.entries(access, values),
            None => self.fields(access),
        }
    }
}
