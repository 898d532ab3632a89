//! Protobuf bodies of built-in kinds: the envelope, and messages to and from JSON values.
//!
//! Field numbers come from a generated table (`cargo xtask protobuf`); fields it doesn't know are skipped when
//! reading and left out when writing.

mod read;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod wire;
mod write;

use plimsoll_state::collect::InsertEach as _;
use serde_json::{Map, Value};

use crate::builtin;
use crate::decode;
use crate::error::ApiError;
use crate::gvk::Gvk;
use crate::kinds::Kind;
use table::{TABLE, Table};

/// Media type of protobuf bodies.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The first bytes of an object's encoding.
const MAGIC: &[u8] = b"k8s\0";

/// The error for a body without the prefix of messages.
pub const NO_MESSAGE: &str =
    "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";

/// Reads a request body: an object in its envelope, in the form its kind has in JSON.
///
/// # Errors
/// 400 when the bytes are malformed or the kind is unknown.
pub fn decode_body(body: &[u8]) -> Result<Value, ApiError> {
    let Some(envelope) = body.strip_prefix(MAGIC) else {
        return Err(ApiError::bad_request(NO_MESSAGE));
    };
    let unknown = read::envelope(envelope).map_err(ApiError::bad_request)?;
    let mut object = match unknown.content_type.as_str() {
        "" | CONTENT_TYPE => decode_message(&unknown.gvk, &unknown.raw)?,
        "application/json" => serde_json::from_slice(&unknown.raw).map_err(|e| {
            ApiError::bad_request(format!("couldn't get version/kind; json parse error: {e}"))
        })?,
        other => return Err(ApiError::bad_request(format!("unsupported content type {other:?}"))),
    };
    if let Value::Object(map) = &mut object {
        map.insert("apiVersion".to_owned(), Value::from(unknown.gvk.api_version()));
        map.insert("kind".to_owned(), Value::from(unknown.gvk.kind.as_str()));
    }
    Ok(object)
}

/// Reads a message of a kind, without an envelope.
fn decode_message(gvk: &Gvk, raw: &[u8]) -> Result<Value, ApiError> {
    let table = &*TABLE;
    let Some(message) = message_of(table, gvk) else {
        return Err(ApiError::bad_request(format!(
            "no kind \"{}\" is registered for version \"{}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
            gvk.kind,
            gvk.api_version()
        )));
    };
    let object = read::object(table, message, raw).map_err(ApiError::bad_request)?;
    match builtin::definition(gvk) {
        Some(schema) => {
            let kind = Kind { gvk: gvk.clone(), schema: Some(schema), ..Kind::default() };
            decode::conform(&kind, Value::Object(object)).map(|c| c.object).map_err(ApiError::bad_request)
        }
        // Without a schema, explicit zeros can't be told from missing fields.
        None => Ok(Value::Object(without_zeros(object))),
    }
}

fn without_zeros(map: Map<String, Value>) -> Map<String, Value> {
    let keep = |v: &Value| match v {
        Value::Null | Value::Bool(false) => false,
        Value::String(s) => !s.is_empty(),
        Value::Number(n) => n.as_f64() != Some(0.0),
        Value::Array(a) => !a.is_empty(),
        _ => true,
    };
    let inner = |v: Value| match v {
        Value::Object(map) => Value::Object(without_zeros(map)),
        Value::Array(list) => list
            .into_iter()
            .map(|v| if let Value::Object(m) = v { Value::Object(without_zeros(m)) } else { v })
            .collect(),
        other => other,
    };
    map.into_iter().map(|(k, v)| (k, inner(v))).filter(|(_, v)| keep(v)).insert_each()
}

/// Whether objects of a kind can be written as protobuf.
pub fn supports(gvk: &Gvk) -> bool {
    message_of(&TABLE, gvk).is_some()
}

/// Writes an object (or list, or `Status`) in its envelope. `None` for kinds without protobuf form.
pub fn encode(gvk: &Gvk, object: &Value) -> Option<Vec<u8>> {
    let raw = encode_message(gvk, object)?;
    let mut out = Vec::with_capacity(raw.len() + 64);
    out.extend_from_slice(MAGIC);
    write::envelope(&mut out, gvk, &raw);
    Some(out)
}

/// Writes an object without an envelope. `None` for kinds without protobuf form.
pub fn encode_message(gvk: &Gvk, object: &Value) -> Option<Vec<u8>> {
    let table = &*TABLE;
    Some(write::message(table, message_of(table, gvk)?, object))
}

/// A list that is written in pieces: the bytes of a message's fields one after the other are the message.
#[derive(Clone, Debug)]
pub struct ListWriter {
    gvk: Gvk,
    message: usize,
}

impl ListWriter {
    /// For lists of a kind (`PodList`). `None` for kinds without protobuf form.
    pub fn new(gvk: Gvk) -> Option<Self> {
        let message = message_of(&TABLE, &gvk)?;
        Some(Self { gvk, message })
    }

    /// The fields of one piece: a list with its metadata, or with some of its items.
    pub fn piece(&self, list: &Value) -> Vec<u8> {
        write::message(&TABLE, self.message, list)
    }

    /// The bytes before and after the pieces, which have so many bytes together.
    pub fn envelope(&self, pieces: usize) -> (Vec<u8>, Vec<u8>) {
        let mut head = MAGIC.to_vec();
        let tail = write::envelope_around(&mut head, &self.gvk, pieces);
        (head, tail)
    }
}

/// Writes a watch event around an encoded object. Streams put [`frame`]s of these one after the other.
pub fn watch_event(kind: &str, object: &[u8]) -> Vec<u8> {
    write::watch_event(kind, object)
}

/// A message with its length before it, as streams carry it.
pub fn frame(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(message.len() + 4);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// The message of a kind.
fn message_of(table: &Table, gvk: &Gvk) -> Option<usize> {
    let defined = builtin::definition(gvk).and_then(|s| table.named(s.schema().name.as_deref()?));
    if defined.is_some() {
        return defined;
    }
    let short = match gvk.group.split('.').next() {
        None | Some("") => "core",
        Some(head) => head,
    };
    let own = format!("io.k8s.api.{short}.{}.{}", gvk.version, gvk.kind);
    // Options, lists of unknown kinds and statuses have the version of the objects that they belong to.
    let meta = format!("io.k8s.apimachinery.pkg.apis.meta.v1.{}", gvk.kind);
    table.named(&own).or_else(|| table.named(&meta).filter(|_| TRAVELLING.contains(&gvk.kind.as_str())))
}

/// Kinds of meta/v1 that are sent under other versions.
const TRAVELLING: &[&str] = &[
    "Status",
    "WatchEvent",
    "DeleteOptions",
    "PartialObjectMetadata",
    "PartialObjectMetadataList",
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
];
