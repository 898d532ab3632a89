//! Dry runs of joint admission: pods that may be created, placed one after the other with all filters, so that each sees
//! those before it. A dry run is lifted and restored in the time that its own pods take, and becomes the reservation of the
//! workload when that is admitted.

mod new_nodes;
mod places;
#[cfg(test)]
mod places_tests;

use super::cluster::objects::Assumed;
use super::cluster::to_come::has_generated_claims;
use super::cluster::{NodeId, Pod, PodId};
use super::framework::AssumedPod;
use super::node_reservations::Placeholder;
use super::plugins::inter_pod_affinity::REASON_EXISTING;
use super::{PreBindWork, Scheduler};
use plimsoll_state::model::{self, WorkloadKey};
use plimsoll_state::reservation::{DryRunFailure, DryRunId};
use plimsoll_state::time::Time;
use std::sync::Arc;

/// Label of a node with its name.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

/// Placeholders on the nodes found for them.
#[derive(Debug, Default)]
pub(crate) struct DryRun {
    pub(super) rows: Vec<(NodeId, Placeholder)>,
    /// Whether they are on their nodes.
    pub(super) stands: bool,
}

impl Scheduler {
    /// Places pods, as they will be created (their names and UIDs don't count), each as often as the number beside it, until
    /// one fits nowhere: then with the scheduler's message. Pods of a scheduler that is not ours, and those for which
    /// extenders have to be asked, are left out. The dry run stands until it is lifted or ended.
    pub fn dry_run(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        pods: &[(model::Pod, usize)],
    ) -> (DryRunId, Option<DryRunFailure>) {
        self.set_now(now);
        let mut rows = Vec::new();
        let failure =
            pods.iter().find_map(|(pod, count)| self.place_equal(workload, (pod, *count), &mut rows, true));
        let failure = failure.map(|message| {
            let by_labels = message.contains(REASON_EXISTING);
            DryRunFailure { message, by_labels }
        });
        (self.dry_runs.insert(DryRun { rows, stands: true }), failure)
    }

    /// Places a number of equal pods; the message about the first that fits nowhere, empty unless it is to `explain` that.
    pub(super) fn place_equal(
        &mut self,
        workload: &WorkloadKey,
        (pod, count): (&model::Pod, usize),
        rows: &mut Vec<(NodeId, Placeholder)>,
        explain: bool,
    ) -> Option<String> {
        let pod_set: Arc<str> = pod.pod_set.as_str().into();
        let name = format!("{}-{}", workload.name, pod.pod_set);
        let only = self.only_node_of(pod);
        let mut last = None;
        for _ in 0..count {
            let (id, profile) = self.placeholder(pod, &name, last)?;
            let found = match only {
                Some(node) if self.passes_on(id, node, profile).is_some() => Ok(node),
                Some(_) if !explain => Err(String::new()),
                _ => self.best_node(id, profile, (explain, count > 1)),
            };
            match found {
                Ok(node) => {
                    self.hold(id, node, profile);
                    self.cluster.place(id, node);
                    rows.push((node, Placeholder { row: id, pod_set: Arc::clone(&pod_set) }));
                    last = Some(id);
                }
                Err(text) => {
                    self.cluster.remove_pod(id);
                    return Some(text);
                }
            }
        }
        None
    }

    /// The node that a pod selects by the label of its name, as pods with a place in a topology do: no other one has to be looked
    /// at.
    pub(super) fn only_node_of(&self, pod: &model::Pod) -> Option<NodeId> {
        let name = pod.spec.node_selector.get(HOSTNAME)?;
        let node = self.cluster.node_by_name(self.cluster.strings.get(name)?)?;
        let labeled = self.cluster.node(node).and_then(|n| n.label(HOSTNAME)) == Some(name.as_str());
        // Pods that are nominated to it may go first: that is for the whole search.
        (labeled && self.cluster.nodes[node].nominated.is_empty()).then_some(node)
    }

    /// A row for a pod to come, on no node, and its profile; `like`: one for an equal pod. `None`: its scheduler is not ours,
    /// or extenders have to be asked.
    pub(super) fn placeholder(
        &mut self,
        pod: &model::Pod,
        name: &str,
        like: Option<PodId>,
    ) -> Option<(PodId, usize)> {
        self.placeholders += 1;
        let shape = match like {
            Some(row) => self.cluster.shapes.share(self.cluster.pods[row].shape),
            None => self.cluster.shapes.acquire(pod, &mut self.cluster.strings),
        };
        let id =
            self.cluster.insert_pod(Pod::new(&format!("reservation-{}", self.placeholders), name, shape));
        self.cluster.sources.set_pod(id, pod);
        if has_generated_claims(&pod.spec) {
            self.cluster.generate_claims(id, pod);
        }
        let profile = self.profile_of(id).filter(|_| !self.is_extended(id));
        if profile.is_none() {
            self.cluster.remove_pod(id);
        }
        Some((id, profile?))
    }

