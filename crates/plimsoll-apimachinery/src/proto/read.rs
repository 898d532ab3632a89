//! Messages to JSON values.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::table::{Form, Kind, Shape, Table};
use crate::gvk::Gvk;

/// Deepest nesting of messages.
const MAX_DEPTH: usize = 100;
/// Most fields in a body: bounds the memory that a small body can take.
const MAX_FIELDS: usize = 1_000_000;

type Result<T> = std::result::Result<T, String>;

/// An object's envelope (`runtime.Unknown`).
#[derive(Debug, Default)]
pub struct Unknown {
    /// The group, version and kind of the object.
    pub gvk: Gvk,
    /// The encoded object.
    pub raw: Vec<u8>,
    /// Its media type; empty for protobuf.
    pub content_type: String,
}

/// Reads an envelope.
pub fn envelope(bytes: &[u8]) -> Result<Unknown> {
    let mut unknown = Unknown::default();
    let mut input = Input { rest: bytes };
    while let Some((number, wire)) = input.tag()? {
        match (number, input.payload(wire)?) {
            (1, Payload::Bytes(meta)) => unknown.gvk = type_meta(meta)?,
            (2, Payload::Bytes(raw)) => unknown.raw = raw.to_vec(),
            (4, Payload::Bytes(text)) => unknown.content_type = utf8(text),
            _ => {}
        }
    }
    Ok(unknown)
}

fn type_meta(bytes: &[u8]) -> Result<Gvk> {
    let mut gvk = Gvk::default();
    let mut input = Input { rest: bytes };
    while let Some((number, wire)) = input.tag()? {
        match (number, input.payload(wire)?) {
            (1, Payload::Bytes(text)) => {
                let api_version = utf8(text);
                let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
                (gvk.group, gvk.version) = (group.to_owned(), version.to_owned());
            }
            (2, Payload::Bytes(text)) => gvk.kind = utf8(text),
            _ => {}
        }
    }
    Ok(gvk)
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads a message that is an object in JSON.
pub fn object(table: &Table, message: usize, bytes: &[u8]) -> Result<Map<String, Value>> {
    let mut reader = Reader { table, fields: 0 };
    let mut out = Map::new();
    reader.fields_into(message, bytes, &mut out, 0)?;
    Ok(out)
}

enum Payload<'a> {
    Int(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or("unexpected EOF")?;
            self.rest = rest;
            if shift >= 64 {
                return Err("proto: integer overflow".to_owned());
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".to_owned())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or("unexpected EOF")?;
        self.rest = rest;
        Ok(head)
    }

    /// Number and wire type of the next field; `None` at the end.
    fn tag(&mut self) -> Result<Option<(u32, u8)>> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| (1..1 << 29).contains(n));
        let number =
            number.ok_or_else(|| format!("proto: illegal tag {} (wire type {})", tag >> 3, tag & 7))?;
        Ok(Some((number, u8::try_from(tag & 7).unwrap_or(7))))
    }

    fn payload(&mut self, wire: u8) -> Result<Payload<'a>> {
        match wire {
            0 => Ok(Payload::Int(self.varint()?)),
            1 => {
                let bytes = self.take(8)?;
                Ok(Payload::Fixed64(bytes.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| "proto: invalid length")?;
                Ok(Payload::Bytes(self.take(length)?))
            }
            5 => self.take(4).map(|_| Payload::Fixed32),
            other => Err(format!("proto: illegal wireType {other}")),
        }
    }
}

struct Reader<'t> {
    table: &'t Table,
    fields: usize,
}

