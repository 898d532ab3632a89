//! What all who use a store have in common.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

type Known = HashMap<(Arc<str>, TypeId), Weak<dyn Any + Send + Sync>>;

/// Things by name and type, kept for as long as somebody has them.
#[derive(Default)]
pub(super) struct Common(Mutex<Known>);

impl Common {
    /// The thing of that name and type; made if nobody has it.
    pub fn get<T: Any + Send + Sync>(&self, name: &Arc<str>, make: impl FnOnce() -> T) -> Arc<T> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, thing| thing.strong_count() > 0);
        let key = (Arc::clone(name), TypeId::of::<T>());
        if let Some(Ok(found)) = known.get(&key).and_then(Weak::upgrade).map(Arc::downcast) {
            return found;
        }
        let made = Arc::new(make());
        let thing: Arc<dyn Any + Send + Sync> = Arc::clone(&made) as _;
        known.insert(key, Arc::downgrade(&thing));
        made
    }
}
