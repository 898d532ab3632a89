//! Last seen objects: from watches and from answers to own writes; the newer version wins.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::api::{Kind, Name, name_of, version};

/// The cache.
#[derive(Debug, Default)]
pub struct Cache {
    objects: BTreeMap<(Kind, Name), Arc<Value>>,
}

impl Cache {
    /// Keeps an object unless a newer version is known.
    pub fn put(&mut self, kind: Kind, object: Arc<Value>) {
        let key = (kind, name_of(&object));
        if self.objects.get(&key).is_none_or(|old| version(old) <= version(&object)) {
            self.objects.insert(key, object);
        }
    }

    /// Keeps the answer to a write, but does not bring back what was deleted meanwhile.
    pub fn refresh(&mut self, kind: Kind, object: Arc<Value>) {
        let (namespace, name) = name_of(&object);
        if self.get(kind, &namespace, &name).is_some() {
            self.put(kind, object);
        }
    }

    /// Forgets an object.
    pub fn remove(&mut self, kind: Kind, name: &Name) {
        self.objects.remove(&(kind, name.clone()));
    }

    /// An object, if known.
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(&(kind, (namespace.to_owned(), name.to_owned()))).cloned()
    }
}
