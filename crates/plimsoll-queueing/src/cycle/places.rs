//! Nodes for places in a topology (joint admission): topology aware scheduling gives places by free capacity, and the pods are
//! tried there with all filters. Where some don't pass, their nodes get fewer pods or none, and the search for places is repeated.

use super::Cycle;
use super::assign::{Assignment, Mode, Refusal};
use super::dry_runs::Tried;
use crate::ids::{ClusterQueueId, FlavorId, WorkloadId};
use crate::model::{Admission, TopologyAssignment};
use crate::pod_sets::looks_at_pods;
use crate::tas::{HOSTNAME, PlaceLimits, TasRequests, domain_id, set_places};
use plimsoll_state::model::Pod;
use plimsoll_state::reservation::{DryRunFailure, DryRunId};

/// How often places are searched for one workload.
const SEARCHES: usize = 12;

/// Places by podset index.
pub(super) type Places = Vec<(usize, TopologyAssignment)>;

/// Where a search for places begins.
#[derive(Debug, Default)]
pub(super) struct Start {
    /// Places found without regard to other filters than those of topology aware scheduling.
    pub(super) first: Option<Places>,
    pub(super) limits: PlaceLimits,
    /// Whether all other workloads count as gone. The dry run doesn't stand then.
    pub(super) alone: bool,
}

/// Pods in the order of a dry run, and for each entry its podset and the name of its domain, if it has one.
type PodsAt = (Vec<(Pod, usize)>, Vec<(usize, Option<String>)>);

