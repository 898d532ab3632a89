//! What a cycle decides: the plan that comes of its entries, and of what else is to change.

use super::assign::{Assignment, LastAssignment, Mode};
use super::claims::NodeClaims;
use super::dry_runs::FailedDryRuns;
use super::entry::{Entry, Outcome, RequeueReason};
use super::victim::Target;
use crate::ids::{ClusterQueueId, SchedulingHashId, WorkloadId};
use crate::joint::NodesDecision;
use crate::pending::Shortage;
use plimsoll_state::time::Time;

/// How often an entry's victims were searched anew, for the metric: the ClusterQueue and the label `result`.
pub(super) type Recomputation = (ClusterQueueId, &'static str);

/// What a cycle decided, in the order in which it is carried out.
pub(super) struct Plan {
    /// ClusterQueues whose heads the cycle looked at.
    pub(super) queues: Vec<ClusterQueueId>,
    /// Those whose heads it did not come to.
    pub(super) unfinished: Vec<ClusterQueueId>,
    /// Whether nothing was decided, and the next cycle looks at the same heads.
    pub(super) put_off: bool,
    /// Heads that leave their queues: each has a decision.
    pub(super) heads: Vec<(WorkloadId, ClusterQueueId)>,
    /// Workloads that are inadmissible for the same reason as before.
    pub(super) still_inadmissible: Vec<StillInadmissible>,
    /// The lowest priority of the workloads that hold quota in a ClusterQueue, where the cycle looked for it.
    pub(super) lowest_priorities: Vec<(ClusterQueueId, Option<i64>)>,
    pub(super) decisions: Vec<Decision>,
    /// The first workload that waits until the pods of others are ready. It goes first in the next cycle.
    pub(super) blocked: Option<WorkloadId>,
    /// For every head's ClusterQueue, how many entries needed victims of others.
    pub(super) skips: Vec<(ClusterQueueId, u32)>,
    pub(super) recomputations: Vec<Recomputation>,
    pub(super) nodes: NodesPlan,
}

impl Plan {
    /// The plan of a cycle that the next step goes on with.
    pub(super) const fn put_off(queues: Vec<ClusterQueueId>, nodes: NodesPlan) -> Self {
        Self {
            queues,
            unfinished: Vec::new(),
            put_off: true,
            heads: Vec::new(),
            still_inadmissible: Vec::new(),
            lowest_priorities: Vec::new(),
            decisions: Vec::new(),
            blocked: None,
            skips: Vec::new(),
            recomputations: Vec::new(),
            nodes,
        }
    }

    /// Whether there was nothing to decide.
    pub(super) fn is_idle(&self) -> bool {
        self.heads.is_empty() && self.decisions.is_empty() && self.still_inadmissible.is_empty()
    }
}

/// The workloads of a scheduling hash that lack as much quota as when they became inadmissible.
pub(super) struct StillInadmissible {
    pub(super) cq: ClusterQueueId,
    pub(super) scheduling_hash: SchedulingHashId,
}

/// What becomes of dry runs and claims on nodes (joint admission).
pub(super) struct NodesPlan {
    /// Failures for later cycles to remember.
    pub(super) failed: FailedDryRuns,
    /// Claims for later cycles.
    pub(super) claims: NodeClaims,
    pub(super) changed: ClaimsChanged,
}

/// What happened to claims in a cycle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClaimsChanged {
    /// One ended: workloads that wait for nodes are requeued.
    pub(super) claims_dropped: bool,
    /// A workload has been overtaken often enough to claim nodes.
    pub(super) claim_due: bool,
    /// One is new: entries that fitted without it come again.
    pub(super) claimed: bool,
}

/// What is decided of the nodes of a workload that gets its quota (joint admission).
#[derive(Debug, Default)]
pub(super) struct AdmittedNodes {
    /// For the condition `plimsoll.dev/NodesReserved`.
    pub(super) decision: Option<NodesDecision>,
    /// Whether some are reserved.
    pub(super) reserved: bool,
}

/// What becomes of one workload.
pub(super) enum Decision {
    /// It gets its quota.
    Admit { id: WorkloadId, cq: ClusterQueueId, assignment: Assignment, nodes: AdmittedNodes },
    /// It holds its quota and gets the places that a second pass found.
    AssignTopology { id: WorkloadId, cq: ClusterQueueId, assignment: Assignment },
    /// It holds its quota and stops: no node replaces the one that failed.
    EvictForNodeFailure { id: WorkloadId },
    /// Others are preempted for it, and it waits until they have stopped.
    Preempt { targets: Vec<Target>, retry: Retry },
    /// A sibling with a less favorable flavor is evicted for it, and it waits until that has stopped.
    Migrate { from: WorkloadId, retry: Retry },
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
            Self::Preempt { .. } | Self::Migrate { .. } | Self::Retry(_) | Self::Stay { .. } => false,
        }
    }
}

impl Entry {
    /// What becomes of it.
    pub(super) fn decide(self, nodes: AdmittedNodes) -> Decision {
        let preempts = self.mode() == Mode::Preempt && self.requeue == RequeueReason::PendingPreemption;
        let (id, cq) = (self.id, self.cq);
        if self.fits.is_some() {
            return Decision::Stay { id };
        }
        match (self.outcome, self.assignment) {
            (Outcome::Admitted, Some(assignment)) if self.second.is_some() => {
                return Decision::AssignTopology { id, cq, assignment };
            }
            (Outcome::Admitted, Some(assignment)) => return Decision::Admit { id, cq, assignment, nodes },
            (Outcome::Evicted, _) => return Decision::EvictForNodeFailure { id },
            // Only what has an assignment is admitted.
            (Outcome::Admitted, None) | (Outcome::NotNominated | Outcome::Skipped, _) => {}
        }
        let migrates_from = self.migrates_from;
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
        match migrates_from {
            Some(from) => Decision::Migrate { from, retry },
            None if preempts => Decision::Preempt { targets: self.targets, retry },
            None => Decision::Retry(retry),
        }
    }
}
