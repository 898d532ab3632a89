//! The state during a scheduling cycle: everything can be read, and usage can be changed in simulations that are undone.
//!
//! A cycle has no other access to the state, so that it can't change any of it: what is to change is in its plan.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;

use super::amount::Amount;
use super::ids::{ClusterQueueId, FlavorResource, Map, WorkloadId};
use super::tas::{Charges, CountedLeaves, PlaceLimits, Places, TasRequests, TasView};
use super::tree;
use crate::Queueing;
use crate::state::WorkloadInfo;

/// A point to which a simulation can be rolled back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    tree: tree::Mark,
    removed: usize,
    places: usize,
}

/// The state, and what is simulated on it: usage in the quota tree and in topologies, which is changed in place under an undo
/// log, and which workloads count as gone. It has to be ended: [`Simulation::end`].
pub(crate) struct Simulation<'a> {
    /// Lent for usage only: nothing outside of this file can change it.
    state: &'a mut Queueing,
    start: Mark,
    /// Workloads that count as gone, and the undo log of that.
    removed: Map<WorkloadId, ()>,
    removed_log: Vec<(WorkloadId, bool)>,
    /// Steps that searches for balanced placements took.
    balanced_steps: Cell<usize>,
    /// What leaves of topologies take.
    counted: RefCell<CountedLeaves>,
    /// To how many pods workloads are asked to shrink, or that they are evicted, where that is known.
    pub(crate) shrunk_to: BTreeMap<WorkloadId, Option<i32>>,
    /// Whether the others are evicted where they could shrink.
    pub(crate) evicts_whole: bool,
}

impl Deref for Simulation<'_> {
    type Target = Queueing;

    fn deref(&self) -> &Queueing {
        self.state
    }
}

impl<'a> Simulation<'a> {
    /// Begins simulations on a state.
    pub(crate) fn begin(state: &'a mut Queueing) -> Self {
        let start = Mark { tree: state.tree.mark(), removed: 0, places: state.tas.mark() };
        let counted = RefCell::new(state.tas.take_counted());
        Self {
            state,
            start,
            removed: Map::default(),
            removed_log: Vec::new(),
            balanced_steps: Cell::new(0),
            counted,
            shrunk_to: BTreeMap::new(),
            evicts_whole: false,
        }
    }

    /// Undoes everything that is simulated.
    pub(crate) fn end(mut self) {
        self.rollback(self.start);
        self.state.tree.commit();
        self.state.tas.commit();
        self.state.tas.keep_counted(self.counted.into_inner());
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark { tree: self.tree.mark(), removed: self.removed_log.len(), places: self.tas.mark() }
    }

    pub(crate) fn rollback(&mut self, mark: Mark) {
        self.state.tree.rollback(mark.tree);
        self.state.tas.rollback(mark.places);
        while self.removed_log.len() > mark.removed {
            let Some((id, was)) = self.removed_log.pop() else { return };
            self.set_removed(id, was);
        }
    }

    /// Places in the present state of the simulation, or once all workloads have left (`empty`).
    pub(crate) fn places(&mut self, id: WorkloadId, requests: &TasRequests, empty: bool) -> Places {
        let find = |s: &Self| s.tas_view().find_places(id, requests, empty, &PlaceLimits::default());
        // A search for balanced places may end before its time.
        let known = |w: &&WorkloadInfo| w.is_placed_as_written() && !self.config.gates.tas_balanced;
        let like = self.wl(id).filter(known).filter(|_| empty || !self.tas.is_simulated());
        let Some(like) = like.map(WorkloadInfo::scheduling_hash) else {
            return find(self);
        };
        if let Some(known) = self.tas.known_places(like, requests, empty) {
            debug_assert_eq!(*known, find(self), "places that are known");
            return known.clone();
        }
        let places = find(self);
        self.state.tas.keep_places(like, requests, &places, empty);
        places
    }

    /// Whether a workload counts as gone.
    pub(crate) fn is_removed(&self, id: WorkloadId) -> bool {
        !self.removed.is_empty() && self.removed.contains_key(&id)
    }

    fn set_removed(&mut self, id: WorkloadId, removed: bool) -> bool {
        if removed { self.removed.insert(id, ()).is_some() } else { self.removed.remove(&id).is_some() }
    }

    fn log_removed(&mut self, id: WorkloadId, removed: bool) {
        let was = self.set_removed(id, removed);
        self.removed_log.push((id, was));
    }

    /// Simulates that a workload is gone: its usage, and that it is a candidate for preemption. Of one that can shrink instead
    /// it is what the pods use that it need not have.
    pub(crate) fn simulate_workload_removal(&mut self, id: WorkloadId) {
        self.log_removed(id, true);
        self.simulate_usage_removal(id);
    }

    /// Simulates that a removed workload is there again.
    pub(crate) fn simulate_workload_addition(&mut self, id: WorkloadId) {
        self.log_removed(id, false);
        let Some((cq, usage)) = self.usage_held(id) else { return };
        self.add_usage(cq, &usage);
        self.state.tas_charge(id, true);
    }

    /// Simulates that a workload's usage is gone.
    pub(crate) fn simulate_usage_removal(&mut self, id: WorkloadId) {
        let Some((cq, usage)) = self.usage_held(id) else { return };
        self.remove_usage(cq, &usage);
        self.state.tas_charge(id, false);
    }

    fn usage_held(&self, id: WorkloadId) -> Option<(ClusterQueueId, Vec<(FlavorResource, Amount)>)> {
        let reservation = self.quota_reservation(id)?;
        if self.config.gates.partial_preemption
            && let Some(shrinkable) = self.shrinkable(id)
        {
            let least = (shrinkable.asked || !self.evicts_whole).then_some(shrinkable.least);
            if let Some(to) = self.shrunk_to.get(&id).copied().unwrap_or(least) {
                return Some((reservation.place, self.usage_above(id, shrinkable.pod_set, to)));
            }
        }
        Some((reservation.place, reservation.held.usage.clone()))
    }

    pub(crate) fn add_usage(&mut self, cq: ClusterQueueId, usage: &[(FlavorResource, Amount)]) {
        if let Some(node) = self.cq(cq).node {
            usage.iter().for_each(|&(fr, a)| self.state.tree.add(node, fr, a));
        }
    }

    pub(crate) fn remove_usage(&mut self, cq: ClusterQueueId, usage: &[(FlavorResource, Amount)]) {
        if let Some(node) = self.cq(cq).node {
            usage.iter().for_each(|&(fr, a)| self.state.tree.remove(node, fr, a));
        }
    }

    /// Charges places that are found in the cycle: those that are `taken` and not only reserved for all flavors on the node,
    /// too. `times` is 1, or -1 to take them back.
    pub(crate) fn charge_places(&mut self, charges: Charges, taken: bool, times: i64) {
        if let Some(pods) = self.ids.find_resource("pods") {
            self.state.tas.charge_places(charges, pods, taken, times);
        }
    }

    /// Reads of topologies in the present state of the simulation.
    pub(crate) fn tas_view(&self) -> TasView<'_> {
        TasView::new(self.state, &self.balanced_steps, &self.counted)
    }
}

impl Queueing {
    /// Whether an amount per column is available to a ClusterQueue now.
    pub(crate) fn quota_fits(&self, cq: ClusterQueueId, usage: &[(FlavorResource, Amount)]) -> bool {
        let Some(node) = self.cq(cq).node else { return false };
        usage.iter().all(|&(fr, a)| a <= self.tree.available(node, fr))
    }
}
