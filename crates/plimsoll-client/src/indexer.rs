//! The parsed objects of a resource and their indexes, kept current once for all its informers
//! (client-go's shared Indexer). It reads a source in this process, which neither fails nor waits: what is missed is listed
//! again.
//!
//! It knows nothing of the type that objects are parsed as, so that it is compiled once and not for each of them.

use std::any::Any;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_api::watch::{Change, Gone, Known};

use crate::reader::{ObjectWatch, Reader, StoredObject};

/// A parsed object.
pub(crate) type Item = Arc<dyn Any + Send + Sync>;

/// Reads an object; `None`: it is none of these.
pub(crate) type DecodeItem = Box<dyn Fn(&dyn StoredObject) -> Option<Item> + Send + Sync>;

/// Finds the index of an object.
pub(crate) type FindIndex = Box<dyn Fn(&Item) -> Option<String> + Send + Sync>;

/// Index of an object: those with the same one are found together.
pub(crate) struct IndexOf {
    /// Tells functions apart.
    pub id: usize,
    /// The function.
    pub of: FindIndex,
}

/// Deltas that wait for a listener before those of the same object are merged.
const MERGE_AT: usize = 4096;

/// The parsed objects of one resource.
pub(crate) struct Indexer {
    reader: Arc<dyn Reader>,
    resource: Arc<str>,
    decode: DecodeItem,
    state: Mutex<State>,
}

struct State {
    watch: Box<dyn ObjectWatch>,
    /// Nothing has been read yet.
    fresh: bool,
    items: Known<Item>,
    indexes: Vec<Index>,
    /// By number; `None`: gone.
    listeners: Vec<Option<Listener>>,
}

struct Index {
    function: IndexOf,
    paths: HashMap<String, BTreeSet<Arc<str>>>,
}

/// Deltas that one informer has not been given yet (client-go's `processorListener`).
struct Listener {
    /// It has been given nothing so far.
    fresh: bool,
    waiting: Vec<Delta>,
    /// At this many they are merged.
    limit: usize,
}

/// An object before and after.
#[derive(Clone)]
pub(crate) struct Delta {
    /// `namespace/name`.
    pub path: Arc<str>,
    /// Before; `None`: it wasn't there.
    pub old: Option<Item>,
    /// After; `None`: it is gone.
    pub new: Option<Item>,
}

impl Indexer {
    pub fn new(reader: &Arc<dyn Reader>, resource: &Arc<str>, decode: DecodeItem) -> Self {
        let (_, watch) = reader.list_and_watch(resource);
        let (items, indexes, listeners) = (Known::default(), Vec::new(), Vec::new());
        let state = State { watch, fresh: true, items, indexes, listeners };
        Self { reader: Arc::clone(reader), resource: Arc::clone(resource), decode, state: Mutex::new(state) }
    }

    /// Adds a listener; its number.
    pub fn join(&self) -> usize {
        let mut state = self.lock();
        let listener = Some(Listener { fresh: true, waiting: Vec::new(), limit: MERGE_AT });
        match state.listeners.iter().position(Option::is_none) {
            Some(at) => {
                state.listeners[at] = listener;
                at
            }
            None => {
                state.listeners.push(listener);
                state.listeners.len() - 1
            }
        }
    }

    /// Removes a listener.
    pub fn leave(&self, listener: usize) {
        if let Some(slot) = self.lock().listeners.get_mut(listener) {
            *slot = None;
        }
    }

    /// Makes objects findable by an index; its number.
    pub fn index(&self, function: IndexOf) -> usize {
        let mut state = self.lock();
        // Functions with the same code may be one or several: either is right.
        if let Some(at) = state.indexes.iter().position(|i| i.function.id == function.id) {
            return at;
        }
        let mut index = Index { function, paths: HashMap::new() };
        for (path, item) in state.items.with_prefix("") {
            index.change(path, None, Some(item));
        }
        state.indexes.push(index);
        state.indexes.len() - 1
    }

