//! What workloads ask of topologies, and how that meets flavor assignment.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use super::tree::FlavorTree;
use super::{ALL_FLAVORS, Amounts, Charges, CountedLeaves, PlaceCharge, PlaceLimits, domain_id};
use crate::Queueing;
use crate::cycle::assign::{Assignment, PodSetFlavors};
use crate::ids::{ClusterQueueId, FlavorId, Map, WorkloadId};
use crate::model::{Admission, Delayed, PodSet, TopologyAssignment, TopologyRequest, Workload};
use crate::rules::Group;
use crate::state::WorkloadInfo;
use plimsoll_state::model::requests::{PodResourcesOptions, pod_requests};

/// What one podset asks of a flavor's topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TasRequest {
    /// Podset, by index in the spec.
    pub(crate) index: usize,
    pub(crate) count: i32,
    /// What one pod needs.
    pub(crate) one: Amounts,
    pub(crate) flavor: FlavorId,
    /// The ClusterQueue has no flavor without topology, and the podset asks for nothing in particular.
    pub(crate) implied: bool,
    /// Where the slice that it replaces has its pods, which stay there (Kueue `PreviousAssignment`).
    pub(crate) before: Option<TopologyAssignment>,
}

/// What a workload asks of topologies.
pub(crate) type TasRequests = Vec<TasRequest>;

/// Places found per podset index, or why there are none: the podset, its flavor, the text.
pub(crate) type Places = Result<PlacesFound, (usize, FlavorId, String)>;

/// Places per podset index.
pub(crate) type PlacesFound = Vec<(usize, TopologyAssignment)>;

/// Controllers of admission checks that put the placement off.
pub(crate) const MULTI_KUEUE: &str = "kueue.x-k8s.io/multikueue";
const PROVISIONING: &str = "kueue.x-k8s.io/provisioning-request";

/// What the number of pods that leaves take says of places.
enum ByCount {
    /// Whether there are some.
    Known(bool),
    /// There may be some.
    Maybe,
}

/// Places of a podset.
struct PlacesOf<'a> {
    flavor: FlavorId,
    /// What one pod needs.
    one: Amounts,
    /// Values of domains, and pods there.
    domains: Vec<(&'a [String], i32)>,
}

impl TopologyRequest {
    /// Whether it asks for anything but a group.
    pub(crate) fn is_explicit(&self) -> bool {
        self.unconstrained || self.required.is_some() || self.preferred.is_some() || !self.slices.is_empty()
    }

    /// Whether only slices are constrained.
    pub(super) fn slices_only(&self) -> bool {
        self.required.is_none() && self.preferred.is_none() && !self.slices.is_empty()
    }
}

pub(crate) fn is_explicit(ps: &PodSet) -> bool {
    ps.topology.as_ref().is_some_and(TopologyRequest::is_explicit)
}

/// Reads of topologies: what podsets ask for, and places for it.
#[derive(Clone, Copy)]
pub(crate) struct TasView<'a> {
    pub(super) state: &'a Queueing,
    /// Steps that searches for balanced placements took in this cycle.
    pub(super) balanced_steps: &'a Cell<usize>,
    /// What leaves take, as counted in this cycle.
    pub(super) counted: &'a RefCell<CountedLeaves>,
}

impl<'a> TasView<'a> {
    pub(crate) fn new(
        state: &'a Queueing,
        balanced_steps: &'a Cell<usize>,
        counted: &'a RefCell<CountedLeaves>,
    ) -> Self {
        Self { state, balanced_steps, counted }
    }

    fn wants_topology(&self, ps: &PodSet, cq: ClusterQueueId) -> bool {
        self.state.wants_topology(ps, cq)
    }

    /// Whether a topology names the nodes of a podset with these flavors.
    pub(crate) fn is_placed_by_topology(
        &self,
        ps: &PodSet,
        cq: ClusterQueueId,
        admission: &Admission,
    ) -> bool {
        let has_tree = |name: &String| {
            self.state.ids.find_flavor(name).is_some_and(|f| self.state.tas.trees.contains_key(&f))
        };
        let mut flavors = admission.assignments.iter().flat_map(|a| &a.flavors).map(|(_, name)| name);
        self.state.config.gates.topology && self.wants_topology(ps, cq) && flavors.any(has_tree)
    }

