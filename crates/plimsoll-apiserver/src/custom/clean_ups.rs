//! Which definitions' instances are being removed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Definitions whose instances are being removed, by name; with whether one was written meanwhile.
#[derive(Default)]
pub struct CleanUps(Mutex<BTreeMap<String, bool>>);

impl CleanUps {
    pub(super) fn names(&self) -> MutexGuard<'_, BTreeMap<String, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
