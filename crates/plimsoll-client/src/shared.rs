//! Indexers that informers of the same resource and type share (client-go's `SharedInformerFactory`).

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

type Known = HashMap<(Arc<str>, TypeId), Weak<dyn Any + Send + Sync>>;

/// Indexers by resource and type, each kept for as long as an informer uses it.
#[derive(Default)]
pub struct SharedInformers(Mutex<Known>);

impl SharedInformers {
    /// The indexer of that resource, with objects of the type `of`; made if no informer has it. Of what type indexers are, only
    /// informers know: all are of the same.
    pub(crate) fn get<I: Any + Send + Sync>(
        &self,
        resource: &Arc<str>,
        of: TypeId,
        make: impl FnOnce() -> I,
    ) -> Arc<I> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, indexer| indexer.strong_count() > 0);
        let key = (Arc::clone(resource), of);
        if let Some(Ok(found)) = known.get(&key).and_then(Weak::upgrade).map(Arc::downcast) {
            return found;
        }
        let made = Arc::new(make());
        let indexer: Arc<dyn Any + Send + Sync> = Arc::clone(&made) as _;
        known.insert(key, Arc::downgrade(&indexer));
        made
    }
}
