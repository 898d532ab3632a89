//! A workload to preempt, and why: what the search for victims finds, and what the plan says.

use crate::ids::WorkloadId;

/// Why a workload is preempted, as reason of its condition Preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    ClusterQueue,
    Reclamation,
    FairSharing,
    WhileBorrowing,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ClusterQueue => "InClusterQueue",
            Self::Reclamation => "InCohortReclamation",
            Self::FairSharing => "InCohortFairSharing",
            Self::WhileBorrowing => "InCohortReclaimWhileBorrowing",
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::ClusterQueue => "prioritization in the ClusterQueue",
            Self::Reclamation => "reclamation within the cohort",
            Self::FairSharing => "Fair Sharing within the cohort",
            Self::WhileBorrowing => "reclamation within the cohort while borrowing",
        }
    }
}

/// A workload to preempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) id: WorkloadId,
    pub(crate) reason: Reason,
}
