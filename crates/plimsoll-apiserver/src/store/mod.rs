//! The store: every object in memory, every change in a journal, every change visible to watches.
//!
//! One global revision counts all changes. A change is acknowledged when it is durable (group commit).
//! Objects are kept as encoded JSON; what selectors need is kept beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

/// Where an object lives. `resource` is `Kind::storage` (`group/plural`); namespace is empty for cluster scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// `group/plural`.
    pub resource: Arc<str>,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// One version of one object.
#[derive(Clone, Debug)]
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
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It was removed; the record holds its last state at the revision of the removal.
    Deleted,
}

/// One change, as watches see it.
#[derive(Clone, Debug)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// State after the change (before it, for `Deleted`), at the revision of the change.
    pub record: Arc<Record>,
    /// State before the change, for selectors that it entered or left.
    pub previous: Option<Arc<Record>>,
}