    /// Why a podset and a flavor don't go together as to topology, if they don't.
    pub(crate) fn topology_mismatch(
        &self,
        cq: ClusterQueueId,
        ps: &PodSet,
        flavor: FlavorId,
        group: &Group,
    ) -> Option<String> {
        let rules = self.state.objects.flavors.get(&flavor)?;
        let name = &rules.name;
        if !self.wants_topology(ps, cq) {
            return (!rules.topology.is_empty())
                .then(|| format!("Flavor {name:?} supports only TopologyAwareScheduling"));
        }
        if !is_explicit(ps) {
            return None;
        }
        if rules.topology.is_empty() {
            let asked = pod_requests(&ps.spec, &PodResourcesOptions::default());
            let overlaps = asked
                .keys()
                .filter_map(|n| self.state.ids.find_resource(n))
                .any(|r| group.covered.contains(&r));
            return overlaps.then(|| format!("Flavor {name:?} does not support TopologyAwareScheduling"));
        }
        let Some(tree) = self.state.tas.trees.get(&flavor) else {
            return Some(format!("Flavor {name:?} information missing in TAS cache"));
        };
        let request = ps.topology.as_ref()?;
        let main = request.required.as_ref().or(request.preferred.as_ref());
        let has = main.is_none_or(|l| tree.level(l).is_some())
            && request.slices.iter().all(|(l, _)| tree.level(l).is_some())
            && !tree.levels.is_empty();
        (!has).then(|| format!("Flavor {name:?} does not contain the requested level"))
    }

    /// What the podsets of an assignment ask of topologies, as far as they have no places yet. A podset
    /// without a flavor that has a topology is marked as failed.
    pub(crate) fn collect_requests(
        &self,
        id: WorkloadId,
        cq: ClusterQueueId,
        a: &mut Assignment,
    ) -> TasRequests {
        let Some(wl) = self.state.wl(id) else { return Vec::new() };
        let mut out = Vec::new();
        for (index, ps) in wl.obj.pod_sets.iter().enumerate().filter(|(_, ps)| self.wants_topology(ps, cq)) {
            let Some(pick) = a.pod_sets.iter().find(|p| p.index == index) else { continue };
            let placed = pick.topology.as_ref().is_some_and(|t| !self.has_failed_node(id, t));
            if pick.error.is_some() || pick.count == 0 || placed {
                continue;
            }
            let flavor = match self.has_topology_flavor(cq) {
                true => self.only_topology_flavor(pick),
                false => Err("workload requires Topology, but there is no TAS cache information".into()),
            };
            let count = pick.count;
            match flavor {
                Ok(flavor) if self.delays_topology(id, cq, flavor) => a.delay(index),
                Ok(flavor) => {
                    let one = self.one_pod(id, index);
                    let before = self.placement_before(id, a, &ps.name).cloned();
                    out.push(TasRequest { index, count, one, flavor, implied: !is_explicit(ps), before });
                }
                Err(text) => a.fail(index, text),
            }
        }
        out
    }

    /// Whether a flavor of a ClusterQueue has a topology (Kueue `ClusterQueueSnapshot.TASFlavors`).
    fn has_topology_flavor(&self, cq: ClusterQueueId) -> bool {
        let mut flavors = self.state.cq(cq).rules.groups.iter().flat_map(|g| &g.flavors);
        flavors.any(|f| self.state.tas.trees.contains_key(f))
    }

    fn only_topology_flavor(&self, pick: &PodSetFlavors) -> Result<FlavorId, String> {
        let mut flavors: Vec<FlavorId> =
            pick.flavors.iter().map(|p| p.flavor).filter(|f| self.state.tas.trees.contains_key(f)).collect();
        self.state.ids.sort_by_flavor_name(&mut flavors);
        flavors.dedup();
        match flavors.as_slice() {
            [] => Err("no TAS flavor assigned".into()),
            [only] => Ok(*only),
            many => {
                let names: Vec<&str> = many.iter().map(|f| self.state.ids.flavor_name(*f)).collect();
                Err(format!("more than one TAS flavor assigned: {}", names.join(", ")))
            }
        }
    }

    fn one_pod(&self, id: WorkloadId, index: usize) -> Amounts {
        let total = self.state.wl(id).and_then(|w| w.total_requests().get(w.resources_of(index)?));
        total.map(|t| t.one.clone()).unwrap_or_default()
    }

