//! The reason why a workload is pending, on its way to its status.

use crate::cond;
use crate::model::Amounts;
use crate::update::WorkloadUpdate;
use plimsoll_state::time::Time;

/// Why a workload is pending, as far as that is not written yet.
#[derive(Debug)]
pub(super) struct PendingReason {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// `status.resourceRequests`.
    pub(super) requests: Vec<(String, Amounts)>,
}

/// Why a workload is pending, on its way to its status.
#[derive(Debug, Default)]
pub(crate) struct Explanation {
    /// A newer reason than the last one that was written: of several only the last counts.
    pub(super) next: Option<Box<PendingReason>>,
    /// When a reason was written last.
    pub(super) written_at: Option<Time>,
    /// Whether a timer writes the reason known for its scheduling hash.
    pub(super) due: bool,
}

impl Explanation {
    /// Another write is made: a reason from before it no longer counts if that says something else about the quota.
    pub(crate) fn replace_by_write(&mut self, update: &WorkloadUpdate) {
        if update.conditions.iter().any(|c| c.kind == cond::QUOTA_RESERVED) {
            self.next = None;
        }
    }
}