impl Cycle<'_> {
    /// Tries the places that an assignment has in topologies, and others if these don't pass. The assignment gets those that pass,
    /// and a dry run of all its pods stands. Otherwise says which flavor counts as one without capacity.
    pub(super) fn try_places(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        a: &mut Assignment,
    ) -> Option<Refusal> {
        if self.nodes.is_none()
            || a.mode() != Mode::Fit
            || a.replaced.is_some()
            || self.dry_runs_incomplete()
            || a.pod_sets.iter().all(|p| p.topology.is_none())
        {
            return None;
        }
        let wl = self.state.wl(id)?;
        let known = !self.dry_runs.victims_removed
            && !self.dry_runs.overtakes
            && self.admitted == 0
            && self.preempted.is_empty()
            && !wl.obj.pod_sets.iter().any(|p| looks_at_pods(&p.spec));
        let tried: Tried =
            (wl.scheduling_hash(), self.dry_runs.choices().to_vec(), self.dry_runs.claimant.clone());
        if let Some(refusal) = self.refused_before(&tried).filter(|_| known) {
            return Some(refusal);
        }
        let admission = self.state.admission_of(cq, a);
        let first: Places =
            a.pod_sets.iter_mut().filter_map(|p| Some((p.index, p.topology.take()?))).collect();
        let requests = self.state.tas_view().collect_requests(id, cq, a);
        self.end_standing();
        let (by_labels, result) = self.search_places(
            id,
            &requests,
            &admission,
            Start { first: Some(first.clone()), ..Start::default() },
        );
        self.dry_runs.by_labels |= by_labels;
        match result {
            Ok((places, run)) => {
                set_places(a, places);
                self.dry_runs.stand(run);
                None
            }
            Err(mut refusal) => {
                set_places(a, first);
                if let Some(claimant) = &self.dry_runs.claimant {
                    refusal.text.push_str(&format!(" {claimant} waits for nodes before it."));
                }
                if known && !by_labels {
                    self.remember_refusal(tried, &refusal);
                }
                Some(refusal)
            }
        }
    }

    /// Searches places for requests that pass all filters; with the standing dry run of all pods. Also whether the labels of the
    /// pods keep them off nodes.
    pub(super) fn search_places(
        &mut self,
        id: WorkloadId,
        requests: &TasRequests,
        admission: &Admission,
        start: Start,
    ) -> (bool, Result<(Places, DryRunId), Refusal>) {
        let Start { mut first, mut limits, alone } = start;
        let (mut refusal, mut by_labels) = (None::<Refusal>, false);
        let none = |index, flavor| Refusal { index, flavor, text: String::new() };
        for _ in 0..SEARCHES {
            let found = first
                .take()
                .map_or_else(|| self.state.tas_view().find_places(id, requests, alone, &limits), Ok);
            let places = match found {
                Ok(places) => places,
                Err(_) if limits.drop_guesses() => continue,
                Err((index, flavor, text)) => {
                    let mut refusal = refusal.unwrap_or_else(|| none(index, flavor));
                    let space = if refusal.text.is_empty() { "" } else { " " };
                    refusal.text.push_str(&format!("{space}Beside these, {text}."));
                    return (by_labels, Err(refusal));
                }
            };
            let (pods, of) = self.pods_at(id, admission, &places);
            let (Some(nodes), Some(wl)) = (self.nodes.as_mut(), self.state.wl(id)) else { break };
            let (run, placed, failure) = nodes.dry_run_each(self.now, &wl.obj.key, &pods, alone);
            let Some(DryRunFailure { message, by_labels: labels }) = failure else {
                return (by_labels, Ok((places, run)));
            };
            nodes.end(run);
            by_labels |= labels;
            let failed = pods.iter().zip(&placed).position(|((_, count), n)| n < count);
            let failed = failed.and_then(|i| of.get(i));
            if refusal.is_none() {
                let index = failed.map_or(0, |(index, _)| *index);
                let flavor = self.flavor_at(requests, admission, id, index);
                refusal = Some(Refusal { text: message, ..none(index, flavor) });
                self.limit_to_usable(id, requests, admission, (&mut limits, alone));
            }
            if failed.is_none_or(|(_, domain)| domain.is_none()) {
                break;
            }
            limit_to_placed(&pods, &of, &placed, &mut limits);
        }
        let (index, flavor) = requests.first().map_or((0, FlavorId(0)), |r| (r.index, r.flavor));
        (by_labels, Err(refusal.unwrap_or_else(|| none(index, flavor))))
    }

    /// The flavor of a podset that has no place: that of its topology, or else its first one.
    fn flavor_at(
        &self,
        requests: &TasRequests,
        admission: &Admission,
        id: WorkloadId,
        index: usize,
    ) -> FlavorId {
        if let Some(request) = requests.iter().find(|r| r.index == index) {
            return request.flavor;
        }
        let name = self.state.wl(id).and_then(|w| w.obj.pod_sets.get(index)).map(|p| &p.name);
        let mut assigned = admission.assignments.iter().filter(|a| Some(&a.name) == name);
        let flavor = assigned.find_map(|a| self.state.ids.find_flavor(&a.flavors.first()?.1));
        flavor.unwrap_or(FlavorId(0))
    }

    /// The pods of a workload at its places.
    fn pods_at(&self, id: WorkloadId, admission: &Admission, places: &Places) -> PodsAt {
        let (mut pods, mut of) = (Vec::new(), Vec::new());
        let Some(wl) = self.state.wl(id) else { return (pods, of) };
        for assigned in &admission.assignments {
            let at = wl.obj.pod_sets.iter().enumerate().find(|(_, p)| p.name == assigned.name);
            let Some((index, podset)) = at else { continue };
            let mut assigned = assigned.clone();
            let places = places.iter().find(|(i, _)| *i == index);
            assigned.topology = places.map(|(_, t)| t.clone());
            self.state.expected_pods(&wl.obj.key, podset, &assigned, &mut pods);
            match &assigned.topology {
                Some(t) => of.extend(t.domains.iter().map(|(v, _)| (index, Some(domain_id(v))))),
                None => of.push((index, None)),
            }
        }
        (pods, of)
    }

    /// The pods of a workload at places.
    pub(super) fn pods_on(
        &self,
        id: WorkloadId,
        admission: &Admission,
        places: &Places,
    ) -> Vec<(Pod, usize)> {
        self.pods_at(id, admission, places).0
    }

    /// Leaves out the nodes that can't take a single pod.
    fn limit_to_usable(
        &mut self,
        id: WorkloadId,
        requests: &TasRequests,
        admission: &Admission,
        (limits, alone): (&mut PlaceLimits, bool),
    ) {
        let (pods, of) = self.pods_at(id, admission, &Vec::new());
        let Some(nodes) = self.nodes.as_mut() else { return };
        for request in requests {
            let view = self.state.tas_view();
            let (domains, names): (Vec<&str>, Vec<&str>) = view.nodes_of(request.flavor).into_iter().unzip();
            let Some(i) = of.iter().position(|(index, _)| *index == request.index) else { continue };
            let usable = nodes.usable_nodes(self.now, &pods[i].0, &names, alone);
            let refused = domains.iter().zip(usable).filter(|(_, usable)| !usable);
            refused.for_each(|(domain, _)| limits.limit(request.index, domain, 0));
        }
    }
}

/// Whether a pod has to be on one node, and no other pod of its podset can be there, whichever node it is.
fn is_alone_on_its_node(pod: &Pod) -> bool {
    let mut ports = pod.spec.containers.iter().flat_map(|c| &c.ports);
    pod.spec.node_selector.contains_key(HOSTNAME) && ports.any(|p| p.host_port > 0)
}

/// A domain takes no more pods than it took.
fn limit_to_placed(
    pods: &[(Pod, usize)],
    of: &[(usize, Option<String>)],
    placed: &[usize],
    limits: &mut PlaceLimits,
) {
    let failed = pods.iter().zip(of).zip(placed).filter(|(((_, count), _), n)| *n < count);
    let mut counts: Vec<(usize, i64, bool)> = Vec::new();
    for (((pod, _), (index, domain)), n) in failed {
        let (Some(domain), Ok(n)) = (domain, i64::try_from(*n)) else { continue };
        limits.limit(*index, domain, n);
        if n == 1 && is_alone_on_its_node(pod) {
            // Searching rack by rack would come to the same end.
            limits.limit_everywhere(*index, n);
            continue;
        }
        match counts.iter_mut().find(|(i, ..)| i == index) {
            Some((_, first, same)) => *same &= *first == n,
            None => counts.push((*index, n, true)),
        }
    }
    let alike = counts.into_iter().filter(|(_, n, same)| *same && *n > 0);
    alike.for_each(|(index, n, _)| limits.guess(index, n));
}
