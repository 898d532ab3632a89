//! Joint admission: quota and nodes in one decision.

use super::Cycle;
use super::assign::Assignment;
use super::entry::Entry;
use crate::Queueing;
use crate::cond;
use crate::ids::{ClusterQueueId, WorkloadId};
use crate::joint::{NodeReservations, NodesDecision};
use crate::model::{Admission, PodSet, PodSetAssignment, TopologyAssignment, WorkloadKey};
use crate::phase::Phase;
use crate::requests;
use crate::reserved_nodes;
use crate::state::WorkloadInfo;
use crate::tas::slice::beyond;
use plimsoll_state::model::{Pod, PodClaimSource, PodResourceClaim, VolumeSource};
use plimsoll_state::reservation::{DryRunId, PodsAt};
use plimsoll_state::time::Time;
use std::borrow::Cow;

/// Reason of the condition `plimsoll.dev/NodesReserved` while admission checks decide whether there will be nodes.
pub(super) const ADMISSION_CHECKS: &str = "AdmissionChecks";
/// Label that ties a pod to its podset.
const PODSET: &str = "kueue.x-k8s.io/podset";

/// Whether nodes can be reserved for all pods of a workload before they exist. Pods that name a claim for devices share it: where
/// the first one goes, all have to.
pub(super) fn all_can_be_reserved(wl: &WorkloadInfo) -> bool {
    let named = |c: &PodResourceClaim| matches!(c.source, PodClaimSource::Claim(_));
    !wl.obj.pod_sets.iter().any(|p| p.spec.resource_claims.iter().any(named))
}

/// Whether it can be told where the pods of a workload fit once others have left: what these hold besides capacity of nodes is
/// free only when their claims are gone.
pub(super) fn can_wait_for_others(wl: &WorkloadInfo) -> bool {
    let generated =
        |p: &PodSet| p.spec.volumes.iter().any(|v| matches!(v.source, VolumeSource::Ephemeral(_)));
    !wl.obj.pod_sets.iter().any(|p| !p.spec.resource_claims.is_empty() || generated(p))
}

