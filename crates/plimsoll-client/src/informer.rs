//! Informers: the objects of a resource as a controller's type, kept current from the source's changes.
//!
//! An informer pulls: [`Informer::refresh`] handles every change that is visible at that moment. A
//! controller that refreshes before it works on a key sees all its own writes, so it needs no expectations. Informers of
//! the same type share their objects; each is told of every change.

use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::indexer::{DecodeItem, Delta, IndexOf, Indexer, Item};
use crate::reader::{Reader, StoredObject};

/// Index of an object: things with the same one are found together.
pub type IndexFn<T> = fn(&T) -> Option<String>;

/// Reads an object as a `T`; `None`: it is none.
pub type Decode<T> = fn(&dyn StoredObject) -> Option<T>;

/// The objects of one resource as `T`.
pub struct Informer<T> {
    /// Of items that are `T`.
    indexer: Arc<Indexer>,
    reader: usize,
    index: usize,
    of: PhantomData<fn() -> T>,
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
        let make = || Indexer::new(reader, &resource, items_of(parse::<T>));
        Self::of(reader.shared_informers().get(&resource, TypeId::of::<T>(), make), index)
    }

    /// An informer of what `decode` reads of each object. It shares its objects with no other informer.
    pub fn decoding(reader: &Arc<dyn Reader>, resource: &str, decode: Decode<T>) -> Self {
        Self::of(Arc::new(Indexer::new(reader, &resource.into(), items_of(decode))), |_| None)
    }
}

impl<T: Send + Sync + 'static> Informer<T> {
    fn of(indexer: Arc<Indexer>, index: IndexFn<T>) -> Self {
        // Functions with the same code may be one or several: either is right.
        let id = (index as *const ()).addr();
        let of = Box::new(move |item: &Item| item.downcast_ref().and_then(index));
        let (reader, index) = (indexer.join(), indexer.index(IndexOf { id, of }));
        Self { indexer, reader, index, of: PhantomData }
    }

    /// Notifies when there is something to refresh.
    pub fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        self.indexer.signal()
    }

    /// Handles all changes and reports them, those of each object in order.
    pub fn refresh(&self, mut report: impl FnMut(Seen<'_, T>)) {
        for Delta { path, old, new } in self.indexer.refresh(self.reader) {
            let (old, new) = (old.and_then(typed), new.and_then(typed));
            report(Seen { path: &path, old: old.as_ref(), new: new.as_ref() });
        }
    }

    /// The object at `namespace/name`.
    pub fn get(&self, path: &str) -> Option<Arc<T>> {
        self.indexer.get(path).and_then(typed)
    }

    /// Objects with an index, in order of `namespace/name`.
    pub fn indexed(&self, index: &str) -> Vec<Arc<T>> {
        self.indexer.indexed(self.index, index).into_iter().filter_map(typed).collect()
    }

    /// Visits all objects of a namespace, in order of their names.
    pub fn in_namespace(&self, namespace: &str, mut look: impl FnMut(&T)) {
        self.indexer.each(&format!("{namespace}/"), &mut |item| {
            item.downcast_ref().into_iter().for_each(&mut look);
            true
        });
    }

    /// As [`Informer::in_namespace`], for callers that keep the objects.
    pub fn in_namespace_shared(&self, namespace: &str, mut look: impl FnMut(&Arc<T>)) {
        self.indexer.each(&format!("{namespace}/"), &mut |item| {
            typed(Arc::clone(item)).iter().for_each(&mut look);
            true
        });
    }

    /// Whether an object is like this.
    pub fn any(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        let mut found = false;
        self.indexer.each("", &mut |item| {
            found = item.downcast_ref().is_some_and(&mut is);
            !found
        });
        found
    }

    /// The objects that are like this, in order of `namespace/name`.
    pub fn all_where(&self, mut is: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let mut found = Vec::new();
        self.indexer.each("", &mut |item| {
            if item.downcast_ref().is_some_and(&mut is) {
                found.extend(typed(Arc::clone(item)));
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

/// The item as what it was decoded as.
fn typed<T: Send + Sync + 'static>(item: Item) -> Option<Arc<T>> {
    item.downcast().ok()
}

fn items_of<T: Send + Sync + 'static>(decode: Decode<T>) -> DecodeItem {
    Box::new(move |object| Some(Arc::new(decode(object)?)))
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
