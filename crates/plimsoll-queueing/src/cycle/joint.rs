//! Joint admission: quota and places on nodes in one decision (design, "Beyond").

use super::{Entry, Queueing};
use crate::joint::Nodes;
use crate::model::{PodSet, PodSetAssignment, WorkloadKey};
use crate::pending::WlId;
use plimsoll_state::model::{Pod, VolumeSource};
use plimsoll_state::time::Time;

/// Label that ties a pod to its podset.
const PODSET: &str = "kueue.x-k8s.io/podset";

/// Whether the pods can be placed on trial: what they refer to must exist before they do.
fn can_be_tried(podset: &PodSet) -> bool {
    podset.spec.resource_claims.is_empty()
        && !podset.spec.volumes.iter().any(|v| matches!(v.source, VolumeSource::Ephemeral))
}

impl Queueing {
    /// Promises the entry's pods their places, or says why they do not all fit now. Workloads that wait for admission
    /// checks afterwards get no promise: a check may bring the nodes.
    pub(super) fn promised(&mut self, e: &Entry, nodes: Nodes<'_, '_>, now: Time) -> Result<(), String> {
        let (Some(a), Some(wl)) = (&e.assignment, self.wl(e.id)) else { return Ok(()) };
        let admission = self.admission_of(e.cq, a);
        if !self.checks_of(e.cq, Some(&admission)).is_empty() || !wl.obj.pod_sets.iter().all(can_be_tried) {
            return Ok(());
        }
        let mut pods = Vec::new();
        for (i, assigned) in admission.assignments.iter().enumerate() {
            let Some(podset) = wl.obj.pod_sets.iter().find(|p| p.name == assigned.name) else { continue };
            let mut assigned = assigned.clone();
            if let Some(old) = a.replaced.as_ref().and_then(|r| r.get(i)) {
                assigned.count = assigned.count.saturating_sub(old.count);
            }
            self.stand_ins(&wl.obj.key, podset, &assigned, &mut pods);
        }
        let key = wl.obj.key.clone();
        nodes.reserve(now, &key, &pods)?;
        if a.replaced.is_some() {
            // The pods to come belong to the job's first slice by name, so the places can't be kept for them.
            nodes.release(&key);
            return Ok(());
        }
        if let Some(wl) = self.wl_mut(e.id) {
            wl.promised = true;
        }
        Ok(())
    }

    /// The pods of a podset as they will be: with what flavor and topology add.
    fn stand_ins(
        &self,
        key: &WorkloadKey,
        podset: &PodSet,
        assigned: &PodSetAssignment,
        pods: &mut Vec<(String, Pod)>,
    ) {
        let mut pod =
            Pod { namespace: key.namespace.clone(), labels: podset.labels.clone(), ..Pod::default() };
        pod.labels.insert(PODSET.to_owned(), podset.name.clone());
        pod.spec = podset.spec.clone();
        pod.spec.node_name.clear();
        pod.spec.scheduling_gates.clear();
        let mut names: Vec<&str> = assigned.flavors.iter().map(|(_, f)| f.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        for flavor in
            names.iter().filter_map(|n| self.ids.find_flavor(n)).filter_map(|f| self.flavors.get(&f))
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
            None => pods.extend(std::iter::repeat_n((podset.name.clone(), pod), count(assigned.count))),
            Some(topology) => {
                for (values, n) in &topology.domains {
                    let mut there = pod.clone();
                    for (level, value) in topology.levels.iter().zip(values) {
                        there.spec.node_selector.insert(level.clone(), value.clone());
                    }
                    pods.extend(std::iter::repeat_n((podset.name.clone(), there), count(*n)));
                }
            }
        }
    }

    /// Gives back what was promised to a workload.
    pub(crate) fn unpromise(&mut self, id: WlId) {
        let Some(wl) = self.wl_mut(id).filter(|w| w.promised) else { return };
        wl.promised = false;
        let key = wl.obj.key.clone();
        self.unpromised.push(key);
    }

    /// Workloads whose promises end, since this was last asked.
    pub fn take_unpromised(&mut self) -> Vec<WorkloadKey> {
        std::mem::take(&mut self.unpromised)
    }

    /// There may be more room on nodes: who waits for that gets another chance.
    pub fn nodes_freed(&mut self) {
        if !self.nodes_awaited.is_empty() {
            let waiting = std::mem::take(&mut self.nodes_awaited);
            self.to_wake.extend(waiting);
        }
    }
}
