//! The ReplicaSet controller: as many pods as wanted (`pkg/controller/replicaset` upstream).

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{Meta, OwnerReference, Time, controller_reference, orphans};
use plimsoll_client::{
    Client, Clock, Controller, EventRecorder, Informer, Outcome, Resource, Subject, Target, WorkQueue,
    resources,
};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::model::{Condition, ReplicaSet, ReplicaSetStatus};
use crate::pod::{Pod, by_owner, youngest_first};
use crate::pod_control::{PodControl, adopt, let_go, slow_start};

/// Pods made or deleted in one go, at most.
const BURST: i32 = 500;
/// Annotation of pods: the lower, the sooner one is given up.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The ReplicaSet controller.
pub struct ReplicaSetController {
    client: Arc<dyn Client>,
    clock: Clock,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    pod_control: PodControl,
}

fn is_set(owner: &OwnerReference) -> bool {
    owner.kind == "ReplicaSet" && owner.api_version.starts_with("apps/")
}

/// The UID of the Deployment that controls a ReplicaSet.
fn deployment_index(set: &ReplicaSet) -> Option<String> {
    set.metadata.controller().map(|o| o.uid.clone())
}

impl ReplicaSetController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        let recorder = EventRecorder::new(Arc::clone(&client), clock.clone(), "replicaset-controller");
        Self {
            pod_control: PodControl::new(Arc::clone(&client), recorder),
            sets: Informer::new(&reader, &resources::REPLICA_SETS.storage, deployment_index),
            pods: Informer::new(&reader, &resources::PODS.storage, by_owner),
            client,
            clock,
        }
    }

    async fn sync_set(&self, path: &str) -> Outcome {
        let Some(set) = self.sets.get(path) else { return Ok(None) };
        let pods = self.claim(&set).await?;
        let (active, others): (Vec<_>, Vec<_>) = pods.into_iter().partition(|p| p.is_active());
        let failure = match set.metadata.deletion_timestamp {
            None => self.manage(&set, &active).await,
            Some(_) => None,
        };
        let now = self.clock.now();
        let terminating = others.iter().filter(|p| p.is_terminating()).count();
        let status = status(&set, &active, terminating, failure.as_ref(), now);
        self.write_status(&set, &status).await?;
        match failure {
            Some((_, error)) => Err(error),
            None => Ok(next_availability(&set, &active, now)),
        }
    }

    /// Makes what is missing or deletes what is too much; a failure with the number of pods that were missing (positive) or
    /// too many.
    async fn manage(&self, set: &ReplicaSet, active: &[Arc<Pod>]) -> Option<(i32, ApiError)> {
        let subject = Subject::of("apps/v1", "ReplicaSet", &set.metadata);
        let missing = set.replicas() - count(active.iter());
        if missing > 0 {
            let pods = vec![pod_of(set); usize::try_from(missing.min(BURST)).unwrap_or(0)];
            let (_, failure) = slow_start(&pods, |pod| self.pod_control.create(&subject, pod.clone())).await;
            return failure.map(|error| (missing, error));
        }
        let surplus = usize::try_from((-missing).min(BURST)).unwrap_or(0);
        let mut order = active.to_vec();
        let ranks = self.ranks(set);
        let now = self.clock.now();
        order.sort_by(|a, b| removal_order(a, b, &ranks, now));
        let deletions =
            order.iter().take(surplus).map(|pod| self.pod_control.delete(&subject, &pod.metadata));
        let mut results = join_all(deletions).await.into_iter();
        results.find_map(Result::err).map(|error| (missing, error))
    }

    /// Active pods by node, of this set and the others of its Deployment.
    fn ranks(&self, set: &ReplicaSet) -> HashMap<String, usize> {
        let siblings = match set.metadata.controller() {
            Some(owner) => self.sets.indexed(&owner.uid).iter().map(|s| s.metadata.uid.clone()).collect(),
            None => vec![set.metadata.uid.clone()],
        };
        let mut ranks = HashMap::new();
        for pod in siblings.iter().flat_map(|uid| self.pods.indexed(uid)).filter(|p| p.is_active()) {
            *ranks.entry(pod.spec.node_name.clone()).or_insert(0) += 1;
        }
        ranks
    }

    async fn claim(&self, set: &ReplicaSet) -> Result<Vec<Arc<Pod>>, ApiError> {
        let (client, uid) = (&*self.client, &set.metadata.uid);
        let mut kept = Vec::new();
        let leaving = set.metadata.deletion_timestamp.is_some();
        for pod in self.pods.indexed(uid) {
            if leaving || set.spec.selector.matches(&pod.metadata.labels) {
                kept.push(pod);
            } else {
                let_go(client, &resources::PODS, &pod.metadata, uid, None).await?;
            }
        }
        if !leaving {
            let owner = controller_reference("apps/v1", "ReplicaSet", &set.metadata);
            for pod in self.pods.indexed(&orphans(&set.metadata.namespace)) {
                if pod.is_active() && set.spec.selector.matches(&pod.metadata.labels) {
                    adopt(client, &resources::PODS, &pod.metadata, &owner, None).await?;
                    kept.push(pod);
                }
            }
        }
        Ok(kept)
    }

    async fn write_status(&self, set: &ReplicaSet, status: &ReplicaSetStatus) -> Result<(), ApiError> {
        if *status == set.status {
            return Ok(());
        }
        write_status(&*self.client, &resources::REPLICA_SETS, &set.metadata, json!(status)).await
    }
}

