//! Simulations on the live state, undone afterwards.

use super::amount::Amount;
use super::ids::{ClusterQueueId, FlavorResource, WorkloadId};
use super::tree;
use crate::Queueing;

/// A point to which the state can be rolled back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    tree: tree::Mark,
    hidden: usize,
    placement: usize,
}

impl Queueing {
    pub(crate) fn mark(&self) -> Mark {
        Mark { tree: self.tree.mark(), hidden: self.hidden_log.len(), placement: self.tas.mark() }
    }

    pub(crate) fn rollback(&mut self, mark: Mark) {
        self.tree.rollback(mark.tree);
        self.tas.rollback(mark.placement);
        while self.hidden_log.len() > mark.hidden {
            let Some((id, was)) = self.hidden_log.pop() else { return };
            if let Some(wl) = self.wl_mut(id) {
                wl.hidden = was;
            }
        }
    }

    fn hide(&mut self, id: WorkloadId, hidden: bool) {
        if let Some(wl) = self.wl_mut(id) {
            let was = std::mem::replace(&mut wl.hidden, hidden);
            self.hidden_log.push((id, was));
        }
    }

    /// Simulates that a workload is gone: its usage, and that it is a candidate for preemption.
    pub(crate) fn simulate_workload_removal(&mut self, id: WorkloadId) {
        self.hide(id, true);
        self.simulate_usage_removal(id);
    }

    /// Simulates that a removed workload is there again.
    pub(crate) fn simulate_workload_addition(&mut self, id: WorkloadId) {
        self.hide(id, false);
        let Some((cq, usage)) = self.usage_held(id) else { return };
        self.add_usage(cq, &usage);
        self.tas_charge(id, true);
    }

    /// Simulates that a workload's usage is gone.
    pub(crate) fn simulate_usage_removal(&mut self, id: WorkloadId) {
        let Some((cq, usage)) = self.usage_held(id) else { return };
        self.remove_usage(cq, &usage);
        self.tas_charge(id, false);
    }

    fn usage_held(&self, id: WorkloadId) -> Option<(ClusterQueueId, Vec<(FlavorResource, Amount)>)> {
        let reservation = self.quota_reservation(id)?;
        Some((reservation.place, reservation.held.usage.clone()))
    }

    pub(crate) fn add_usage(&mut self, cq: ClusterQueueId, usage: &[(FlavorResource, Amount)]) {
        if let Some(node) = self.cq(cq).node {
            usage.iter().for_each(|&(fr, a)| self.tree.add(node, fr, a));
        }
    }

    pub(crate) fn remove_usage(&mut self, cq: ClusterQueueId, usage: &[(FlavorResource, Amount)]) {
        if let Some(node) = self.cq(cq).node {
            usage.iter().for_each(|&(fr, a)| self.tree.remove(node, fr, a));
        }
    }

    /// Whether an amount per column is available to a ClusterQueue now.
    pub(crate) fn quota_fits(&self, cq: ClusterQueueId, usage: &[(FlavorResource, Amount)]) -> bool {
        let Some(node) = self.cq(cq).node else { return false };
        usage.iter().all(|&(fr, a)| a <= self.tree.available(node, fr))
    }
}
