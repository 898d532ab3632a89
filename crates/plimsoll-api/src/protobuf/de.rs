//! A serde deserializer over a message and its fields.

use plimsoll_state::Time;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::schema::{Field, Kind, Message};
use super::wire::{Reader, Wire};
use super::{Error, Result, text};
use crate::timestamp;

/// A value that is not repeated.
#[derive(Clone, Copy)]
pub(super) struct Value<'de> {
    kind: Kind,
    wire: Wire<'de>,
}

impl<'de> Value<'de> {
    pub(super) const fn message(message: &'static Message, bytes: &'de [u8]) -> Self {
        Self { kind: Kind::Message(message), wire: Wire::Bytes(bytes) }
    }
}

fn string(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(Error::custom)
}

/// `meta.v1.Timestamp` as JSON has it.
fn time(message: &[u8]) -> Result<String> {
    let (mut fields, mut nanos) = (Reader(message), 0i64);
    while let Some((number, value)) = fields.next()? {
        // Two's complement. JSON has no fractions of a second.
        if let (1, Wire::Number(seconds)) = (number, value) {
            nanos = (seconds as i64).saturating_mul(1_000_000_000);
        }
    }
    Ok(timestamp::text(Time(nanos)))
}

/// `resource.Quantity` as JSON has it.
fn quantity(message: &[u8]) -> Result<&str> {
    Ok(match text(message, 1)? {
        "" => "0",
        amount => amount,
    })
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match (self.kind, self.wire) {
            (Kind::Text, Wire::Bytes(bytes)) => visitor.visit_borrowed_str(string(bytes)?),
            (Kind::Time, Wire::Bytes(bytes)) => visitor.visit_string(time(bytes)?),
            (Kind::Quantities, Wire::Bytes(bytes)) => visitor.visit_borrowed_str(quantity(bytes)?),
            (Kind::Bool, Wire::Number(n)) => visitor.visit_bool(n != 0),
            // Two's complement.
            (Kind::Int, Wire::Number(n)) => visitor.visit_i64(n as i64),
            (Kind::Message(message), Wire::Bytes(bytes)) => {
                visitor.visit_map(Fields { reader: Reader(bytes), message, outer: None, found: None })
            }
            _ => Err(Error::custom("a field has another type")),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The fields of a message.
struct Fields<'de> {
    reader: Reader<'de>,
    message: &'static Message,
    /// The message around an inline one.
    outer: Option<(Reader<'de>, &'static Message)>,
    found: Option<(&'static Field, Wire<'de>)>,
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        loop {
            let Some((number, wire)) = self.reader.next()? else {
                let Some(outer) = self.outer.take() else { return Ok(None) };
                (self.reader, self.message) = outer;
                continue;
            };
            let Some(field) = self.message.field(number) else { continue };
            match (field.kind, wire) {
                (Kind::Inline(message), Wire::Bytes(bytes)) => {
                    self.outer = Some((self.reader, self.message));
                    (self.reader, self.message) = (Reader(bytes), message);
                }
                (Kind::Text | Kind::Time, Wire::Bytes([])) if !field.repeated => {}
                _ => {
                    self.found = Some((field, wire));
                    return seed.deserialize(BorrowedStrDeserializer::new(field.name)).map(Some);
                }
            }
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        let Some((field, wire)) = self.found.take() else {
            return Err(Error::custom("a value without a key"));
        };
        if field.repeated || matches!(field.kind, Kind::Texts | Kind::Quantities) {
            return seed.deserialize(Many {
                field,
                first: Some(wire),
                reader: &mut self.reader,
                value: None,
            });
        }
        seed.deserialize(Value { kind: field.kind, wire })
    }
}

/// The values of a repeated field, which encoders write one after the other.
struct Many<'a, 'de> {
    field: &'static Field,
    first: Option<Wire<'de>>,
    reader: &'a mut Reader<'de>,
    /// Of the entry of a map whose key was read.
    value: Option<Wire<'de>>,
}

impl<'de> Many<'_, 'de> {
    fn next(&mut self) -> Result<Option<Wire<'de>>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let mut ahead = *self.reader;
        match ahead.next()? {
            Some((number, wire)) if number == self.field.number => {
                *self.reader = ahead;
                Ok(Some(wire))
            }
            _ => Ok(None),
        }
    }
}

impl<'de> Deserializer<'de> for Many<'_, 'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.field.repeated {
            true => visitor.visit_seq(self),
            false => visitor.visit_map(self),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    /// A repeated field is a list or a map. Each type of struct would be compiled for both of them.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value> {
        Err(Error::custom(format_args!("a repeated field where {name} is expected")))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de> SeqAccess<'de> for Many<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>> {
        let Some(wire) = self.next()? else { return Ok(None) };
        seed.deserialize(Value { kind: self.field.kind, wire }).map(Some)
    }
}

impl<'de> MapAccess<'de> for Many<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        let Some(wire) = self.next()? else { return Ok(None) };
        let Wire::Bytes(entry) = wire else { return Err(Error::custom("a map has another type")) };
        self.value = Some(Wire::Bytes(super::bytes(entry, 2)?));
        seed.deserialize(BorrowedStrDeserializer::new(text(entry, 1)?)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value> {
        let Some(wire) = self.value.take() else { return Err(Error::custom("a value without a key")) };
        let kind = if matches!(self.field.kind, Kind::Texts) { Kind::Text } else { self.field.kind };
        seed.deserialize(Value { kind, wire })
    }
}