    /// Whether a node of the placement has to be replaced.
    fn has_failed_node(&self, id: WorkloadId, t: &TopologyAssignment) -> bool {
        self.state.wl(id).is_some_and(|w| {
            let failed = &w.obj.status.unhealthy_nodes;
            t.domains.iter().any(|(values, _)| values.last().is_some_and(|v| failed.contains(v)))
        })
    }

    /// Whether the placement is left for later: to the cluster that MultiKueue chooses; and with ProvisioningRequests,
    /// which bring the nodes, to the second pass.
    fn delays_topology(&self, id: WorkloadId, cq: ClusterQueueId, flavor: FlavorId) -> bool {
        let Some(spec) = &self.state.cq(cq).spec else { return false };
        let reserved = self.state.wl(id).is_some_and(|w| w.quota().is_some());
        let name = self.state.ids.flavor_name(flavor);
        spec.admission_checks.iter().any(|(check, on)| {
            match self.state.objects.checks.get(check).map(|c| c.controller.as_str()) {
                Some(MULTI_KUEUE) => true,
                Some(PROVISIONING) => !reserved && (on.is_empty() || on.iter().any(|f| f == name)),
                _ => false,
            }
        })
    }

    /// The same for preemption: what still needs places.
    pub(crate) fn tas_requests(&self, id: WorkloadId, cq: ClusterQueueId, a: &Assignment) -> TasRequests {
        let wants = |w: &WorkloadInfo| w.obj.pod_sets.iter().any(|ps| self.wants_topology(ps, cq));
        if !self.state.config.gates.topology || !self.state.wl(id).is_some_and(wants) {
            return Vec::new();
        }
        let mut copy = a.clone();
        self.collect_requests(id, cq, &mut copy)
    }

    /// Whether there are places now.
    pub(crate) fn tas_fits(&self, id: WorkloadId, _cq: ClusterQueueId, requests: &TasRequests) -> bool {
        let find = || self.find_places(id, requests, false, &PlaceLimits::default());
        let fits = requests.is_empty()
            || match self.fits_by_count(id, requests) {
                ByCount::Known(fits) => fits,
                ByCount::Maybe => find().is_ok(),
            };
        debug_assert_eq!(
            fits,
            requests.is_empty() || find().is_ok(),
            "places by the number of pods that leaves take"
        );
        fits
    }

    /// Whether there are places now, by the number of pods: a search for victims asks after each of them.
    fn fits_by_count(&self, id: WorkloadId, requests: &TasRequests) -> ByCount {
        let ([r], Some(wl)) = (&requests[..], self.state.wl(id)) else { return ByCount::Maybe };
        let (Some(tree), Ok(pod_sets)) =
            (self.state.tas.trees.get(&r.flavor), pod_sets_with_updates(&wl.obj, requests))
        else {
            return ByCount::Maybe;
        };
        let Some(ps) = pod_sets.get(r.index) else { return ByCount::Maybe };
        if r.before.is_some() || !wl.obj.status.unhealthy_nodes.is_empty() {
            return ByCount::Maybe;
        }
        let request = ps.topology.as_ref();
        let required = request.and_then(|t| t.required.as_ref());
        let level = required.and_then(|level| tree.level(level));
        let slices = request.map_or(&[][..], |t| &t.slices);
        // Kueue places whole slices.
        let size = slices.first().map_or(1, |(_, size)| (*size).max(1));
        let pods = i64::from(r.count / size * size);
        let may = self.may_take(id, tree, (ps, r), (level, pods));
        // Pods of slices have to be together, and a level may be unknown.
        let main = request.and_then(|t| t.required.as_ref().or(t.preferred.as_ref()));
        let known =
            main.map_or(r.implied || request.is_some_and(|t| t.unconstrained), |l| tree.level(l).is_some());
        let alone = slices.is_empty() && known && !tree.levels.is_empty();
        if may && !alone { ByCount::Maybe } else { ByCount::Known(may) }
    }

    /// Whether nodes that flavors share have capacity for what is admitted on all of them in this cycle. Kueue
    /// doesn't look, and can give a node out twice.
    pub(crate) fn shared_nodes_fit(&self, id: WorkloadId, a: Option<&Assignment>) -> bool {
        self.places_of(id, a).iter().all(|of| {
            let Some(tree) = self.state.tas.trees.get(&of.flavor).filter(|t| t.by_node) else { return true };
            of.domains.iter().all(|(values, count)| {
                let Some(leaf) = tree.leaf_at(values) else { return false };
                let held = self.state.tas.held_after_admissions(leaf);
                super::place::fits_beside(leaf, held, &of.one) >= i64::from(*count)
            })
        })
    }

