//! Joint admission: quota and nodes in one decision.

use super::Cycle;
use super::assign::Assignment;
use super::plan::Entry;
use crate::Queueing;
use crate::cond;
use crate::ids::WorkloadId;
use crate::joint::NodeReservations;
use crate::model::{Admission, PodSet, PodSetAssignment, WorkloadKey};
use crate::phase::Phase;
use crate::reserved_nodes;
use crate::state::WorkloadInfo;
use plimsoll_state::model::{Pod, VolumeSource};
use plimsoll_state::reservation::DryRunId;
use plimsoll_state::time::Time;

/// Label that ties a pod to its podset.
const PODSET: &str = "kueue.x-k8s.io/podset";

/// Whether nodes can be reserved for the pods before they exist: what they refer to must exist before they do.
fn can_be_reserved(podset: &PodSet) -> bool {
    podset.spec.resource_claims.is_empty()
        && !podset.spec.volumes.iter().any(|v| matches!(v.source, VolumeSource::Ephemeral))
}

/// Whether nodes can be reserved for all pods of a workload before they exist.
pub(super) fn all_can_be_reserved(wl: &WorkloadInfo) -> bool {
    wl.obj.pod_sets.iter().all(can_be_reserved)
}

impl Cycle<'_> {
    /// Reserves nodes for the entry's pods; an error says why they do not all fit now. For workloads that wait for
    /// admission checks afterwards nothing is reserved: a check may bring the nodes.
    pub(super) fn reserve_nodes(&mut self, e: &Entry) -> Result<(), String> {
        let rank = self.lift_claims(e.id);
        let reserved = self.reserve_beside_claims(e);
        if reserved.is_err() {
            self.restore_claims(rank.as_ref());
            return reserved;
        }
        self.drop_claim(e.id);
        if let Some(rank) = rank {
            self.replan_claims_after(&rank);
        }
        reserved
    }

    fn reserve_beside_claims(&mut self, e: &Entry) -> Result<(), String> {
        let found = self.dry_runs.take(e.id);
        if self.nodes.is_none() {
            return Ok(());
        }
        let (Some(a), Some(wl)) = (&e.assignment, self.state.wl(e.id)) else { return Ok(()) };
        let admission = self.state.admission_of(e.cq, a);
        if !self.state.checks_of(e.cq, Some(&admission)).is_empty() || !all_can_be_reserved(wl) {
            self.end_dry_runs(&found);
            return Ok(());
        }
        let key = wl.obj.key.clone();
        let placed = !found.is_empty() && admission.assignments.iter().all(|p| p.topology.is_none());
        if !(placed && self.restore_dry_runs(&found)) {
            self.end_dry_runs(&found);
            return self.reserve_anew(e, a, &key, &admission);
        }
        self.reserve_found(e.id, &key, &found);
        Ok(())
    }

    /// Finds a node for each pod of an entry, as it is to be admitted, and reserves them.
    fn reserve_anew(
        &mut self,
        e: &Entry,
        a: &Assignment,
        key: &WorkloadKey,
        admission: &Admission,
    ) -> Result<(), String> {
        let Some(wl) = self.state.wl(e.id) else { return Ok(()) };
        let mut pods = Vec::new();
        for (i, assigned) in admission.assignments.iter().enumerate() {
            let Some(podset) = wl.obj.pod_sets.iter().find(|p| p.name == assigned.name) else { continue };
            let mut assigned = assigned.clone();
            if let Some(old) = a.replaced.as_ref().and_then(|r| r.get(i)) {
                assigned.count = assigned.count.saturating_sub(old.count);
            }
            self.state.expected_pods(key, podset, &assigned, &mut pods);
        }
        let Some(nodes) = self.nodes.as_mut() else { return Ok(()) };
        let (run, result) = nodes.dry_run(self.now, key, &pods);
        if result.is_err() || a.replaced.is_some() {
            // The pods of a slice to come belong to the job's first slice by name, so nodes can't be reserved for them.
            nodes.end(run);
            return result;
        }
        self.reserve_found(e.id, key, &[run]);
        Ok(())
    }

    fn reserve_found(&mut self, id: WorkloadId, key: &WorkloadKey, runs: &[DryRunId]) {
        if let Some(nodes) = self.nodes.as_mut() {
            let places = nodes.reserve_nodes(self.now, key, runs);
            self.state.joint.reserved.insert(id, places);
        }
        self.dry_runs.others_placed = true;
        if let Some(wl) = self.state.wl_mut(id) {
            wl.nodes_reserved = true;
        }
    }

    /// Gives the nodes of an entry up that is not admitted after all.
    pub(super) fn withdraw_nodes(&mut self, e: &Entry) {
        let Some(wl) = self.state.wl_mut(e.id).filter(|w| w.nodes_reserved) else { return };
        wl.nodes_reserved = false;
        if let Some(nodes) = self.nodes.as_mut() {
            nodes.withdraw(&wl.obj.key);
        }
        self.state.joint.reserved.remove(&e.id);
    }
}

