//! What informers and controllers read from: an API server's objects, encoded, with changes that can be pulled.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, Key, ObjectLister};
use serde_json::Value;

use crate::shared::SharedInformers;

/// One version of one object, encoded. Cheap to share between readers.
pub trait StoredObject: Send + Sync + 'static {
    /// Where it is stored.
    fn key(&self) -> &Key;

    /// `metadata.uid`.
    fn uid(&self) -> &str;

    /// `metadata.resourceVersion` as a number: revisions of one source grow with every write.
    fn revision(&self) -> u64;

    /// `metadata.labels`.
    fn labels(&self) -> &BTreeMap<String, String>;

    /// The object as JSON.
    fn json(&self) -> &[u8];

    /// The object, decoded.
    ///
    /// # Errors
    /// 500 if what is stored isn't an object.
    fn value(&self) -> Result<Value, ApiError>;
}

/// One change of a watched resource.
pub struct Change {
    /// The object after the change; its last state if it was deleted.
    pub object: Arc<dyn StoredObject>,
    /// Whether it was deleted.
    pub is_deleted: bool,
}

/// The watcher fell behind the buffer of changes and has to list again (HTTP 410).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired;

/// Changes of one resource, in order, each once.
pub trait ObjectWatch: Send + 'static {
    /// The next change, if there is one. Never waits.
    ///
    /// # Errors
    /// [`Expired`] when changes were missed.
    fn try_next(&mut self) -> Result<Option<Change>, Expired>;

    /// Changes whenever [`ObjectWatch::try_next`] may have something new.
    fn signal(&self) -> tokio::sync::watch::Receiver<u64>;
}

/// Read access to an API server's objects. A read sees every write that was acknowledged before it, so a controller that
/// reads before it decides sees its own writes and needs no expectations (client-go's `UIDTrackingControllerExpectations`).
pub trait Reader: ObjectLister + Send + Sync + 'static {
    /// The object as every client sees it.
    fn get(&self, key: &Key) -> Option<Arc<dyn StoredObject>>;

    /// The object as the next write will find it: may include writes that are not acknowledged yet. For read-modify-write.
    fn latest(&self, key: &Key) -> Option<Arc<dyn StoredObject>>;

    /// All objects of a resource (`group/plural`), in a namespace or everywhere, ordered by namespace and name.
    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Arc<dyn StoredObject>>;

    /// All objects of a resource and the changes after this list.
    fn list_and_watch(&self, resource: &Arc<str>) -> (Vec<Arc<dyn StoredObject>>, Box<dyn ObjectWatch>);

    /// Changes whenever any object does.
    fn signal(&self) -> tokio::sync::watch::Receiver<u64>;

    /// Indexers that informers of this source share.
    fn shared_informers(&self) -> &SharedInformers;
}
