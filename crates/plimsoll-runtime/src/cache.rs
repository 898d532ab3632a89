//! Last seen objects, shared between the watches, the writers, the job controllers and the webhooks.

use std::sync::{Arc, PoisonError, RwLock};

use plimsoll_api::watch::Meta;
pub use plimsoll_jobs::Kind;
use plimsoll_jobs::declaration::Declared;
use plimsoll_jobs::execution::Execution;
use plimsoll_jobs::{Config, CustomKind, Env, ObjectStore};
use plimsoll_state::Time;
use serde_json::Value;

use crate::api::{Error, Resource};

/// An [`ObjectStore`] behind a lock, and the configuration of job integrations; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    objects: Arc<RwLock<ObjectStore>>,
    config: Arc<Config>,
}

impl Cache {
    /// An empty cache for integrations with this configuration.
    pub fn new(config: Config) -> Self {
        let objects = ObjectStore::new(config.identifiers);
        Self { objects: Arc::new(RwLock::new(objects)), config: Arc::new(config) }
    }

    /// The configuration of job integrations.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Calls a pure function with the current objects. It must not use the cache: the lock is held until it returns.
    pub fn read<T>(&self, now: Time, f: impl FnOnce(Env<'_>) -> T) -> T {
        self.objects(|objects| f(Env { objects, config: &self.config, now }))
    }

    /// [`Cache::read`] for functions of the objects alone.
    pub fn objects<T>(&self, f: impl FnOnce(&ObjectStore) -> T) -> T {
        f(&self.objects.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes in the response to a request of a reconcile; see [`Execution::answered`].
    ///
    /// # Errors
    /// When the rest of the plan must not be carried out.
    pub fn answered(
        &self,
        execution: &mut Execution,
        response: Result<Value, Error>,
        now: Time,
    ) -> Result<(), Error> {
        self.write(|objects| execution.answered(response.map(Arc::new), objects, &self.config, now))
    }

    fn write<T>(&self, f: impl FnOnce(&mut ObjectStore) -> T) -> T {
        f(&mut self.objects.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// See [`ObjectStore::put`].
    pub fn put(&self, kind: Kind, object: impl Into<Arc<Value>>) {
        let object = object.into();
        self.write(|o| o.put(kind, object));
    }

    /// See [`ObjectStore::put_text`].
    pub fn put_text(&self, kind: Kind, object: Arc<Value>, text: &[u8]) {
        self.write(|o| o.put_text(kind, object, text));
    }

    /// See [`ObjectStore::put_created`].
    pub fn put_created(&self, kind: Kind, object: Value) {
        self.write(|o| o.put_created(kind, object));
    }

    /// See [`ObjectStore::refresh`].
    pub fn refresh(&self, kind: Kind, object: Value) {
        self.write(|o| o.refresh(kind, object));
    }

    /// See [`ObjectStore::listed`].
    pub fn listed(&self, kind: Kind, version: &str) -> Vec<Arc<Value>> {
        self.write(|o| o.listed(kind, version))
    }

    /// See [`ObjectStore::remove`].
    pub fn remove(&self, kind: Kind, namespace: &str, name: &str, uid: &str) -> Option<Arc<Value>> {
        self.write(|o| o.remove(kind, namespace, name, uid))
    }

    /// See [`ObjectStore::get`].
    pub fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects(|o| o.get(kind, namespace, name))
    }

    /// See [`ObjectStore::same`].
    pub fn same(&self, kind: Kind, meta: &Meta<'_>) -> Option<Arc<Value>> {
        self.objects(|o| o.same(kind, meta))
    }

    /// See [`ObjectStore::forget`].
    pub fn forget(&self, kind: Kind) {
        self.write(|o| o.forget(kind));
    }

    /// See [`ObjectStore::node_seen`].
    pub fn node_seen(&self, node: &str, unreachable: bool) -> bool {
        self.write(|o| o.node_seen(node, unreachable))
    }

    /// See [`ObjectStore::node_gone`].
    pub fn node_gone(&self, node: &str) {
        self.write(|o| o.node_gone(node));
    }

    /// See [`ObjectStore::add_external`].
    pub fn add_external(&self, declared: &Declared) -> CustomKind {
        self.write(|o| o.add_external(declared))
    }

    /// The kind of a resource, built in or declared.
    pub fn kind_of(&self, resource: Resource) -> Option<Kind> {
        Kind::of(resource).or_else(|| self.objects(|o| o.kind_of(resource)))
    }

    /// See [`ObjectStore::serve`].
    pub fn serve(&self, kind: Kind, resource: Option<Resource>) -> bool {
        self.write(|o| o.serve(kind, resource))
    }
}
