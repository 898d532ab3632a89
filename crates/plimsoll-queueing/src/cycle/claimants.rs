//! Workloads that will claim nodes once enough others have been admitted past them (joint admission).
//!
//! A claim keeps what becomes free idle until it is enough, and how long that takes is not known: so it costs the more the
//! fuller the nodes are. Most workloads get their nodes by chance before long. Therefore a workload claims nodes only once
//! pods of workloads behind it have been placed past it, [`crate::config::Config::overtaking`] times as many as it has itself.
//! Pods of a lower priority than its own, or of a larger share with fair sharing, count that many times. So the number of pods that overtake it is bounded, whatever
//! the sizes of jobs and however long they run.

use std::collections::BTreeSet;

use super::Cycle;
use super::assign::PodSetFlavors;
use super::entry::Entry;
use crate::Queueing;
use crate::ids::{ClusterQueueId, FlavorId, SchedulingHashId, WorkloadId};
use crate::pending::Rank;

/// The first workload of a ClusterQueue that waits for nodes of these flavors.
#[derive(Debug)]
pub(super) struct Claimant {
    pub(super) cq: ClusterQueueId,
    scheduling_hash: SchedulingHashId,
    flavors: BTreeSet<FlavorId>,
    /// Its pods.
    pods: usize,
    /// Pods of workloads behind it that were placed past it.
    overtaken: usize,
}

impl Claimant {
    /// Whether it has been overtaken by `overtaking` times its own pods.
    fn is_due(&self, overtaking: usize) -> bool {
        self.overtaken >= self.pods.saturating_mul(overtaking)
    }

    /// Whether it waits in its queue as it did when it began to wait for nodes.
    fn waits(&self, state: &Queueing, rank: &Rank) -> bool {
        state.wl(rank.id).is_some_and(|w| {
            w.queued() == Some(self.cq)
                && w.scheduling_hash() == self.scheduling_hash
                && state.rank(w, rank.id) == *rank
        })
    }
}

impl Cycle<'_> {
    /// Forgets claimants that no longer wait.
    fn forget_claimants(&mut self) {
        let state = &self.state;
        self.claims.claimants.retain(|rank, claimant| claimant.waits(state, rank));
    }

    /// Whether an entry that waits for nodes of these flavors may claim some: enough pods have been placed past it. One that is
    /// the first of its ClusterQueue in them is counted from now on.
    pub(super) fn claim_is_due(&mut self, e: &Entry, rank: &Rank, flavors: BTreeSet<FlavorId>) -> bool {
        let overtaking = self.state.config.overtaking;
        self.forget_claimants();
        if let Some(known) = self.claims.claimants.get_mut(rank) {
            known.flavors = flavors;
            return known.is_due(overtaking);
        }
        let same = |c: &Claimant| c.cq == e.cq && !c.flavors.is_disjoint(&flavors);
        if self.claims.claimants.range(..rank).any(|(_, c)| same(c)) {
            return false;
        }
        // It comes before those that were counted until now.
        self.claims.claimants.retain(|r, c| r < rank || !same(c));
        let assigned = e.assignment.iter().flat_map(|a| &a.pod_sets);
        let pods = assigned.map(|p| usize::try_from(p.count).unwrap_or(0)).sum();
        let scheduling_hash = self.state.wl(e.id).map_or(SchedulingHashId::NONE, |w| w.scheduling_hash());
        let claimant = Claimant { cq: e.cq, scheduling_hash, flavors, pods, overtaken: 0 };
        let due = claimant.is_due(overtaking);
        self.claims.claimants.insert(rank.clone(), claimant);
        due
    }

    /// Whether a workload has claimed nodes, or may do so because it was overtaken.
    pub(super) fn may_claim(&self, id: WorkloadId) -> bool {
        let overtaking = self.state.config.overtaking;
        let rank = self.claims.rank_of(&self.state, id);
        rank.is_some_and(|rank| {
            self.claims.plan_of(&rank).is_some()
                || self.claims.claimants.get(&rank.rank).is_some_and(|c| c.is_due(overtaking))
        })
    }

    /// Pods of an entry have got nodes: workloads before it that wait for nodes of the same flavors were overtaken.
    pub(super) fn count_overtaking(&mut self, e: &Entry) {
        if self.claims.claimants.is_empty() {
            return;
        }
        let (Some(a), Some(wl)) = (&e.assignment, self.state.wl(e.id)) else { return };
        let (rank, overtaking) = (self.state.rank(wl, e.id), self.state.config.overtaking);
        self.forget_claimants();
        let (claimants, shares) = (&mut self.claims.claimants, &self.claims.shares);
        let own = shares.get(&e.cq);
        let is_before = |(rank_of, c): &(&Rank, &mut Claimant)| (shares.get(&c.cq), *rank_of) < (own, &rank);
        for (before, claimant) in claimants.iter_mut().filter(is_before) {
            let was_due = claimant.is_due(overtaking);
            let past = |p: &&PodSetFlavors| p.flavors.iter().any(|f| claimant.flavors.contains(&f.flavor));
            let pods: usize =
                a.pod_sets.iter().filter(past).map(|p| usize::try_from(p.count).unwrap_or(0)).sum();
            // As many pods of a lower priority, or of a larger share, as it has itself are enough.
            let behind = shares.get(&claimant.cq) < own || rank.priority > before.priority;
            let weight = if behind { overtaking.max(1) } else { 1 };
            claimant.overtaken = claimant.overtaken.saturating_add(pods.saturating_mul(weight));
            // It claims nodes in the next cycle, before anything else becomes free.
            self.nodes_changed.claim_due |= claimant.is_due(overtaking) && !was_due;
        }
    }
}
