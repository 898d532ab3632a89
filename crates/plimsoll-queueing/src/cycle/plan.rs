//! What a cycle decides: entries while they are decided about, and the plan that comes of them.

use super::assign::{Assignment, LastAssignment, Mode, why};
use super::victim::Target;
use crate::amount::Amount;
use crate::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use crate::pending::Shortage;
use plimsoll_state::time::Time;

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
    /// In a second pass the number of the attempt.
    pub(super) second: Option<u32>,
    /// Whether it waits for capacity on nodes (joint admission).
    pub(super) awaits_nodes: bool,
    /// Whether workloads of the same scheduling hash may fit on nodes that it can't use.
    pub(super) by_labels: bool,
    /// When it may preempt again, after too many preemptions in vain.
    pub(super) retry_at: Option<Time>,
    /// The level of borrowing with which it fits, as long as that is known without a nomination.
    pub(super) fits: Option<u32>,
    /// What is missing, if that was known before its nomination.
    pub(super) shortage: Option<Shortage>,
}

/// How often an entry's victims were searched anew, for the metric: the ClusterQueue and the label `result`.
pub(super) type Recomputation = (ClusterQueueId, &'static str);

/// What a cycle decided, in the order in which it is carried out.
pub(super) struct Plan {
    pub(super) decisions: Vec<Decision>,
    /// For every head's ClusterQueue, how many entries needed victims of others.
    pub(super) skips: Vec<(ClusterQueueId, u32)>,
    pub(super) recomputations: Vec<Recomputation>,
}

/// Why an entry waits that fitted at the beginning of the cycle.
pub(super) const NO_LONGER_FITS: &str = "Workload no longer fits after processing another workload";

/// What becomes of one workload.
pub(super) enum Decision {
    /// It gets its quota.
    Admit { id: WorkloadId, cq: ClusterQueueId, assignment: Assignment },
    /// It holds its quota and gets the places that a second pass found.
    AssignTopology { id: WorkloadId, cq: ClusterQueueId, assignment: Assignment },
    /// It holds its quota and stops: no node replaces the one that failed.
    EvictForNodeFailure { id: WorkloadId },
    /// Others are preempted for it, and it waits until they have stopped.
    Preempt { targets: Vec<Target>, retry: Retry },
    /// It waits.
    Retry(Retry),
    /// It is in its queue still: one before it took its quota.
    Stay { id: WorkloadId },
}

/// How a workload that got nothing comes into a later cycle.
pub(super) enum Retry {
    /// Through its queue.
    Requeue(Requeue),
    /// With another attempt at its second pass.
    SecondPass { id: WorkloadId, cq: ClusterQueueId, attempt: u32, message: String },
}

/// A workload on its way back to its queue.
pub(super) struct Requeue {
    pub(super) id: WorkloadId,
    pub(super) cq: ClusterQueueId,
    pub(super) why: RequeueReason,
    /// Reason and message of `QuotaReserved=False`.
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) last_assignment: Option<LastAssignment>,
    pub(super) stale: bool,
    pub(super) awaits_nodes: bool,
    pub(super) by_labels: bool,
    pub(super) retry_at: Option<Time>,
    pub(super) shortage: Option<Shortage>,
}

impl Retry {
    /// The workload and its ClusterQueue.
    pub(super) fn workload(&self) -> (WorkloadId, ClusterQueueId) {
        match self {
            Self::Requeue(r) => (r.id, r.cq),
            Self::SecondPass { id, cq, .. } => (*id, *cq),
        }
    }
}

impl Decision {
    /// Whether it changes what a workload holds, as Kueue counts admission attempts.
    pub(super) fn succeeds(&self) -> bool {
        match self {
            Self::Admit { .. } | Self::AssignTopology { .. } | Self::EvictForNodeFailure { .. } => true,
            Self::Preempt { .. } | Self::Retry(_) | Self::Stay { .. } => false,
        }
    }
}

impl Entry {
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

    /// What becomes of it.
    pub(super) fn decide(self) -> Decision {
        let preempts = self.mode() == Mode::Preempt && self.requeue == RequeueReason::PendingPreemption;
        let (id, cq) = (self.id, self.cq);
        if self.fits.is_some() {
            return Decision::Stay { id };
        }
        match (self.outcome, self.assignment) {
            (Outcome::Admitted, Some(assignment)) if self.second.is_some() => {
                return Decision::AssignTopology { id, cq, assignment };
            }
            (Outcome::Admitted, Some(assignment)) => return Decision::Admit { id, cq, assignment },
            (Outcome::Evicted, _) => return Decision::EvictForNodeFailure { id },
            // Only what has an assignment is admitted.
            (Outcome::Admitted, None) | (Outcome::NotNominated | Outcome::Skipped, _) => {}
        }
        let skipped = self.outcome == Outcome::Skipped && self.requeue == RequeueReason::Generic;
        let why = if skipped { RequeueReason::FailedAfterNomination } else { self.requeue };
        let retry = match self.second {
            Some(attempt) => Retry::SecondPass { id, cq, attempt, message: self.message },
            None => Retry::Requeue(Requeue {
                id,
                cq,
                why,
                reason: self.reason,
                message: self.message,
                last_assignment: self.last_assignment,
                stale: self.stale,
                awaits_nodes: self.awaits_nodes,
                by_labels: self.by_labels,
                retry_at: self.retry_at,
                shortage: self.shortage,
            }),
        };
        if preempts { Decision::Preempt { targets: self.targets, retry } } else { Decision::Retry(retry) }
    }
}
