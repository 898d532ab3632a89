//! Claims on nodes (joint admission): the first workload of a ClusterQueue that waits for nodes of a flavor claims the places
//! where its pods will be, so that no workload after it takes what becomes free there.
//!
//! Claims stand during a cycle only: pods that no queue manages are scheduled as usual. They are ordered across all
//! ClusterQueues ([`ClaimRank`]), and a workload sees the claims before it. So of all workloads that wait the first gets every
//! place that becomes free and that it can use, and no two wait for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::Cycle;
use super::claim_order::{ClaimRank, ShareOrder};
use super::claimants::Claimant;
use super::entry::Entry;
use super::joint::can_wait_for_others;
use super::victim::Target;
use crate::Queueing;
use crate::cond;
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
    /// Places are claimed no longer: what failed because of them may succeed.
    pub(super) fn claims_dropped(&mut self) {
        self.failed.clear();
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
                (claim.plan, claim.version) = (plan, version);
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

    /// Claims nodes for an entry that got no quota, if it waits for nodes, too.
    pub(super) fn claim_or_drop(&mut self, e: &Entry) {
        if self.awaited_victims(e.id).is_some() {
            // What they leave is claimed.
        } else if e.awaits_nodes {
            self.claim_nodes(e);
        } else if !e.resumed {
            self.drop_claim(e.id);
        }
    }

    /// Claims nodes for an entry that waits for some, unless a workload of its ClusterQueue before it has a claim in the
    /// same flavors, or its pods would not fit if all others had left.
    pub(super) fn claim_nodes(&mut self, e: &Entry) {
        let Some(wl) = self.state.wl(e.id) else { return };
        let replaces = e.assignment.as_ref().is_none_or(|a| a.replaced.is_some());
        if self.nodes.is_none() || e.second.is_some() || replaces || !can_wait_for_others(wl) {
            return;
        }
        let hash = wl.scheduling_hash();
        let Some(rank) = self.claims.rank_of(&self.state, e.id) else { return };
        let wanted = self.claims_wanted(e);
        let flavors = wanted.iter().flat_map(|w| &w.flavors).copied().collect();
        if !self.claims.by_rank.contains_key(&rank) && !self.claim_is_due(e, &rank.rank, flavors) {
            return;
        }
        for wanted in wanted {
            let Some(nodes) = self.nodes.as_mut() else { return };
            let claims = &mut self.claims;
            claims.forget_older(nodes.whole_version());
            let mut before = claims.by_rank.range(..&rank);
            if (!rank.preempts.0
                && before
                    .any(|(r, c)| !r.preempts.0 && c.cq == e.cq && !c.flavors.is_disjoint(&wanted.flavors)))
                || claims.impossible.1.contains(&(hash, wanted.flavors.clone()))
            {
                continue;
            }
            let own = claims.by_rank.remove(&rank);
            claims.by_rank.range(&rank..).rev().for_each(|(_, claim)| nodes.lift(claim.plan));
            let (known, current) = (own.is_some(), nodes.node_version());
            let (since, victims) =
                own.as_ref().map_or((self.now, Vec::new()), |c| (c.since, c.victims.clone()));
            let before = own.map(|own| {
                let same = own.nodes == current;
                if !same {
                    nodes.end(own.plan);
                }
                (same.then_some(own.plan), own.pods, own.flavors == wanted.flavors)
            });
            let Some((plan, pods)) = self.plan_claim(e, &wanted, before) else {
                self.claims.impossible.1.insert((hash, wanted.flavors));
                if known {
                    self.claims_dropped();
                }
                self.replan_claims_after(&rank);
                continue;
            };
            let Some(nodes) = self.nodes.as_mut() else { return };
            let (version, on, flavors) = (nodes.capacity_version(), nodes.planned_on(plan), wanted.flavors);
            let (cq, scheduling_hash, nodes) = (e.cq, hash, current);
            let claim =
                NodeClaim { cq, scheduling_hash, flavors, pods, victims, since, plan, on, version, nodes };
            self.insert_claim(&rank, claim, known);
            return;
        }
        self.drop_claim(e.id);
    }

    /// Keeps what the victims of an entry leave for it, and what is free of the places that its pods need, until it is
    /// admitted; whether its pods still fit there, beside what the entries before it got and claim.
    pub(super) fn claim_for_preemption(&mut self, e: &Entry) -> bool {
        let runs = self.dry_runs.take(e.id);
        let (Some(&run), Some(wl)) = (runs.first(), self.state.wl(e.id)) else { return true };
        let scheduling_hash = wl.scheduling_hash();
        let Some(before) = self.claims.rank_of(&self.state, e.id) else { return true };
        self.lift_claims(e.id);
        let gone = e.targets.iter().map(|t| t.id).chain(self.preempted.iter().copied());
        let gone: Vec<WorkloadKey> = gone.filter_map(|id| Some(self.state.wl(id)?.obj.key.clone())).collect();
        let (flavors, pods) = self.claim_of_assignment(e);
        let Some(nodes) = self.nodes.as_mut() else { return true };
        nodes.simulate_removal(None);
        gone.iter().for_each(|key| {
            nodes.simulate_removal(Some(key));
        });
        let whole = nodes.restore(run, self.dry_runs.others_placed);
        gone.iter().rev().for_each(|key| nodes.simulate_addition(Some(key)));
        nodes.simulate_addition(None);
        if !whole {
            nodes.end(run);
            self.restore_claims(Some(&before));
            return false;
        }
        let own = self.claims.by_rank.remove(&before);
        let (known, since) = (own.is_some(), own.as_ref().map_or(self.now, |c| c.since));
        own.into_iter().for_each(|c| nodes.end(c.plan));
        let rank = ClaimRank::new(None, before.rank, true);
        let (on, version, nodes) = (nodes.planned_on(run), nodes.capacity_version(), nodes.node_version());
        let uid = |t: &Target| Some((Arc::clone(self.state.wl(t.id)?.uid()), *t));
        let (cq, victims) = (e.cq, e.targets.iter().filter_map(uid).collect());
        let plan = run;
        let claim =
            NodeClaim { cq, scheduling_hash, flavors, pods, victims, since, plan, on, version, nodes };
        self.insert_claim(&rank, claim, known);
        true
    }

    /// What a workload waits for that others were preempted for, while some of them are still leaving: the flavors that it has
    /// claimed, and those who hold quota still.
    pub(super) fn awaited_victims(&mut self, id: WorkloadId) -> Option<(BTreeSet<FlavorId>, Vec<Target>)> {
        let rank = self.claims.rank_of(&self.state, id).filter(|r| r.preempts.0)?;
        let claim = self.claims.by_rank.get(&rank)?;
        let leaving = |(uid, t): &&(Arc<str>, Target)| {
            let w = self.state.wl(t.id).filter(|w| w.uid() == uid);
            w.is_some_and(|w| w.quota().is_some() && w.obj.status.is_true(cond::EVICTED))
        };
        let targets: Vec<Target> = claim.victims.iter().filter(leaving).map(|(_, t)| *t).collect();
        let flavors = claim.flavors.clone();
        if targets.is_empty() {
            // Their quota is free already, and their pods are on their way.
            let blockers = self.nodes.as_mut()?.blockers(claim.plan).filter(|b| !b.is_empty())?;
            let holds = |key| {
                let id = self.state.workloads.find(key)?;
                self.state.wl(id)?.quota()
            };
            if blockers.iter().any(|key| holds(key).is_some()) {
                return None;
            }
        }
        Some((flavors, targets))
    }

    fn insert_claim(&mut self, rank: &ClaimRank, claim: NodeClaim, known: bool) {
        // Claims of the same ClusterQueue after it give way, unless others were preempted for it or for them.
        let overlaps = |c: &NodeClaim| c.cq == claim.cq && !c.flavors.is_disjoint(&claim.flavors);
        let after = self.claims.by_rank.range(rank..);
        let give_way: Vec<ClaimRank> = after
            .filter(|(r, c)| !rank.preempts.0 && !r.preempts.0 && overlaps(c))
            .map(|(r, _)| r.clone())
            .collect();
        for rank in give_way {
            if let Some(claim) = self.claims.by_rank.remove(&rank) {
                self.end_dry_runs(&[claim.plan]);
            }
        }
        self.claims.by_rank.insert(rank.clone(), claim);
        self.replan_claims_after(rank);
        self.failed.clear();
        if !known {
            // Entries that fitted without this claim come again.
            self.dry_runs.others_placed = true;
            self.nodes_changed.claimed = true;
        }
    }
}
