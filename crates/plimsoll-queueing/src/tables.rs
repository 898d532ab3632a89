//! Tables of objects with dense ids.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use super::bounded::Again;
use super::cycle::{FailedDryRuns, NodeClaims};
use super::ids::{ClusterQueueId, FlavorId, LocalQueueId, WorkloadId};
use super::joint::NodesDecision;
use super::model::{
    AdmissionCheck, Cohort, LimitRange, PreemptionConfig, ResourceFlavor, Topology, Workload, WorkloadKey,
};
use super::pod_sets::SharedPodSets;
use super::state::WorkloadInfo;
use foldhash::fast::FixedState;
use plimsoll_state::model::{Resources, StringMap};
use plimsoll_state::parted::PartedTable;
use plimsoll_state::slab::{Id, Slab};
use plimsoll_state::time::Time;

/// Rows by a name that they keep. A row is made when its name is first seen, also before the object exists, and never
/// goes, so that others may refer to it by its id.
#[derive(Debug)]
pub(crate) struct NamedTable<I, K, T> {
    rows: Vec<T>,
    by_name: BTreeMap<K, I>,
}

impl<I, K, T> Default for NamedTable<I, K, T> {
    fn default() -> Self {
        Self { rows: Vec::new(), by_name: BTreeMap::new() }
    }
}

impl<I: Id, K: Ord, T> NamedTable<I, K, T> {
    /// The id of a name, if it was ever seen.
    pub(crate) fn find<Q: Ord + ?Sized>(&self, name: &Q) -> Option<I>
    where
        K: Borrow<Q>,
    {
        self.by_name.get(name).copied()
    }

    /// Adds a row under a name that has none.
    pub(crate) fn insert(&mut self, name: K, row: T) -> I {
        let id = I::new(self.rows.len());
        self.rows.push(row);
        self.by_name.insert(name, id);
        id
    }

    pub(crate) fn get(&self, id: I) -> &T {
        &self.rows[id.index()]
    }

    pub(crate) fn get_mut(&mut self, id: I) -> &mut T {
        &mut self.rows[id.index()]
    }

    /// All ids, in the order in which they were given out.
    pub(crate) fn ids(&self) -> impl Iterator<Item = I> + use<I, K, T> {
        (0..self.rows.len()).map(I::new)
    }

    /// All ids in the order of their names.
    pub(crate) fn ids_by_name(&self) -> impl Iterator<Item = I> {
        self.by_name.values().copied()
    }

    /// All rows with their ids, in the order of those.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.rows.iter().enumerate().map(|(i, row)| (I::new(i), row))
    }
}

/// All workloads.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    rows: Slab<WorkloadId, WorkloadInfo>,
    by_key: ByKey,
    pod_sets: SharedPodSets,
}

/// Workloads by name. The names are those of the rows.
#[derive(Debug, Default)]
struct ByKey {
    ids: PartedTable<WorkloadId>,
    hasher: FixedState,
}

impl ByKey {
    fn find(&self, rows: &Slab<WorkloadId, WorkloadInfo>, key: &WorkloadKey) -> Option<WorkloadId> {
        self.ids
            .find(self.hasher.hash_one(key), |id| rows.get(*id).is_some_and(|w| w.obj.key == *key))
            .copied()
    }

    /// Adds the row of a name that has none.
    fn insert(&mut self, rows: &Slab<WorkloadId, WorkloadInfo>, id: WorkloadId) {
        let hash = |id: &WorkloadId| rows.get(*id).map_or(0, |w| self.hasher.hash_one(&w.obj.key));
        self.ids.insert_unique(hash(&id), id, hash);
    }

    fn remove(&mut self, rows: &Slab<WorkloadId, WorkloadInfo>, key: &WorkloadKey) -> Option<WorkloadId> {
        let is = |id: &WorkloadId| rows.get(*id).is_some_and(|w| w.obj.key == *key);
        self.ids.remove(self.hasher.hash_one(key), is)
    }
}

