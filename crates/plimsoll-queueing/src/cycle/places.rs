//! Nodes for places in a topology (joint admission): topology aware scheduling gives places by free capacity, and the pods are
//! tried there with all filters. Where some don't pass, their nodes get fewer pods or none, and the search for places is repeated.

use super::Cycle;
use super::assign::{Assignment, Mode, Refusal};
use super::dry_runs::Tried;
use crate::ids::{ClusterQueueId, FlavorId, WorkloadId};
use crate::model::{Admission, PodSetAssignment, TopologyAssignment};
use crate::pod_sets::looks_at_pods;
use crate::tas::{HOSTNAME, PlaceLimits, TasRequests, domain_id, set_places};
use plimsoll_state::model::Pod;
use plimsoll_state::reservation::{DryRunFailure, DryRunId, PodsAt};

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

/// Podsets by index in the order of a dry run, and their pods.
type PodsTried<'a> = (Vec<usize>, Vec<PodsAt<'a>>);

/// Why no places pass, the message empty if it has yet to be found out, and the places that were tried first.
type Refused = (Refusal, Places);

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
            &mut Start { first: Some(first.clone()), ..Start::default() },
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
        start: &mut Start,
    ) -> (bool, Result<(Places, DryRunId), Refusal>) {
        let Start { first, limits, alone } = start;
        let alone = *alone;
        let (mut refused, mut by_labels, mut all_asked) = (None::<Refused>, false, false);
        let none = |index, flavor| Refusal { index, flavor, text: String::new() };
        for _ in 0..SEARCHES {
            let found = first
                .take()
                .map_or_else(|| self.state.tas_view().find_places(id, requests, alone, limits), Ok);
            let places = match found {
                Ok(places) => places,
                Err(_) if limits.drop_guesses() => continue,
                Err((index, flavor, text)) => {
                    let refused = refused.map(|r| self.explained(id, admission, alone, r));
                    let mut refusal = refused.unwrap_or_else(|| none(index, flavor));
                    let space = if refusal.text.is_empty() { "" } else { " " };
                    refusal.text.push_str(&format!("{space}Beside these, {text}."));
                    return (by_labels, Err(refusal));
                }
            };
            let (pod_sets, pods) = self.pods_at(id, admission, &places);
            let (Some(nodes), Some(wl)) = (self.nodes.as_mut(), self.state.wl(id)) else { break };
            // A message about pods at places takes longer than all else, and is seldom read. One of several podsets may depend on
            // what chance has done with those before.
            let explain = refused.is_none() && pods.len() > 1;
            let (run, placed, failure) = nodes.dry_run_each(self.now, &wl.obj.key, &pods, (alone, explain));
            let Some(DryRunFailure { message, by_labels: labels }) = failure else {
                return (by_labels, Ok((places, run)));
            };
            nodes.end(run);
            by_labels |= labels;
            let short = limit_to_placed(&pod_sets, &pods, &placed, limits);
            if refused.is_none() {
                let flavor = self.flavor_at(requests, admission, id, short.index);
                refused = Some((Refusal { text: message, ..none(short.index, flavor) }, places));
            }
            // All nodes are asked once, unless what is known already says enough.
            if !all_asked && !short.by_ports {
                self.limit_to_usable(id, requests, admission, (limits, alone));
                all_asked = true;
            }
            if !short.has_domain {
                break;
            }
        }
        let (index, flavor) = requests.first().map_or((0, FlavorId(0)), |r| (r.index, r.flavor));
        let refused = refused.map(|r| self.explained(id, admission, alone, r));
        (by_labels, Err(refused.unwrap_or_else(|| none(index, flavor))))
    }

    /// A refusal with its message: that of the first dry run, which is made once more if it gave none.
    fn explained(
        &mut self,
        id: WorkloadId,
        admission: &Admission,
        alone: bool,
        (mut refusal, places): Refused,
    ) -> Refusal {
        if !refusal.text.is_empty() {
            return refusal;
        }
        let (_, pods) = self.pods_at(id, admission, &places);
        let (Some(nodes), Some(wl)) = (self.nodes.as_mut(), self.state.wl(id)) else { return refusal };
        let (run, _, failure) = nodes.dry_run_each(self.now, &wl.obj.key, &pods, (alone, true));
        nodes.end(run);
        refusal.text = failure.map_or_else(String::new, |f| f.message);
        refusal
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
    fn pods_at<'p>(&self, id: WorkloadId, admission: &Admission, places: &'p Places) -> PodsTried<'p> {
        let mut tried = PodsTried::default();
        let Some(wl) = self.state.wl(id) else { return tried };
        for assigned in &admission.assignments {
            let at = wl.obj.pod_sets.iter().enumerate().find(|(_, p)| p.name == assigned.name);
            let Some((index, podset)) = at else { continue };
            let topology = places.iter().find(|(i, _)| *i == index).map(|(_, t)| t);
            tried.0.push(index);
            tried.1.push(self.state.expected_at(&wl.obj.key, podset, assigned, topology));
        }
        tried
    }

    /// The pods of a workload at places.
    pub(super) fn pods_on(
        &self,
        id: WorkloadId,
        admission: &Admission,
        places: &Places,
    ) -> Vec<(Pod, usize)> {
        let mut pods = Vec::new();
        let Some(wl) = self.state.wl(id) else { return pods };
        for assigned in &admission.assignments {
            let at = wl.obj.pod_sets.iter().enumerate().find(|(_, p)| p.name == assigned.name);
            let Some((index, podset)) = at else { continue };
            let topology = places.iter().find(|(i, _)| *i == index).map(|(_, t)| t.clone());
            let assigned = PodSetAssignment { topology, ..assigned.clone() };
            self.state.expected_pods(&wl.obj.key, podset, &assigned, &mut pods);
        }
        pods
    }

    /// Leaves out the nodes that can't take a single pod.
    fn limit_to_usable(
        &mut self,
        id: WorkloadId,
        requests: &TasRequests,
        admission: &Admission,
        (limits, alone): (&mut PlaceLimits, bool),
    ) {
        let nowhere = Places::new();
        let (pod_sets, pods) = self.pods_at(id, admission, &nowhere);
        let Some(nodes) = self.nodes.as_mut() else { return };
        for request in requests {
            let Some(i) = pod_sets.iter().position(|index| *index == request.index) else { continue };
            let known = self.dry_runs.unusable_alone.take().filter(|(of, _)| alone && *of == request.index);
            let unusable = known.map(|(_, unusable)| unusable);
            let unusable = unusable.unwrap_or_else(|| nodes.unusable_nodes(self.now, &pods[i].pod, alone));
            for node in &unusable {
                if let Some(domain) = self.state.tas_view().domain_of_node(request.flavor, node) {
                    limits.limit(request.index, domain, 0);
                }
            }
            if alone {
                self.dry_runs.unusable_alone = Some((request.index, unusable));
            }
        }
    }
}

