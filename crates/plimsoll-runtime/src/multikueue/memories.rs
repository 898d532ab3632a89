//! What is remembered of workloads between two plans.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_jobs::multikueue::{Memory, WorkloadKey};

/// What is remembered of a workload until its next plan.
#[derive(Debug, Default)]
pub struct Remembered {
    /// What the dispatcher remembers.
    pub memory: Memory,
    /// Whether workers are being asked about it.
    pub asks: bool,
}

/// What is remembered of each workload.
pub type Memories = Arc<Mutex<BTreeMap<WorkloadKey, Remembered>>>;

/// Looks at what is remembered.
pub fn lock(memories: &Memories) -> MutexGuard<'_, BTreeMap<WorkloadKey, Remembered>> {
    memories.lock().unwrap_or_else(PoisonError::into_inner)
}
