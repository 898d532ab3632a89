//! JSON values to messages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::table::{Field, Form, Kind, Shape, Table};
use super::wire::{BYTES, bytes, tag, varint};
use crate::gvk::Gvk;

/// Deepest nesting that is written.
const MAX_DEPTH: usize = 100;

/// `runtime.Unknown` around an encoded object.
pub fn envelope(out: &mut Vec<u8>, gvk: &Gvk, raw: &[u8]) {
    let tail = envelope_around(out, gvk, raw.len());
    out.extend_from_slice(raw);
    out.extend_from_slice(&tail);
}

/// Writes the envelope up to an object of so many bytes; returns the bytes that follow the object.
pub fn envelope_around(out: &mut Vec<u8>, gvk: &Gvk, length: usize) -> Vec<u8> {
    let mut meta = Vec::new();
    bytes(&mut meta, 1, gvk.api_version().as_bytes());
    bytes(&mut meta, 2, gvk.kind.as_bytes());
    bytes(out, 1, &meta);
    tag(out, 2, BYTES);
    varint(out, length as u64);
    let mut tail = Vec::new();
    bytes(&mut tail, 3, b"");
    bytes(&mut tail, 4, b"");
    tail
}

/// `meta.WatchEvent` around an object in its envelope.
pub fn watch_event(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(object.len() + 8);
    bytes(&mut raw, 1, object);
    let mut out = Vec::with_capacity(raw.len() + 16);
    bytes(&mut out, 1, kind.as_bytes());
    bytes(&mut out, 2, &raw);
    out
}

/// Writes a value as a message.
pub fn message(table: &Table, index: usize, value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    body(table, index, value, &mut out, 0);
    out
}

fn body(table: &Table, index: usize, value: &Value, out: &mut Vec<u8>, depth: usize) {
    let Some(message) = table.message(index) else { return };
    if depth > MAX_DEPTH {
        return;
    }
    match (message.form, value) {
        (Form::Time | Form::MicroTime, value) => time(value, out),
        (Form::Quantity, value) => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            bytes(out, 1, text.as_bytes());
        }
        (Form::IntOrString, Value::String(text)) => {
            tag(out, 1, 0);
            varint(out, 1);
            bytes(out, 3, text.as_bytes());
        }
        (Form::IntOrString, value) => {
            tag(out, 1, 0);
            varint(out, 0);
            tag(out, 2, 0);
            varint(out, int(value));
        }
        (Form::Raw, value) => bytes(out, 1, value.to_string().as_bytes()),
        (Form::List, value) => wrapped(table, &message.fields, "items", value, out, depth),
        (Form::SchemaOrArray, Value::Array(_)) => {
            wrapped(table, &message.fields, "schemas", value, out, depth);
        }
        (Form::SchemaOrBool, Value::Bool(_)) => wrapped(table, &message.fields, "allows", value, out, depth),
        (Form::SchemaOrBool, value) => {
            wrapped(table, &message.fields, "allows", &Value::Bool(true), out, depth);
            wrapped(table, &message.fields, "schema", value, out, depth);
        }
        (Form::SchemaOrStrings, Value::Array(_)) => {
            wrapped(table, &message.fields, "property", value, out, depth);
        }
        (Form::SchemaOrArray | Form::SchemaOrStrings, value) => {
            wrapped(table, &message.fields, "schema", value, out, depth);
        }
        (Form::Object, Value::Object(map)) => {
            for field in &message.fields {
                one_field(table, field, map, out, depth);
            }
        }
        (Form::Object, _) => {}
    }
}

/// A value as one of a message's fields.
fn wrapped(table: &Table, fields: &[Field], name: &str, value: &Value, out: &mut Vec<u8>, depth: usize) {
    if let Some(field) = fields.iter().find(|f| f.json == name) {
        let map = Map::from_iter([(name.to_owned(), value.clone())]);
        one_field(table, field, &map, out, depth);
    }
}

fn one_field(table: &Table, field: &Field, map: &Map<String, Value>, out: &mut Vec<u8>, depth: usize) {
    if let (Shape::Embedded, Kind::Message(inner)) = (field.shape, field.kind) {
        let mut embedded = Vec::new();
        if let Some(message) = table.message(inner) {
            for field in &message.fields {
                one_field(table, field, map, &mut embedded, depth + 1);
            }
        }
        if !embedded.is_empty() {
            bytes(out, field.number, &embedded);
        }
        return;
    }
    let Some(value) = map.get(&field.json).filter(|v| !v.is_null()) else { return };
    match (field.shape, value) {
        (Shape::Repeated, Value::Array(items)) => {
            for item in items {
                scalar_or_message(table, field.number, field.kind, item, out, depth);
            }
        }
        (Shape::Map, Value::Object(entries)) => {
            for (key, value) in entries {
                let mut entry = Vec::new();
                bytes(&mut entry, 1, key.as_bytes());
                scalar_or_message(table, 2, field.kind, value, &mut entry, depth);
                bytes(out, field.number, &entry);
            }
        }
        (Shape::Single, value) => scalar_or_message(table, field.number, field.kind, value, out, depth),
        _ => {}
    }
}

fn scalar_or_message(table: &Table, number: u32, kind: Kind, value: &Value, out: &mut Vec<u8>, depth: usize) {
    match kind {
        Kind::String => bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Kind::Bytes => {
            let decoded = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default();
            bytes(out, number, &decoded);
        }
        Kind::Bool => {
            tag(out, number, 0);
            varint(out, u64::from(value.as_bool().unwrap_or_default()));
        }
        Kind::Int => {
            tag(out, number, 0);
            varint(out, int(value));
        }
        Kind::Double => {
            tag(out, number, 1);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_bits().to_le_bytes());
        }
        Kind::Message(inner) => {
            let mut encoded = Vec::new();
            body(table, inner, value, &mut encoded, depth + 1);
            bytes(out, number, &encoded);
        }
    }
}

/// An integer as a varint carries it: negative ones as two's complement.
#[allow(clippy::cast_sign_loss, reason = "varints carry negative numbers as two's complement")]
fn int(value: &Value) -> u64 {
    value.as_i64().unwrap_or_default() as u64
}

fn time(value: &Value, out: &mut Vec<u8>) {
    let Some(time) = value.as_str().and_then(|t| t.parse::<Timestamp>().ok()) else { return };
    tag(out, 1, 0);
    varint(out, int(&Value::from(time.as_second())));
    tag(out, 2, 0);
    varint(out, int(&Value::from(time.subsec_nanosecond())));
}