    /// Whether the places of an assignment are free now.
    pub(crate) fn tas_assignment_fits(
        &self,
        id: WorkloadId,
        _cq: ClusterQueueId,
        a: Option<&Assignment>,
    ) -> bool {
        self.places_of(id, a).iter().all(|of| {
            let Some(tree) = self.state.tas.trees.get(&of.flavor) else { return false };
            of.domains.iter().all(|(values, count)| {
                let Some(leaf) = tree.leaf_at(values) else { return false };
                super::place::fits_beside(leaf, self.state.tas.held_in(leaf), &of.one) >= i64::from(*count)
            })
        })
    }

    /// The places of an assignment as they are charged, for the flavor and for all flavors on the node.
    pub(crate) fn charges_of(&self, id: WorkloadId, a: Option<&Assignment>) -> Charges {
        let mut charges = Charges::default();
        for (pod_set, of) in self.places_of(id, a).into_iter().enumerate() {
            charges.pod_sets.push(of.one);
            let Some(tree) = self.state.tas.trees.get(&of.flavor) else { continue };
            let slot = |flavor, values| self.state.tas.slot_at(tree, Some(flavor), values);
            charges.places.extend(of.domains.into_iter().map(|(values, count)| PlaceCharge {
                pod_set,
                own: slot(of.flavor, values),
                all_flavors: tree.by_node.then(|| slot(ALL_FLAVORS, values)),
                count,
            }));
        }
        charges
    }

    /// The places of an assignment beyond those that its workload has, by podset.
    fn places_of<'s>(&'s self, id: WorkloadId, a: Option<&'s Assignment>) -> Vec<PlacesOf<'s>> {
        let (Some(a), Some(wl)) = (a, self.state.wl(id)) else { return Vec::new() };
        let mut out = Vec::new();
        for ps in &a.pod_sets {
            let (Some(t), Ok(flavor)) = (&ps.topology, self.only_topology_flavor(ps)) else { continue };
            let one = self.one_pod(id, ps.index);
            // What it holds already is charged, or what the slice holds that it replaces.
            let held = wl.quota().and_then(|_| wl.placement_of(&ps.name));
            let held = held.or_else(|| self.placement_before(id, a, &ps.name));
            let more = |(values, n): &'s (Vec<String>, i32)| {
                let before = held.and_then(|h| h.domains.iter().find(|(v, _)| v == values));
                let more = n.saturating_sub(before.map_or(0, |(_, b)| *b));
                (more > 0).then_some((values.as_slice(), more))
            };
            out.push(PlacesOf { flavor, one, domains: t.domains.iter().filter_map(more).collect() });
        }
        out
    }

    /// Places for all requests, one flavor and group after the other, each seeing what those before took. `empty`: as if all
    /// workloads had left.
    pub(crate) fn find_places(
        &self,
        id: WorkloadId,
        requests: &TasRequests,
        empty: bool,
        limits: &PlaceLimits,
    ) -> Places {
        let mut flavors: Vec<FlavorId> = requests.iter().map(|r| r.flavor).collect();
        self.state.ids.sort_by_flavor_name(&mut flavors);
        flavors.dedup();
        let Some(wl) = self.state.wl(id) else { return Ok(Vec::new()) };
        let pod_sets = pod_sets_with_updates(&wl.obj, requests)?;
        let mut found = Vec::new();
        let mut on_nodes: Map<String, Amounts> = Map::default();
        for flavor in flavors {
            let Some(tree) = self.state.tas.trees.get(&flavor) else { continue };
            let mut here: Map<String, Amounts> = Map::default();
            for group in groups(requests, flavor, &pod_sets) {
                let taken = if tree.by_node { &mut on_nodes } else { &mut here };
                if !wl.obj.status.unhealthy_nodes.is_empty() {
                    let replaced = self.replace_for_group(&wl.obj, tree, &pod_sets, &group, taken);
                    found.extend(replaced.map_err(|(index, text)| (index, flavor, text))?);
                    continue;
                }
                if group.iter().any(|r| r.before.is_some()) {
                    let places = self.place_slice(id, tree, &pod_sets, &group, taken, (empty, limits));
                    found.extend(places.map_err(|text| (group[0].index, flavor, text))?);
                    continue;
                }
                let places = self.place_group(id, tree, &pod_sets, &group, taken, (empty, limits));
                let places = places.map_err(|text| (group[0].index, flavor, text))?;
                // Nothing comes after the only group.
                let others = requests.len() > group.len();
                for (r, t) in places {
                    if others {
                        self.add_taken(taken, &r.one, &t);
                    }
                    found.push((r.index, t));
                }
            }
        }
        Ok(found)
    }

    /// Notes places for those that come later.
    pub(super) fn add_taken(&self, taken: &mut Map<String, Amounts>, one: &Amounts, t: &TopologyAssignment) {
        for (values, count) in &t.domains {
            let sum = taken.entry(domain_id(values)).or_default();
            super::add_times(sum, one, i64::from(*count));
            if let Some(pods) = self.state.ids.find_resource("pods") {
                super::add_times(sum, &[(pods, 1)], i64::from(*count));
            }
        }
    }

    /// Placements of the group's podsets without the failed node.
    fn replace_for_group(
        &self,
        wl: &Workload,
        tree: &FlavorTree,
        pod_sets: &[PodSet],
        group: &[&TasRequest],
        taken: &mut Map<String, Amounts>,
    ) -> Result<Vec<(usize, TopologyAssignment)>, (usize, String)> {
        let Some(failed) = wl.status.unhealthy_nodes.first() else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for r in group {
            let Some(ps) = pod_sets.get(r.index) else { continue };
            let assigned = wl.status.admission.iter().flat_map(|a| &a.assignments);
            let Some(old) = assigned.filter(|a| a.name == ps.name).find_map(|a| a.topology.as_ref()) else {
                continue;
            };
            if self.state.config.gates.skip_reassignment_for_pods && wl.single_pod {
                // The pod can't move, and the workload ends with it.
                found.push((r.index, old.clone()));
                continue;
            }
            let (whole, new) =
                self.replace_node(tree, ps, r, old, failed, taken).map_err(|text| (r.index, text))?;
            self.add_taken(taken, &r.one, &new);
            found.push((r.index, whole));
        }
        Ok(found)
    }
}

