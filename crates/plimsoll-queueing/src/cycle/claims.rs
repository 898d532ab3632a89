//! Claims on nodes (joint admission): the first workload of a ClusterQueue that waits for nodes of a flavor claims the places
//! where its pods will be, so that no workload after it takes what becomes free there.
//!
//! Claims stand during a cycle only: pods that no queue manages are scheduled as usual. They are ordered like the workloads
//! of one queue, by priority and then by age, across all ClusterQueues, and a workload sees the claims before it. So of all
//! workloads that wait the first gets every place that becomes free and that it can use, and no two wait for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::Cycle;
use super::assign::{Mode, PodSetFlavors, why};
use super::joint::all_can_be_reserved;
use super::plan::Entry;
use crate::Queueing;
use crate::ids::{ClusterQueueId, FlavorId, SchedulingHashId, WorkloadId};
use crate::model::{PodSetAssignment, WorkloadKey};
use crate::pending::{QueuePosition, Rank};
use plimsoll_state::model::Pod;
use plimsoll_state::reservation::DryRunId;

/// Flavors that a claim may be for, and the pods with what those add.
type Wanted = (BTreeSet<FlavorId>, Vec<(Pod, usize)>);

/// The claim of a workload.
#[derive(Debug)]
pub(crate) struct NodeClaim {
    cq: ClusterQueueId,
    scheduling_hash: SchedulingHashId,
    flavors: BTreeSet<FlavorId>,
    pods: Vec<(Pod, usize)>,
    /// Where the pods will be; lifted between cycles.
    plan: DryRunId,
    /// The capacity and the nodes that it was planned with.
    version: u64,
    nodes: u64,
}

/// The claims of all workloads.
#[derive(Debug, Default)]
pub(crate) struct NodeClaims {
    by_rank: BTreeMap<Rank, NodeClaim>,
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
    fn claim_holds(&self, rank: &Rank, claim: &NodeClaim) -> bool {
        let cq = self.cq(claim.cq);
        self.wl(rank.id).is_some_and(|w| {
            w.queued == Some(claim.cq)
                && w.scheduling_hash == claim.scheduling_hash
                && self.rank(w, rank.id) == *rank
        }) && cq.is_active()
            && cq.pending.position(rank.id) != Some(QueuePosition::Delayed)
    }

    /// Takes out the claims of workloads that no longer wait; their plans have to be ended.
    pub(super) fn take_stale_claims(&mut self) -> Vec<DryRunId> {
        self.joint.claims.review = false;
        let claims = std::mem::take(&mut self.joint.claims.by_rank);
        let (hold, stale): (BTreeMap<_, _>, BTreeMap<_, _>) =
            claims.into_iter().partition(|(rank, claim)| self.claim_holds(rank, claim));
        self.joint.claims.by_rank = hold;
        if !stale.is_empty() {
            self.claims_dropped();
        }
        stale.into_values().map(|claim| claim.plan).collect()
    }

    /// Places are claimed no longer: workloads that wait for nodes are tried again.
    fn claims_dropped(&mut self) {
        self.joint.failed.clear();
        self.joint.claims.impossible.1.clear();
        let waiting = std::mem::take(&mut self.joint.awaiting_nodes);
        self.dirty.inadmissible.extend(waiting);
    }

    /// The workload whose claim comes right before one of this rank.
    fn claimant_before(&self, rank: &Rank) -> Option<&WorkloadKey> {
        let (claimant, _) = self.joint.claims.by_rank.range(..rank).next_back()?;
        Some(&self.wl(claimant.id)?.obj.key)
    }
}

