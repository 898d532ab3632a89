//! What workloads claim on nodes: flavors, and places in topologies (joint admission).

use std::collections::BTreeSet;

use super::Cycle;
use super::assign::{Assignment, FlavorAssignment, Mode, PodSetFlavors, why};
use super::entry::Entry;
use super::places::Start;
use crate::ids::FlavorId;
use crate::model::Admission;
use crate::tas::{PlaceLimits, TasRequests};
use plimsoll_state::model::Pod;
use plimsoll_state::reservation::DryRunId;

/// Pods, each as often as the number beside it.
type Pods = Vec<(Pod, usize)>;

/// What a claim may be for.
pub(super) struct Wanted {
    pub(super) flavors: BTreeSet<FlavorId>,
    /// The podsets with these flavors.
    admission: Admission,
    /// What they ask of topologies.
    requests: TasRequests,
}

impl Wanted {
    /// The podsets, with their flavors.
    pub(super) const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Whether topologies name the places.
    pub(super) fn has_places(&self) -> bool {
        !self.requests.is_empty()
    }
}

impl Cycle<'_> {
    /// The flavors of an assignment, and the pods with what those add.
    pub(super) fn claim_of_assignment(&self, e: &Entry) -> (BTreeSet<FlavorId>, Pods) {
        let (mut flavors, mut pods) = (BTreeSet::new(), Vec::new());
        let (Some(a), Some(wl)) = (&e.assignment, self.state.wl(e.id)) else { return (flavors, pods) };
        flavors.extend(a.pod_sets.iter().flat_map(|p| &p.flavors).map(|f| f.flavor));
        for assigned in self.state.admission_of(e.cq, a).assignments {
            if let Some(podset) = wl.obj.pod_sets.iter().find(|p| p.name == assigned.name) {
                self.state.expected_pods(&wl.obj.key, podset, &assigned, &mut pods);
            }
        }
        (flavors, pods)
    }

    /// What an entry may claim, in the order of the ClusterQueue's flavors: the podsets that have flavors in those, the others
    /// in one that has quota and lacks nodes.
    pub(super) fn claims_wanted(&self, e: &Entry) -> Vec<Wanted> {
        let Some(a) = &e.assignment else { return Vec::new() };
        let fits =
            |p: &&PodSetFlavors| !p.flavors.is_empty() && p.flavors.iter().all(|f| f.mode == Mode::Fit);
        let waiting = a.pod_sets.iter().find(|p| !fits(p));
        let attempts = waiting.map_or(&[][..], |p| &p.attempts);
        let mut lacking: Vec<Option<FlavorId>> = attempts
            .iter()
            .filter(|t| t.no_fit_reason == why::NODES && t.possibility.is_none())
            .map(|t| Some(t.flavor))
            .collect();
        let order = self.state.cq(e.cq).rules.groups.iter().flat_map(|g| &g.flavors).collect::<Vec<_>>();
        lacking.sort_by_key(|f| order.iter().position(|o| Some(**o) == *f));
        if waiting.is_none() || a.lacks_places {
            lacking.push(None);
        }
        lacking.into_iter().map(|flavor| self.claim_wanted(e, a, flavor)).collect()
    }

    /// An assignment as something to claim, with a flavor for podsets that have none with quota and nodes.
    fn claim_wanted(&self, e: &Entry, a: &Assignment, lacking: Option<FlavorId>) -> Wanted {
        let mut tried = a.clone();
        for p in &mut tried.pod_sets {
            p.topology = None;
            let fits = !p.flavors.is_empty() && p.flavors.iter().all(|f| f.mode == Mode::Fit);
            if let Some(flavor) = lacking.filter(|_| !fits) {
                let pick = |&(res, _): &(_, i64)| FlavorAssignment {
                    res,
                    flavor,
                    mode: Mode::Fit,
                    tried_flavor_idx: -1,
                    borrow: 0,
                };
                p.flavors = p.requests.iter().map(pick).collect();
            }
        }
        Wanted {
            flavors: tried.pod_sets.iter().flat_map(|p| &p.flavors).map(|f| f.flavor).collect(),
            requests: self.state.tas_view().tas_requests(e.id, e.cq, &tried),
            admission: self.state.admission_of(e.cq, &tried),
        }
    }

    /// Plans a claim: where the pods will be. `own`: the plan before, if nodes are the same, its pods, and whether it is for the same
    /// flavors; places in a topology stay as long as they exist. `None`: there is no place for all pods even if all other
    /// workloads have left.
    pub(super) fn plan_claim(
        &mut self,
        e: &Entry,
        wanted: &Wanted,
        own: Option<(Option<DryRunId>, Pods, bool)>,
    ) -> Option<(DryRunId, Pods)> {
        let key = self.state.wl(e.id)?.obj.key.clone();
        let (nodes, now) = (self.nodes.as_mut()?, self.now);
        let mut before = None;
        if let Some((plan, pods, same_flavors)) = own {
            before = plan;
            if !wanted.requests.is_empty()
                && same_flavors
                && let Some(plan) = nodes.plan(now, &key, &pods, before.take())
            {
                return Some((plan, pods));
            }
        }
        if wanted.requests.is_empty() {
            let pods = self.pods_on(e.id, &wanted.admission, &Vec::new());
            return Some((self.nodes.as_mut()?.plan(now, &key, &pods, before)?, pods));
        }
        self.end_dry_runs(before.as_slice());
        self.dry_runs.unusable_alone = None;
        let candidates = self.state.tas_view().domains_to_come(e.id, &wanted.requests);
        let mut known = PlaceLimits::default();
        let planned = candidates.into_iter().find_map(|(limits, places)| {
            let view = self.state.tas_view();
            // What one domain has shown of all leaves may be enough to leave the next one out.
            if !view.may_come(e.id, &wanted.requests, &limits, &known) {
                return None;
            }
            let places = match places {
                Some(places) => places,
                None => view.find_places(e.id, &wanted.requests, true, &limits).ok()?,
            };
            let mut start = Start { first: Some(places), limits, alone: true };
            let found = self.search_places(e.id, &wanted.requests, &wanted.admission, &mut start).1;
            known = start.limits;
            let (places, run) = found.ok()?;
            self.end_dry_runs(&[run]);
            let pods = self.pods_on(e.id, &wanted.admission, &places);
            Some((self.nodes.as_mut()?.plan(now, &key, &pods, None)?, pods))
        });
        self.dry_runs.unusable_alone = None;
        planned
    }
}