impl Reader<'_> {
    fn fields_into(
        &mut self,
        message: usize,
        bytes: &[u8],
        out: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err("proto: exceeded max recursion depth".to_owned());
        }
        let table = self.table;
        let Some(message) = table.message(message) else { return Err("proto: unknown message".to_owned()) };
        let mut input = Input { rest: bytes };
        while let Some((number, wire)) = input.tag()? {
            self.fields += 1;
            if self.fields > MAX_FIELDS {
                return Err("proto: too many fields".to_owned());
            }
            let payload = input.payload(wire)?;
            let Some(field) = message.fields.iter().find(|f| f.number == number) else { continue };
            match (field.shape, field.kind, payload) {
                (Shape::Embedded, Kind::Message(inner), Payload::Bytes(bytes)) => {
                    self.fields_into(inner, bytes, out, depth + 1)?;
                }
                (Shape::Map, kind, Payload::Bytes(bytes)) => {
                    let (key, value) = self.entry(kind, bytes, depth)?;
                    if let Value::Object(map) = slot(out, &field.json, Value::Object(Map::new())) {
                        map.insert(key, value);
                    }
                }
                (Shape::Repeated, Kind::Int, Payload::Bytes(packed)) => {
                    let mut packed = Input { rest: packed };
                    while !packed.rest.is_empty() {
                        let value = int(packed.varint()?);
                        push(out, &field.json, value);
                    }
                }
                (Shape::Repeated, kind, payload) => {
                    let value = self.value(kind, &payload, depth, &field.json)?;
                    push(out, &field.json, value);
                }
                (_, kind, payload) => {
                    let value = self.value(kind, &payload, depth, &field.json)?;
                    out.insert(field.json.clone(), value);
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, kind: Kind, bytes: &[u8], depth: usize) -> Result<(String, Value)> {
        let mut key = String::new();
        let mut value = None;
        let mut input = Input { rest: bytes };
        while let Some((number, wire)) = input.tag()? {
            match (number, input.payload(wire)?) {
                (1, Payload::Bytes(text)) => key = utf8(text),
                (2, payload) => value = Some(self.value(kind, &payload, depth, &key)?),
                _ => {}
            }
        }
        let value = match value {
            Some(value) => value,
            None => self.value(kind, &Payload::Bytes(&[]), depth, &key)?,
        };
        Ok((key, value))
    }

    fn value(&mut self, kind: Kind, payload: &Payload<'_>, depth: usize, field: &str) -> Result<Value> {
        match (kind, payload) {
            (Kind::String, Payload::Bytes(bytes)) => Ok(Value::String(utf8(bytes))),
            (Kind::Bytes, Payload::Bytes(bytes)) => Ok(Value::String(STANDARD.encode(bytes))),
            (Kind::Bool, Payload::Int(v)) => Ok(Value::Bool(*v != 0)),
            (Kind::Int, Payload::Int(v)) => Ok(int(*v)),
            (Kind::Double, Payload::Fixed64(v)) => Ok(number(f64::from_bits(*v))),
            (Kind::Message(message), Payload::Bytes(bytes)) => self.message(message, bytes, depth + 1),
            _ => Err(format!("proto: wrong wireType for field {field}")),
        }
    }

    fn message(&mut self, message: usize, bytes: &[u8], depth: usize) -> Result<Value> {
        let form = self.table.message(message).map(|m| m.form);
        match form {
            Some(Form::Raw) => return raw(bytes),
            Some(Form::Time | Form::MicroTime) if bytes.is_empty() => return Ok(Value::Null),
            _ => {}
        }
        let mut fields = Map::new();
        self.fields_into(message, bytes, &mut fields, depth)?;
        let mut take = |name: &str| fields.remove(name).filter(|v| !v.is_null());
        Ok(match form {
            Some(Form::Time) => time(&fields, false)?,
            Some(Form::MicroTime) => time(&fields, true)?,
            Some(Form::Quantity) => take("string").unwrap_or_else(|| Value::from("0")),
            Some(Form::IntOrString) => match take("type").and_then(|t| t.as_i64()) {
                Some(1) => take("strVal").unwrap_or_else(|| Value::from("")),
                _ => take("intVal").unwrap_or_else(|| Value::from(0)),
            },
            Some(Form::List) => take("items").unwrap_or_else(|| Value::Array(Vec::new())),
            Some(Form::SchemaOrArray) => {
                take("schema").or_else(|| take("schemas")).unwrap_or_else(|| Value::Array(Vec::new()))
            }
            Some(Form::SchemaOrBool) => {
                take("schema").or_else(|| take("allows")).unwrap_or(Value::Bool(false))
            }
            Some(Form::SchemaOrStrings) => {
                take("schema").or_else(|| take("property")).unwrap_or_else(|| Value::Array(Vec::new()))
            }
            _ => Value::Object(fields),
        })
    }
}

fn slot<'m>(map: &'m mut Map<String, Value>, name: &str, empty: Value) -> &'m mut Value {
    map.entry(name.to_owned()).or_insert(empty)
}

fn push(map: &mut Map<String, Value>, name: &str, value: Value) {
    if let Value::Array(list) = slot(map, name, Value::Array(Vec::new())) {
        list.push(value);
    }
}

#[allow(clippy::cast_possible_wrap, reason = "varints carry negative numbers as two's complement")]
fn int(value: u64) -> Value {
    Value::from(value as i64)
}

/// A number as Go's JSON has it: whole ones without a fraction.
#[allow(clippy::cast_possible_truncation, reason = "only whole numbers below 2^53")]
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { Value::from(value as i64) } else { Value::from(value) }
}

/// The JSON in the only field of a message.
fn raw(bytes: &[u8]) -> Result<Value> {
    let mut input = Input { rest: bytes };
    let mut value = Value::Null;
    while let Some((number, wire)) = input.tag()? {
        if let (1, Payload::Bytes(text)) = (number, input.payload(wire)?) {
            value = serde_json::from_slice(text).map_err(|e| format!("json: {e}"))?;
        }
    }
    Ok(value)
}

fn time(fields: &Map<String, Value>, micro: bool) -> Result<Value> {
    let number = |name: &str| fields.get(name).and_then(Value::as_i64).unwrap_or_default();
    let (seconds, nanos) = (number("seconds"), number("nanos"));
    if seconds == ZERO_TIME {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(nanos).map_err(|_| "proto: time out of range")?;
    let time = Timestamp::new(seconds, nanos).map_err(|_| "proto: time out of range")?;
    let format = if micro { "%Y-%m-%dT%H:%M:%S.%6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(Value::from(time.strftime(format).to_string()))
}

/// Go's zero time, in seconds since 1970.
const ZERO_TIME: i64 = -62_135_596_800;
