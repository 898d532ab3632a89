//! Indexers that informers of the same resource and type share (client-go's `SharedInformerFactory`).

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::indexer::Indexer;

type Known = HashMap<(Arc<str>, TypeId), Weak<Indexer>>;

/// Indexers by resource and type, each kept for as long as an informer uses it.
#[derive(Default)]
pub struct SharedInformers(Mutex<Known>);

impl SharedInformers {
    /// The indexer of that resource and type; made if no informer has it.
    pub(crate) fn get(
        &self,
        resource: &Arc<str>,
        of: TypeId,
        make: impl FnOnce() -> Indexer,
    ) -> Arc<Indexer> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, indexer| indexer.strong_count() > 0);
        let key = (Arc::clone(resource), of);
        if let Some(found) = known.get(&key).and_then(Weak::upgrade) {
            return found;
        }
        let made = Arc::new(make());
        known.insert(key, Arc::downgrade(&made));
        made
    }
}
