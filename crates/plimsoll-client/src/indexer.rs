//! The parsed objects of a resource and their indexes, kept current once for all its informers
//! (client-go's shared Indexer). It reads a source in this process, which neither fails nor waits: what is missed is listed
//! again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_api::watch::{Change, Gone, Known};

use crate::reader::{ObjectWatch, Reader, StoredObject};

/// Index of an object: things with the same one are found together.
pub type IndexFn<T> = fn(&T) -> Option<String>;

/// Reads an object as a `T`; `None`: it is none.
pub type Decode<T> = fn(&dyn StoredObject) -> Option<T>;

/// Deltas that wait for a listener before those of the same object are merged.
const MERGE_AT: usize = 4096;

/// The objects of one resource as `T`.
pub(crate) struct Indexer<T> {
    reader: Arc<dyn Reader>,
    resource: Arc<str>,
    decode: Decode<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    watch: Box<dyn ObjectWatch>,
    /// Nothing has been read yet.
    fresh: bool,
    items: Known<Arc<T>>,
    indexes: Vec<Index<T>>,
    /// By number; `None`: gone.
    listeners: Vec<Option<Listener<T>>>,
}

struct Index<T> {
    of: IndexFn<T>,
    paths: HashMap<String, BTreeSet<Arc<str>>>,
}

/// Deltas that one informer has not been given yet (client-go's `processorListener`).
struct Listener<T> {
    /// It has been given nothing so far.
    fresh: bool,
    waiting: Vec<Delta<T>>,
    /// At this many they are merged.
    limit: usize,
}

/// An object before and after.
pub(crate) struct Delta<T> {
    /// `namespace/name`.
    pub path: Arc<str>,
    /// Before; `None`: it wasn't there.
    pub old: Option<Arc<T>>,
    /// After; `None`: it is gone.
    pub new: Option<Arc<T>>,
}

impl<T> Clone for Delta<T> {
    fn clone(&self) -> Self {
        Self { path: Arc::clone(&self.path), old: self.old.clone(), new: self.new.clone() }
    }
}

impl<T> Indexer<T> {
    pub fn new(reader: &Arc<dyn Reader>, resource: &Arc<str>, decode: Decode<T>) -> Self {
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
    pub fn index(&self, of: IndexFn<T>) -> usize {
        let mut state = self.lock();
        // Functions with the same code may be one or several: either is right.
        if let Some(at) = state.indexes.iter().position(|i| std::ptr::fn_addr_eq(i.of, of)) {
            return at;
        }
        let mut index = Index { of, paths: HashMap::new() };
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
    pub fn refresh(&self, listener: usize) -> Vec<Delta<T>> {
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

    fn apply_changes(&self, state: &mut State<T>) {
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

    fn relist(&self, state: &mut State<T>) {
        let (list, watch) = self.reader.list_and_watch(&self.resource);
        state.watch = watch;
        state.items.begin_list();
        list.iter().for_each(|object| self.upsert(state, &**object));
        for gone in state.items.end_list() {
            state.end(gone);
        }
    }

    fn upsert(&self, state: &mut State<T>, object: &dyn StoredObject) {
        let path = object.key().path();
        match (self.decode)(object) {
            Some(new) => state.upsert(&path, object.uid(), Arc::new(new)),
            None => state.delete(&path),
        }
    }

    pub fn get(&self, path: &str) -> Option<Arc<T>> {
        self.lock().items.get(path).cloned()
    }

    /// Objects that an index finds, in order of their paths.
    pub fn indexed(&self, index: usize, wanted: &str) -> Vec<Arc<T>> {
        let state = self.lock();
        let paths = state.indexes.get(index).and_then(|i| i.paths.get(wanted)).into_iter().flatten();
        paths.filter_map(|path| state.items.get(path).cloned()).collect()
    }

    /// Visits objects whose paths have this prefix, in order, until `look` returns false.
    pub fn each(&self, prefix: &str, mut look: impl FnMut(&Arc<T>) -> bool) {
        let state = self.lock();
        for (_, item) in state.items.with_prefix(prefix) {
            if !look(item) {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn upsert(&mut self, path: &str, uid: &str, new: Arc<T>) {
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

    fn end(&mut self, Gone { path, value, .. }: Gone<Arc<T>>) {
        self.tell(&Delta { path, old: Some(value), new: None });
    }

    fn tell(&mut self, delta: &Delta<T>) {
        for index in &mut self.indexes {
            index.change(&delta.path, delta.old.as_deref(), delta.new.as_deref());
        }
        for listener in self.listeners.iter_mut().flatten().filter(|r| !r.fresh) {
            listener.tell(delta);
        }
    }
}

impl<T> Index<T> {
    fn change(&mut self, path: &Arc<str>, old: Option<&T>, new: Option<&T>) {
        let (old, new) = (old.and_then(self.of), new.and_then(self.of));
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

impl<T> Listener<T> {
    fn tell(&mut self, delta: &Delta<T>) {
        self.waiting.push(delta.clone());
        if self.waiting.len() >= self.limit {
            merge(&mut self.waiting);
            self.limit = MERGE_AT.max(self.waiting.len() * 2);
        }
    }
}

/// Merges consecutive deltas of the same object.
fn merge<T>(waiting: &mut Vec<Delta<T>>) {
    let keep = lasting(waiting.iter().map(|delta| (&*delta.path, delta.new.is_none())));
    // What was before the states that are left out.
    let mut before: HashMap<Arc<str>, Option<Arc<T>>> = HashMap::new();
    let mut joined: Vec<Delta<T>> = Vec::new();
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
