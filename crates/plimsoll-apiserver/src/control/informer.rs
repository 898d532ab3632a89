//! What a controller knows of a resource: parsed objects, kept current from the store's changes.
//!
//! An informer pulls: [`Informer::refresh`] takes in everything that is visible in the store at that moment. A
//! controller that refreshes before it works on a key sees all its own writes, so it needs no expectations.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::de::DeserializeOwned;

use crate::store::{Change, ChangeKind, Key, Record, Store, Watch};

/// Index of an object: things with the same one are found together.
pub type IndexFn<T> = fn(&T) -> Option<String>;

/// The objects of one resource as `T`.
pub struct Informer<T> {
    store: Store,
    resource: Arc<str>,
    index: IndexFn<T>,
    decode: fn(&Record) -> Option<T>,
    /// Whether the decoded objects are shared with other informers of the same type.
    share: bool,
    state: Mutex<State<T>>,
}

struct State<T> {
    watch: Watch,
    /// By `namespace/name`.
    items: BTreeMap<String, Arc<T>>,
    by_index: HashMap<String, BTreeSet<String>>,
    fresh: bool,
}

/// What [`Informer::refresh`] reports: the object before and after.
pub struct Seen<'a, T> {
    /// `namespace/name`.
    pub path: &'a str,
    /// Before; `None`: it wasn't there.
    pub old: Option<&'a Arc<T>>,
    /// After; `None`: it is gone.
    pub new: Option<&'a Arc<T>>,
}

