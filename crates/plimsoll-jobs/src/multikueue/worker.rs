//! What a worker cluster has of this manager: copies of workloads, and jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::kueue::{REPLACEMENT_FOR, WorkloadNames};
use serde_json::Value;

use super::quota::{self, Quotas};
use super::{Lacks, WorkloadKey, clusters_of_jobs, key_of, workloads_of_job};
use crate::store::{Kind, ObjectStore};

/// The objects of one worker cluster that have this manager's label, with jobs by workload.
#[derive(Debug, Default)]
pub struct WorkerStore {
    objects: ObjectStore,
    names: WorkloadNames,
    jobs: BTreeMap<WorkloadKey, BTreeSet<(Kind, String)>>,
}

/// What a worker cluster has of one workload.
#[derive(Clone, Debug, Default)]
pub struct Copy {
    /// The copy of the workload.
    pub workload: Option<Arc<Value>>,
    /// Its job, or the pods of its group.
    pub jobs: Vec<(Kind, Arc<Value>)>,
    /// The job while it still has the name of a slice that the workload has replaced.
    pub before: Vec<(Kind, Arc<Value>)>,
    /// The RayClusters of its jobs.
    pub clusters: Vec<Arc<Value>>,
    /// The kinds of jobs that the cluster can't run.
    pub lacks: Arc<Lacks>,
}

impl Copy {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.workload.is_none() && self.jobs.is_empty()
    }

    /// Its job of this kind and name.
    pub(super) fn job(&self, kind: Kind, name: &str) -> Option<&Value> {
        let mut jobs = self.jobs.iter().chain(&self.before);
        jobs.find(|(of, job)| *of == kind && json::name(job) == name).map(|(_, job)| &**job)
    }
}

/// The workloads of which an object of a worker is the job. A RayCluster of another job is none, although it has the labels and
/// annotations of that.
fn workloads_of(kind: Kind, object: &Value, names: WorkloadNames) -> Vec<WorkloadKey> {
    match clusters_of_jobs::owner_of(kind, object) {
        Some(_) => Vec::new(),
        None => workloads_of_job(kind, object, names),
    }
}

/// Whether a workload is the slice after this one.
fn replaces(copy: &Value, key: &WorkloadKey) -> bool {
    let before = json::annotation(copy, REPLACEMENT_FOR).and_then(|text| text.split_once('/'));
    before == Some((key.namespace.as_str(), key.name.as_str()))
}

impl WorkerStore {
    /// An empty store of a manager that gives workloads these names.
    pub fn new(names: WorkloadNames) -> Self {
        Self { names, ..Self::default() }
    }

    /// Keeps an object that a watch has shown, unless a newer version is known; returns the workloads that it concerns.
    pub fn put(&mut self, kind: Kind, object: Value) -> Vec<WorkloadKey> {
        self.keep(kind, object, ObjectStore::put)
    }

    /// Keeps the response to a write: the next plan must not decide without it.
    pub fn answered(&mut self, kind: Kind, object: Value, created: bool) {
        if created {
            drop(self.keep(kind, object, ObjectStore::put_created));
        } else {
            drop(self.keep(kind, object, ObjectStore::refresh));
        }
    }

    fn keep(
        &mut self,
        kind: Kind,
        object: Value,
        put: fn(&mut ObjectStore, Kind, Arc<Value>),
    ) -> Vec<WorkloadKey> {
        let object = Arc::new(object);
        if let Some(old) = self.objects.get(kind, json::namespace(&object), json::name(&object)) {
            self.unindex(kind, &old);
        }
        let concerned = self.concerned(kind, &object);
        put(&mut self.objects, kind, Arc::clone(&object));
        let kept = self.objects.get(kind, json::namespace(&object), json::name(&object));
        if let Some(kept) = kept.filter(|_| kind != Kind::Workload) {
            for key in workloads_of(kind, &kept, self.names) {
                self.jobs.entry(key).or_default().insert((kind, json::name(&kept).to_owned()));
            }
        }
        concerned
    }