impl Cycle<'_> {
    /// Reserves nodes for the entry's pods; an error says why they do not all fit now. For workloads that wait for
    /// admission checks afterwards nothing is reserved: a check may bring the nodes.
    pub(super) fn reserve_nodes(&mut self, e: &Entry) -> Result<(), String> {
        let rank = self.lift_claims(e.id);
        if rank.as_ref().is_some_and(|rank| self.reserve_claimed(e, rank)) {
            self.count_overtaking(e);
            return Ok(());
        }
        let overtaken = self.dry_runs.overtaken.remove(&e.id).unwrap_or_default();
        self.lift_these(&overtaken);
        let reserved = self.reserve_beside_claims(e);
        if reserved.is_err() {
            self.restore_these(&overtaken);
            self.restore_claims(rank.as_ref());
            return reserved;
        }
        self.drop_claim(e.id);
        self.count_overtaking(e);
        self.replan_these(&overtaken);
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
        if let Some((reason, message)) = self.state.quota_alone(e.cq, wl, &admission) {
            self.end_dry_runs(&found);
            self.decide_by_quota(e.id, reason, message.to_owned());
            return Ok(());
        }
        let key = wl.obj.key.clone();
        if found.is_empty() || !self.restore_dry_runs(&found) {
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
                assigned.topology = assigned.topology.map(|t| beyond(t, &old.places));
            }
            self.state.expected_pods(key, podset, &assigned, &mut pods);
        }
        let Some(nodes) = self.nodes.as_mut() else { return Ok(()) };
        let (run, result) = nodes.dry_run(self.now, key, &pods);
        if let Err(failure) = result {
            nodes.end(run);
            return self.wait_for_provisioning(e, key, admission, failure.message);
        }
        if a.replaced.is_some() {
            // The pods of a slice to come belong to the job's first slice by name, so nodes can't be reserved for them.
            nodes.end(run);
            self.decide_by_quota(
                e.id,
                "WorkloadSlice",
                "No nodes are reserved for workload slices that replace others".into(),
            );
            return Ok(());
        }
        self.reserve_found(e.id, key, &[run]);
        Ok(())
    }

    /// Not all pods of an entry have nodes: whether the others are of flavors for which a cluster autoscaler adds nodes once
    /// pods wait. Those of other flavors still need nodes now.
    fn wait_for_provisioning(
        &mut self,
        e: &Entry,
        key: &WorkloadKey,
        admission: &Admission,
        lacking: String,
    ) -> Result<(), String> {
        self.fit_new_nodes(e.id, admission).map_err(|why| format!("{lacking} {why}"))?;
        let Some(wl) = self.state.wl(e.id) else { return Ok(()) };
        let (mut pods, mut provisioned) = (Vec::new(), Vec::new());
        for assigned in &admission.assignments {
            let flavor = self.state.autoscaled_flavor(assigned).map(|f| f.name.clone());
            if let Some(podset) = wl.obj.pod_sets.iter().find(|p| p.name == assigned.name) {
                match flavor {
                    Some(flavor) => provisioned.push(flavor),
                    None => self.state.expected_pods(key, podset, assigned, &mut pods),
                }
            }
        }
        let Some(nodes) = self.nodes.as_mut().filter(|_| !provisioned.is_empty()) else {
            return Err(lacking);
        };
        if !pods.is_empty() {
            let (run, result) = nodes.dry_run(self.now, key, &pods);
            if let Err(failure) = result {
                nodes.end(run);
                return Err(failure.message);
            }
            self.reserve_found(e.id, key, &[run]);
            return Ok(());
        }
        provisioned.sort_unstable();
        provisioned.dedup();
        let message = format!("{lacking} A cluster autoscaler adds nodes of {}", provisioned.join(", "));
        self.decide_by_quota(e.id, "WaitingForProvisioning", message);
        Ok(())
    }

    fn decide_by_quota(&mut self, id: WorkloadId, reason: &'static str, message: String) {
        self.nodes_decided.insert(id, NodesDecision::QuotaAlone(reason, message));
    }

    pub(super) fn reserve_found(&mut self, id: WorkloadId, key: &WorkloadKey, runs: &[DryRunId]) {
        if let Some(nodes) = self.nodes.as_mut() {
            let places = nodes.reserve_nodes(self.now, key, runs);
            let pods = |w: &WorkloadInfo| w.total_requests().iter().any(|t| t.count > 0);
            if !places.is_empty() {
                self.nodes_decided.insert(id, NodesDecision::Reserved(places));
            } else if self.state.wl(id).is_some_and(pods) {
                let message = "Quota alone decides: another scheduler or an extender places the pods";
                self.decide_by_quota(id, "OtherScheduler", message.to_owned());
            }
        }
        self.dry_runs.others_placed = true;
        self.nodes_reserved.insert(id);
    }

    /// Gives the nodes of an entry up that is not admitted after all.
    pub(super) fn withdraw_nodes(&mut self, e: &Entry) {
        self.nodes_decided.remove(&e.id);
        let Some(wl) = self.state.wl(e.id).filter(|_| self.nodes_reserved.remove(&e.id)) else { return };
        if let Some(nodes) = self.nodes.as_mut() {
            nodes.withdraw(&wl.obj.key);
            match self.dry_runs.claimed.remove(&e.id) {
                true => self.claims_dropped(),
                false => self.claims.unsettle(),
            }
        }
    }
}

impl Queueing {
    /// Why nodes decide nothing for a workload with this admission, if they don't: reason and message of the condition
    /// `plimsoll.dev/NodesReserved`.
    pub(super) fn quota_alone(
        &self,
        cq: ClusterQueueId,
        wl: &WorkloadInfo,
        admission: &Admission,
    ) -> Option<(&'static str, &'static str)> {
        if !self.checks_of(cq, Some(admission)).is_empty() {
            return Some((ADMISSION_CHECKS, "Quota alone decides: an admission check may add the nodes"));
        }
        if !wl.obj.variant_of.is_empty() {
            let message =
                "Quota alone decides: the pods are those of the workload of which this is a variant";
            return Some(("ConcurrentAdmission", message));
        }
        let message = "Quota alone decides: pods share claims for devices by name";
        (!all_can_be_reserved(wl)).then_some(("SharedClaims", message))
    }

    /// The pods of a workload as they will be with this admission, and with what its admission checks change in them.
    pub(super) fn pods_of(&self, wl: &WorkloadInfo, admission: &Admission) -> Vec<(Pod, usize)> {
        let mut pods = Vec::new();
        for assigned in &admission.assignments {
            let Some(podset) = wl.obj.pod_sets.iter().find(|p| p.name == assigned.name) else { continue };
            let before = pods.len();
            self.expected_pods(&wl.obj.key, podset, assigned, &mut pods);
            for update in Self::updates_of(&wl.obj, &podset.name) {
                for (pod, _) in &mut pods[before..] {
                    let selector = update.node_selector.iter().map(|(k, v)| (k.clone(), v.clone()));
                    pod.spec.node_selector.extend(selector);
                    pod.spec.tolerations.extend(update.tolerations.iter().cloned());
                }
            }
        }
        pods
    }

