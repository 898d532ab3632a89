//! Documents in the binary form that Go's clients ask for: gnostic's messages, written from the JSON document by
//! tables of their fields.

mod v2;
mod v3;

use serde_json::{Map, Value};

pub use self::v2::v2;
pub use self::v3::v3;
use crate::proto::wire;

/// The type of a field.
#[derive(Clone, Copy)]
enum Is {
    Text,
    Texts,
    Flag,
    Integer,
    Number,
    /// Anything, as YAML (JSON is YAML).
    Any,
    Anys,
    One(&'static Message),
    Many(&'static Message),
    /// A message whose field 1 has an entry (name, value) for each member.
    Named(&'static Message),
    /// Like `Named`, with lists of strings as values, once for each object of a list.
    Requirements,
    /// A message with the texts in field 1; one text is a list of one.
    Types,
    /// A message with the schemas in field 1; one schema is a list of one.
    Items(&'static Message),
    /// Schema or boolean.
    SchemaOrFlag(&'static Message),
    /// A message with one of number, boolean and text; nothing for others.
    Scalar,
}

/// The fields of a message, by number, and the number of its extensions (`x-…`); 0: none.
struct Message {
    fields: &'static [(&'static str, u32, Is)],
    extensions: u32,
    shape: Shape,
}

/// The encoding of an object as a message.
#[derive(Clone, Copy)]
enum Shape {
    /// Field by field.
    Plain,
    /// All members but extensions are entries (name, value) of this field.
    Entries(u32, &'static Message),
    /// One of several messages, depending on the object.
    Choice(Choose),
}

const fn plain(fields: &'static [(&'static str, u32, Is)], extensions: u32) -> Message {
    Message { fields, extensions, shape: Shape::Plain }
}

/// Schemas in schemas, deeper than any document has them.
const MAX_DEPTH: usize = 64;

type Choose = fn(&Map<String, Value>) -> (&'static [u32], &'static Message);

const fn choice(choose: Choose) -> Message {
    Message { fields: &[], extensions: 0, shape: Shape::Choice(choose) }
}

fn encode(of: &Message, document: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    message(&mut out, of, document, 0);
    out
}

fn message(out: &mut Vec<u8>, message: &Message, value: &Value, depth: usize) {
    let Some(object) = value.as_object().filter(|_| depth < MAX_DEPTH) else { return };
    match message.shape {
        Shape::Plain => {
            for (name, number, is) in message.fields {
                if let Some(value) = object.get(*name) {
                    field(out, *number, *is, value, depth + 1);
                }
            }
        }
        Shape::Entries(number, of) => {
            for (name, value) in object.iter().filter(|(name, _)| !name.starts_with("x-")) {
                entry(out, number, name, |out| self::message(out, of, value, depth + 1));
            }
        }
        Shape::Choice(choose) => {
            let (path, of) = choose(object);
            nested(out, path, |out| self::message(out, of, value, depth + 1));
        }
    }
    if message.extensions != 0 {
        for (name, value) in object.iter().filter(|(name, _)| name.starts_with("x-")) {
            entry(out, message.extensions, name, |out| any(out, value));
        }
    }
}

fn field(out: &mut Vec<u8>, number: u32, is: Is, value: &Value, depth: usize) {
    let texts = || value.as_array().into_iter().flatten().filter_map(Value::as_str);
    let each = || value.as_array().into_iter().flatten();
    match is {
        Is::Text => value.as_str().into_iter().for_each(|t| wire::bytes(out, number, t.as_bytes())),
        Is::Texts => texts().for_each(|t| wire::bytes(out, number, t.as_bytes())),
        Is::Flag => flag(out, number, value),
        Is::Integer => {
            if let Some(n) = value.as_i64().filter(|n| *n != 0) {
                wire::tag(out, number, wire::VARINT);
                wire::varint(out, n.cast_unsigned());
            }
        }
        Is::Number => {
            if let Some(n) = value.as_f64().filter(|n| *n != 0.0) {
                chosen_number(out, number, n);
            }
        }
        Is::Scalar if value.is_object() || value.is_array() => {}
        Is::Scalar => nested(out, &[number], |out| scalar(out, value)),
        Is::Any => nested(out, &[number], |out| any(out, value)),
        Is::Anys => each().for_each(|v| nested(out, &[number], |out| any(out, v))),
        Is::One(of) => nested(out, &[number], |out| message(out, of, value, depth)),
        Is::Many(of) => each().for_each(|v| nested(out, &[number], |out| message(out, of, v, depth))),
        Is::Named(of) => nested(out, &[number], |out| {
            for (name, value) in value.as_object().into_iter().flatten() {
                entry(out, 1, name, |out| message(out, of, value, depth));
            }
        }),
        Is::Requirements => each().filter_map(Value::as_object).for_each(|requirement| {
            nested(out, &[number], |out| {
                for (name, scopes) in requirement {
                    entry(out, 1, name, |out| field(out, 1, Is::Texts, scopes, depth));
                }
            });
        }),
        Is::Types => nested(out, &[number], |out| match value.as_str() {
            Some(one) => wire::bytes(out, 1, one.as_bytes()),
            None => field(out, 1, Is::Texts, value, depth),
        }),
        Is::Items(of) => nested(out, &[number], |out| match value {
            Value::Array(_) => field(out, 1, Is::Many(of), value, depth),
            _ => field(out, 1, Is::One(of), value, depth),
        }),
        Is::SchemaOrFlag(of) => nested(out, &[number], |out| match value {
            Value::Bool(flag) => chosen_flag(out, 2, *flag),
            _ => field(out, 1, Is::One(of), value, depth),
        }),
    }
}

fn flag(out: &mut Vec<u8>, number: u32, value: &Value) {
    if value == true {
        chosen_flag(out, number, true);
    }
}

/// One of several fields, so that false is written as well.
fn chosen_flag(out: &mut Vec<u8>, number: u32, flag: bool) {
    wire::tag(out, number, wire::VARINT);
    wire::varint(out, u64::from(flag));
}

fn chosen_number(out: &mut Vec<u8>, number: u32, value: f64) {
    wire::tag(out, number, wire::FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn scalar(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Number(n) => chosen_number(out, 1, n.as_f64().unwrap_or_default()),
        Value::Bool(flag) => chosen_flag(out, 2, *flag),
        Value::String(text) => wire::bytes(out, 3, text.as_bytes()),
        _ => {}
    }
}

/// A message in messages: the numbers from the outermost on.
fn nested(out: &mut Vec<u8>, path: &[u32], write: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    write(&mut body);
    for number in path.iter().rev() {
        let mut outer = Vec::with_capacity(body.len() + 8);
        wire::bytes(&mut outer, *number, &body);
        body = outer;
    }
    out.extend_from_slice(&body);
}

/// `{name = 1, value = 2}`.
fn entry(out: &mut Vec<u8>, number: u32, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
    nested(out, &[number], |out| {
        wire::bytes(out, 1, name.as_bytes());
        nested(out, &[2], write);
    });
}

fn any(out: &mut Vec<u8>, value: &Value) {
    let mut yaml = value.to_string();
    yaml.push('\n');
    wire::bytes(out, 2, yaml.as_bytes());
}
