//! Which pods belong to which Workload.

use super::ids::PodId;
use plimsoll_state::model::{self, WorkloadKey};
use plimsoll_state::parted::PartedMap;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The Workload and the podset of a pod.
#[derive(Debug)]
struct Membership {
    workload: Arc<WorkloadKey>,
    pod_set: Arc<str>,
}

/// Pods of Workloads that are not finished, on nodes or not.
#[derive(Debug, Default)]
pub struct WorkloadPods {
    by_key: BTreeMap<Arc<WorkloadKey>, BTreeSet<PodId>>,
    members: PartedMap<PodId, Membership>,
    /// Those that are being deleted.
    leaving: BTreeSet<PodId>,
}

impl WorkloadPods {
    /// Notes what a pod says of its Workload.
    pub(crate) fn join(&mut self, id: PodId, pod: &model::Pod) {
        if pod.workload.is_empty() {
            return self.leave(id);
        }
        if let Some(known) = self.members.get_mut(&id)
            && known.workload.name == pod.workload
        {
            if *known.pod_set != *pod.pod_set {
                known.pod_set = pod.pod_set.as_str().into();
            }
            if pod.deleting {
                self.leaving.insert(id);
            }
            return;
        }
        self.leave(id);
        let key = WorkloadKey { namespace: pod.namespace.clone(), name: pod.workload.clone() };
        let workload = self.by_key.get_key_value(&key).map_or_else(|| Arc::new(key), |(k, _)| Arc::clone(k));
        self.by_key.entry(Arc::clone(&workload)).or_default().insert(id);
        if pod.deleting {
            self.leaving.insert(id);
        }
        self.members.insert(id, Membership { workload, pod_set: pod.pod_set.as_str().into() });
    }

    /// A pod is gone, or belongs to no Workload any more.
    pub(crate) fn leave(&mut self, id: PodId) {
        let Some(member) = self.members.remove(&id) else { return };
        self.leaving.remove(&id);
        if let Some(pods) = self.by_key.get_mut(&member.workload) {
            pods.remove(&id);
            if pods.is_empty() {
                self.by_key.remove(&member.workload);
            }
        }
    }

    /// Pods of Workloads that are being deleted, in id order.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = PodId> {
        self.leaving.iter().copied()
    }

    /// The Workload of a pod.
    pub(crate) fn workload(&self, id: PodId) -> Option<&WorkloadKey> {
        self.members.get(&id).map(|m| &*m.workload)
    }

    /// The pods of a Workload, in id order, with their podsets.
    pub(crate) fn of(&self, workload: &WorkloadKey) -> impl Iterator<Item = (PodId, &str)> {
        let pods = self.by_key.get(workload).into_iter().flatten();
        pods.filter_map(|id| Some((*id, &*self.members.get(id)?.pod_set)))
    }
}
