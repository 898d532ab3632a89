//! Where a workload stands in its life, by its conditions.

use super::cond;
use super::model::{Workload, WorkloadStatus};

/// Where a workload stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Reserved,
    Admitted,
    Finished,
}

impl Phase {
    pub(crate) fn of(status: &WorkloadStatus) -> Self {
        if status.is_true(cond::FINISHED) {
            Self::Finished
        } else if status.is_true(cond::ADMITTED) {
            Self::Admitted
        } else if status.is_true(cond::QUOTA_RESERVED) {
            Self::Reserved
        } else {
            Self::Pending
        }
    }

    pub(crate) fn holds_quota(self) -> bool {
        matches!(self, Self::Reserved | Self::Admitted)
    }
}

/// Whether its integration keeps it back.
pub(crate) fn is_on_hold(wl: &Workload) -> bool {
    wl.status.condition(cond::QUOTA_RESERVED).is_some_and(|c| !c.status && c.reason == "OnHold")
}
