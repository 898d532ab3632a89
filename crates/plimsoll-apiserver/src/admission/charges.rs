//! Quota charges of writes that are under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Namespaces in which writes are charged for that are not committed yet. A count of what is there would miss
/// them.
#[derive(Debug, Default)]
pub struct ChargesInFlight(Mutex<BTreeMap<String, usize>>);

impl ChargesInFlight {
    /// Whether quotas of the namespace hold charges for writes still to come.
    pub fn any(&self, namespace: &str) -> bool {
        self.lock().contains_key(namespace)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(self: &Arc<Self>, namespace: &str) -> Charge {
        *self.lock().entry(namespace.to_owned()).or_default() += 1;
        Charge(Some((Arc::clone(self), namespace.to_owned())))
    }
}

/// What a write was charged for, to be kept until the write is done. If that fails, the next count gives it back.
#[derive(Debug, Default)]
#[must_use]
pub struct Charge(Option<(Arc<ChargesInFlight>, String)>);

impl Drop for Charge {
    fn drop(&mut self) {
        let Some((under_way, namespace)) = self.0.take() else { return };
        let mut writes = under_way.lock();
        if let Some(n) = writes.get_mut(&namespace) {
            *n -= 1;
            if *n == 0 {
                writes.remove(&namespace);
            }
        }
    }
}
