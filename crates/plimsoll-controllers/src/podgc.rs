//! Pods of nodes that are gone, and pods that are to go before they have got a node (`pkg/controller/podgc` upstream).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{Object, Time};
use plimsoll_client::{
    Client, Clock, Controller, Deletion, Informer, Outcome, Target, WorkQueue, modify, resources,
};
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::pod::{Pod, by_node};

/// A node may come back within this time.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);

/// Message of the condition of pods whose node has gone.
const NODE_GONE: &str = "PodGC: node no longer exists";

/// The controller.
pub struct PodGc {
    client: Arc<dyn Client>,
    clock: Clock,
    pods: Informer<Pod>,
    nodes: Informer<Object>,
    /// Nodes that pods are on and that aren't there: since when.
    missing: Mutex<HashMap<String, Timestamp>>,
}

impl PodGc {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            pods: Informer::new(&reader, &resources::PODS.storage, by_node),
            nodes: Informer::new(&reader, &resources::NODES.storage, |_| None),
            missing: Mutex::default(),
            client,
            clock,
        }
    }

    async fn end(&self, pod: &Pod, reason: Option<&str>) -> Result<(), ApiError> {
        let meta = &pod.metadata;
        let target = Target::object(&resources::PODS, &meta.namespace, &meta.name);
        if !pod.is_terminal() {
            let now = json!(Time::whole(self.clock.now()));
            let failed =
                modify(&*self.client, target.part("status"), &meta.uid, |object| fail(object, reason, &now));
            failed.await?;
        }
        let deletion = Deletion { grace_seconds: Some(0), ..Deletion::of_uid(&meta.uid) };
        self.client.delete(target, deletion).await
    }
}

/// Whether a pod is being deleted that has no node: no kubelet will say that it has ended.
fn ends_without_node(pod: &Pod) -> bool {
    pod.is_terminating() && pod.spec.node_name.is_empty()
}

/// The pod has failed; `disrupted`: the message of the condition `DisruptionTarget`.
fn fail(pod: &mut Value, disrupted: Option<&str>, now: &Value) -> bool {
    pod["status"]["phase"] = json!("Failed");
    let Some(message) = disrupted else { return true };
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": message, "lastTransitionTime": now,
    });
    let conditions = &mut pod["status"]["conditions"];
    match conditions.as_array_mut() {
        Some(list) => {
            list.retain(|c| c["type"] != "DisruptionTarget");
            list.push(condition);
        }
        None => *conditions = json!([condition]),
    }
    true
}

impl Controller for PodGc {
    fn name(&self) -> &'static str {
        "pod-garbage-collector"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.pods.signal(), self.nodes.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, now: Timestamp) {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let due = now.saturating_add(QUARANTINE).unwrap_or(now);
        let mut gone = Vec::new();
        self.nodes.refresh(|seen| {
            if seen.new.is_some() {
                missing.remove(seen.path);
            } else {
                gone.push(seen.path.to_owned());
            }
        });
        let mut bound = Vec::new();
        self.pods.refresh(|seen| {
            bound.extend(seen.new.and_then(|pod| by_node(pod)));
            if seen.new.is_some_and(|pod| ends_without_node(pod)) {
                queue.add(seen.path);
            }
        });
        bound.extend(gone);
        bound.sort_unstable();
        bound.dedup();
        for node in bound {
            if self.nodes.get(&node).is_none()
                && !missing.contains_key(&node)
                && !self.pods.indexed(&node).is_empty()
            {
                missing.insert(node.clone(), now);
                queue.add_at(&node, due);
            }
        }
    }

    /// `key`: a node, or namespace and name of a pod.
    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            if key.contains('/') {
                let Some(pod) = self.pods.get(key).filter(|pod| ends_without_node(pod)) else {
                    return Ok(None);
                };
                return match self.end(&pod, None).await {
                    Err(error) if error.code != 404 => Err(error),
                    _ => Ok(None),
                };
            }
            let node = key;
            let since = self.missing.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied();
            let Some(since) = since.filter(|_| self.nodes.get(node).is_none()) else { return Ok(None) };
            let left = QUARANTINE - self.clock.now().duration_since(since);
            if left > SignedDuration::ZERO {
                return Ok(Some(left));
            }
            for pod in self.pods.indexed(node) {
                match self.end(&pod, Some(NODE_GONE)).await {
                    Err(error) if error.code != 404 => return Err(error),
                    _ => {}
                }
            }
            // Pods that are bound to this node later are checked anew.
            self.missing.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
            Ok(None)
        })
    }
}