impl Cycle<'_> {
    /// Puts up the claims of workloads that still wait, for a cycle; those made with less capacity are planned anew.
    pub(super) fn put_up_claims(&mut self) {
        if self.nodes.is_none() || self.state.joint.claims.is_empty() {
            return;
        }
        for plan in self.state.take_stale_claims() {
            self.end_dry_runs(&[plan]);
        }
        let ranks: Vec<Rank> = self.state.joint.claims.by_rank.keys().cloned().collect();
        for rank in ranks {
            self.put_up_claim(&rank, false);
        }
    }

    /// Puts up one claim, planned anew if there may be more capacity or the nodes changed within the cycle (`anew`).
    fn put_up_claim(&mut self, rank: &Rank, anew: bool) {
        let Some(nodes) = self.nodes.as_mut() else { return };
        let Some(claim) = self.state.joint.claims.by_rank.get_mut(rank) else { return };
        let version = nodes.capacity_version();
        if !anew && claim.version == version {
            nodes.restore(claim.plan, false);
            return;
        }
        let Some(key) = self.state.workloads.get(rank.id).map(|w| w.obj.key.clone()) else { return };
        let changed = std::mem::replace(&mut claim.nodes, nodes.node_version()) != claim.nodes;
        if changed {
            nodes.end(claim.plan);
        }
        match nodes.plan(self.now, &key, &claim.pods, (!changed).then_some(claim.plan)) {
            Some(plan) => (claim.plan, claim.version) = (plan, version),
            None => {
                self.state.joint.claims.by_rank.remove(rank);
                self.state.claims_dropped();
            }
        }
    }

    /// Takes all claims down at the end of a cycle.
    pub(super) fn take_down_claims(&mut self) {
        let Some(nodes) = self.nodes.as_mut() else { return };
        self.state.joint.claims.by_rank.values().rev().for_each(|claim| nodes.lift(claim.plan));
    }

    /// Takes the claim of a workload and those after it down, while it is tried. Gives its place among claims.
    pub(super) fn lift_claims(&mut self, id: WorkloadId) -> Option<Rank> {
        let nodes = self.nodes.as_mut().filter(|_| !self.state.joint.claims.is_empty())?;
        let rank = self.state.rank(self.state.wl(id)?, id);
        let after = self.state.joint.claims.by_rank.range(&rank..);
        after.rev().for_each(|(_, claim)| nodes.lift(claim.plan));
        self.dry_runs.claimant = self.state.claimant_before(&rank).map(ToString::to_string);
        Some(rank)
    }

    /// Puts them up again as they were.
    pub(super) fn restore_claims(&mut self, rank: Option<&Rank>) {
        let (Some(rank), Some(nodes)) = (rank, self.nodes.as_mut()) else { return };
        self.dry_runs.claimant = None;
        self.state.joint.claims.by_rank.range(rank..).for_each(|(_, claim)| {
            nodes.restore(claim.plan, false);
        });
    }

    /// The same after a workload of this rank got nodes, or a claim: those after it are planned anew.
    pub(super) fn replan_claims_after(&mut self, rank: &Rank) {
        self.dry_runs.claimant = None;
        let after = (Bound::Excluded(rank.clone()), Bound::Unbounded);
        let after: Vec<Rank> = self.state.joint.claims.by_rank.range(after).map(|(r, _)| r.clone()).collect();
        for rank in after {
            self.put_up_claim(&rank, true);
        }
    }

    /// A workload does not wait for nodes any more.
    pub(super) fn drop_claim(&mut self, id: WorkloadId) {
        if self.state.joint.claims.is_empty() {
            return;
        }
        let own = self.state.joint.claims.by_rank.iter().find(|(r, _)| r.id == id).map(|(r, _)| r.clone());
        if let Some(claim) = own.and_then(|rank| self.state.joint.claims.by_rank.remove(&rank)) {
            self.end_dry_runs(&[claim.plan]);
            self.state.claims_dropped();
        }
    }

    /// Claims nodes for an entry that got no quota, if it waits for nodes, too.
    pub(super) fn claim_or_drop(&mut self, e: &Entry) {
        if e.awaits_nodes {
            self.claim_nodes(e);
        } else {
            self.drop_claim(e.id);
        }
    }

    /// Claims nodes for an entry that waits for some, unless a workload of its ClusterQueue before it has a claim in the
    /// same flavors, or its pods would not fit if all others had left.
    pub(super) fn claim_nodes(&mut self, e: &Entry) {
        let Some(wl) = self.state.wl(e.id) else { return };
        let topology = wl.obj.pod_sets.iter().any(|p| p.topology.is_some());
        let replaces = e.assignment.as_ref().is_none_or(|a| a.replaced.is_some());
        if self.nodes.is_none() || e.second.is_some() || topology || replaces || !all_can_be_reserved(wl) {
            return;
        }
        let (rank, hash, key) = (self.state.rank(wl, e.id), wl.scheduling_hash, wl.obj.key.clone());
        for (flavors, pods) in self.claims_wanted(e) {
            let Some(nodes) = self.nodes.as_mut() else { return };
            let claims = &mut self.state.joint.claims;
            claims.forget_older(nodes.whole_version());
            let mut before = claims.by_rank.range(..&rank);
            if before.any(|(_, c)| c.cq == e.cq && !c.flavors.is_disjoint(&flavors))
                || claims.impossible.1.contains(&(hash, flavors.clone()))
            {
                continue;
            }
            let own = claims.by_rank.remove(&rank);
            let known = own.is_some();
            claims.by_rank.range(&rank..).rev().for_each(|(_, claim)| nodes.lift(claim.plan));
            let current = nodes.node_version();
            let (changed, own) = own.map_or((false, None), |c| (c.nodes != current, Some(c.plan)));
            own.filter(|_| changed).into_iter().for_each(|plan| nodes.end(plan));
            let Some(plan) = nodes.plan(self.now, &key, &pods, own.filter(|_| !changed)) else {
                claims.impossible.1.insert((hash, flavors));
                if known {
                    self.state.claims_dropped();
                }
                self.replan_claims_after(&rank);
                continue;
            };
            let version = nodes.capacity_version();
            let claim =
                NodeClaim { cq: e.cq, scheduling_hash: hash, flavors, pods, plan, version, nodes: current };
            self.insert_claim(&rank, claim, known);
            return;
        }
        self.drop_claim(e.id);
    }

    fn insert_claim(&mut self, rank: &Rank, claim: NodeClaim, known: bool) {
        // Claims of the same ClusterQueue after it give way.
        let overlaps = |c: &NodeClaim| c.cq == claim.cq && !c.flavors.is_disjoint(&claim.flavors);
        let after = self.state.joint.claims.by_rank.range(rank..);
        let give_way: Vec<Rank> = after.filter(|(_, c)| overlaps(c)).map(|(r, _)| r.clone()).collect();
        for rank in give_way {
            if let Some(claim) = self.state.joint.claims.by_rank.remove(&rank) {
                self.end_dry_runs(&[claim.plan]);
            }
        }
        self.state.joint.claims.by_rank.insert(rank.clone(), claim);
        self.replan_claims_after(rank);
        self.state.joint.failed.clear();
        if !known {
            // Entries that fitted without this claim come again.
            self.dry_runs.others_placed = true;
            self.state.due.everywhere();
        }
    }

    /// What an entry may claim, in the order of the ClusterQueue's flavors: the podsets that have flavors in those, the others
    /// in one that has quota and lacks nodes.
    fn claims_wanted(&self, e: &Entry) -> Vec<Wanted> {
        let (Some(a), Some(wl)) = (&e.assignment, self.state.wl(e.id)) else { return Vec::new() };
        let fits =
            |p: &&PodSetFlavors| !p.flavors.is_empty() && p.flavors.iter().all(|f| f.mode == Mode::Fit);
        let waiting = a.pod_sets.iter().find(|p| !fits(p));
        let attempts = waiting.map_or(&[][..], |p| &p.attempts);
        let mut lacking: Vec<Option<FlavorId>> =
            attempts.iter().filter(|t| t.no_fit_reason == why::NODES).map(|t| Some(t.flavor)).collect();
        let order = self.state.cq(e.cq).rules.groups.iter().flat_map(|g| &g.flavors).collect::<Vec<_>>();
        lacking.sort_by_key(|f| order.iter().position(|o| Some(**o) == *f));
        if waiting.is_none() {
            lacking.push(None);
        }
        let mut wanted = Vec::new();
        for lacking in lacking {
            let (mut flavors, mut pods): Wanted = Default::default();
            for p in &a.pod_sets {
                let own: BTreeSet<FlavorId> = match lacking.filter(|_| !fits(&p)) {
                    Some(flavor) => BTreeSet::from([flavor]),
                    None => p.flavors.iter().map(|f| f.flavor).collect(),
                };
                let Some(podset) = wl.obj.pod_sets.get(p.index) else { continue };
                let name = |f: &FlavorId| (String::new(), self.state.ids.flavor_name(*f).to_owned());
                let assigned = PodSetAssignment {
                    flavors: own.iter().map(name).collect(),
                    count: p.count,
                    ..PodSetAssignment::default()
                };
                self.state.expected_pods(&wl.obj.key, podset, &assigned, &mut pods);
                flavors.extend(own);
            }
            wanted.push((flavors, pods));
        }
        wanted
    }
}
