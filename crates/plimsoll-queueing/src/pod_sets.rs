//! What podsets ask for and hold, and what makes two workloads equal to the scheduler.

use std::sync::Arc;

use super::ids::{FlavorId, Map, ResourceId, SchedulingHashId};
use super::model::{PodSet, PodSets, PreemptorKey, WorkloadKey};
use plimsoll_state::model::{PodSpec, VolumeSource};

/// What one podset asks for or holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PodSetResources {
    pub(crate) count: i32,
    /// For all its pods, in Kueue's order of resources.
    pub(crate) requests: Vec<(ResourceId, i64)>,
    /// Flavors it holds.
    pub(crate) flavors: Vec<(ResourceId, FlavorId)>,
    /// What one pod needs of a node.
    pub(crate) one: Vec<(ResourceId, i64)>,
    /// Places it holds: values of the topology's levels, and pods there.
    pub(crate) places: Vec<(Vec<String>, i32)>,
}

impl PodSetResources {
    /// How much of a resource all its pods ask for.
    pub(crate) fn request(&self, res: ResourceId) -> i64 {
        self.requests.iter().find(|(r, _)| *r == res).map_or(0, |(_, v)| *v)
    }

    /// The same podset with another number of pods.
    pub(crate) fn scaled_to(&self, count: i32) -> Self {
        let mut out = self.clone();
        if self.count != 0 && self.count != count {
            for (_, v) in &mut out.requests {
                *v = (*v / i64::from(self.count)).saturating_mul(i64::from(count));
            }
            out.count = count;
        }
        out
    }
}

/// Scores of flavors that are not 0, by flavor, ascending.
pub(crate) type FlavorScores = Box<[(FlavorId, i32)]>;

/// What makes two workloads equal to the scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SchedulingHash {
    pub(crate) priority: i64,
    /// The slice it is to replace: it needs only the difference.
    pub(crate) replaces: Option<WorkloadKey>,
    /// The flavors that a variant may get.
    pub(crate) allowed_flavors: Option<Vec<String>>,
    /// Why a rule of the configuration keeps it from being admitted.
    pub(crate) veto: Option<String>,
    /// In which order rules of the configuration have flavors tried.
    pub(crate) flavor_scores: FlavorScores,
    /// How long the pods run at most: with it a workload may overtake others (joint admission).
    pub(crate) max_execution_seconds: Option<i32>,
    /// What rules of a PreemptionConfig read of it.
    pub(crate) preemptor: Option<Box<PreemptorKey>>,
    /// Where that decides which pods or volumes the pods are placed beside.
    pub(crate) namespace: Option<String>,
    pub(crate) pod_sets: Vec<(PodSet, PodSetResources)>,
}

/// Scheduling hashes in use, by number. Numbers are never given out twice, as queues remember them.
#[derive(Debug)]
pub(crate) struct SchedulingHashes {
    by_hash: Map<Arc<SchedulingHash>, SchedulingHashId>,
    /// The hash of a number and how many workloads have it.
    in_use: Map<SchedulingHashId, (Arc<SchedulingHash>, u32)>,
    next: SchedulingHashId,
}

impl Default for SchedulingHashes {
    fn default() -> Self {
        Self { by_hash: Map::default(), in_use: Map::default(), next: SchedulingHashId(0) }
    }
}

impl SchedulingHashes {
    /// The number of a hash for one more workload.
    pub(crate) fn take(&mut self, scheduling_hash: SchedulingHash) -> SchedulingHashId {
        let id = match self.by_hash.get(&scheduling_hash) {
            Some(&id) => id,
            None => {
                let (id, scheduling_hash) = (self.next, Arc::new(scheduling_hash));
                self.next = SchedulingHashId(self.next.0.wrapping_add(1));
                self.by_hash.insert(Arc::clone(&scheduling_hash), id);
                self.in_use.insert(id, (scheduling_hash, 0));
                id
            }
        };
        if let Some((_, n)) = self.in_use.get_mut(&id) {
            *n += 1;
        }
        id
    }

    /// One workload less has the hash; it is forgotten with the last.
    pub(crate) fn give_back(&mut self, id: SchedulingHashId) {
        let Some((_, n)) = self.in_use.get_mut(&id) else { return };
        *n -= 1;
        if *n == 0
            && let Some((scheduling_hash, _)) = self.in_use.remove(&id)
        {
            self.by_hash.remove(&scheduling_hash);
        }
    }

    /// How many workloads have each hash.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (SchedulingHashId, u32)> {
        self.in_use.iter().map(|(id, (_, n))| (*id, *n))
    }

    /// How many hashes there are.
    pub(crate) fn len(&self) -> usize {
        self.by_hash.len()
    }
}

/// Podsets of workloads, and how many workloads have each: many workloads differ in nothing but their names.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SharedPodSets(Map<PodSets, u32>);

impl SharedPodSets {
    /// One more workload has these podsets, and shares them with those that have equal ones.
    pub(crate) fn share(&mut self, pod_sets: &mut PodSets) {
        match self.0.get_key_value_mut(pod_sets) {
            Some((known, count)) => {
                *count += 1;
                pod_sets.clone_from(known);
            }
            None => {
                self.0.insert(pod_sets.clone(), 1);
            }
        }
    }

    /// One workload less has these podsets; they are forgotten with the last.
    pub(crate) fn give_back(&mut self, pod_sets: &PodSets) {
        let Some(count) = self.0.get_mut(pod_sets) else { return };
        *count -= 1;
        if *count == 0 {
            self.0.remove(pod_sets);
        }
    }
}

/// Whether pods elsewhere decide where the pods may be, by labels and namespaces: theirs are a part of the scheduling hash
/// then. Kueue leaves them out, because quota does not depend on them.
pub(crate) fn looks_at_pods(spec: &PodSpec) -> bool {
    !spec.spread.is_empty() || spec.affinity.pod.is_some() || spec.affinity.anti.is_some()
}

/// Whether the pods use volumes that names of their namespace stand for.
pub(crate) fn has_namespaced_volumes(spec: &PodSpec) -> bool {
    spec.volumes.iter().any(|v| matches!(v.source, VolumeSource::Claim { .. } | VolumeSource::Ephemeral(_)))
        || !spec.resource_claims.is_empty()
}

/// The scheduling-relevant part of a pod spec: what counts as the same for the scheduler.
pub(crate) fn scheduling_spec(spec: &PodSpec) -> PodSpec {
    let mut s = spec.clone();
    for c in s.containers.iter_mut().chain(&mut s.init_containers) {
        c.name.clear();
        c.image.clear();
        c.limits.clear();
        // What a sidecar adds is in the sums.
        c.restart_policy = None;
    }
    s.node_name.clear();
    s.priority_class_name.clear();
    s.scheduling_gates.clear();
    s.pod_limits = None;
    s
}
