//! The DaemonSet controller: one pod on each node that is to have one (`pkg/controller/daemon` upstream).

pub mod model;
pub mod place;
pub mod plan;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{BoxFuture, join_all};
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{OwnerReference, controller_reference, orphans};
use plimsoll_client::{
    Backoff, Client, Clock, Controller, Event, EventRecorder, EventType, Informer, Outcome, Subject,
    WorkQueue, resources,
};
use serde_json::json;
use tokio::sync::watch::Receiver;

use super::replicaset::write_status;
use super::revision::{self, Owner, Revision};
use crate::pod::{Pod, by_owner};
use crate::pod_control::{PodControl, adopt, let_go, slow_start};
use model::{DaemonSet, Node, Status};
use plan::{ByNode, Plan};

/// Pods made or deleted in one go, at most.
const BURST: usize = 250;
/// Time between deletions of failed pods on one node: doubles from the first to the second.
const FAILED: Backoff = Backoff { base: SignedDuration::from_secs(1), max: SignedDuration::from_mins(15) };
/// Nodes whose failures are remembered; beyond, the memory starts anew.
const MAX_REMEMBERED: usize = 4096;

/// The DaemonSet controller.
pub struct DaemonSetController {
    client: Arc<dyn Client>,
    clock: Clock,
    sets: Informer<DaemonSet>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    revisions: Informer<Revision>,
    pod_control: PodControl,
    recorder: EventRecorder,
    /// Failures by set, generation and node, and when the next failed pod may go.
    failures: Mutex<HashMap<String, (u32, Timestamp)>>,
    /// The nodes that pods on none wait for, by set and UID: pods don't change them.
    targets: Mutex<HashMap<String, HashMap<String, String>>>,
}

fn is_set(owner: &OwnerReference) -> bool {
    owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/")
}

