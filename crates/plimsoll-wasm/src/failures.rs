//! How often guests failed, for metrics.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts failures of guests by plugin and cause; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Failures(Arc<Mutex<BTreeMap<(String, &'static str), u64>>>);

impl Failures {
    /// A call failed. `exhausted`: it executed all the instructions that it may.
    pub(crate) fn count(&self, plugin: &str, exhausted: bool) {
        let cause = if exhausted { "limit" } else { "trap" };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((plugin.to_owned(), cause)).or_default() += 1;
    }

    /// Plugin, cause (`limit`: too many instructions, `trap`: all others), and how often.
    pub fn counts(&self) -> Vec<(String, &'static str, u64)> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|((plugin, cause), n)| (plugin.clone(), *cause, *n)).collect()
    }
}
