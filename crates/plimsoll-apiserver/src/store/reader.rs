//! The store as informers and controllers of the same process read it.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, Key, ObjectLister};
use plimsoll_client::{Change, Expired, ObjectWatch, Reader, SharedInformers, StoredObject};
use serde_json::Value;

use super::{ChangeKind, Record, Store, Watch};

impl StoredObject for Record {
    fn key(&self) -> &Key {
        &self.key
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn revision(&self) -> u64 {
        self.revision
    }

    fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    fn json(&self) -> &[u8] {
        &self.json
    }

    fn value(&self) -> Result<Value, ApiError> {
        Self::value(self).map_err(ApiError::internal)
    }
}

impl ObjectWatch for Watch {
    fn try_next(&mut self) -> Result<Option<Change>, Expired> {
        let change = Self::try_next(self).map_err(|_| Expired)?;
        Ok(change.map(|change| Change {
            object: Arc::clone(&change.record) as _,
            is_deleted: change.kind == ChangeKind::Deleted,
        }))
    }

    fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        Self::signal(self)
    }
}

impl ObjectLister for Store {
    fn for_each(&self, resource: &str, namespace: Option<&str>, visit: &mut dyn FnMut(Value)) {
        Self::list(self, resource, namespace).iter().filter_map(|record| record.value().ok()).for_each(visit);
    }
}

impl Reader for Store {
    fn get(&self, key: &Key) -> Option<Arc<dyn StoredObject>> {
        Self::get(self, key).map(|record| record as _)
    }

    fn latest(&self, key: &Key) -> Option<Arc<dyn StoredObject>> {
        Self::latest(self, key).map(|record| record as _)
    }

    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Arc<dyn StoredObject>> {
        Self::list(self, resource, namespace).iter().map(|record| Arc::clone(record) as _).collect()
    }

    fn list_and_watch(&self, resource: &Arc<str>) -> (Vec<Arc<dyn StoredObject>>, Box<dyn ObjectWatch>) {
        let (snapshot, watch) = Self::list_and_watch(self, resource, None);
        (snapshot.iter().map(|record| Arc::clone(record) as _).collect(), Box::new(watch))
    }

    fn signal(&self) -> tokio::sync::watch::Receiver<u64> {
        Self::signal(self)
    }

    fn shared_informers(&self) -> &SharedInformers {
        &self.inner.informers
    }
}