/// Whether pods have to be on one node each, and no two of them can be on the same, whichever node it is.
fn are_alone_on_nodes(set: &PodsAt<'_>) -> bool {
    let mut ports = set.pod.spec.containers.iter().flat_map(|c| &c.ports);
    let selected =
        set.levels.iter().any(|l| l == HOSTNAME) || set.pod.spec.node_selector.contains_key(HOSTNAME);
    selected && ports.any(|p| p.host_port > 0)
}

/// Where places took fewer pods than they were to take.
#[derive(Debug, Default)]
struct Short {
    /// The podset of the first such place.
    index: usize,
    /// Whether that is a domain.
    has_domain: bool,
    /// Whether each of them took one pod, beside which its host ports leave no place for another.
    by_ports: bool,
}

/// A domain takes no more pods than it took.
fn limit_to_placed(
    pod_sets: &[usize],
    pods: &[PodsAt<'_>],
    placed: &[usize],
    limits: &mut PlaceLimits,
) -> Short {
    let (mut placed, mut first, mut others) = (placed.iter(), None, false);
    for (&index, set) in pod_sets.iter().zip(pods) {
        let (alone, has_domain) = (are_alone_on_nodes(set), !set.levels.is_empty());
        // What the domains that took fewer have in common.
        let mut common: Option<(i64, bool)> = None;
        for ((values, count), taken) in set.places.iter().zip(&mut placed) {
            let Some(taken) = i64::try_from(*taken).ok().filter(|n| *n < i64::from(*count)) else { continue };
            first = first.or(Some((index, has_domain)));
            if !has_domain {
                others = true;
                continue;
            }
            limits.limit(index, &domain_id(values), taken);
            if taken == 1 && alone {
                // Searching rack by rack would come to the same end.
                limits.limit_everywhere(index, taken);
                continue;
            }
            others = true;
            common = Some(common.map_or((taken, true), |(n, same)| (n, same && n == taken)));
        }
        common.filter(|(n, same)| *same && *n > 0).into_iter().for_each(|(n, _)| limits.guess(index, n));
    }
    let (index, has_domain) = first.unwrap_or_default();
    Short { index, has_domain, by_ports: first.is_some() && !others }
}
