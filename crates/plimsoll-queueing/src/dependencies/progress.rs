//! How far the dependencies of one workload are.

use std::collections::BTreeSet;

/// How far a workload's dependencies are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Positions of those that have not come true.
    pub(super) unmet: BTreeSet<u32>,
    /// Those among them that can't come true any more.
    pub(super) never: BTreeSet<u32>,
    /// Those among them that nothing answers to.
    pub(super) missing: BTreeSet<u32>,
    /// The circle it is in.
    pub(super) circle: Option<String>,
}

impl Progress {
    /// Whether nothing is waited for.
    pub(crate) fn clear(&self) -> bool {
        self.unmet.is_empty()
    }

    pub(super) fn hopeless(&self) -> bool {
        !self.never.is_empty()
    }
}