impl Workloads {
    /// The workload of a name.
    pub(crate) fn find(&self, key: &WorkloadKey) -> Option<WorkloadId> {
        self.by_key.find(&self.rows, key)
    }

    /// The workload, if it still exists.
    pub(crate) fn get(&self, id: WorkloadId) -> Option<&WorkloadInfo> {
        self.rows.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: WorkloadId) -> Option<&mut WorkloadInfo> {
        self.rows.get_mut(id)
    }

    /// Adds a workload; its id may have been another one's before.
    pub(crate) fn insert(&mut self, mut row: WorkloadInfo) -> WorkloadId {
        self.pod_sets.share(row.obj.pod_sets_mut());
        let id = self.rows.insert(row);
        self.by_key.insert(&self.rows, id);
        id
    }

    /// Forgets a name: the workload is no longer found by it, but is there until it is removed.
    pub(crate) fn forget_key(&mut self, key: &WorkloadKey) -> Option<WorkloadId> {
        self.by_key.remove(&self.rows, key)
    }

    /// Removes a workload whose name was forgotten.
    pub(crate) fn remove(&mut self, id: WorkloadId) {
        if let Some(row) = self.rows.remove(id) {
            self.pod_sets.give_back(&row.obj.pod_sets);
        }
    }

    /// Replaces the object of a workload by what [`EffectiveWorkload::show`](crate::effective::EffectiveWorkload::show) made of
    /// it.
    pub(crate) fn replace(&mut self, id: WorkloadId, mut w: Workload) {
        let Some(row) = self.rows.get_mut(id) else { return };
        if row.obj.pod_sets == w.pod_sets {
            w.pod_sets.clone_from(&row.obj.pod_sets);
            drop(row.obj.replace(w));
        } else {
            self.pod_sets.share(&mut w.pod_sets);
            self.pod_sets.give_back(&row.obj.replace(w).pod_sets);
        }
    }

    /// Panics when podsets are shared by other workloads than there are.
    pub(crate) fn check_pod_sets(&self) {
        let mut counts = SharedPodSets::default();
        for (_, row) in self.rows.iter() {
            counts.share(&mut row.obj.pod_sets.clone());
        }
        assert_eq!(self.pod_sets, counts, "podsets and workloads disagree");
    }

    /// Panics when workloads are not found by their names.
    pub(crate) fn check_keys(&self) {
        for (id, row) in self.rows.iter() {
            assert_eq!(self.find(&row.obj.key), Some(id), "{}: the name finds another workload", row.obj.key);
        }
        assert_eq!(self.by_key.ids.len(), self.rows.len(), "names without workloads");
    }

    /// All workloads in the order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkloadId, &WorkloadInfo)> {
        self.rows.iter()
    }

    /// All ids that were given out, also of workloads that are gone.
    pub(crate) fn ids(&self) -> impl Iterator<Item = WorkloadId> + use<> {
        (0..self.rows.bound()).map(WorkloadId::new)
    }
}

/// Objects that workloads and queues refer to by name, as the API showed them.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Labels of every namespace.
    pub(crate) namespaces: BTreeMap<String, StringMap>,
    pub(crate) flavors: BTreeMap<FlavorId, Arc<ResourceFlavor>>,
    /// By namespace and name.
    pub(crate) limit_ranges: BTreeMap<(String, String), LimitRange>,
    /// Overhead of every RuntimeClass.
    pub(crate) runtime_classes: BTreeMap<String, Resources>,
    pub(crate) checks: BTreeMap<String, AdmissionCheck>,
    pub(crate) topologies: BTreeMap<String, Topology>,
    pub(crate) preemption_configs: BTreeMap<String, Arc<PreemptionConfig>>,
    pub(crate) cohorts: BTreeMap<String, Cohort>,
    /// Cohorts that lost their object while they had ClusterQueues. As in Kueue their quota is no metric until one of those
    /// changes (`cohort_metrics.go`, `ClearCohortMetrics`).
    pub(crate) cleared_cohorts: BTreeSet<String>,
    /// The same for the number of workloads admitted below them, until that of one of the ClusterQueues changes
    /// (`ClearCohortAdmittedWorkloadsMetrics`).
    pub(crate) uncounted_cohorts: BTreeSet<String>,
}

