//! What a worker cluster has of this manager: copies of workloads, and jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_api::kueue::WorkloadNames;
use serde_json::Value;

use super::quota::{self, Quotas};
use super::{WorkloadKey, key_of, workloads_of_job};
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

/// The workloads that an object of a worker concerns.
fn concerned(kind: Kind, object: &Value, names: WorkloadNames) -> Vec<WorkloadKey> {
    if kind == Kind::Workload { vec![key_of(object)] } else { workloads_of_job(kind, object, names) }
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
        let concerned = concerned(kind, &object, self.names);
        put(&mut self.objects, kind, Arc::clone(&object));
        let kept = self.objects.get(kind, json::namespace(&object), json::name(&object));
        if let Some(kept) = kept.filter(|_| kind != Kind::Workload) {
            for key in workloads_of_job(kind, &kept, self.names) {
                self.jobs.entry(key).or_default().insert((kind, json::name(&kept).to_owned()));
            }
        }
        concerned
    }

    /// Forgets the object with this UID; returns the workloads that it concerned.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str, uid: &str) -> Vec<WorkloadKey> {
        let Some(old) = self.objects.remove(kind, namespace, name, uid) else { return Vec::new() };
        self.unindex(kind, &old);
        concerned(kind, &old, self.names)
    }

    /// A watch has handed on a complete list of this version ([`ObjectStore::listed`]).
    pub fn listed(&mut self, kind: Kind, version: &str) -> Vec<WorkloadKey> {
        let gone = self.objects.listed(kind, version);
        gone.iter().for_each(|object| self.unindex(kind, object));
        gone.iter().flat_map(|object| concerned(kind, object, self.names)).collect()
    }

    fn unindex(&mut self, kind: Kind, object: &Value) {
        if kind == Kind::Workload {
            return;
        }
        for key in workloads_of_job(kind, object, self.names) {
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
        let before = before.iter().flat_map(&jobs).collect();
        Copy { workload: get(Kind::Workload, &key.name), jobs: jobs(key), before }
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
