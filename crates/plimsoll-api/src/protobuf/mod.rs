//! Pods and Nodes in Kubernetes' protobuf encoding, which costs an API server and its clients less than JSON does
//! (`application/vnd.kubernetes.protobuf`, https://kubernetes.io/docs/reference/using-api/api-concepts/).
//!
//! The wire shapes are those of JSON ([`crate::lean`]): this is a serde deserializer that gives fields their JSON names
//! ([`schema`]). Fields that are not read are skipped. An empty string stands for an absent field, because the encoding
//! writes every field that is no pointer in Go.

mod de;
mod schema;
#[cfg(test)]
mod tests;
mod wire;

use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Error;

pub(crate) use schema::{Message, NODE, POD};
use wire::{Reader, Wire};

type Result<T> = std::result::Result<T, Error>;

/// What an encoded object of its own begins with; items of lists have nothing before them.
const MAGIC: &[u8] = b"k8s\0";

/// Whether an object is protobuf, not JSON. No message begins as JSON does: that would be the start of a group.
pub fn is_protobuf(object: &[u8]) -> bool {
    object.first().is_some_and(|first| *first != b'{')
}

/// Whether an answer is protobuf, not JSON.
pub fn is_envelope(answer: &[u8]) -> bool {
    answer.starts_with(MAGIC)
}

/// A page of a list.
#[derive(Debug, Default)]
pub struct List<'a> {
    /// Version of the list.
    pub resource_version: &'a str,
    /// Token of the next page; empty when this is the last one.
    pub next: &'a str,
    /// The objects, without kind and version.
    pub items: Vec<&'a [u8]>,
}

/// Reads a page of a list.
///
/// # Errors
/// When it is not an encoded list.
pub fn list(bytes: &[u8]) -> Result<List<'_>> {
    let mut list = List::default();
    let mut fields = Reader(raw(bytes)?);
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Wire::Bytes(metadata)) => {
                (list.resource_version, list.next) = (text(metadata, 2)?, text(metadata, 3)?);
            }
            (2, Wire::Bytes(item)) => list.items.push(item),
            _ => {}
        }
    }
    Ok(list)
}

/// Type and object of an event of a watch (`meta.v1.WatchEvent`), the object without what stands around it.
///
/// # Errors
/// When it is not an encoded event.
pub fn event(frame: &[u8]) -> Result<(&str, &[u8])> {
    Ok((text(frame, 1)?, raw(bytes(bytes(frame, 2)?, 1)?)?))
}

/// What `T` reads of an object's `metadata`.
///
/// # Errors
/// When it is not an encoded object.
pub fn metadata<'a, T: Deserialize<'a>>(object: &'a [u8]) -> Result<T> {
    from_slice(&schema::OBJECT, object)
}

/// A copy of an object without `metadata.managedFields`, which is often the larger part of it.
///
/// # Errors
/// When it is not an encoded object.
pub fn without_managed_fields(object: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(object.len());
    let mut fields = Reader(object);
    while let Some((field, (number, value))) = fields.next_with_bytes()? {
        match (number, value) {
            (1, Wire::Bytes(metadata)) => {
                let mut kept = Vec::with_capacity(metadata.len());
                let mut fields = Reader(metadata);
                while let Some((field, (number, _))) = fields.next_with_bytes()? {
                    if number != 17 {
                        kept.extend_from_slice(field);
                    }
                }
                out.push(1 << 3 | 2);
                wire::put_varint(&mut out, kept.len());
                out.extend(kept);
            }
            _ => out.extend_from_slice(field),
        }
    }
    Ok(out)
}

/// Code and message of a `meta.v1.Status`.
///
/// # Errors
/// When it is not an encoded one.
pub fn status(object: &[u8]) -> Result<(u16, &str)> {
    let mut fields = Reader(object);
    let mut code = 0;
    while let Some((number, value)) = fields.next()? {
        if let (6, Wire::Number(n)) = (number, value) {
            code = u16::try_from(n).unwrap_or_default();
        }
    }
    Ok((code, text(object, 3)?))
}

/// Code and message of an answer that is a `meta.v1.Status`.
///
/// # Errors
/// When it is not an encoded one.
pub fn error(answer: &[u8]) -> Result<(u16, &str)> {
    status(raw(answer)?)
}

/// Reads a message.
pub(crate) fn from_slice<'a, T: Deserialize<'a>>(message: &'static Message, bytes: &'a [u8]) -> Result<T> {
    T::deserialize(de::Value::message(message, bytes))
}

/// The object in its envelope (`runtime.Unknown`).
fn raw(encoded: &[u8]) -> Result<&[u8]> {
    match encoded.strip_prefix(MAGIC) {
        Some(unknown) => bytes(unknown, 2),
        None => Err(Error::custom("not Kubernetes' protobuf")),
    }
}

/// The last value of a field of bytes; empty when it is not there.
fn bytes(message: &[u8], wanted: u32) -> Result<&[u8]> {
    let (mut fields, mut found) = (Reader(message), &[][..]);
    while let Some((number, value)) = fields.next()? {
        if let (true, Wire::Bytes(value)) = (number == wanted, value) {
            found = value;
        }
    }
    Ok(found)
}

fn text(message: &[u8], wanted: u32) -> Result<&str> {
    std::str::from_utf8(bytes(message, wanted)?).map_err(Error::custom)
}
