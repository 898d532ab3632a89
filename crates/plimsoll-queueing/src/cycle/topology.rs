//! Places on nodes for assignments (topology aware scheduling).

use super::assign::{Assignment, Mode, why};
use super::victim::Target;
use crate::ids::{ClusterQueueId, WorkloadId};
use crate::simulate::Simulation;
use crate::tas::{is_explicit, set_places};

impl Simulation<'_> {
    /// Finds places for an assignment that fits by quota; one that doesn't find any now may still preempt,
    /// if there would be some without all other workloads.
    pub(crate) fn assign_topology(&mut self, id: WorkloadId, cq: ClusterQueueId, a: &mut Assignment) {
        let has_quota = a.mode() == Mode::Fit;
        let requests = self.tas_view().collect_requests(id, cq, a);
        if a.mode() == Mode::Fit {
            match self.places(id, &requests, false) {
                Ok(places) => set_places(a, places),
                Err((index, _, text)) => {
                    a.add_reason(index, text);
                    a.set_pod_set_mode(index, Mode::Preempt);
                }
            }
        }
        // No workload is preempted for the replacement of a node.
        if a.mode() != Mode::Preempt || self.wl(id).is_some_and(|w| !w.obj.status.unhealthy_nodes.is_empty())
        {
            return;
        }
        match self.places(id, &requests, true) {
            Ok(_) => {
                requests.iter().for_each(|r| a.set_pod_set_mode(r.index, Mode::Preempt));
                a.lacks_places = has_quota;
            }
            Err((index, flavor, _)) => {
                if let Some(ps) = a.pod_sets.iter_mut().find(|p| p.index == index) {
                    for at in ps.attempts.iter_mut().filter(|t| t.flavor == flavor) {
                        (at.mode, at.no_fit_reason) = (Mode::NoFit, why::TOPOLOGY);
                    }
                }
                a.set_pod_set_mode(index, Mode::NoFit);
            }
        }
    }

    /// Places for an assignment that has to preempt, so that they can be kept for it: those free once its
    /// victims are gone, or any at all when it has none.
    pub(crate) fn place_after_preemption(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        a: &mut Assignment,
        targets: &[Target],
    ) {
        let explicit = self.wl(id).is_some_and(|w| w.obj.pod_sets.iter().any(is_explicit));
        if (!explicit && !self.is_topology_only(cq)) || self.wl(id).is_some_and(|w| w.needs_other_node()) {
            return;
        }
        let requests = self.tas_view().collect_requests(id, cq, a);
        let places = if targets.is_empty() {
            self.places(id, &requests, true)
        } else {
            let mark = self.mark();
            targets.iter().for_each(|t| self.simulate_usage_removal(t.id));
            let places = self.places(id, &requests, false);
            self.rollback(mark);
            places
        };
        if let Ok(places) = places {
            set_places(a, places);
        }
    }

    /// Charges the places of an assignment, for its own flavor as Kueue does. Places that are `taken` and not only reserved
    /// are also charged for all flavors on the node. `times` is 1, or -1 to take them back.
    pub(crate) fn tas_charge_assignment(
        &mut self,
        id: WorkloadId,
        a: Option<&Assignment>,
        taken: bool,
        times: i64,
    ) {
        let charges = self.tas_view().charges_of(id, a);
        self.charge_places(charges, taken, times);
    }
}
