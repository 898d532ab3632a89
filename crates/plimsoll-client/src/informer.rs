//! Informers: the objects of a resource as a controller's type, kept current from the source's changes.
//!
//! An informer pulls: [`Informer::refresh`] handles every change that is visible at that moment. A
//! controller that refreshes before it works on a key sees all its own writes, so it needs no expectations. Informers of
//! the same type share their objects; each is told of every change.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::indexer::{Decode, Delta, IndexFn, Indexer};
use crate::reader::{Reader, StoredObject};

/// The objects of one resource as `T`.
pub struct Informer<T> {
    indexer: Arc<Indexer<T>>,
    reader: usize,
    index: usize,
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
    pub fn new(reader: &Arc<dyn Reader>, resource: &str, index: IndexFn<T>) -> Self {
        let resource: Arc<str> = resource.into();
        let indexer = reader.shared_informers().get(&resource, || Indexer::new(reader, &resource, parse));
        Self::of(indexer, index)
    }

    /// An informer of what `decode` reads of each object. It shares its objects with no other informer.
    pub fn decoding(reader: &Arc<dyn Reader>, resource: &str, decode: Decode<T>) -> Self {
        Self::of(Arc::new(Indexer::new(reader, &resource.into(), decode)), |_| None)
    }
}

impl<T> Informer<T> {
    fn of(indexer: Arc<Indexer<T>>, index: IndexFn<T>) -> Self {
        let (reader, index) = (indexer.join(), indexer.index(index));
        Self { indexer, reader, index }
    }

    /// Notifies when there is something to refresh.
    pub fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        self.indexer.signal()
    }

    /// Handles all changes and reports them, those of each object in order.
    pub fn refresh(&self, mut report: impl FnMut(Seen<'_, T>)) {
        for Delta { path, old, new } in self.indexer.refresh(self.reader) {
            report(Seen { path: &path, old: old.as_ref(), new: new.as_ref() });
        }
    }

    /// The object at `namespace/name`.
    pub fn get(&self, path: &str) -> Option<Arc<T>> {
        self.indexer.get(path)
    }

    /// Objects with an index, in order of `namespace/name`.
    pub fn indexed(&self, index: &str) -> Vec<Arc<T>> {
        self.indexer.indexed(self.index, index)
    }

    /// Visits all objects of a namespace, in order of their names.
    pub fn in_namespace(&self, namespace: &str, mut look: impl FnMut(&T)) {
        self.in_namespace_shared(namespace, |item| look(item));
    }

    /// As [`Informer::in_namespace`], for callers that keep the objects.
    pub fn in_namespace_shared(&self, namespace: &str, mut look: impl FnMut(&Arc<T>)) {
        self.indexer.each(&format!("{namespace}/"), |item| {
            look(item);
            true
        });
    }

    /// Whether an object is like this.
    pub fn any(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        let mut found = false;
        self.indexer.each("", |item| {
            found = is(item);
            !found
        });
        found
    }

    /// The objects that are like this, in order of `namespace/name`.
    pub fn all_where(&self, mut is: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let mut found = Vec::new();
        self.indexer.each("", |item| {
            if is(item) {
                found.push(Arc::clone(item));
            }
            true
        });
        found
    }

    /// All objects, in order of `namespace/name`.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.all_where(|_| true)
    }
}

impl<T> Drop for Informer<T> {
    fn drop(&mut self) {
        self.indexer.leave(self.reader);
    }
}

/// The object as a `T`, if it can be read as one.
pub fn parse<T: DeserializeOwned>(object: &dyn StoredObject) -> Option<T> {
    match serde_json::from_slice(object.json()) {
        Ok(object) => Some(object),
        Err(error) => {
            let (resource, path) = (&object.key().resource, object.key().path());
            tracing::warn!(%resource, path, %error, "skipping malformed object");
            None
        }
    }
}