impl Queueing {
    /// The pods of a podset as they will be: with what flavor and topology add.
    pub(super) fn expected_pods(
        &self,
        key: &WorkloadKey,
        podset: &PodSet,
        assigned: &PodSetAssignment,
        pods: &mut Vec<(Pod, usize)>,
    ) {
        let mut pod = Pod {
            namespace: key.namespace.clone(),
            labels: podset.labels.clone(),
            workload: key.name.clone(),
            pod_set: podset.name.clone(),
            ..Pod::default()
        };
        pod.labels.insert(PODSET.to_owned(), podset.name.clone());
        pod.spec = podset.spec.clone();
        pod.spec.node_name.clear();
        pod.spec.scheduling_gates.clear();
        let mut names: Vec<&str> = assigned.flavors.iter().map(|(_, f)| f.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for flavor in
            names.iter().filter_map(|n| self.ids.find_flavor(n)).filter_map(|f| self.objects.flavors.get(&f))
        {
            for (k, v) in flavor.node_labels.iter() {
                pod.spec.node_selector.insert(k.clone(), v.clone());
            }
            for t in &flavor.tolerations {
                if !pod.spec.tolerations.contains(t) {
                    pod.spec.tolerations.push(t.clone());
                }
            }
        }
        let count = |n: i32| usize::try_from(n).unwrap_or(0);
        match &assigned.topology {
            None => pods.push((pod, count(assigned.count))),
            Some(topology) => {
                for (values, n) in &topology.domains {
                    let mut there = pod.clone();
                    for (level, value) in topology.levels.iter().zip(values) {
                        there.spec.node_selector.insert(level.clone(), value.clone());
                    }
                    pods.push((there, count(*n)));
                }
            }
        }
    }

    /// A workload has lost its quota or is gone: nodes are not reserved for it any longer.
    pub(crate) fn release_nodes(&mut self, id: WorkloadId) {
        let Some(wl) = self.wl_mut(id).filter(|w| w.nodes_reserved) else { return };
        wl.nodes_reserved = false;
        let key = wl.obj.key.clone();
        self.joint.no_longer_admitted.push(key);
    }

    /// Brings reservations of nodes in line with what changed since the last call: those of workloads that have lost their
    /// quota are released, and workloads that wait for nodes are requeued when there is more capacity on nodes.
    pub fn sync_node_reservations(&mut self, nodes: &mut dyn NodeReservations) {
        for workload in self.joint.no_longer_admitted.drain(..) {
            nodes.release(&workload);
        }
        if self.joint.claims.review && !self.joint.claims.is_empty() {
            self.take_stale_claims().into_iter().for_each(|plan| nodes.end(plan));
        }
        if nodes.take_freed() {
            let waiting = std::mem::take(&mut self.joint.awaiting_nodes);
            self.dirty.inadmissible.extend(waiting);
        }
    }

    /// Notes a workload that got quota from a process before this one, or from a write of it that came late: its status may
    /// name nodes that are reserved for it.
    pub(crate) fn note_recorded_nodes(&mut self, id: WorkloadId) {
        let recorded = |w: &&WorkloadInfo| {
            let s = &w.obj.status;
            !w.nodes_reserved && s.is_true(cond::NODES_RESERVED) && Phase::of(s).holds_quota()
        };
        if self.wl(id).filter(recorded).is_some() {
            self.joint.recorded.insert(id);
        }
    }

    /// Makes the reservations again that the statuses of workloads name and that this process does not know. Only a process
    /// that has seen all nodes and pods may call it.
    pub fn rebuild_node_reservations(&mut self, now: Time, nodes: &mut dyn NodeReservations) {
        for id in std::mem::take(&mut self.joint.recorded) {
            // The workload may have changed since, or be another one.
            self.note_recorded_nodes(id);
            if !self.joint.recorded.remove(&id) {
                continue;
            }
            let Some(wl) = self.wl(id) else { continue };
            let status = &wl.obj.status;
            let (Some(recorded), Some(admission)) =
                (status.condition(cond::NODES_RESERVED), &status.admission)
            else {
                continue;
            };
            // All pods have been on their nodes.
            if status.is_true(cond::PODS_READY) || status.is_true(cond::EVICTED) {
                continue;
            }
            let (key, since, mut pods) = (wl.obj.key.clone(), recorded.transition, Vec::new());
            let places = reserved_nodes::parse(&recorded.message);
            for assigned in &admission.assignments {
                if let Some(podset) = wl.obj.pod_sets.iter().find(|p| p.name == assigned.name) {
                    self.expected_pods(&key, podset, assigned, &mut pods);
                }
            }
            nodes.rebuild(now, &key, since, &pods, &places);
            if let Some(wl) = self.wl_mut(id) {
                wl.nodes_reserved = true;
            }
        }
    }

    /// Whether nodes may be reserved for a workload: it holds quota, or it lost that since reservations were last brought
    /// in line.
    pub fn may_reserve_nodes(&self, workload: &WorkloadKey) -> bool {
        let wl = self.workloads.find(workload).and_then(|id| self.wl(id));
        wl.is_some_and(|w| w.nodes_reserved && Phase::of(&w.obj.status).holds_quota())
            || self.joint.no_longer_admitted.contains(workload)
    }

    /// Whether workloads wait for capacity on nodes.
    pub fn awaits_nodes(&self) -> bool {
        !self.joint.awaiting_nodes.is_empty()
    }
}
