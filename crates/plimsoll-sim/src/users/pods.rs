//! Plain pods as their users keep them: a pod that failed, or that something deleted, is made again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::reading::pod_size;
use super::{Users, key};
use crate::api::{Change, Kind, deleting, list, name_of, text, uid};
use crate::network::Network;
use crate::scenario::JobSpec;
use crate::scenario::objects::{self, NAMESPACE, job_name, pod_prefix};

/// A pod that a user has made.
#[derive(Debug)]
struct Plain {
    job: String,
    uid: String,
    /// As it is to run; `None`: it has run, or another one has its place.
    wanted: Option<Value>,
}

/// Plain pods.
#[derive(Debug, Default)]
pub struct Pods {
    by_name: BTreeMap<String, Plain>,
    /// CPUs of all pods of a job.
    sizes: BTreeMap<String, i64>,
    /// Jobs whose pods users have deleted: the workload of a group goes with them, whenever it was made.
    dropped: BTreeSet<String>,
    /// Pods of jobs that are made once nothing is left of a former job of the name.
    waiting: BTreeMap<String, Vec<Value>>,
}

impl Pods {
    /// Whether this job consists of plain pods.
    pub fn are_of(&self, job: &str) -> bool {
        self.by_name.values().any(|p| p.job == job)
    }

    /// Pods that are to run and have not, with the CPUs of all pods of their job.
    pub fn unfinished(&self) -> impl Iterator<Item = (&Value, i64)> {
        let made = self.by_name.values().filter_map(|p| p.wanted.as_ref().map(|pod| (pod, &p.job)));
        let waiting = self.waiting.iter().flat_map(|(job, pods)| pods.iter().map(move |pod| (pod, job)));
        made.chain(waiting).map(|(pod, job)| (pod, self.sizes.get(job).copied().unwrap_or(0)))
    }
}

/// Whether nothing but another pod of its group lets it go: the group keeps the last state of a pod that it lacks.
fn is_kept(pod: &Value) -> bool {
    deleting(pod)
        && text(pod, &["spec", "nodeName"]).is_empty()
        && !text(pod, &["metadata", "labels", "kueue.x-k8s.io/pod-group-name"]).is_empty()
        && !list(pod, &["metadata", "finalizers"]).is_empty()
}

impl Users {
    pub(super) fn submit_pods(&mut self, job: usize, spec: &JobSpec, network: &mut Network) {
        let name = job_name(job);
        let pods = objects::pods(job, spec, &self.settings);
        self.pods.sizes.insert(name.clone(), pods.iter().map(pod_size).sum());
        self.pods.waiting.insert(name, pods);
        self.make_waiting(network);
    }

    /// Creates the pods of jobs of whose former selves nothing is left: a group is known by its name alone.
    pub(super) fn make_waiting(&mut self, network: &mut Network) {
        let is_left = |job: &str| {
            let prefix = pod_prefix(job);
            network.api.all(Kind::Pod).any(|p| name_of(p).1.starts_with(&prefix))
                || network.api.get(Kind::Workload, NAMESPACE, job).is_some()
        };
        let free: Vec<String> = self.pods.waiting.keys().filter(|job| !is_left(job)).cloned().collect();
        for job in free {
            self.pods.dropped.remove(&job);
            for pod in self.pods.waiting.remove(&job).unwrap_or_default() {
                self.put_pod(&job, pod, network);
            }
        }
    }

    /// Creates a pod, under another name while a former one is on its way out.
    fn put_pod(&mut self, job: &str, mut pod: Value, network: &mut Network) {
        let (namespace, mut name) = name_of(&pod);
        while network.api.get(Kind::Pod, &namespace, &name).is_some() {
            name.push('r');
        }
        pod["metadata"]["name"] = json!(name);
        self.put(Kind::Pod, pod.clone(), network);
        let uid = network.api.get(Kind::Pod, &namespace, &name).map_or("", |p| uid(p)).to_owned();
        self.pods.by_name.insert(name, Plain { job: job.to_owned(), uid, wanted: Some(pod) });
    }

    pub(super) fn drop_pods(&mut self, job: &str, network: &mut Network) {
        self.pods.waiting.remove(job);
        let mine = |(name, pod): (&String, &Plain)| (pod.job == job).then(|| name.clone());
        let pods: Vec<String> = self.pods.by_name.iter().filter_map(mine).collect();
        for pod in pods {
            self.pods.by_name.remove(&pod);
            self.pods.dropped.insert(job.to_owned());
            self.delete_gracefully(Kind::Pod, key(&pod), network);
        }
    }

    /// Forgets all pods: their namespace is deleted.
    pub(super) fn forget_pods(&mut self) {
        let jobs = self.pods.by_name.values().map(|p| p.job.clone()).collect::<Vec<_>>();
        self.pods.dropped.extend(jobs);
        self.pods.by_name.clear();
        self.pods.waiting.clear();
    }

    /// Users delete the workloads of groups that they have deleted.
    pub(super) fn delete_dropped(&self, network: &mut Network) {
        for group in &self.pods.dropped {
            self.delete(Kind::Workload, key(group), network);
        }
    }

    /// A pod has changed: what takes its place is made, as the controllers do that create plain pods.
    pub(super) fn pod_changed(&mut self, name: &str, change: &Change, network: &mut Network) {
        let Some(pod) = self.pods.by_name.get_mut(name).filter(|p| p.uid == uid(&change.object)) else {
            return;
        };
        let job = pod.job.clone();
        let phase = text(&change.object, &["status", "phase"]);
        if phase == "Succeeded" {
            pod.wanted = None;
        } else if (change.deleted || phase == "Failed" || is_kept(&change.object))
            && let Some(wanted) = pod.wanted.take()
        {
            self.put_pod(&job, wanted, network);
        }
    }
}
