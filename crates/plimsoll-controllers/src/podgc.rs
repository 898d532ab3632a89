//! Pods of nodes that are gone (`pkg/controller/podgc` upstream).

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

    async fn end(&self, pod: &Pod) -> Result<(), ApiError> {
        let meta = &pod.metadata;
        let target = Target::object(&resources::PODS, &meta.namespace, &meta.name);
        if !pod.is_terminal() {
            let now = json!(Time::whole(self.clock.now()));
            let failed = modify(&*self.client, target.part("status"), &meta.uid, |object| fail(object, &now));
            failed.await?;
        }
        let deletion = Deletion { grace_seconds: Some(0), ..Deletion::of_uid(&meta.uid) };
        self.client.delete(target, deletion).await
    }
}

fn fail(pod: &mut Value, now: &Value) -> bool {
    pod["status"]["phase"] = json!("Failed");
    let condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists", "lastTransitionTime": now,
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
        self.pods.refresh(|seen| bound.extend(seen.new.and_then(|pod| by_node(pod))));
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

    fn sync<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let since = self.missing.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied();
            let Some(since) = since.filter(|_| self.nodes.get(node).is_none()) else { return Ok(None) };
            let left = QUARANTINE - self.clock.now().duration_since(since);
            if left > SignedDuration::ZERO {
                return Ok(Some(left));
            }
            for pod in self.pods.indexed(node) {
                match self.end(&pod).await {
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
