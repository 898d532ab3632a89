//! A workload to preempt, and why: what the search for victims finds, and what the plan says.

use crate::ids::WorkloadId;
use crate::model::PreemptionTrigger;

/// Reason of preemption by rules of a PreemptionConfig (Kueue `ConfigurablePreemptionReason`).
pub(crate) const CONFIGURED: &str = "ConfigurablePreemption";

/// Why a workload is preempted, as reason of its condition Preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    ClusterQueue,
    Reclamation,
    FairSharing,
    WhileBorrowing,
    /// A rule of a PreemptionConfig, with this trigger.
    Configured(PreemptionTrigger),
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ClusterQueue => "InClusterQueue",
            Self::Reclamation => "InCohortReclamation",
            Self::FairSharing => "InCohortFairSharing",
            Self::WhileBorrowing => "InCohortReclaimWhileBorrowing",
            Self::Configured(_) => CONFIGURED,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::ClusterQueue => "prioritization in the ClusterQueue",
            Self::Reclamation => "reclamation within the cohort",
            Self::FairSharing => "Fair Sharing within the cohort",
            Self::WhileBorrowing => "reclamation within the cohort while borrowing",
            Self::Configured(_) => "the configured preemption rules",
        }
    }
}

/// What the preemptor lacks as long as a victim stays (joint admission).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacking {
    /// Quota, and maybe nodes.
    Quota,
    /// Nodes: the other victims leave enough quota.
    NodesBesideQuota,
    /// Nodes: quota is enough without any victim.
    NodesOnly,
}

impl Lacking {
    /// What follows the reason in the condition's message. Kueue preempts for quota only.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Quota => "",
            Self::NodesBesideQuota => ", for nodes besides quota",
            Self::NodesOnly => ", for nodes only",
        }
    }
}

/// A workload to preempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) id: WorkloadId,
    pub(crate) reason: Reason,
    pub(crate) lacking: Lacking,
    /// To how many pods it is asked to shrink; `None`: it is evicted.
    pub(crate) shrinks_to: Option<i32>,
}

impl Target {
    pub(crate) fn new(id: WorkloadId, reason: Reason) -> Self {
        Self { id, reason, lacking: Lacking::Quota, shrinks_to: None }
    }
}
