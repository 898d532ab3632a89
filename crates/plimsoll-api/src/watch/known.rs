//! What a client has seen of a resource.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Bound;
use std::sync::Arc;

/// Objects of one resource as lists and watch events have shown them, by path: `namespace/name`, or the name alone for
/// cluster scope. `V` is what is kept of each.
///
/// A list shows what is gone by what it lacks, and neither a list nor an event says that an object was deleted and created
/// again between two looks: its UID does. So every deletion is reported exactly once, whatever a broken watch has missed
/// (client-go's `DeltaFIFO.Replace`, which leaves the comparison of UIDs to handlers).
#[derive(Debug)]
pub struct Known<V> {
    objects: BTreeMap<Arc<str>, Entry<V>>,
    /// Number of the last list.
    list: u64,
}

#[derive(Debug)]
struct Entry<V> {
    uid: Box<str>,
    /// The last list when the object was seen last.
    list: u64,
    value: V,
}

/// An object that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone<V> {
    /// Its path.
    pub path: Arc<str>,
    /// Its UID.
    pub uid: Box<str>,
    /// What was kept of it.
    pub value: V,
}

/// What [`Known::upsert`] has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<V> {
    /// The object was not known.
    Added,
    /// The object was known.
    Modified(V),
    /// Another object of this name was known, which is gone.
    Replaced(Gone<V>),
}

impl<V> Default for Known<V> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), list: 0 }
    }
}

impl<V> Known<V> {
    /// Begins a list. Each of its objects is for [`Known::upsert`]; a list that can't be completed is begun anew.
    pub const fn begin_list(&mut self) {
        self.list += 1;
    }

    /// The list is complete: forgets what it lacks, and returns that in order of paths.
    pub fn end_list(&mut self) -> Vec<Gone<V>> {
        let list = self.list;
        let gone = self.objects.extract_if(.., |_, entry| entry.list != list);
        gone.map(|(path, entry)| entry.gone(path)).collect()
    }

    /// An object is there.
    pub fn upsert(&mut self, path: &str, uid: &str, value: V) -> Change<V> {
        let list = self.list;
        let Some(entry) = self.objects.get_mut(path) else {
            self.objects.insert(Arc::from(path), Entry { uid: uid.into(), list, value });
            return Change::Added;
        };
        entry.list = list;
        let value = std::mem::replace(&mut entry.value, value);
        if *entry.uid == *uid {
            return Change::Modified(value);
        }
        let uid = std::mem::replace(&mut entry.uid, uid.into());
        Change::Replaced(Gone { path: Arc::from(path), uid, value })
    }

    /// No object is there any more.
    pub fn delete(&mut self, path: &str) -> Option<Gone<V>> {
        let (path, entry) = self.objects.remove_entry(path)?;
        Some(entry.gone(path))
    }

    /// The object at a path.
    pub fn get(&self, path: &str) -> Option<&V> {
        self.objects.get(path).map(|entry| &entry.value)
    }

    /// The path of a known object, to share.
    pub fn path(&self, path: &str) -> Option<Arc<str>> {
        self.objects.get_key_value(path).map(|(path, _)| Arc::clone(path))
    }

    /// Objects whose paths begin with a prefix, in order of paths.
    pub fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = (&Arc<str>, &V)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let found = self.objects.range::<str, _>(from).take_while(move |(path, _)| path.starts_with(prefix));
        found.map(|(path, entry)| (path, &entry.value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

impl<V> Entry<V> {
    fn gone(self, path: Arc<str>) -> Gone<V> {
        Gone { path, uid: self.uid, value: self.value }
    }
}

/// Writes the path of an object into `path`, which is reused so that the path of each event needs no memory of its own.
pub fn join(path: &mut String, namespace: &str, name: &str) {
    path.clear();
    // A String takes anything.
    let _ = if namespace.is_empty() { path.write_str(name) } else { write!(path, "{namespace}/{name}") };
}

/// Namespace and name of a path; the namespace is empty for cluster scope. No name contains a slash.
pub fn split(path: &str) -> (&str, &str) {
    path.split_once('/').unwrap_or(("", path))
}
