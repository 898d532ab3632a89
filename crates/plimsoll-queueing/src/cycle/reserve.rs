//! Capacity that a cycle reserves for workloads that are not admitted in it: while their victims stop, or until it is
//! given back.

use super::Cycle;
use super::assign::{Assignment, Mode};
use super::entry::Entry;
use crate::Queueing;
use crate::amount::Amount;
use crate::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use crate::model::PreemptionPolicy;

/// What is reserved for one workload.
#[derive(Debug)]
pub(super) struct ReservedCapacity {
    id: WorkloadId,
    cq: ClusterQueueId,
    usage: Vec<(FlavorResource, Amount)>,
    /// Only if it has places in a topology.
    assignment: Option<Assignment>,
}

impl Cycle<'_> {
    /// Reserves what an entry was assigned.
    pub(super) fn reserve_capacity(&mut self, e: &Entry) {
        self.reserve_usage(e, e.usage().to_vec());
    }

    fn reserve_usage(&mut self, e: &Entry, usage: Vec<(FlavorResource, Amount)>) {
        let taken = e.mode() == Mode::Fit;
        self.state.add_usage(e.cq, &usage);
        self.state.tas_charge_assignment(e.id, e.assignment.as_ref(), taken, 1);
        let assignment = e.assignment.as_ref().filter(|a| has_places(a)).cloned();
        self.reserved.push(ReservedCapacity { id: e.id, cq: e.cq, usage, assignment });
    }

    /// Reserves capacity for a workload that would have to preempt but has no candidates, so that
    /// borrowers don't take it first (Kueue `reserveCapacityForUnreclaimablePreempt`). Not needed where it can always be reclaimed.
    pub(super) fn reserve_capacity_for_unreclaimable_preemption(&mut self, e: &Entry) {
        let reclaims = self.state.cq(e.cq).rules.preemption.reclaim_within_cohort == PreemptionPolicy::Any;
        if reclaims && !self.preempts_first(e) {
            return;
        }
        let (Some(node), Some(a)) = (self.state.cq(e.cq).node, &e.assignment) else { return };
        let mut reserve = Vec::with_capacity(a.usage.len());
        for &(fr, wanted) in &a.usage {
            let (quota, used) = (self.state.tree.quota(node, fr), self.state.tree.usage(node, fr));
            let amount = if a.borrowing == 0 {
                wanted.min(quota.nominal.sub(used)).at_least_zero()
            } else {
                quota.borrowing.map_or(wanted, |limit| wanted.min(quota.nominal.add(limit).sub(used)))
            };
            // Limits may have been lowered below what is used.
            reserve.push((fr, amount.at_least_zero()));
        }
        self.reserve_usage(e, reserve);
    }

    /// Gives back all that is reserved.
    pub(super) fn give_back_reserved(&mut self) {
        for reserved in std::mem::take(&mut self.reserved) {
            self.state.remove_usage(reserved.cq, &reserved.usage);
            self.state.tas_charge_assignment(reserved.id, reserved.assignment.as_ref(), false, -1);
        }
    }

    /// Whether an entry that is to be admitted now fits beside everything that still runs, victims of this cycle
    /// among it. Kueue doesn't look: several that each fit beside a victim can be admitted together in its place,
    /// before it has stopped, and more is reserved than there is.
    pub(super) fn fits_beside_victims(&mut self, e: &Entry) -> bool {
        if !self.state.tas_view().shared_nodes_fit(e.id, e.assignment.as_ref()) {
            return false;
        }
        if self.preempted.is_empty() || self.admitted == 0 {
            return true;
        }
        let root = |q: &Queueing, cq: ClusterQueueId| q.cq(cq).node.map(|n| q.tree.root(n));
        let (here, places) = (root(&self.state, e.cq), e.assignment.as_ref().is_some_and(has_places));
        let mark = self.state.mark();
        for reserved in self.reserved.iter().rev() {
            if root(&self.state, reserved.cq) == here {
                self.state.remove_usage(reserved.cq, &reserved.usage);
            }
            if places {
                self.state.tas_charge_assignment(reserved.id, reserved.assignment.as_ref(), false, -1);
            }
        }
        let fits = self.state.quota_fits(e.cq, e.usage())
            && self.state.tas_view().tas_assignment_fits(e.id, e.cq, e.assignment.as_ref());
        self.state.rollback(mark);
        fits
    }
}

fn has_places(a: &Assignment) -> bool {
    a.pod_sets.iter().any(|p| p.topology.is_some())
}
