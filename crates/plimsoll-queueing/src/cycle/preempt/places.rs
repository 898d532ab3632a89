//! Places in topologies in preemption (joint admission): victims are those without which there are places that pass all filters.

use super::PreemptionContext;
use super::nodes::NodesNeeded;
use crate::cycle::Cycle;
use crate::cycle::assign::{FlavorAssignment, Member, PodSetFlavors, Search};
use crate::cycle::places::Start;
use crate::ids::WorkloadId;
use crate::model::WorkloadKey;
use crate::tas::TasRequests;
use plimsoll_state::reservation::DryRunId;

impl Cycle<'_> {
    /// What the podsets of a search ask of topologies with these flavors.
    pub(super) fn places_wanted(&self, s: &Search<'_>, tried: &[FlavorAssignment]) -> TasRequests {
        let mut assignment = self.nothing_assigned(s.id, s.cq);
        let pod_set = |m: &Member| PodSetFlavors {
            index: m.index,
            flavors: s.flavors_of(m, tried).cloned().collect(),
            count: m.total.count,
            ..PodSetFlavors::default()
        };
        assignment.pod_sets = s.group.iter().map(pod_set).collect();
        self.state.tas_view().tas_requests(s.id, s.cq, &assignment)
    }

    /// Whether there are places now that pass all filters.
    pub(super) fn has_places(&mut self, id: WorkloadId, needed: &NodesNeeded, tas: &TasRequests) -> bool {
        let found = self.search_places(id, tas, &needed.admission, &mut Start::default()).1;
        found.is_ok_and(|(_, run)| {
            self.end_dry_runs(&[run]);
            true
        })
    }

    /// Whether there are places beside what is not removed. Those found are the preemptor's.
    pub(super) fn nodes_fit_in_topology(&mut self, need: &PreemptionContext) -> bool {
        let Some(needed) = need.nodes.as_ref().filter(|_| self.nodes.is_some()) else { return true };
        let before = self.node_search.run.take();
        self.end_dry_runs(before.as_slice());
        let found = self.search_places(need.id, &need.tas, &needed.admission, &mut Start::default()).1;
        self.node_search.lacked |= found.is_err();
        let Ok((places, run)) = found else { return false };
        (self.node_search.run, self.node_search.places) = (Some(run), places);
        true
    }

    /// Puts the pods of a candidate back, if there are places beside them; `run` is the preemptor's dry run.
    pub(super) fn put_back_beside_places(
        &mut self,
        need: &PreemptionContext,
        key: &WorkloadKey,
        run: DryRunId,
    ) -> bool {
        let Some(nodes) = self.nodes.as_mut() else { return true };
        nodes.lift(run);
        nodes.simulate_addition(Some(key));
        let places = self.node_search.places.clone();
        self.node_search.run = None;
        let done = self.nodes_fit_in_topology(need);
        let Some(nodes) = self.nodes.as_mut() else { return done };
        if done {
            nodes.end(run);
            self.node_search.removed.retain(|k| k != key);
        } else {
            nodes.simulate_removal(Some(key));
            nodes.restore(run, false);
            (self.node_search.run, self.node_search.places) = (Some(run), places);
        }
        done
    }
}