    /// The pods of a podset as they will be: with what flavor and topology add, and what the namespace's LimitRanges and the
    /// RuntimeClass fill in.
    pub(super) fn expected_pods(
        &self,
        key: &WorkloadKey,
        podset: &PodSet,
        assigned: &PodSetAssignment,
        pods: &mut Vec<(Pod, usize)>,
    ) {
        let at = self.expected_at(key, podset, assigned, assigned.topology.as_ref());
        for (values, n) in at.places.iter() {
            let mut there = at.pod.clone();
            there.spec.node_selector.extend(at.levels.iter().cloned().zip(values.iter().cloned()));
            pods.push((there, usize::try_from(*n).unwrap_or(0)));
        }
    }

    /// The same at these places in a topology, apart from what those add.
    pub(super) fn expected_at<'t>(
        &self,
        key: &WorkloadKey,
        podset: &PodSet,
        assigned: &PodSetAssignment,
        topology: Option<&'t TopologyAssignment>,
    ) -> PodsAt<'t> {
        let mut pod = Pod {
            namespace: key.namespace.clone(),
            labels: podset.labels.clone(),
            workload: key.name.clone(),
            pod_set: podset.name.clone(),
            ..Pod::default()
        };
        pod.labels.insert(PODSET.to_owned(), podset.name.clone());
        pod.spec = podset.spec.clone();
        let limits = requests::limits_of(&self.objects.limit_ranges, &key.namespace);
        requests::adjust(&mut pod.spec, &limits, &self.objects.runtime_classes);
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
        let (levels, places) = match topology {
            None => (&[][..], Cow::Owned(vec![(Vec::new(), assigned.count)])),
            Some(t) => (t.levels.as_slice(), Cow::Borrowed(t.domains.as_slice())),
        };
        PodsAt { pod, levels, places }
    }

    /// A workload has lost its quota or is gone: nodes are not reserved for it any longer.
    pub(crate) fn release_nodes(&mut self, id: WorkloadId) {
        self.joint.decided.remove(&id);
        let Some(wl) = self.wl_mut(id).filter(|w| w.nodes_reserved()) else { return };
        wl.set_nodes_reserved(false);
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
        if nodes.take_pods_came() {
            let waiting = std::mem::take(&mut self.joint.awaiting_pods);
            self.requeue_waiting(waiting);
        }
        if nodes.take_freed() {
            self.requeue_awaiting_nodes();
        }
    }

    /// Notes a workload that got quota from a process before this one, or from a write of it that came late: its status may
    /// name nodes that are reserved for it.
    pub(crate) fn note_recorded_nodes(&mut self, id: WorkloadId) {
        let recorded = |w: &&WorkloadInfo| {
            let s = &w.obj.status;
            !w.nodes_reserved() && s.is_true(cond::NODES_RESERVED) && Phase::of(s).holds_quota()
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
            let (key, since, pods) = (wl.obj.key.clone(), recorded.transition, self.pods_of(wl, admission));
            let places = reserved_nodes::parse(&recorded.message);
            nodes.rebuild(now, &key, since, &pods, &places);
            if let Some(wl) = self.wl_mut(id) {
                wl.set_nodes_reserved(true);
            }
        }
    }

    /// Whether nodes may be reserved for a workload: it holds quota, or it lost that since reservations were last brought
    /// in line.
    pub fn may_reserve_nodes(&self, workload: &WorkloadKey) -> bool {
        let wl = self.workloads.find(workload).and_then(|id| self.wl(id));
        wl.is_some_and(|w| w.nodes_reserved() && Phase::of(&w.obj.status).holds_quota())
            || self.joint.no_longer_admitted.contains(workload)
    }

    /// Whether workloads wait for capacity on nodes.
    pub fn awaits_nodes(&self) -> bool {
        !self.joint.awaiting_nodes.is_empty()
    }

    /// Whether workloads wait for nodes whose pods look at other pods.
    pub fn awaits_pods(&self) -> bool {
        !self.joint.awaiting_pods.is_empty()
    }
}
