//! Capacity that a cycle keeps back for workloads that are not admitted in it: while their victims stop, or until
//! somebody else gives it back.

use std::collections::BTreeSet;

use super::super::amount::Amount;
use super::super::assign::{Assignment, Mode};
use super::super::ids::Fr;
use super::super::pending::WlId;
use super::super::state::{CqId, Queueing};
use super::Entry;

/// What the entries of one cycle plan for later cycles.
#[derive(Debug, Default)]
pub(super) struct Plans {
    /// Workloads that are to make room. They run until they have stopped.
    pub(super) claimed: BTreeSet<WlId>,
    /// Whether somebody was admitted: until then every entry that fitted when it was nominated fits beside everybody.
    pub(super) admitted: bool,
    kept: Vec<Kept>,
}

/// What is kept back for one workload.
#[derive(Debug)]
struct Kept {
    id: WlId,
    cq: CqId,
    usage: Vec<(Fr, Amount)>,
    /// Only if it has places in a topology.
    assignment: Option<Assignment>,
}

impl Queueing {
    /// Keeps back what an entry was assigned.
    pub(super) fn keep_back(&mut self, e: &Entry, plans: &mut Plans) {
        self.keep(e, e.usage().to_vec(), plans);
    }

    fn keep(&mut self, e: &Entry, usage: Vec<(Fr, Amount)>, plans: &mut Plans) {
        let taken = e.mode() == Mode::Fit;
        self.add_usage(e.cq, &usage);
        self.tas_charge_assignment(e.id, e.assignment.as_ref(), taken, 1);
        let assignment = e.assignment.as_ref().filter(|a| has_places(a)).cloned();
        plans.kept.push(Kept { id: e.id, cq: e.cq, usage, assignment });
    }

    /// Keeps capacity for a workload that would have to preempt but finds nobody to preempt, so that
    /// borrowers don't take it first. Not needed where it can always be reclaimed.
    pub(super) fn reserve_for_later(&mut self, e: &Entry, plans: &mut Plans) {
        if self.cq(e.cq).rules.preemption.reclaim_within_cohort == 2 {
            return;
        }
        let (Some(node), Some(a)) = (self.cq(e.cq).node, &e.assignment) else { return };
        let mut reserve = Vec::with_capacity(a.usage.len());
        for &(fr, wanted) in &a.usage {
            let (quota, used) = (self.tree.quota(node, fr), self.tree.usage(node, fr));
            let amount = if a.borrowing == 0 {
                wanted.min(quota.nominal.sub(used)).at_least_zero()
            } else {
                quota.borrowing.map_or(wanted, |limit| wanted.min(quota.nominal.add(limit).sub(used)))
            };
            // Limits may have been lowered below what is used.
            reserve.push((fr, amount.at_least_zero()));
        }
        self.keep(e, reserve, plans);
    }

    /// Whether an entry that is to be admitted now fits beside everything that still runs, victims of this cycle
    /// among it. Kueue doesn't look: several that each fit beside a victim can be admitted together in its place,
    /// before it has stopped, and more is reserved than there is.
    pub(super) fn fits_beside_victims(&mut self, e: &Entry, plans: &Plans) -> bool {
        if !self.shared_nodes_fit(e.id, e.assignment.as_ref()) {
            return false;
        }
        if plans.claimed.is_empty() || !plans.admitted {
            return true;
        }
        let root = |q: &Self, cq: CqId| q.cq(cq).node.map(|n| q.tree.root(n));
        let (here, places) = (root(self, e.cq), e.assignment.as_ref().is_some_and(has_places));
        let mark = self.mark();
        for kept in plans.kept.iter().rev() {
            if root(self, kept.cq) == here {
                self.remove_usage(kept.cq, &kept.usage);
            }
            if places {
                self.tas_charge_assignment(kept.id, kept.assignment.as_ref(), false, -1);
            }
        }
        let fits =
            self.quota_fits(e.cq, e.usage()) && self.tas_assignment_fits(e.id, e.cq, e.assignment.as_ref());
        self.rollback(mark);
        fits
    }
}

fn has_places(a: &Assignment) -> bool {
    a.pod_sets.iter().any(|p| p.topology.is_some())
}
