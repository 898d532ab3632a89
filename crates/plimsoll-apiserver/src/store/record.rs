//! Records: objects as the store keeps them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use plimsoll_apimachinery::Key;
use serde::Deserialize;

/// One version of one object.
#[derive(Clone)]
pub struct Record {
    /// Where it lives.
    pub key: Key,
    /// Revision of the write that made it: its `resourceVersion`.
    pub revision: u64,
    /// `metadata.uid`.
    pub uid: String,
    /// Labels, for selectors.
    pub labels: BTreeMap<String, String>,
    /// The object as JSON, `metadata.resourceVersion` included.
    pub json: Bytes,
    /// Where in `json` the digits of the resource version begin.
    pub(super) stamp: usize,
    /// What the object is known to conform to.
    pub(super) fit: Fit,
}

/// Without the object, which may be a Secret.
impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key, revision, uid, .. } = self;
        f.debug_struct("Record")
            .field("key", key)
            .field("revision", revision)
            .field("uid", uid)
            .finish_non_exhaustive()
    }
}

/// Fingerprint of the schema that an object is known to conform to as it is; 0: none.
#[derive(Debug, Default)]
pub(super) struct Fit(AtomicU64);

impl Clone for Fit {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// The parts of an object that a record keeps beside the JSON.
#[derive(Deserialize)]
struct Lean {
    metadata: LeanMeta,
}

#[derive(Deserialize)]
struct LeanMeta {
    #[serde(default)]
    uid: Option<String>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

impl Record {
    /// A record from its JSON, as the journal keeps it.
    pub(super) fn decode(key: Key, revision: u64, stamp: usize, json: Bytes) -> Result<Self, String> {
        let lean: Lean = serde_json::from_slice(&json).map_err(|e| format!("{}: {e}", key.path()))?;
        let end = stamp.saturating_add(digits(revision));
        if json.get(stamp..end) != Some(revision.to_string().as_bytes()) {
            return Err(format!("{}: no revision {revision} at {stamp}", key.path()));
        }
        let LeanMeta { uid, labels } = lean.metadata;
        let (uid, labels) = (uid.unwrap_or_default(), labels.unwrap_or_default());
        Ok(Self { key, revision, uid, labels, json, stamp, fit: Fit::default() })
    }

    /// Whether the object is known to be what a schema makes of it: pruning and defaults would change nothing.
    pub fn fits(&self, fingerprint: u64) -> bool {
        fingerprint != 0 && self.fit.0.load(Ordering::Relaxed) == fingerprint
    }

    /// Remembers that the object is what a schema makes of it.
    pub fn set_fits(&self, fingerprint: u64) {
        self.fit.0.store(fingerprint, Ordering::Relaxed);
    }

    /// What it costs to keep, roughly, in bytes.
    pub fn weight(&self) -> usize {
        let labels: usize = self.labels.iter().map(|(k, v)| k.len() + v.len() + 48).sum();
        size_of::<Self>() + self.json.len() + self.key.namespace.len() + self.key.name.len() + labels
    }

    /// The same object with another resource version.
    pub fn restamped(&self, revision: u64) -> Self {
        let end = self.stamp + digits(self.revision);
        let mut json = Vec::with_capacity(self.json.len() + 4);
        json.extend_from_slice(self.json.get(..self.stamp).unwrap_or_default());
        json.extend_from_slice(revision.to_string().as_bytes());
        json.extend_from_slice(self.json.get(end..).unwrap_or_default());
        Self {
            key: self.key.clone(),
            revision,
            uid: self.uid.clone(),
            labels: self.labels.clone(),
            json: json.into(),
            stamp: self.stamp,
            fit: self.fit.clone(),
        }
    }
}

/// Number of decimal digits.
pub(super) const fn digits(n: u64) -> usize {
    match n.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}
