//! Keys of stored objects, and looking objects up by them.

use std::sync::Arc;

use serde_json::Value;

/// The location of an object. `resource` is `Kind::storage` (`group/plural`); namespace is empty for cluster scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// `group/plural`.
    pub resource: Arc<str>,
    /// Namespace, empty for cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// A key from its parts.
    pub fn new(resource: impl Into<Arc<str>>, namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { resource: resource.into(), namespace: namespace.into(), name: name.into() }
    }

    /// `namespace/name`, or the name alone for cluster scope: the order of lists, as of etcd's keys.
    pub fn path(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            [&self.namespace, "/", &self.name].concat()
        }
    }
}

/// Lists objects: lets pure functions look up the objects they need.
pub trait ObjectLister: Sync {
    /// Calls `visit` with each object of a resource (`group/plural`), in a namespace or everywhere, ordered by namespace and
    /// name. Objects that can't be decoded are skipped.
    fn for_each(&self, resource: &str, namespace: Option<&str>, visit: &mut dyn FnMut(Value));
}
