//! What all informers of a resource have in common: its parsed objects and their indexes, kept current once for all of
//! them (client-go's shared informers).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::store::{ChangeKind, Record, Store, Watch};

/// Index of an object: things with the same one are found together.
pub type IndexFn<T> = fn(&T) -> Option<String>;

/// Reports that wait for a reader before those about the same object are put together.
const CROWD: usize = 4096;

/// The objects of one resource as `T`.
pub(super) struct Reflector<T> {
    store: Store,
    resource: Arc<str>,
    decode: fn(&Record) -> Option<T>,
    state: Mutex<State<T>>,
}

struct State<T> {
    watch: Watch,
    /// Nothing has been read yet.
    fresh: bool,
    /// By `namespace/name`.
    items: BTreeMap<Arc<str>, Arc<T>>,
    indexes: Vec<Index<T>>,
    /// By number; `None`: gone.
    readers: Vec<Option<Reader<T>>>,
}

struct Index<T> {
    of: IndexFn<T>,
    paths: HashMap<String, BTreeSet<Arc<str>>>,
}

/// What one informer has not been told yet.
struct Reader<T> {
    /// It has been told nothing so far.
    fresh: bool,
    waiting: Vec<Delta<T>>,
    /// At this many they are put together.
    limit: usize,
}

/// An object before and after.
pub(super) struct Delta<T> {
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

impl<T> Reflector<T> {
    pub fn new(store: &Store, resource: &Arc<str>, decode: fn(&Record) -> Option<T>) -> Self {
        let (_, watch) = store.list_and_watch(resource, None);
        let (items, indexes, readers) = (BTreeMap::new(), Vec::new(), Vec::new());
        let state = State { watch, fresh: true, items, indexes, readers };
        Self { store: store.clone(), resource: Arc::clone(resource), decode, state: Mutex::new(state) }
    }

    /// A new reader, by its number.
    pub fn join(&self) -> usize {
        let mut state = self.lock();
        let reader = Some(Reader { fresh: true, waiting: Vec::new(), limit: CROWD });
        match state.readers.iter().position(Option::is_none) {
            Some(at) => {
                state.readers[at] = reader;
                at
            }
            None => {
                state.readers.push(reader);
                state.readers.len() - 1
            }
        }
    }

    /// A reader is no more.
    pub fn leave(&self, reader: usize) {
        if let Some(slot) = self.lock().readers.get_mut(reader) {
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
        for (path, item) in &state.items {
            index.change(path, None, Some(item));
        }
        state.indexes.push(index);
        state.indexes.len() - 1
    }

    pub fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        self.lock().watch.signal()
    }

    /// Takes in everything that is visible in the store, and says what a reader has not been told.
    pub fn refresh(&self, reader: usize) -> Vec<Delta<T>> {
        let mut state = self.lock();
        self.take_in(&mut state);
        let State { items, readers, .. } = &mut *state;
        let Some(Some(reader)) = readers.get_mut(reader) else { return Vec::new() };
        if std::mem::take(&mut reader.fresh) {
            let all = items.iter();
            return all.map(|(p, i)| Delta { path: p.clone(), old: None, new: Some(i.clone()) }).collect();
        }
        reader.limit = CROWD;
        std::mem::take(&mut reader.waiting)
    }

    fn take_in(&self, state: &mut State<T>) {
        if std::mem::take(&mut state.fresh) {
            self.relist(state);
        }
        let mut changes = Vec::new();
        loop {
            match state.watch.try_next() {
                Ok(Some(change)) => changes.push(change),
                Ok(None) => break,
                // The window has run away: everything anew.
                Err(_) => {
                    changes.clear();
                    self.relist(state);
                }
            }
        }
        // What has changed once more is not parsed.
        let keep =
            lasting(changes.iter().map(|c| ((&c.record.key, &c.record.uid), c.kind == ChangeKind::Deleted)));
        for (change, _) in changes.iter().zip(keep).filter(|(_, keep)| *keep) {
            let gone = change.kind == ChangeKind::Deleted;
            let new = if gone { None } else { (self.decode)(&change.record) };
            state.put(&change.record.key.path(), new);
        }
    }

    fn relist(&self, state: &mut State<T>) {
        let (list, watch) = self.store.list_and_watch(&self.resource, None);
        state.watch = watch;
        let mut gone: BTreeSet<Arc<str>> = state.items.keys().cloned().collect();
        for record in list.iter() {
            let path = record.key.path();
            gone.remove(path.as_str());
            state.put(&path, (self.decode)(record));
        }
        for path in gone {
            state.put(&path, None);
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

    /// Looks at objects whose paths begin like this, in order, until told to stop.
    pub fn each(&self, prefix: &str, mut look: impl FnMut(&Arc<T>) -> bool) {
        let state = self.lock();
        let from = (std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded);
        let found = state.items.range::<str, _>(from).take_while(|(path, _)| path.starts_with(prefix));
        for (_, item) in found {
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
    fn put(&mut self, path: &str, new: Option<T>) {
        let new = new.map(Arc::new);
        let (path, old) = match (self.items.get_key_value(path), &new) {
            (None, None) => return,
            (None, Some(_)) => (Arc::from(path), None),
            (Some((path, old)), _) => (Arc::clone(path), Some(Arc::clone(old))),
        };
        match &new {
            Some(new) => self.items.insert(Arc::clone(&path), Arc::clone(new)),
            None => self.items.remove(&path),
        };
        for index in &mut self.indexes {
            index.change(&path, old.as_deref(), new.as_deref());
        }
        let delta = Delta { path, old, new };
        for reader in self.readers.iter_mut().flatten().filter(|r| !r.fresh) {
            reader.tell(&delta);
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

impl<T> Reader<T> {
    fn tell(&mut self, delta: &Delta<T>) {
        self.waiting.push(delta.clone());
        if self.waiting.len() >= self.limit {
            merge(&mut self.waiting);
            self.limit = CROWD.max(self.waiting.len() * 2);
        }
    }
}

/// Puts together what follows one another on the same object.
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