impl<T: DeserializeOwned + Send + Sync + 'static> Informer<T> {
    /// An informer that has seen nothing yet; the first refresh reports everything there is.
    pub fn new(store: &Store, resource: &str, index: IndexFn<T>) -> Self {
        let resource: Arc<str> = resource.into();
        let (_, watch) = store.list_and_watch(&resource, None);
        let state = State { watch, items: BTreeMap::new(), by_index: HashMap::new(), fresh: true };
        Self { store: store.clone(), resource, index, decode: parse, share: true, state: Mutex::new(state) }
    }

    /// An informer of a type that nobody else reads this resource as, so that it doesn't take the place of one that many do.
    pub fn alone(store: &Store, resource: &str, index: IndexFn<T>) -> Self {
        Self { share: false, ..Self::new(store, resource, index) }
    }

    /// As [`Informer::alone`], for those who can tell what they need without reading all of an object's JSON.
    pub fn decoding(store: &Store, resource: &str, decode: fn(&Record) -> Option<T>) -> Self {
        Self { decode, ..Self::alone(store, resource, |_| None) }
    }

    fn parse(&self, record: &Record) -> Option<Arc<T>> {
        if self.share { record.shared(self.decode) } else { (self.decode)(record).map(Arc::new) }
    }

    /// Tells when there is something to refresh.
    pub fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        self.lock().watch.signal()
    }

    /// Takes in what has happened and reports it, in order.
    pub fn refresh(&self, mut report: impl FnMut(Seen<'_, T>)) {
        let mut state = self.lock();
        if std::mem::take(&mut state.fresh) {
            self.relist(&mut state, &mut report);
        }
        let mut changes = Vec::new();
        loop {
            match state.watch.try_next() {
                Ok(Some(change)) => changes.push(change),
                Ok(None) => break,
                // The window has run away: everything anew.
                Err(_) => {
                    changes.clear();
                    self.relist(&mut state, &mut report);
                }
            }
        }
        for change in lasting(&changes) {
            let gone = change.kind == ChangeKind::Deleted;
            let path = change.record.key.path();
            let new = if gone { None } else { self.parse(&change.record) };
            state.put(self.index, &path, new.as_ref(), &mut report);
        }
    }

    fn relist(&self, state: &mut State<T>, report: &mut impl FnMut(Seen<'_, T>)) {
        let (list, watch) = self.store.list_and_watch(&self.resource, None);
        state.watch = watch;
        let mut gone: BTreeSet<String> = state.items.keys().cloned().collect();
        for record in list.iter() {
            let path = record.key.path();
            gone.remove(&path);
            state.put(self.index, &path, self.parse(record).as_ref(), report);
        }
        for path in gone {
            state.put(self.index, &path, None, report);
        }
    }

    /// The object at `namespace/name`.
    pub fn get(&self, path: &str) -> Option<Arc<T>> {
        self.lock().items.get(path).cloned()
    }

    /// Objects with an index, in order of `namespace/name`.
    pub fn indexed(&self, index: &str) -> Vec<Arc<T>> {
        let state = self.lock();
        let paths = state.by_index.get(index).into_iter().flatten();
        paths.filter_map(|path| state.items.get(path).cloned()).collect()
    }

    /// Looks at all objects of a namespace, in order of their names.
    pub fn in_namespace(&self, namespace: &str, mut look: impl FnMut(&T)) {
        let prefix = format!("{namespace}/");
        let state = self.lock();
        let rest = state.items.range(prefix.clone()..);
        rest.take_while(|(path, _)| path.starts_with(&prefix)).for_each(|(_, item)| look(item));
    }

    /// As [`Informer::in_namespace`], for those who keep what they see.
    pub fn in_namespace_shared(&self, namespace: &str, mut look: impl FnMut(&Arc<T>)) {
        let prefix = format!("{namespace}/");
        let state = self.lock();
        let rest = state.items.range(prefix.clone()..);
        rest.take_while(|(path, _)| path.starts_with(&prefix)).for_each(|(_, item)| look(item));
    }

    /// Whether an object is like this.
    pub fn any(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        self.lock().items.values().any(|item| is(item))
    }

    /// The objects that are like this, in order of `namespace/name`.
    pub fn all_where(&self, mut is: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        self.lock().items.values().filter(|item| is(item)).cloned().collect()
    }

    /// All objects, in order of `namespace/name`.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.lock().items.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The changes without those after which the same object changed once more: nobody can have seen what was between. An
/// object's last state before it went stays, so that its end is never missed.
fn lasting(changes: &[Arc<Change>]) -> impl Iterator<Item = &Change> {
    let mut later: HashMap<&Key, &str> = HashMap::new();
    let mut keep: Vec<bool> = Vec::with_capacity(changes.len());
    for change in changes.iter().rev() {
        if changes.len() == 1 {
            keep.push(true);
        } else if change.kind == ChangeKind::Deleted {
            later.remove(&change.record.key);
            keep.push(true);
        } else {
            let uid = later.insert(&change.record.key, &change.record.uid);
            keep.push(uid != Some(&change.record.uid));
        }
    }
    changes.iter().zip(keep.into_iter().rev()).filter(|(_, keep)| *keep).map(|(change, _)| &**change)
}

impl<T> State<T> {
    fn put(
        &mut self,
        index: IndexFn<T>,
        path: &str,
        new: Option<&Arc<T>>,
        report: &mut impl FnMut(Seen<'_, T>),
    ) {
        let old = match new {
            Some(new) => self.items.insert(path.to_owned(), Arc::clone(new)),
            None => self.items.remove(path),
        };
        if let Some(index) = old.as_deref().and_then(index)
            && let Some(paths) = self.by_index.get_mut(&index)
        {
            paths.remove(path);
            if paths.is_empty() {
                self.by_index.remove(&index);
            }
        }
        if let Some(index) = new.and_then(|new| index(new)) {
            self.by_index.entry(index).or_default().insert(path.to_owned());
        }
        if old.is_some() || new.is_some() {
            report(Seen { path, old: old.as_ref(), new });
        }
    }
}

/// The object as a `T`, if it can be read as one.
pub fn parse<T: DeserializeOwned>(record: &Record) -> Option<T> {
    match serde_json::from_slice(&record.json) {
        Ok(object) => Some(object),
        Err(error) => {
            let (resource, path) = (&record.key.resource, record.key.path());
            tracing::warn!(%resource, path, %error, "a stored object can't be read by a controller");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::store::{Expected, Write};

    #[tokio::test]
    async fn what_was_in_between_is_left_out_and_ends_are_not() {
        let store = Store::in_memory();
        let informer: Informer<Value> = Informer::new(&store, "/pods", |_| None);
        let key = |name: &str| Key::new("/pods", "a", name);
        let put = async |name: &str, uid: &str, n: u32| {
            let object = json!({"metadata": {"name": name, "uid": uid}, "n": n});
            store.commit(Write::put(key(name), Expected::Anything, &object).unwrap()).await.unwrap();
        };
        let log = || {
            let mut log = Vec::new();
            informer.refresh(|seen| {
                let n = |o: Option<&Arc<Value>>| o.map_or("-".to_owned(), |o| o["n"].to_string());
                log.push(format!("{} {} {}", seen.path, n(seen.old), n(seen.new)));
            });
            log
        };
        put("x", "1", 1).await;
        assert_eq!(log(), ["a/x - 1"]);
        for n in 2..5 {
            put("x", "1", n).await;
            put("y", "2", n).await;
        }
        assert_eq!(log(), ["a/x 1 4", "a/y - 4"]);
        put("x", "1", 5).await;
        store.commit(Write::delete(key("x"), Expected::Anything)).await.unwrap();
        put("x", "3", 6).await;
        put("x", "3", 7).await;
        assert_eq!(log(), ["a/x 4 5", "a/x 5 -", "a/x - 7"]);
        assert!(log().is_empty());
    }
}
