//! Entries of a cycle: heads while they are decided about.

use super::assign::{Assignment, LastAssignment, Mode, why};
use super::victim::Target;
use crate::amount::Amount;
use crate::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use crate::pending::Shortage;
use plimsoll_state::time::Time;

/// Why an entry waits that fitted at the beginning of the cycle.
pub(super) const NO_LONGER_FITS: &str = "Workload no longer fits after processing another workload";

/// How an entry left the cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing was tried, or it waits for its victims.
    NotNominated,
    /// An entry before it took what it needs.
    Skipped,
    /// It gets its quota.
    Admitted,
    /// It has to stop.
    Evicted,
}

/// Why a workload goes back to its queue; decides where it goes (Kueue `RequeueReason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequeueReason {
    Generic,
    FailedAfterNomination,
    NamespaceMismatch,
    PendingPreemption,
    PreemptionGated,
    NoFit,
    NoCandidates,
}

/// A head in the cycle.
pub(crate) struct Entry {
    pub(super) id: WorkloadId,
    pub(super) cq: ClusterQueueId,
    pub(super) assignment: Option<Assignment>,
    pub(super) targets: Vec<Target>,
    pub(super) last_assignment: Option<LastAssignment>,
    pub(super) outcome: Outcome,
    pub(super) requeue: RequeueReason,
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// Whether the flavors tried before this cycle were tried when less was free.
    pub(super) stale: bool,
    /// Whether it was tried with the flavors after those of its last attempt only: that says nothing about nodes of those.
    pub(super) resumed: bool,
    /// In a second pass the number of the attempt.
    pub(super) second: Option<u32>,
    /// Whether it waits for capacity on nodes (joint admission).
    pub(super) awaits_nodes: bool,
    /// Whether workloads of the same scheduling hash may fit on nodes that it can't use.
    pub(super) by_labels: bool,
    /// When it may preempt again, after too many preemptions in vain.
    pub(super) retry_at: Option<Time>,
    /// The sibling that is evicted for it, where it is a variant with a more favorable flavor.
    pub(super) migrates_from: Option<WorkloadId>,
    /// The level of borrowing with which it fits, as long as that is known without a nomination.
    pub(super) fits: Option<u32>,
    /// What is missing, if that was known before its nomination.
    pub(super) shortage: Option<Shortage>,
}

impl Entry {
    /// A head of which nothing is known.
    pub(super) const fn new(id: WorkloadId, cq: ClusterQueueId) -> Self {
        Self {
            id,
            cq,
            assignment: None,
            targets: Vec::new(),
            last_assignment: None,
            outcome: Outcome::NotNominated,
            requeue: RequeueReason::Generic,
            reason: "",
            message: String::new(),
            stale: false,
            resumed: false,
            second: None,
            awaits_nodes: false,
            by_labels: false,
            retry_at: None,
            migrates_from: None,
            fits: None,
            shortage: None,
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.assignment.as_ref().map_or(Mode::NoFit, Assignment::mode)
    }

    pub(super) fn usage(&self) -> &[(FlavorResource, Amount)] {
        self.assignment.as_ref().map_or(&[], |a| &a.usage)
    }

    pub(super) fn skip(&mut self, keep_progress: bool, message: &str) {
        self.outcome = Outcome::Skipped;
        message.clone_into(&mut self.message);
        self.reason = why::QUOTA;
        if !keep_progress {
            self.last_assignment = None;
        }
    }

    pub(super) fn record(&mut self, (assignment, targets): (Assignment, Vec<Target>)) {
        self.message = assignment.message();
        self.awaits_nodes = assignment.lacks_nodes();
        self.by_labels = assignment.by_labels;
        self.last_assignment = Some(assignment.last_assignment.clone());
        self.assignment = Some(assignment);
        self.targets = targets;
    }
}