    /// Notes what a placeholder will take on a node besides its capacity, of claims that will be made for its pod.
    pub(super) fn hold(&mut self, id: PodId, node: NodeId, profile: usize) {
        if !self.cluster.to_come.contains_key(&id) {
            return;
        }
        let (Some(runner), Some(state)) = (self.runners.get(profile), self.passes_on(id, node, profile))
        else {
            return;
        };
        let pod = AssumedPod { cluster: &self.cluster, state: &state, pod: id, node, measured: false };
        let PreBindWork { devices, bindings, .. } = runner.hold(&pod);
        let strings = &mut self.cluster.strings;
        let devices =
            devices.into_iter().map(|g| ((strings.intern(&g.namespace), g.name), g.devices)).collect();
        let volumes = bindings.into_iter().map(|(claim, volume)| (claim, Assumed::Volume(volume))).collect();
        self.cluster.hold(id, devices, volumes);
    }

    /// Takes the pods of a dry run off their nodes, to restore it later.
    pub fn lift_dry_run(&mut self, id: DryRunId) {
        let Some(run) = self.dry_runs.get_mut(id).filter(|run| run.stands) else { return };
        run.stands = false;
        // Last one first: each node lists its pods as before.
        for (_, placeholder) in run.rows.iter().rev() {
            self.cluster.unplace(placeholder.row);
        }
    }

    /// Puts the pods of a lifted dry run back on their nodes; whether all fit there. `checked`: other pods may have come, so
    /// that each has to pass the filters. Pods that don't are removed.
    pub fn restore_dry_run(&mut self, id: DryRunId, checked: bool) -> bool {
        let Some(run) = self.dry_runs.get_mut(id).filter(|run| !run.stands) else { return true };
        run.stands = true;
        let rows = std::mem::take(&mut run.rows);
        let before = rows.len();
        let mut kept = Vec::with_capacity(before);
        for (node, placeholder) in rows {
            let row = placeholder.row;
            let exists = self.cluster.nodes.get(node).is_some_and(|n| n.exists);
            let profile = self.profile_of(row).filter(|_| exists);
            if profile.is_some_and(|p| !checked || self.passes_on(row, node, p).is_some()) {
                if let Some(profile) = profile.filter(|_| checked) {
                    self.hold(row, node, profile);
                }
                self.cluster.place(row, node);
                kept.push((node, placeholder));
            } else {
                self.cluster.remove_pod(row);
            }
        }
        let whole = kept.len() == before;
        if let Some(run) = self.dry_runs.get_mut(id) {
            run.rows = kept;
        }
        whole
    }

    /// Ends a dry run that is not reserved.
    pub fn end_dry_run(&mut self, id: DryRunId) {
        let Some(run) = self.dry_runs.remove(id) else { return };
        for (_, placeholder) in run.rows.into_iter().rev() {
            self.cluster.remove_pod(placeholder.row);
        }
    }

    /// Changes whenever there may be more capacity on nodes than before: until then a dry run that failed fails again.
    pub fn capacity_version(&self) -> u64 {
        self.capacity_version
    }

    /// There may be more capacity on nodes because one came or changed.
    pub(super) fn node_freed(&mut self) {
        self.capacity_freed(None);
        self.whole_version += 1;
        self.node_version += 1;
    }

    /// Changes whenever nodes may have more capacity than before once the pods of workloads have left: until then a claim
    /// that could not be planned can't be.
    pub fn whole_version(&self) -> u64 {
        self.whole_version
    }

    /// Whether nodes came or changed, or pods left, since this was last asked.
    pub fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }

    /// Whether pods came to nodes, since this was last asked: pods may want to be beside them.
    pub fn take_pods_came(&mut self) -> bool {
        std::mem::take(&mut self.pods_came)
    }

    /// What [`Scheduler::take_pods_came`] would return.
    pub fn have_pods_come(&self) -> bool {
        self.pods_came
    }

    /// What [`Scheduler::take_freed`] would return.
    pub fn has_freed(&self) -> bool {
        self.freed
    }

    /// Changes whenever a node came or changed: a place that was planned on one may be of no use.
    pub fn node_version(&self) -> u64 {
        self.node_version
    }

    /// Between two steps no dry run stands.
    ///
    /// # Panics
    /// When one does.
    pub(super) fn check_dry_runs(&self) {
        for (_, run) in self.dry_runs.iter() {
            assert!(!run.stands, "a dry run stands");
        }
        assert!(self.removed.is_empty(), "pods are removed");
    }
}
