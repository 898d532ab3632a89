//! Claims on nodes (joint admission): the first workload of a ClusterQueue that waits for nodes of a flavor claims the places
//! where its pods will be, so that no workload after it takes what becomes free there.
//!
//! Claims stand during a cycle only: pods that no queue manages are scheduled as usual. They are ordered across all
//! ClusterQueues ([`ClaimRank`]), and a workload sees the claims before it. So of all workloads that wait the first gets every
//! place that becomes free and that it can use, and no two wait for each other.

mod claiming;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::Cycle;
use super::claim_order::{ClaimRank, ShareOrder};
use super::claimants::Claimant;
use super::entry::Entry;
use super::victim::Target;
use crate::Queueing;
use crate::ids::{ClusterQueueId, FlavorId, SchedulingHashId, WorkloadId};
use crate::model::WorkloadKey;
use crate::pending::{QueuePosition, Rank};
use plimsoll_state::model::Pod;
use plimsoll_state::reservation::DryRunId;
use plimsoll_state::time::Time;

/// The claim of a workload.
#[derive(Debug)]
pub(crate) struct NodeClaim {
    cq: ClusterQueueId,
    scheduling_hash: SchedulingHashId,
    flavors: BTreeSet<FlavorId>,
    pods: Vec<(Pod, usize)>,
    /// The workloads that were preempted for it, by UID.
    victims: Vec<(Arc<str>, Target)>,
    /// Since when.
    since: Time,
    /// Where the pods will be; lifted between cycles.
    plan: DryRunId,
    /// On which nodes that is.
    on: Vec<usize>,
    /// The capacity and the nodes that it was planned with.
    version: u64,
    nodes: u64,
    /// Whether it is where a plan made now would have it, as far as that does not depend on chance: no place was given up since
    /// that it could use.
    settled: bool,
}

/// The claims of all workloads.
#[derive(Debug, Default)]
pub(crate) struct NodeClaims {
    by_rank: BTreeMap<ClaimRank, NodeClaim>,
    /// What ClusterQueues use beyond their share, in the present cycle; only with fair sharing.
    pub(super) shares: BTreeMap<ClusterQueueId, ShareOrder>,
    /// Workloads that wait for nodes and claim none yet, in the order of queues.
    pub(super) claimants: BTreeMap<Rank, Claimant>,
    /// Claims that were impossible, and the version of the nodes then.
    impossible: (u64, BTreeSet<(SchedulingHashId, BTreeSet<FlavorId>)>),
    /// Whether one may have lost its reason.
    pub(crate) review: bool,
}

impl NodeClaims {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// Forgets what was impossible when nodes had less capacity.
    fn forget_older(&mut self, version: u64) {
        if self.impossible.0 != version {
            self.impossible = (version, BTreeSet::new());
        }
    }
}

impl Queueing {
    /// Whether a workload waits in its queue as it did when it claimed nodes.
    fn claim_holds(&self, ClaimRank { rank, .. }: &ClaimRank, claim: &NodeClaim) -> bool {
        let cq = self.cq(claim.cq);
        self.wl(rank.id).is_some_and(|w| {
            w.queued() == Some(claim.cq)
                && w.scheduling_hash() == claim.scheduling_hash
                && self.rank(w, rank.id) == *rank
        }) && cq.is_active()
            && cq.pending.position(rank.id) != Some(QueuePosition::Delayed)
    }

    /// Removes the claims of workloads that no longer wait; their plans have to be ended.
    pub(super) fn take_stale_claims(&mut self) -> Vec<DryRunId> {
        let mut claims = std::mem::take(&mut self.joint.claims);
        let stale = claims.take_stale(self);
        self.joint.claims = claims;
        if !stale.is_empty() {
            self.joint.failed.clear();
            self.requeue_awaiting_nodes();
        }
        stale
    }

    /// How many places on nodes are claimed for workloads that wait for some, by how many workloads, and since when the oldest claim
    /// lasts.
    pub fn claimed_places(&self) -> (usize, usize, Option<Time>) {
        let claims = || self.joint.claims.by_rank.values();
        (claims().map(|c| c.on.len()).sum(), claims().count(), claims().map(|c| c.since).min())
    }

    /// There is more capacity on nodes, or places are claimed no longer: workloads that wait for nodes are tried again.
    pub(super) fn requeue_awaiting_nodes(&mut self) {
        let waiting = std::mem::take(&mut self.joint.awaiting_nodes);
        self.requeue_waiting(waiting);
    }

    /// Tries workloads of these ClusterQueues again: those that are inadmissible, and the heads of StrictFIFO, which never are.
    pub(super) fn requeue_waiting(&mut self, queues: BTreeSet<ClusterQueueId>) {
        queues.iter().for_each(|&cq| self.due.tree_of(cq));
        self.dirty.inadmissible.extend(queues);
    }
}