/// What has to happen at a time, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Workloads to reconcile.
    pub(crate) workloads: BTreeSet<(Time, WorkloadId)>,
    /// LocalQueues whose usage is to be sampled.
    pub(crate) samples: BTreeSet<(Time, LocalQueueId)>,
    /// ClusterQueues whose inadmissible workloads are to be requeued.
    pub(crate) requeue_inadmissible: BTreeSet<(Time, ClusterQueueId)>,
    /// Workloads whose reason to wait is to be written.
    pub(crate) explain: BTreeSet<(Time, WorkloadId)>,
    /// Whether these wait until they are let go, however late that is.
    pub(crate) explanations_held: bool,
}

impl Timers {
    /// The earliest of all that are not held.
    pub(crate) fn next(&self) -> Option<Time> {
        let firsts = [
            self.workloads.first().map(|(t, _)| *t),
            self.samples.first().map(|(t, _)| *t),
            self.requeue_inadmissible.first().map(|(t, _)| *t),
            self.explain.first().filter(|_| !self.explanations_held).map(|(t, _)| *t),
        ];
        firsts.into_iter().flatten().min()
    }
}

/// What has changed since it was last brought up to date.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// Workloads whose conditions may have to change.
    pub(crate) workloads: BTreeSet<WorkloadId>,
    /// Workloads that are to be queued again, if they hold no quota.
    pub(crate) requeue: BTreeMap<WorkloadId, Again>,
    /// ClusterQueues whose status may have changed.
    pub(crate) cluster_queues: BTreeSet<ClusterQueueId>,
    /// LocalQueues whose status may have changed.
    pub(crate) local_queues: BTreeSet<LocalQueueId>,
    /// ClusterQueues whose inadmissible workloads, and those of their tree, are to be requeued.
    pub(crate) inadmissible: BTreeSet<ClusterQueueId>,
    /// The same where objects changed: users change several at a time.
    pub(crate) respecified: BTreeSet<ClusterQueueId>,
    /// The same where nothing changed but that quota became free.
    pub(crate) freed: BTreeSet<ClusterQueueId>,
}

impl Dirty {
    /// Requeues a workload in a later step, or in this one.
    pub(crate) fn requeue(&mut self, id: WorkloadId, how: Again) {
        let known = self.requeue.entry(id).or_insert(how);
        *known = how.and(*known);
    }
}

/// What joint admission knows of reservations of nodes, which the scheduler holds.
#[derive(Debug, Default)]
pub(crate) struct JointAdmission {
    /// ClusterQueues with workloads that wait for capacity on nodes.
    pub(crate) awaiting_nodes: BTreeSet<ClusterQueueId>,
    /// Those of them with workloads whose pods look at other pods.
    pub(crate) awaiting_pods: BTreeSet<ClusterQueueId>,
    /// Workloads whose status says that nodes were reserved for them, by a process before this one.
    pub(crate) recorded: BTreeSet<WorkloadId>,
    /// Workloads whose admission checks may have become ready, so that nodes are looked for.
    pub(crate) checked: BTreeSet<WorkloadId>,
    /// What was decided of the nodes of these; it is written with their admission.
    pub(crate) decided: BTreeMap<WorkloadId, NodesDecision>,
    /// Workloads that have lost their quota since nodes were reserved for their pods.
    pub(crate) no_longer_admitted: Vec<WorkloadKey>,
    /// How often something changed that victims depend on: quotas, policies, what holds quota, budgets.
    pub(crate) changes: u64,
    /// What need not be tried again. A cycle takes it and returns it in its plan.
    pub(crate) failed: FailedDryRuns,
    /// Claims on nodes. A cycle takes them and returns them in its plan.
    pub(crate) claims: NodeClaims,
}
