//! Objects to and from JSON: encoded once, before the revision is known.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Key;
use super::record::{Fit, Record, digits};
use super::{StoreError, metrics};

/// An object as JSON with a hole where `metadata.resourceVersion` goes, so that the costly part of a write happens
/// outside the lock that assigns revisions.
#[derive(Clone)]
pub struct Encoded {
    head: Vec<u8>,
    tail: Vec<u8>,
    uid: String,
    labels: BTreeMap<String, String>,
}

impl Record {
    /// The object.
    ///
    /// # Errors
    /// The JSON isn't JSON (a bug, or a journal from elsewhere).
    pub fn value(&self) -> Result<serde_json::Value, StoreError> {
        plimsoll_apimachinery::decode::depth::from_stored(&self.json)
            .map_err(|e| StoreError::Corrupt(format!("{} {}: {e}", self.key.resource, self.key.path())))
    }

    /// What a conversion made of the object, in its place.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if it is no object with `metadata`.
    pub fn remade(&self, object: &serde_json::Value) -> Result<Self, StoreError> {
        Ok(Encoded::new(object)?.stamp(self.key.clone(), self.revision))
    }
}

/// Without the object, which may be a Secret.
impl std::fmt::Debug for Encoded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoded").field("uid", &self.uid).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Encoded {
    /// Encodes an object. A resource version it carries is replaced.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if it is not an object with `metadata`.
    pub fn new(object: &Value) -> Result<Self, StoreError> {
        let fields = object.as_object().ok_or_else(|| StoreError::Corrupt("not an object".to_owned()))?;
        let meta = fields.get("metadata").and_then(Value::as_object);
        let meta = meta.ok_or_else(|| StoreError::Corrupt("no metadata".to_owned()))?;
        let mut out = Vec::with_capacity(metrics::TYPICAL_OBJECT_BYTES);
        let mut hole = 0;
        write_object(&mut out, fields, |out, key, value| {
            if key == "metadata" { write_meta(out, meta, &mut hole) } else { write_value(out, value) }
        })?;
        let tail = out.split_off(hole);
        let uid = meta.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self { head: out, tail, uid, labels: labels(meta) })
    }

    /// An object in the two parts before and after the digits of its resource version.
    pub(super) const fn of(
        head: Vec<u8>,
        tail: Vec<u8>,
        uid: String,
        labels: BTreeMap<String, String>,
    ) -> Self {
        Self { head, tail, uid, labels }
    }

    /// Length of the JSON without the resource version, in bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Never: there is always an object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this is the object that a record holds, but for the revision.
    pub fn is_stored_in(&self, record: &Record) -> bool {
        let end = record.stamp + digits(record.revision);
        record.json.get(..record.stamp) == Some(&*self.head) && record.json.get(end..) == Some(&*self.tail)
    }

    /// Fills the hole.
    pub(super) fn stamp(self, key: Key, revision: u64) -> Record {
        let (stamp, version) = (self.head.len(), revision.to_string());
        // Exactly as long as it is: objects stay.
        let mut json = Vec::with_capacity(stamp + version.len() + self.tail.len());
        json.extend_from_slice(&self.head);
        json.extend_from_slice(version.as_bytes());
        json.extend_from_slice(&self.tail);
        let json = json.into();
        Record { key, revision, uid: self.uid, labels: self.labels, json, stamp, fit: Fit::default() }
    }
}

fn labels(meta: &Map<String, Value>) -> BTreeMap<String, String> {
    let labels = meta.get("labels").and_then(Value::as_object);
    let pairs = labels.into_iter().flatten();
    pairs.filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect()
}

/// Writes `metadata`, noting where the digits of the resource version go. Like in upstream's encoding it comes
/// after `uid`'s neighbours in alphabetical order.
fn write_meta(out: &mut Vec<u8>, meta: &Map<String, Value>, hole: &mut usize) -> Result<(), StoreError> {
    const FIELD: &str = "resourceVersion";
    out.push(b'{');
    let mut written = false;
    let mut first = true;
    for (key, value) in meta {
        if key == FIELD {
            continue;
        }
        if !written && key.as_str() > FIELD {
            write_hole(out, &mut first, hole);
            written = true;
        }
        write_key(out, key, &mut first)?;
        write_value(out, value)?;
    }
    if !written {
        write_hole(out, &mut first, hole);
    }
    out.push(b'}');
    Ok(())
}

fn write_hole(out: &mut Vec<u8>, first: &mut bool, hole: &mut usize) {
    if !std::mem::take(first) {
        out.push(b',');
    }
    out.extend_from_slice(b"\"resourceVersion\":\"");
    *hole = out.len();
    out.push(b'"');
}

/// `apiVersion` and `kind` come first, so that readers tell the version, and lists leave both out, without reading on.
fn write_object(
    out: &mut Vec<u8>,
    fields: &Map<String, Value>,
    mut write: impl FnMut(&mut Vec<u8>, &str, &Value) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    const FIRST: [&str; 2] = ["apiVersion", "kind"];
    out.push(b'{');
    let mut first = true;
    let head = FIRST.iter().filter_map(|key| fields.get_key_value(*key));
    let rest = fields.iter().filter(|(key, _)| !FIRST.contains(&key.as_str()));
    for (key, value) in head.chain(rest) {
        write_key(out, key, &mut first)?;
        write(out, key, value)?;
    }
    out.push(b'}');
    Ok(())
}

fn write_key(out: &mut Vec<u8>, key: &str, first: &mut bool) -> Result<(), StoreError> {
    if !std::mem::take(first) {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, key).map_err(|e| StoreError::Corrupt(e.to_string()))?;
    out.push(b':');
    Ok(())
}

fn write_value(out: &mut Vec<u8>, value: &Value) -> Result<(), StoreError> {
    serde_json::to_writer(out, value).map_err(|e| StoreError::Corrupt(e.to_string()))
}
