//! What a controller knows of a resource: parsed objects, kept current from the store's changes.
//!
//! An informer pulls: [`Informer::refresh`] takes in everything that is visible in the store at that moment. A
//! controller that refreshes before it works on a key sees all its own writes, so it needs no expectations. Informers of
//! the same type share their objects; each is told of every change.

use std::sync::Arc;

use serde::de::DeserializeOwned;

pub use super::reflector::IndexFn;
use super::reflector::{Delta, Reflector};
use crate::store::{Record, Store};

/// The objects of one resource as `T`.
pub struct Informer<T> {
    reflector: Arc<Reflector<T>>,
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
    pub fn new(store: &Store, resource: &str, index: IndexFn<T>) -> Self {
        let resource: Arc<str> = resource.into();
        let reflector = store.common(&resource, || Reflector::new(store, &resource, parse));
        Self::of(reflector, index)
    }

    /// An informer that needs of each object only what `decode` reads, and shares it with nobody.
    pub fn decoding(store: &Store, resource: &str, decode: fn(&Record) -> Option<T>) -> Self {
        Self::of(Arc::new(Reflector::new(store, &resource.into(), decode)), |_| None)
    }
}

impl<T> Informer<T> {
    fn of(reflector: Arc<Reflector<T>>, index: IndexFn<T>) -> Self {
        let (reader, index) = (reflector.join(), reflector.index(index));
        Self { reflector, reader, index }
    }

    /// Tells when there is something to refresh.
    pub fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        self.reflector.signal()
    }

    /// Takes in what has happened and reports it, each object's changes in order.
    pub fn refresh(&self, mut report: impl FnMut(Seen<'_, T>)) {
        for Delta { path, old, new } in self.reflector.refresh(self.reader) {
            report(Seen { path: &path, old: old.as_ref(), new: new.as_ref() });
        }
    }

    /// The object at `namespace/name`.
    pub fn get(&self, path: &str) -> Option<Arc<T>> {
        self.reflector.get(path)
    }

    /// Objects with an index, in order of `namespace/name`.
    pub fn indexed(&self, index: &str) -> Vec<Arc<T>> {
        self.reflector.indexed(self.index, index)
    }

    /// Looks at all objects of a namespace, in order of their names.
    pub fn in_namespace(&self, namespace: &str, mut look: impl FnMut(&T)) {
        self.in_namespace_shared(namespace, |item| look(item));
    }

    /// As [`Informer::in_namespace`], for those who keep what they see.
    pub fn in_namespace_shared(&self, namespace: &str, mut look: impl FnMut(&Arc<T>)) {
        self.reflector.each(&format!("{namespace}/"), |item| {
            look(item);
            true
        });
    }

    /// Whether an object is like this.
    pub fn any(&self, mut is: impl FnMut(&T) -> bool) -> bool {
        let mut found = false;
        self.reflector.each("", |item| {
            found = is(item);
            !found
        });
        found
    }

    /// The objects that are like this, in order of `namespace/name`.
    pub fn all_where(&self, mut is: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let mut found = Vec::new();
        self.reflector.each("", |item| {
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
        self.reflector.leave(self.reader);
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
    use crate::store::{Expected, Key, Write};

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

    #[tokio::test]
    async fn each_is_told_everything_however_late_it_looks() {
        let store = Store::in_memory();
        let all: IndexFn<Value> = |o| o["n"].as_u64().map(|n| (n % 2).to_string());
        let quick: Informer<Value> = Informer::new(&store, "/pods", all);
        let slow: Informer<Value> = Informer::new(&store, "/pods", |_| None);
        let never: Informer<Value> = Informer::new(&store, "/pods", |_| None);
        let key = |name: &str| Key::new("/pods", "a", name);
        let put = async |name: &str, n: u64| {
            let object = json!({"metadata": {"name": name, "uid": name}, "n": n});
            store.commit(Write::put(key(name), Expected::Anything, &object).unwrap()).await.unwrap();
        };
        let told = |informer: &Informer<Value>| {
            let mut log = Vec::new();
            informer.refresh(|seen| {
                let n = |o: Option<&Arc<Value>>| o.map_or("-".to_owned(), |o| o["n"].to_string());
                log.push(format!("{} {} {}", seen.path, n(seen.old), n(seen.new)));
            });
            log
        };
        assert!(told(&slow).is_empty());
        for n in 0..10_000 {
            put("x", n).await;
            if n == 5_000 {
                put("y", 1).await;
                put("y", 2).await;
                store.commit(Write::delete(key("y"), Expected::Anything)).await.unwrap();
            }
            told(&quick);
        }
        assert_eq!(quick.indexed("1").len(), 1);
        assert!(quick.indexed("0").is_empty());
        let slow = told(&slow);
        assert!(slow.len() < 8_192, "{}", slow.len());
        let of = |name: &str| slow.iter().filter(|l| l.starts_with(name)).cloned().collect::<Vec<_>>();
        assert_eq!(of("a/y").first().map(String::as_str), Some("a/y - 2"));
        assert_eq!(of("a/y").last().map(String::as_str), Some("a/y 2 -"));
        let x = of("a/x");
        assert!(x[0].starts_with("a/x - "), "{}", x[0]);
        assert!(
            x.windows(2).all(|w| w[0].rsplit(' ').next() == w[1].split(' ').nth(1)),
            "nothing is left out"
        );
        assert!(x.last().unwrap().ends_with(" 9999"));
        assert_eq!(told(&never), ["a/x - 9999"]);
    }
}