    /// Forgets the object with this UID; returns the workloads that it concerned.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str, uid: &str) -> Vec<WorkloadKey> {
        let Some(old) = self.objects.remove(kind, namespace, name, uid) else { return Vec::new() };
        self.unindex(kind, &old);
        self.concerned(kind, &old)
    }

    /// The workloads that an object concerns.
    fn concerned(&self, kind: Kind, object: &Value) -> Vec<WorkloadKey> {
        if kind == Kind::Workload {
            return vec![key_of(object)];
        }
        let (kind, mut keys) = match clusters_of_jobs::owner(kind, object, &self.objects) {
            Some((kind, job)) => (kind, workloads_of_job(kind, &job, self.names)),
            None => (kind, workloads_of(kind, object, self.names)),
        };
        if clusters_of_jobs::has_cluster(kind) {
            // The next slice, which waits here, says by now what the job is to be.
            let next =
                self.objects.all(Kind::Workload).filter(|copy| keys.iter().any(|key| replaces(copy, key)));
            let next: Vec<WorkloadKey> = next.map(|copy| key_of(&copy)).collect();
            keys.extend(next);
        }
        keys
    }

    /// A watch has handed on a complete list of this version ([`ObjectStore::listed`]).
    pub fn listed(&mut self, kind: Kind, version: &str) -> Vec<WorkloadKey> {
        let gone = self.objects.listed(kind, version);
        gone.iter().for_each(|object| self.unindex(kind, object));
        gone.iter().flat_map(|object| self.concerned(kind, object)).collect()
    }

    fn unindex(&mut self, kind: Kind, object: &Value) {
        if kind == Kind::Workload {
            return;
        }
        for key in workloads_of(kind, object, self.names) {
            let Some(jobs) = self.jobs.get_mut(&key) else { continue };
            jobs.remove(&(kind, json::name(object).to_owned()));
            if jobs.is_empty() {
                self.jobs.remove(&key);
            }
        }
    }

    /// What there is of a workload; `before` are the slices that it has [replaced](super::replaced).
    pub fn copy(&self, key: &WorkloadKey, before: &[WorkloadKey]) -> Copy {
        let get = |kind, name: &str| self.objects.get(kind, &key.namespace, name);
        let jobs = |key: &WorkloadKey| -> Vec<(Kind, Arc<Value>)> {
            let names = self.jobs.get(key).into_iter().flatten();
            names.filter_map(|(kind, name)| Some((*kind, get(*kind, name)?))).collect()
        };
        let before: Vec<(Kind, Arc<Value>)> = before.iter().flat_map(&jobs).collect();
        let jobs = jobs(key);
        let all = jobs.iter().chain(&before);
        let clusters =
            all.filter_map(|(kind, job)| clusters_of_jobs::of_job(*kind, job, &self.objects)).collect();
        let workload = get(Kind::Workload, &key.name);
        Copy { workload, jobs, before, clusters, lacks: Arc::default() }
    }

    /// Forgets all objects of a kind, which is followed in another version from now on.
    pub fn forget(&mut self, kind: Kind) {
        let all: Vec<Arc<Value>> = self.objects.all(kind).collect();
        all.iter().for_each(|object| self.unindex(kind, object));
        self.objects.forget(kind);
    }

    /// What the ClusterQueues behind these LocalQueues (namespace, name) offer.
    pub fn quotas(&self, local_queues: &BTreeSet<(String, String)>) -> Quotas {
        quota::quotas_of(&self.objects, local_queues)
    }

    /// Whether a queue that a watch has shown offers something else than before.
    pub fn offers_anew(&self, kind: Kind, queue: &Value) -> bool {
        let known = self.objects.get(kind, json::namespace(queue), json::name(queue));
        let part = if kind == Kind::ClusterQueue { "resourceGroups" } else { "clusterQueue" };
        known.is_none_or(|known| known["spec"][part] != queue["spec"][part])
    }

    /// All workloads of which there is something.
    pub fn workloads(&self) -> BTreeSet<WorkloadKey> {
        let copies = self.objects.all(Kind::Workload).map(|w| key_of(&w));
        copies.chain(self.jobs.keys().cloned()).collect()
    }

    /// The workloads of which there is something, although the manager has none of that name, or one that is being deleted
    /// (Kueue's garbage collection, `runGC`).
    pub fn orphans(&self, manager: &ObjectStore) -> Vec<WorkloadKey> {
        let mut all = self.workloads();
        all.retain(|key| {
            let local = manager.get(Kind::Workload, &key.namespace, &key.name);
            local.is_none_or(|local| json::deleting(&local))
        });
        all.into_iter().collect()
    }
}
