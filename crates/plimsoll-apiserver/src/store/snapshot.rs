//! Consistent lists.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use super::table::{self, Map};
use super::{Inner, Record, StoreError};

/// Old states kept for clients that page through them. Each costs only what changed since.
const MAX_SNAPSHOTS: usize = 32;

/// The objects of a resource (in a namespace or everywhere) at one revision. Never changes; cheap to clone and keep.
#[derive(Clone)]
pub struct Snapshot {
    /// The revision: what `metadata.resourceVersion` of the list says.
    pub revision: u64,
    map: Map,
    /// `namespace/`, or empty for all.
    prefix: String,
}

impl Snapshot {
    pub(super) fn new(revision: u64, map: Map, namespace: Option<&str>) -> Self {
        let prefix = namespace.filter(|n| !n.is_empty()).map(|n| format!("{n}/")).unwrap_or_default();
        Self { revision, map, prefix }
    }

    /// All records, in order of `namespace/name`.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.iter_from("")
    }

    /// Records whose [`Snapshot::relative_path`] is `start` or later. To continue after a record, start at its
    /// relative path with a NUL appended, as upstream's continue tokens do.
    pub fn iter_from(&self, start: &str) -> impl Iterator<Item = &Arc<Record>> {
        let from = Bound::Included(format!("{}{start}", self.prefix).into_boxed_str());
        let to = match self.prefix.strip_suffix('/') {
            // '0' is the character after '/': the end of everything that begins with the prefix.
            Some(namespace) => Bound::Excluded(format!("{namespace}0").into_boxed_str()),
            None => Bound::Unbounded,
        };
        // The map panics on an empty range, and `start` may come from a token that a client made up.
        let sound = match (&from, &to) {
            (Bound::Included(a), Bound::Excluded(b)) => a < b,
            _ => true,
        };
        sound.then(|| self.map.range::<Box<str>, _>((from, to))).into_iter().flatten().map(|(_, r)| r)
    }

    /// The path of a record below this list: its name, or `namespace/name` in a list of all namespaces.
    pub fn relative_path(&self, record: &Record) -> String {
        let path = record.key.path();
        path.strip_prefix(&self.prefix).map(str::to_owned).unwrap_or(path)
    }

    /// One record by [`Snapshot::relative_path`].
    pub fn get(&self, relative_path: &str) -> Option<&Arc<Record>> {
        self.map.get(format!("{}{relative_path}", self.prefix).as_str())
    }

    /// Number of records. Constant time for all namespaces, else proportional to the answer.
    pub fn len(&self) -> usize {
        if self.prefix.is_empty() { self.map.size() } else { self.iter().count() }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

/// Old states that were asked for lately, oldest use first.
#[derive(Default)]
pub(super) struct SnapshotCache {
    entries: VecDeque<(Arc<str>, u64, Map)>,
}

impl SnapshotCache {
    /// The state of a resource right after its change at `revision`.
    fn get(&mut self, resource: &str, revision: u64) -> Option<Map> {
        let at = self.entries.iter().position(|(r, v, _)| r.as_ref() == resource && *v == revision)?;
        let entry = self.entries.remove(at)?;
        let map = entry.2.clone();
        self.entries.push_back(entry);
        Some(map)
    }

    fn put(&mut self, resource: Arc<str>, revision: u64, map: Map) {
        self.entries.push_back((resource, revision, map));
        if self.entries.len() > MAX_SNAPSHOTS {
            self.entries.pop_front();
        }
    }

    /// Drops states older than a revision.
    pub fn retain_from(&mut self, revision: u64) {
        self.entries.retain(|(_, v, _)| *v >= revision);
    }
}

/// The state of a resource at a revision.
pub(super) fn at(
    inner: &Inner,
    resource: &str,
    namespace: Option<&str>,
    revision: u64,
) -> Result<Snapshot, StoreError> {
    let shared = inner.read();
    if revision > shared.revision {
        return Err(StoreError::TooLarge { requested: revision, current: shared.revision });
    }
    let Some((name, table)) = shared.tables.get_key_value(resource) else {
        let oldest = shared.floor.max(shared.compacted);
        return if revision < oldest {
            Err(StoreError::Expired { requested: revision, oldest })
        } else {
            Ok(Snapshot::new(revision, Map::new_sync(), namespace))
        };
    };
    let oldest = table.floor.max(shared.compacted);
    if revision < oldest {
        return Err(StoreError::Expired { requested: revision, oldest });
    }
    if revision >= table.last_revision {
        return Ok(Snapshot::new(revision, table.map.clone(), namespace));
    }
    let first_later = table.after(revision);
    // States differ only between changes, so the last change up to the revision names the state.
    let effective = match first_later.checked_sub(1).and_then(|i| table.ring.get(i)) {
        Some(change) => change.revision(),
        None => table.floor,
    };
    if let Some(map) = inner.cache().get(resource, effective) {
        return Ok(Snapshot::new(revision, map, namespace));
    }
    let later: Vec<_> = table.ring.range(first_later..).cloned().collect();
    let (name, map) = (Arc::clone(name), table.map.clone());
    drop(shared);
    let map = table::undo(map, &later);
    inner.counters.rebuilt_snapshots.add(1);
    inner.cache().put(name, effective, map.clone());
    Ok(Snapshot::new(revision, map, namespace))
}
