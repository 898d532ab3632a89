//! Pods on nodes with `NoExecute` taints go, at once or when their tolerations end (`pkg/controller/tainteviction`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::meta::Time;
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Event, EventRecorder, EventType, Informer, Outcome, Subject, Target,
    WorkQueue, modify, resources,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::taints::{NO_EXECUTE, Toleration, stays};
use super::{Node, ignore_not_found};
use crate::pod::{Pod, by_node};

/// The controller.
pub struct TaintEviction {
    client: Arc<dyn Client>,
    clock: Clock,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    recorder: EventRecorder,
    /// Pods that will go, by UID: since when they only tolerate.
    since: Mutex<HashMap<String, Timestamp>>,
}

impl TaintEviction {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            recorder: EventRecorder::new(Arc::clone(&client), clock.clone(), "taint-eviction-controller"),
            nodes: Informer::new(&reader, &resources::NODES.storage, |_| None),
            pods: Informer::new(&reader, &resources::PODS.storage, by_node),
            since: Mutex::default(),
            client,
            clock,
        }
    }

    /// How long a pod stays where it is; `None`: for ever.
    fn stay(&self, pod: &Pod) -> Option<SignedDuration> {
        let node = self.nodes.get(&pod.spec.node_name)?;
        if !node.spec.taints.iter().any(|t| t.effect == NO_EXECUTE) {
            return None;
        }
        let key = resources::PODS.key(&pod.metadata.namespace, &pod.metadata.name);
        let object: Value = self.client.reader().get(&key)?.value().ok()?;
        let tolerations = object["spec"]["tolerations"].as_array().into_iter().flatten();
        let tolerations: Vec<Toleration> =
            tolerations.filter_map(|t| Toleration::deserialize(t).ok()).collect();
        stays(&node.spec.taints, &tolerations)
    }

    async fn sync_pod(&self, path: &str) -> Outcome {
        let Some(pod) = self.pods.get(path).filter(|p| p.metadata.deletion_timestamp.is_none()) else {
            return Ok(None);
        };
        let uid = &pod.metadata.uid;
        let now = self.clock.now();
        let Some(stay) = self.stay(&pod) else {
            if self.since.lock().unwrap_or_else(PoisonError::into_inner).remove(uid).is_some() {
                self.event(&pod, format!("Cancelling deletion of Pod {path}"));
            }
            return Ok(None);
        };
        let since = {
            let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
            *since.entry(uid.clone()).or_insert(now)
        };
        let left = stay - now.duration_since(since);
        if left > SignedDuration::ZERO {
            return Ok(Some(left));
        }
        self.event(&pod, format!("Marking for deletion Pod {path}"));
        self.evict(&pod, now).await?;
        self.since.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        Ok(None)
    }

    fn event(&self, pod: &Pod, message: String) {
        let subject = Subject::of("v1", "Pod", &pod.metadata);
        self.recorder.record(subject, Event::new(EventType::Normal, "TaintManagerEviction", message));
    }

    async fn evict(&self, pod: &Pod, now: Timestamp) -> Result<(), plimsoll_apimachinery::ApiError> {
        let meta = &pod.metadata;
        let target = Target::object(&resources::PODS, &meta.namespace, &meta.name);
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": Time::whole(now),
        });
        let marked = modify(&*self.client, target.part("status"), &meta.uid, |object| {
            let conditions = &mut object["status"]["conditions"];
            match conditions.as_array_mut() {
                Some(list) => {
                    list.retain(|c| c["type"] != "DisruptionTarget");
                    list.push(condition.clone());
                }
                None => *conditions = json!([condition]),
            }
            true
        });
        ignore_not_found(marked.await)?;
        ignore_not_found(self.client.delete(target, Deletion::of_uid(&meta.uid)).await)
    }
}

impl Controller for TaintEviction {
    fn name(&self) -> &'static str {
        "taint-eviction"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.nodes.signal(), self.pods.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        let mut changed = Vec::new();
        self.nodes.refresh(|seen| {
            let execute = |n: &Arc<Node>| {
                let taints = n.spec.taints.iter().filter(|t| t.effect == NO_EXECUTE);
                taints.cloned().collect::<Vec<_>>()
            };
            let (old, new) = (seen.old.map(execute), seen.new.map(execute));
            if old.unwrap_or_default() != new.unwrap_or_default() {
                changed.push(seen.path.to_owned());
            }
        });
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        self.pods.refresh(|seen| {
            let Some(pod) = seen.new else {
                if let Some(old) = seen.old {
                    since.remove(&old.metadata.uid);
                }
                return;
            };
            let tainted = |name: &str| {
                self.nodes.get(name).is_some_and(|n| n.spec.taints.iter().any(|t| t.effect == NO_EXECUTE))
            };
            if !pod.spec.node_name.is_empty() && tainted(&pod.spec.node_name) {
                queue.add(seen.path);
            }
        });
        drop(since);
        for node in changed {
            self.pods.indexed(&node).iter().for_each(|pod| queue.add(&pod.metadata.path()));
        }
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_pod(key))
    }
}