/// Replaces the status of an object, at the version that it was made from.
pub(crate) async fn write_status(
    client: &dyn Client,
    resource: &Resource,
    meta: &Meta,
    status: Value,
) -> Result<(), ApiError> {
    let record = client.reader().latest(&resource.key(&meta.namespace, &meta.name));
    let Some(record) = record.filter(|r| r.uid() == meta.uid) else { return Ok(()) };
    let mut object = record.value()?;
    object["status"] = status;
    object["metadata"]["resourceVersion"] = json!(meta.resource_version);
    let target = Target::object(resource, &meta.namespace, &meta.name).part("status");
    client.update(target, object).await.map(drop)
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}

/// The pod to be created.
fn pod_of(set: &ReplicaSet) -> Value {
    let template = &set.spec.template;
    let mut metadata = json!({
        "generateName": format!("{}-", set.metadata.name),
        "namespace": set.metadata.namespace,
        "ownerReferences": [controller_reference("apps/v1", "ReplicaSet", &set.metadata)],
    });
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(key).filter(|v| !v.is_null()) {
            metadata[key] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

fn is_available(set: &ReplicaSet, pod: &Pod, now: Timestamp) -> bool {
    let wait = SignedDuration::from_secs(i64::from(set.spec.min_ready_seconds));
    pod.is_ready()
        && (wait.is_zero() || pod.ready_since().is_some_and(|since| now.duration_since(since) >= wait))
}

/// Time until the next ready pod becomes available.
fn next_availability(set: &ReplicaSet, active: &[Arc<Pod>], now: Timestamp) -> Option<SignedDuration> {
    let wait = SignedDuration::from_secs(i64::from(set.spec.min_ready_seconds));
    let waiting = active.iter().filter(|p| p.is_ready() && !is_available(set, p, now));
    waiting.filter_map(|p| p.ready_since()).map(|since| wait - now.duration_since(since)).min()
}

fn status(
    set: &ReplicaSet,
    active: &[Arc<Pod>],
    terminating: usize,
    failure: Option<&(i32, ApiError)>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let labels = set.spec.template["metadata"]["labels"].as_object();
    let labelled = |p: &&Arc<Pod>| {
        labels.into_iter().flatten().all(|(k, v)| p.metadata.labels.get(k).map(String::as_str) == v.as_str())
    };
    let mut conditions = set.status.conditions.clone();
    let failing = conditions.iter().any(|c| c.kind == "ReplicaFailure");
    match failure {
        Some((missing, error)) if !failing => conditions.push(Condition {
            kind: "ReplicaFailure".to_owned(),
            status: "True".to_owned(),
            last_update_time: None,
            last_transition_time: Some(Time::whole(now)),
            reason: if *missing > 0 { "FailedCreate" } else { "FailedDelete" }.to_owned(),
            message: error.message.clone(),
        }),
        None => conditions.retain(|c| c.kind != "ReplicaFailure"),
        Some(_) => {}
    }
    ReplicaSetStatus {
        replicas: count(active.iter()),
        fully_labeled_replicas: count(active.iter().filter(labelled)),
        ready_replicas: count(active.iter().filter(|p| p.is_ready())),
        available_replicas: count(active.iter().filter(|p| is_available(set, p, now))),
        terminating_replicas: Some(i32::try_from(terminating).unwrap_or(i32::MAX)),
        observed_generation: set.metadata.generation,
        conditions,
    }
}

/// Order in which pods are given up (`controller.ActivePodsWithRanks`).
fn removal_order(a: &Arc<Pod>, b: &Arc<Pod>, ranks: &HashMap<String, usize>, now: Timestamp) -> Ordering {
    let cost = |p: &Pod| -> i32 {
        p.metadata.annotations.get(DELETION_COST).and_then(|c| c.parse().ok()).unwrap_or(0)
    };
    let rank = |p: &Pod| ranks.get(&p.spec.node_name).copied().unwrap_or(0);
    // Ages count by orders of magnitude, so that pods of one rollout are about the same age.
    let age = |since: Option<Timestamp>| {
        since.map(|s| now.duration_since(s).as_nanos().max(0).checked_ilog2().map_or(-1, i64::from))
    };
    let created = |p: &Pod| p.metadata.creation_timestamp.map(|t| t.0);
    a.stage()
        .cmp(&b.stage())
        .then_with(|| cost(a).cmp(&cost(b)))
        .then_with(|| rank(b).cmp(&rank(a)))
        .then_with(|| age(a.ready_since()).cmp(&age(b.ready_since())))
        .then_with(|| b.most_restarts().cmp(&a.most_restarts()))
        .then_with(|| age(created(a)).cmp(&age(created(b))))
        .then_with(|| youngest_first(created(a), created(b)))
        .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
}

impl Controller for ReplicaSetController {
    fn name(&self) -> &'static str {
        "replicaset"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.sets.signal(), self.pods.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.sets.refresh(|seen| queue.add(seen.path));
        let mut changed = Vec::new();
        self.pods.refresh(|seen| changed.extend([seen.old, seen.new].into_iter().flatten().cloned()));
        for pod in changed {
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
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_set(key))
    }
}
