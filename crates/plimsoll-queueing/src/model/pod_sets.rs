//! The podsets of a workload, shared by all workloads that have equal ones.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::PodSet;

/// The podsets of a workload. Clones share them; changing them makes a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSets(Arc<Vec<PodSet>>);

impl Deref for PodSets {
    type Target = Vec<PodSet>;

    fn deref(&self) -> &Vec<PodSet> {
        &self.0
    }
}

impl DerefMut for PodSets {
    fn deref_mut(&mut self) -> &mut Vec<PodSet> {
        Arc::make_mut(&mut self.0)
    }
}

impl From<Vec<PodSet>> for PodSets {
    fn from(all: Vec<PodSet>) -> Self {
        Self(Arc::new(all))
    }
}