impl DaemonSetController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        let recorder = EventRecorder::new(Arc::clone(&client), clock.clone(), "daemonset-controller");
        Self {
            pod_control: PodControl::new(Arc::clone(&client), recorder.clone()),
            recorder,
            sets: Informer::new(&reader, &resources::DAEMON_SETS.storage, |_| None),
            pods: Informer::new(&reader, &resources::PODS.storage, by_owner),
            nodes: Informer::new(&reader, &resources::NODES.storage, |_| None),
            revisions: Informer::new(&reader, &resources::REVISIONS.storage, revision::owner_index),
            failures: Mutex::default(),
            targets: Mutex::default(),
            client,
            clock,
        }
    }

    async fn sync_set(&self, path: &str) -> Outcome {
        let Some(set) = self.sets.get(path).filter(|s| s.metadata.deletion_timestamp.is_none()) else {
            self.targets().remove(path);
            return Ok(None);
        };
        let pods = self.claim(&set).await?;
        let owner = controller_reference("apps/v1", "DaemonSet", &set.metadata);
        let owner = (&set.metadata, &owner);
        let known = revision::claimed(&*self.client, &self.revisions, &set.spec.selector, owner).await?;
        let revision = self.revision(&set, &known).await?;
        let hash = revision.metadata.labels.get(revision::HASH).cloned().unwrap_or_default();
        let now = self.clock.now();
        let nodes = self.nodes.all();
        let plan = plan::plan(&set, &nodes, &self.by_node(&set, &pods), &hash, now);
        let later = self.carry_out(&set, &plan, &hash, now).await;
        if plan.status != set.status {
            write_status(&*self.client, &resources::DAEMON_SETS, &set.metadata, json!(plan.status)).await?;
        }
        let in_use = |name: &str| {
            let of = |r: &Arc<Revision>| r.metadata.labels.get(revision::HASH).cloned();
            let hash = known.iter().find(|r| r.metadata.name == name).and_then(of);
            name == revision.metadata.name
                || pods.iter().any(|p| p.metadata.labels.get(place::REVISION) == hash.as_ref())
        };
        revision::truncate(&*self.client, &known, in_use, set.spec.revision_history_limit).await?;
        Ok([later?, plan.again].into_iter().flatten().min())
    }

    async fn revision(&self, set: &DaemonSet, known: &[Arc<Revision>]) -> Result<Revision, ApiError> {
        let owner = Owner {
            kind: "DaemonSet",
            meta: &set.metadata,
            template: &set.spec.template,
            labels: &set.spec.template["metadata"]["labels"],
            collisions: set.status.collision_count,
        };
        let counted = |n| json!(Status { collision_count: Some(n), ..set.status.clone() });
        revision::current_or_counted(&*self.client, owner, known, (&resources::DAEMON_SETS, counted)).await
    }

    /// Makes and deletes pods; when a failed pod may go that can't yet.
    async fn carry_out(
        &self,
        set: &DaemonSet,
        plan: &Plan,
        hash: &str,
        now: Timestamp,
    ) -> Result<Option<SignedDuration>, ApiError> {
        let subject = Subject::of("apps/v1", "DaemonSet", &set.metadata);
        let mut delete = plan.delete.clone();
        let mut later = None;
        for (pod, node) in &plan.ended {
            match self.may_replace(set, pod, node, now) {
                Ok(()) => delete.push(Arc::clone(pod)),
                Err(wait) => later = later.into_iter().chain([wait]).min(),
            }
        }
        let tolerations = place::tolerations(set);
        let pods: Vec<_> =
            plan.create.iter().take(BURST).map(|node| place::pod(set, &tolerations, hash, node)).collect();
        let (_, failure) = slow_start(&pods, |pod| self.pod_control.create(&subject, pod.clone())).await;
        let gone = delete.iter().take(BURST).map(|pod| self.pod_control.delete(&subject, &pod.metadata));
        let failed = join_all(gone).await.into_iter().find_map(Result::err);
        failure.or(failed).map_or(Ok(later), Err)
    }

    /// Whether a pod that ended may be deleted now; else when.
    fn may_replace(
        &self,
        set: &DaemonSet,
        pod: &Pod,
        node: &str,
        now: Timestamp,
    ) -> Result<(), SignedDuration> {
        let of = format!("daemon pod {} on node {node}", pod.metadata.path());
        let event = if pod.has_succeeded() {
            let text = format!("Found succeeded {of}, will try to delete it");
            Event::new(EventType::Normal, "SucceededDaemonPod", text)
        } else {
            let key = format!("{}/{}/{node}", set.metadata.uid, set.status.observed_generation);
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            if failures.len() > MAX_REMEMBERED {
                failures.clear();
            }
            let (count, next) = failures.entry(key).or_insert((0, now));
            let wait = next.duration_since(now);
            if wait.is_positive() {
                return Err(wait);
            }
            // Long ago is forgotten.
            *count = if wait.abs() > FAILED.max { 1 } else { count.saturating_add(1) };
            *next = now.saturating_add(FAILED.delay(*count)).unwrap_or(Timestamp::MAX);
            let text = format!("Found failed {of}, will try to kill it");
            Event::new(EventType::Warning, "FailedDaemonPod", text)
        };
        self.recorder.record(Subject::of("apps/v1", "DaemonSet", &set.metadata), event);
        Ok(())
    }

    fn by_node(&self, set: &DaemonSet, pods: &[Arc<Pod>]) -> ByNode {
        let path = set.metadata.path();
        let mut before = self.targets().remove(&path).unwrap_or_default();
        let mut targets = HashMap::new();
        let mut by_node = ByNode::new();
        for pod in pods.iter().filter(|p| !(p.is_terminal() && p.metadata.deletion_timestamp.is_some())) {
            let node = if pod.spec.node_name.is_empty() {
                let uid = &pod.metadata.uid;
                let target = before.remove(uid).unwrap_or_else(|| self.target(pod));
                if !target.is_empty() {
                    targets.insert(uid.clone(), target.clone());
                }
                target
            } else {
                pod.spec.node_name.clone()
            };
            by_node.entry(node).or_default().push(Arc::clone(pod));
        }
        by_node.remove("");
        if !targets.is_empty() {
            self.targets().insert(path, targets);
        }
        by_node
    }

    fn targets(&self) -> MutexGuard<'_, HashMap<String, HashMap<String, String>>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that a pod waits for, empty if it isn't known.
    fn target(&self, pod: &Pod) -> String {
        let record =
            self.client.reader().get(&resources::PODS.key(&pod.metadata.namespace, &pod.metadata.name));
        record.and_then(|r| r.value().ok()).and_then(|pod| place::target(&pod)).unwrap_or_default()
    }

    /// The set's pods: adopts orphans, releases pods that it no longer selects.
    async fn claim(&self, set: &DaemonSet) -> Result<Vec<Arc<Pod>>, ApiError> {
        let (client, uid) = (&*self.client, &set.metadata.uid);
        let mut kept = Vec::new();
        for pod in self.pods.indexed(uid) {
            if set.spec.selector.matches(&pod.metadata.labels) {
                kept.push(pod);
            } else {
                let_go(client, &resources::PODS, &pod.metadata, uid, None).await?;
            }
        }
        let owner = controller_reference("apps/v1", "DaemonSet", &set.metadata);
        for pod in self.pods.indexed(&orphans(&set.metadata.namespace)) {
            let free = pod.metadata.deletion_timestamp.is_none();
            if free && set.spec.selector.matches(&pod.metadata.labels) {
                adopt(client, &resources::PODS, &pod.metadata, &owner, None).await?;
                kept.push(pod);
            }
        }
        Ok(kept)
    }
}

impl Controller for DaemonSetController {
    fn name(&self) -> &'static str {
        "daemonset"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.sets.signal(), self.pods.signal(), self.nodes.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.revisions.refresh(|_| {});
        self.sets.refresh(|seen| queue.add(seen.path));
        let mut moved = false;
        self.nodes.refresh(|seen| {
            // Nodes report every few seconds; only what decides about pods counts.
            let same = |(a, b): (&Arc<Node>, &Arc<Node>)| a.metadata == b.metadata && a.spec == b.spec;
            moved |= !seen.old.zip(seen.new).is_some_and(same);
        });
        if moved {
            self.sets.all().iter().for_each(|set| queue.add(&set.metadata.path()));
        }
        self.pods.refresh(|seen| {
            for pod in [seen.old, seen.new].into_iter().flatten() {
                let meta = &pod.metadata;
                match meta.controller() {
                    Some(owner) if is_set(owner) => queue.add(&format!("{}/{}", meta.namespace, owner.name)),
                    Some(_) => {}
                    None => self.sets.in_namespace(&meta.namespace, |set| {
                        if set.spec.selector.matches(&meta.labels) {
                            queue.add(&set.metadata.path());
                        }
                    }),
                }
            }
        });
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_set(key))
    }
}