    pub fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        self.lock().watch.signal()
    }

    /// Handles all changes that are visible in the source; returns those that a listener has not been given.
    pub fn refresh(&self, listener: usize) -> Vec<Delta> {
        let mut state = self.lock();
        self.apply_changes(&mut state);
        let State { items, listeners, .. } = &mut *state;
        let Some(Some(listener)) = listeners.get_mut(listener) else { return Vec::new() };
        if std::mem::take(&mut listener.fresh) {
            let all = items.with_prefix("");
            return all.map(|(p, i)| Delta { path: p.clone(), old: None, new: Some(i.clone()) }).collect();
        }
        listener.limit = MERGE_AT;
        std::mem::take(&mut listener.waiting)
    }

    fn apply_changes(&self, state: &mut State) {
        if std::mem::take(&mut state.fresh) {
            self.relist(state);
        }
        let mut changes = Vec::new();
        loop {
            match state.watch.try_next() {
                Ok(Some(change)) => changes.push(change),
                Ok(None) => break,
                // The watcher fell behind the change buffer: relist.
                Err(_) => {
                    changes.clear();
                    self.relist(state);
                }
            }
        }
        // What has changed once more is not parsed.
        let keep = lasting(changes.iter().map(|c| ((c.object.key(), c.object.uid()), c.is_deleted)));
        for (change, _) in changes.iter().zip(keep).filter(|(_, keep)| *keep) {
            if change.is_deleted {
                state.delete(&change.object.key().path());
            } else {
                self.upsert(state, &*change.object);
            }
        }
    }

    fn relist(&self, state: &mut State) {
        let (list, watch) = self.reader.list_and_watch(&self.resource);
        state.watch = watch;
        state.items.begin_list();
        list.iter().for_each(|object| self.upsert(state, &**object));
        for gone in state.items.end_list() {
            state.end(gone);
        }
    }

    fn upsert(&self, state: &mut State, object: &dyn StoredObject) {
        let path = object.key().path();
        match (self.decode)(object) {
            Some(new) => state.upsert(&path, object.uid(), new),
            None => state.delete(&path),
        }
    }

    pub fn get(&self, path: &str) -> Option<Item> {
        self.lock().items.get(path).cloned()
    }

    /// Objects that an index finds, in order of their paths.
    pub fn indexed(&self, index: usize, wanted: &str) -> Vec<Item> {
        let state = self.lock();
        let paths = state.indexes.get(index).and_then(|i| i.paths.get(wanted)).into_iter().flatten();
        paths.filter_map(|path| state.items.get(path).cloned()).collect()
    }

    /// Visits objects whose paths have this prefix, in order, until `look` returns false.
    pub fn each(&self, prefix: &str, look: &mut dyn FnMut(&Item) -> bool) {
        let state = self.lock();
        for (_, item) in state.items.with_prefix(prefix) {
            if !look(item) {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn upsert(&mut self, path: &str, uid: &str, new: Item) {
        let old = match self.items.upsert(path, uid, Arc::clone(&new)) {
            Change::Added => None,
            Change::Modified(old) => Some(old),
            Change::Replaced(gone) => {
                self.end(gone);
                None
            }
        };
        let path = self.items.path(path).unwrap_or_else(|| Arc::from(path));
        self.tell(&Delta { path, old, new: Some(new) });
    }

    fn delete(&mut self, path: &str) {
        if let Some(gone) = self.items.delete(path) {
            self.end(gone);
        }
    }

    fn end(&mut self, Gone { path, value, .. }: Gone<Item>) {
        self.tell(&Delta { path, old: Some(value), new: None });
    }

    fn tell(&mut self, delta: &Delta) {
        for index in &mut self.indexes {
            index.change(&delta.path, delta.old.as_ref(), delta.new.as_ref());
        }
        for listener in self.listeners.iter_mut().flatten().filter(|r| !r.fresh) {
            listener.tell(delta);
        }
    }
}

impl Index {
    fn change(&mut self, path: &Arc<str>, old: Option<&Item>, new: Option<&Item>) {
        let (old, new) = (old.and_then(&self.function.of), new.and_then(&self.function.of));
        if old == new {
            return;
        }
        if let Some(old) = old
            && let Some(paths) = self.paths.get_mut(&old)
        {
            paths.remove(path);
            if paths.is_empty() {
                self.paths.remove(&old);
            }
        }
        if let Some(new) = new {
            self.paths.entry(new).or_default().insert(Arc::clone(path));
        }
    }
}

impl Listener {
    fn tell(&mut self, delta: &Delta) {
        self.waiting.push(delta.clone());
        if self.waiting.len() >= self.limit {
            merge(&mut self.waiting);
            self.limit = MERGE_AT.max(self.waiting.len() * 2);
        }
    }
}

/// Merges consecutive deltas of the same object.
fn merge(waiting: &mut Vec<Delta>) {
    let keep = lasting(waiting.iter().map(|delta| (&*delta.path, delta.new.is_none())));
    // What was before the states that are left out.
    let mut before: HashMap<Arc<str>, Option<Item>> = HashMap::new();
    let mut joined: Vec<Delta> = Vec::new();
    for (mut delta, keep) in waiting.drain(..).zip(keep) {
        if keep {
            if let Some(old) = before.remove(&delta.path) {
                delta.old = old;
            }
            joined.push(delta);
        } else {
            before.entry(delta.path).or_insert(delta.old);
        }
    }
    *waiting = joined;
}

/// Which of the states of objects, one after another, are to be seen: those after which the same object didn't change once
/// more. States come with whether the object is gone; its end is never left out, nor its last state before that.
fn lasting<K: Eq + Hash>(
    states: impl DoubleEndedIterator<Item = (K, bool)> + ExactSizeIterator,
) -> Vec<bool> {
    if states.len() == 1 {
        return vec![true];
    }
    let mut later: HashSet<K> = HashSet::new();
    let mut keep = Vec::with_capacity(states.len());
    for (object, gone) in states.rev() {
        keep.push(if gone {
            later.remove(&object);
            true
        } else {
            later.insert(object)
        });
    }
    keep.reverse();
    keep
}
