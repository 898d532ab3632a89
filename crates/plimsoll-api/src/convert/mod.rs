//! Wire objects → the engine's model.
//!
//! API defaults that decide something are applied here, quantities become canonical integers, and what can't
//! be understood is refused with the path of the field.

mod amount;
mod device;
mod node;
mod objects;
mod pod;
mod selector;
mod storage;

pub(crate) use device::{nanos, slice as resource_slice};
pub use node::node;
pub use objects::cluster_object;
pub use pod::{FIRST_SLICE, pod, pod_spec_from_value};
pub use selector::{label_selector_from_value, node_selector_from_value};

use plimsoll_state::Time;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::model::{OwnerRef, StringMap};

use crate::lean::meta::{Map, ObjectMeta, OwnerReference};
use crate::protobuf;

/// Why an object can't be taken in.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The bytes are neither JSON nor protobuf of the expected shape.
    #[error("cannot decode {kind}: {source}")]
    Decode {
        /// Kind that was expected.
        kind: &'static str,
        /// What the decoder said.
        source: serde_json::Error,
    },
    /// A field has a value that can't be understood.
    #[error("{field}: {message}")]
    Field {
        /// Path of the field.
        field: String,
        /// What is wrong.
        message: String,
    },
}

pub(crate) type Result<T> = std::result::Result<T, ConvertError>;

pub(crate) fn decode<'a, T: serde::Deserialize<'a>>(kind: &'static str, bytes: &'a [u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|source| ConvertError::Decode { kind, source })
}

/// As [`decode`], of bytes in either encoding.
fn decode_either<'a, T: serde::Deserialize<'a>>(
    kind: &'static str,
    message: &'static protobuf::Message,
    bytes: &'a [u8],
) -> Result<T> {
    if protobuf::is_protobuf(bytes) {
        return protobuf::from_slice(message, bytes).map_err(|source| ConvertError::Decode { kind, source });
    }
    decode(kind, bytes)
}

pub(crate) fn decode_value<T: serde::de::DeserializeOwned>(
    kind: &'static str,
    value: &serde_json::Value,
) -> Result<T> {
    T::deserialize(value).map_err(|source| ConvertError::Decode { kind, source })
}

pub(crate) fn bad<T>(field: impl Into<String>, message: impl Into<String>) -> Result<T> {
    Err(ConvertError::Field { field: field.into(), message: message.into() })
}

pub(crate) fn required(field: &str, value: Option<String>) -> Result<String> {
    match value {
        Some(v) if !v.is_empty() => Ok(v),
        _ => bad(field, "Required value"),
    }
}

/// A string map; `null` values read as empty strings, as Go's decoder does.
pub(crate) fn string_map(map: Map<Option<String>>) -> StringMap {
    map.unwrap_or_default().into_iter().map(|(k, v)| (k, v.unwrap_or_default())).insert_each()
}

pub(crate) fn time(field: &str, text: &str) -> Result<Time> {
    match text.parse::<jiff::Timestamp>() {
        Ok(t) => Ok(Time(i64::try_from(t.as_nanosecond()).unwrap_or(i64::MAX))),
        Err(e) => bad(field, format!("cannot parse {text:?} as a time: {e}")),
    }
}

pub(crate) fn optional_time(field: &str, text: Option<String>) -> Result<Option<Time>> {
    text.map(|t| time(field, &t)).transpose()
}

fn names(meta: ObjectMeta) -> Result<(String, String)> {
    let namespace = meta.namespace.unwrap_or_else(|| "default".to_owned());
    Ok((namespace, required("metadata.name", meta.name)?))
}

pub(crate) fn owners(list: Option<Vec<OwnerReference>>) -> Vec<OwnerRef> {
    let one = |o: OwnerReference| OwnerRef {
        api_version: o.api_version.unwrap_or_default(),
        kind: o.kind.unwrap_or_default(),
        name: o.name.unwrap_or_default(),
        uid: o.uid.unwrap_or_default(),
        controller: o.controller.unwrap_or(false),
    };
    list.unwrap_or_default().into_iter().map(one).collect()
}

pub(crate) fn taint_from_value(value: &serde_json::Value) -> Result<plimsoll_state::model::Taint> {
    node::taint(decode_value("Taint", value)?)
}

pub(crate) fn toleration_from_value(value: &serde_json::Value) -> Result<plimsoll_state::model::Toleration> {
    pod::toleration(decode_value("Toleration", value)?)
}

#[cfg(test)]
mod tests;
