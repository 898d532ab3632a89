//! Reservations of a process before this one, made again from what the workload's status says of them.

use super::Scheduler;
use super::cluster::{NodeId, PodId};
use super::joint::EXPIRY;
use super::node_reservations::{Claim, Placeholder};
use plimsoll_state::model::{self, WorkloadKey};
use plimsoll_state::reservation::ReservedNode;
use plimsoll_state::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes by podset, one entry for each pod.
type Places = BTreeMap<String, Vec<NodeId>>;

/// Most pods that are given their places back, of one workload: any client may have written the text that names them.
const MOST: usize = 100_000;

impl Scheduler {
    /// Reserves the nodes that were reserved for the pods of a workload at `since`, but for pods that are on nodes already,
    /// and where they no longer fit. `pods`: the pods as they will be created, each as often as the number beside it. Does
    /// nothing where the workload has reservations, and when they have expired.
    pub fn rebuild_reservations(
        &mut self,
        now: Time,
        workload: &WorkloadKey,
        since: Time,
        pods: &[(model::Pod, usize)],
        places: &[ReservedNode],
    ) {
        self.set_now(now);
        // A clock that was ahead does not make it last longer.
        let since = since.min(now);
        let expiry = since.plus(EXPIRY);
        if expiry <= now || self.reservations.workload(workload).is_some() {
            return;
        }
        let (mut left, pending) = self.places_left(workload, pods, places);
        let mut found = Vec::new();
        for (pod, count) in pods {
            let Some(nodes) = left.get_mut(&*pod.pod_set) else { continue };
            self.place_on(workload, (pod, *count), nodes, &mut found);
        }
        self.reserve_placeholders(workload, found, (since, expiry));
        let Some(id) = self.reservations.workload(workload) else { return };
        for (pod, pod_set) in pending {
            self.reservations.claim(pod, Claim { workload: id, pod_set });
        }
    }

    /// Nodes of each podset without those that its pods use, one entry for each pod, and the pods that are on none.
    fn places_left(
        &self,
        workload: &WorkloadKey,
        pods: &[(model::Pod, usize)],
        places: &[ReservedNode],
    ) -> (Places, Vec<(PodId, String)>) {
        let (mut left, mut named) = (Places::new(), 0);
        for place in places {
            let node = self.cluster.strings.get(&place.node).and_then(|n| self.cluster.node_by_name(n));
            let most: usize = pods.iter().filter(|(p, _)| p.pod_set == place.pod_set).map(|(_, n)| n).sum();
            if let Some(node) = node {
                let nodes = left.entry(place.pod_set.clone()).or_default();
                let pods = place.pods.min(most.saturating_sub(nodes.len())).min(MOST - named);
                named += pods;
                nodes.extend(std::iter::repeat_n(node, pods));
            }
        }
        let (mut pending, mut elsewhere) = (Vec::new(), Vec::new());
        for (id, pod_set) in self.cluster.workloads.of(workload) {
            let Some(node) = self.cluster.pods[id].node else {
                pending.push((id, pod_set.to_owned()));
                continue;
            };
            let Some(nodes) = left.get_mut(pod_set) else { continue };
            match nodes.iter().position(|n| *n == node) {
                Some(at) => drop(nodes.remove(at)),
                None => elsewhere.push(pod_set.to_owned()),
            }
        }
        // A pod that another node took needs no place any more.
        for pod_set in elsewhere {
            left.get_mut(&pod_set).and_then(Vec::pop);
        }
        (left, pending)
    }

    /// Puts placeholders on the first of these nodes on which the pod fits, at most `count`; takes those nodes out.
    fn place_on(
        &mut self,
        workload: &WorkloadKey,
        (pod, count): (&model::Pod, usize),
        nodes: &mut Vec<NodeId>,
        found: &mut Vec<(NodeId, Placeholder)>,
    ) {
        let pod_set: Arc<str> = pod.pod_set.as_str().into();
        let name = format!("{}-{}", workload.name, pod.pod_set);
        let (mut last, mut placed) = (None, 0);
        let mut others = Vec::new();
        for node in nodes.drain(..) {
            if placed == count {
                others.push(node);
                continue;
            }
            let Some((row, profile)) = self.placeholder(pod, &name, last) else { return };
            if self.passes_on(row, node, profile).is_some() {
                self.hold(row, node, profile);
                self.cluster.place(row, node);
                found.push((node, Placeholder { row, pod_set: Arc::clone(&pod_set) }));
                (last, placed) = (Some(row), placed + 1);
            } else {
                self.cluster.remove_pod(row);
                others.push(node);
            }
        }
        *nodes = others;
    }
}