impl NodeClaims {
    /// Removes the claims of workloads that no longer wait, and gives their plans.
    fn take_stale(&mut self, state: &Queueing) -> Vec<DryRunId> {
        self.review = false;
        let claims = std::mem::take(&mut self.by_rank);
        let (hold, stale): (BTreeMap<_, _>, BTreeMap<_, _>) =
            claims.into_iter().partition(|(rank, claim)| state.claim_holds(rank, claim));
        self.by_rank = hold;
        if !stale.is_empty() {
            self.impossible.1.clear();
        }
        stale.into_values().map(|claim| claim.plan).collect()
    }

    /// Places were given up that claims may use.
    pub(super) fn unsettle(&mut self) {
        self.by_rank.values_mut().for_each(|claim| claim.settled = false);
    }

    /// A workload does not wait for nodes any more.
    pub(super) fn forget_claimant(&mut self, id: WorkloadId) {
        self.claimants.retain(|rank, _| rank.id != id);
    }

    /// The place of a workload among claims.
    pub(super) fn rank_of(&self, state: &Queueing, id: WorkloadId) -> Option<ClaimRank> {
        let (wl, rank) = (state.wl(id)?, state.rank(state.wl(id)?, id));
        let preempting = ClaimRank::new(None, rank.clone(), true);
        if self.by_rank.contains_key(&preempting) {
            return Some(preempting);
        }
        Some(ClaimRank::new(wl.queued().and_then(|cq| self.shares.get(&cq)), rank, false))
    }

    /// Gives claims their places by the present shares; whether their order has changed.
    pub(super) fn reorder(&mut self) -> bool {
        let before: Vec<WorkloadId> = self.by_rank.keys().map(|r| r.rank.id).collect();
        let claims = std::mem::take(&mut self.by_rank);
        let shares = &self.shares;
        let ranked = |(r, c): (ClaimRank, NodeClaim)| {
            (ClaimRank::new(shares.get(&c.cq).filter(|_| !r.preempts.0), r.rank, r.preempts.0), c)
        };
        self.by_rank = claims.into_iter().map(ranked).collect();
        !self.by_rank.keys().map(|r| r.rank.id).eq(before)
    }

    /// The ClusterQueues of all claims, and of workloads that will have some.
    pub(super) fn queues(&self) -> impl Iterator<Item = ClusterQueueId> {
        self.by_rank.values().map(|c| c.cq).chain(self.claimants.values().map(|c| c.cq))
    }

    /// The workload whose claim comes right before one of this rank.
    fn claimant_before<'q>(&self, state: &'q Queueing, rank: &ClaimRank) -> Option<&'q WorkloadKey> {
        let (claimant, _) = self.by_rank.range(..rank).next_back()?;
        Some(&state.wl(claimant.rank.id)?.obj.key)
    }

    /// The claims before a workload of this rank, but for those that others are preempted for.
    pub(super) fn before(&self, rank: &ClaimRank) -> Vec<ClaimRank> {
        let before = self.by_rank.range(..rank).map(|(r, _)| r);
        before.filter(|r| !r.preempts.0).cloned().collect()
    }

    /// Where the pods of a claim will be.
    pub(super) fn plan_of(&self, rank: &ClaimRank) -> Option<DryRunId> {
        self.by_rank.get(rank).map(|claim| claim.plan)
    }
}

impl Cycle<'_> {
    /// Places are claimed no longer: what failed because of them may succeed, and claims may have better places.
    pub(super) fn claims_dropped(&mut self) {
        self.failed.clear();
        self.claims.unsettle();
        self.claims.impossible.1.clear();
        self.nodes_changed.claims_dropped = true;
    }
}