/// The podsets as ready admission checks want them.
pub(super) fn pod_sets_with_updates<'a>(
    wl: &'a Workload,
    requests: &TasRequests,
) -> Result<Cow<'a, [PodSet]>, (usize, FlavorId, String)> {
    let mut pod_sets = Cow::Borrowed(wl.pod_sets.as_slice());
    for r in requests {
        let Some(ps) = wl.pod_sets.get(r.index) else { continue };
        for update in Queueing::updates_of(wl, &ps.name) {
            let Some(ps) = pod_sets.to_mut().get_mut(r.index) else { continue };
            for (key, value) in &update.node_selector {
                let old = ps.spec.node_selector.insert(key.clone(), value.clone());
                if let Some(old) = old.filter(|o| o != value) {
                    let text = format!(
                        "invalid podSetUpdate for PodSet {}, error: invalid admission check PodSetUpdate: \
                         conflict for nodeSelector: conflict for key={key}, value1={old}, value2={value}",
                        ps.name
                    );
                    return Err((r.index, r.flavor, text));
                }
            }
            for t in &update.tolerations {
                if !ps.spec.tolerations.contains(t) {
                    ps.spec.tolerations.push(t.clone());
                }
            }
        }
    }
    Ok(pod_sets)
}

pub(crate) fn set_places(a: &mut Assignment, places: Vec<(usize, TopologyAssignment)>) {
    for (index, t) in places {
        if let Some(ps) = a.pod_sets.iter_mut().find(|p| p.index == index) {
            ps.topology = Some(t);
            if ps.delayed.is_some() {
                ps.delayed = Some(Delayed::Ready);
            }
        }
    }
}

/// Requests of one flavor, those with the same group name together.
fn groups<'a>(requests: &'a TasRequests, flavor: FlavorId, pod_sets: &[PodSet]) -> Vec<Vec<&'a TasRequest>> {
    let mut out: Vec<(Option<&str>, Vec<&TasRequest>)> = Vec::new();
    for r in requests.iter().filter(|r| r.flavor == flavor) {
        let name = pod_sets.get(r.index).and_then(|p| p.topology.as_ref()).and_then(|t| t.group.as_deref());
        match out.iter_mut().find(|(n, _)| name.is_some() && *n == name) {
            Some((_, list)) => list.push(r),
            None => out.push((name, vec![r])),
        }
    }
    out.into_iter().map(|(_, g)| g).collect()
}