impl Cycle<'_> {
    /// Takes claims down, as far as they are still there.
    pub(super) fn lift_these(&mut self, ranks: &[ClaimRank]) {
        let Some(nodes) = self.nodes.as_mut() else { return };
        let plans = ranks.iter().rev().filter_map(|rank| self.claims.plan_of(rank));
        plans.for_each(|plan| nodes.lift(plan));
    }

    /// Puts them up again as they were.
    pub(super) fn restore_these(&mut self, ranks: &[ClaimRank]) {
        let Some(nodes) = self.nodes.as_mut() else { return };
        ranks.iter().filter_map(|rank| self.claims.plan_of(rank)).for_each(|plan| {
            nodes.restore(plan, false);
        });
    }

    /// Puts them up again, planned beside what another workload got.
    pub(super) fn replan_these(&mut self, ranks: &[ClaimRank]) {
        ranks.iter().for_each(|rank| self.put_up_claim(rank, true));
    }

    /// Puts up the claims of workloads that still wait, for a cycle; those made with less capacity are planned anew. Whether that did
    /// not have to be put off.
    pub(super) fn put_up_claims(&mut self) -> bool {
        if self.nodes.is_none() || self.claims.is_empty() {
            return true;
        }
        let stale = self.claims.take_stale(&self.state);
        if !stale.is_empty() {
            self.claims_dropped();
        }
        for plan in stale {
            self.end_dry_runs(&[plan]);
        }
        if !self.rank_nodes_of_claims() {
            return false;
        }
        let anew = self.claims_reordered();
        let ranks: Vec<ClaimRank> = self.claims.by_rank.keys().cloned().collect();
        for rank in ranks {
            self.put_up_claim(&rank, anew);
        }
        true
    }

    /// Looks at all nodes for the claims that are planned anew, as far as the step has work left; whether that is done.
    fn rank_nodes_of_claims(&mut self) -> bool {
        let Some(nodes) = self.nodes.as_mut() else { return true };
        let version = nodes.capacity_version();
        let mut anew = self.claims.by_rank.values().filter(|claim| claim.version != version);
        anew.all(|claim| nodes.rank_nodes(self.now, &claim.pods))
    }

    /// The same for the claims that are due and new, of entries that wait for nodes.
    pub(super) fn rank_nodes_for_claims(&mut self, entries: &[Entry]) {
        let at_once = self.state.config.overtaking == 0;
        if self.claims.claimants.is_empty() && !at_once {
            return;
        }
        for e in entries.iter().filter(|e| e.awaits_nodes) {
            let rank = self.claims.rank_of(&self.state, e.id);
            let claims = rank.and_then(|rank| self.claims.plan_of(&rank)).is_some();
            if claims || !(at_once || self.may_claim(e.id)) {
                continue;
            }
            // With places in a topology each pod has one node.
            for wanted in self.claims_wanted(e).iter().filter(|w| !w.has_places()) {
                let pods = self.pods_on(e.id, wanted.admission(), &Vec::new());
                if !self.nodes.as_mut().is_none_or(|nodes| nodes.rank_nodes(self.now, &pods)) {
                    return;
                }
            }
        }
    }

    /// Puts up one claim, planned anew if there may be more capacity or the nodes changed within the cycle (`anew`).
    fn put_up_claim(&mut self, rank: &ClaimRank, anew: bool) {
        let Some(nodes) = self.nodes.as_mut() else { return };
        let Some(claim) = self.claims.by_rank.get_mut(rank) else { return };
        let version = nodes.capacity_version();
        if !anew && claim.version == version {
            nodes.restore(claim.plan, false);
            return;
        }
        let Some(key) = self.state.workloads.get(rank.rank.id).map(|w| w.obj.key.clone()) else { return };
        let changed = std::mem::replace(&mut claim.nodes, nodes.node_version()) != claim.nodes;
        if changed {
            nodes.end(claim.plan);
        }
        match nodes.plan(self.now, &key, &claim.pods, (!changed).then_some(claim.plan)) {
            Some(plan) => {
                (claim.plan, claim.version, claim.settled) = (plan, version, true);
                let on = nodes.planned_on(plan);
                if on != claim.on {
                    // What it claims no longer is free for workloads after it.
                    claim.on = on;
                    self.failed.clear();
                }
            }
            None => {
                self.claims.by_rank.remove(rank);
                self.claims_dropped();
            }
        }
    }

    /// Takes all claims down at the end of a cycle.
    pub(super) fn take_down_claims(&mut self) {
        let Some(nodes) = self.nodes.as_mut() else { return };
        self.claims.by_rank.values().rev().for_each(|claim| nodes.lift(claim.plan));
    }

    /// Takes the claim of a workload and those after it down, while it is tried. Gives its place among claims.
    pub(super) fn lift_claims(&mut self, id: WorkloadId) -> Option<ClaimRank> {
        let nodes = self.nodes.as_mut().filter(|_| !self.claims.is_empty())?;
        let rank = self.claims.rank_of(&self.state, id)?;
        let after = self.claims.by_rank.range(&rank..);
        after.rev().for_each(|(_, claim)| nodes.lift(claim.plan));
        self.dry_runs.claimant = self.claims.claimant_before(&self.state, &rank).map(ToString::to_string);
        Some(rank)
    }

    /// Puts them up again as they were.
    pub(super) fn restore_claims(&mut self, rank: Option<&ClaimRank>) {
        let (Some(rank), Some(nodes)) = (rank, self.nodes.as_mut()) else { return };
        self.dry_runs.claimant = None;
        self.claims.by_rank.range(rank..).for_each(|(_, claim)| {
            nodes.restore(claim.plan, false);
        });
    }

    /// The same after a workload of this rank got nodes, or a claim: those after it are planned anew.
    pub(super) fn replan_claims_after(&mut self, rank: &ClaimRank) {
        self.dry_runs.claimant = None;
        let after = (Bound::Excluded(rank.clone()), Bound::Unbounded);
        let after: Vec<ClaimRank> = self.claims.by_rank.range(after).map(|(r, _)| r.clone()).collect();
        for rank in after {
            self.put_up_claim(&rank, true);
        }
    }

    /// A workload does not wait for nodes any more.
    pub(super) fn drop_claim(&mut self, id: WorkloadId) {
        self.claims.forget_claimant(id);
        if self.claims.is_empty() {
            return;
        }
        let own = self.claims.by_rank.iter().find(|(r, _)| r.rank.id == id).map(|(r, _)| r.clone());
        if let Some(claim) = own.and_then(|rank| self.claims.by_rank.remove(&rank)) {
            self.end_dry_runs(&[claim.plan]);
            self.claims_dropped();
        }
    }
}
