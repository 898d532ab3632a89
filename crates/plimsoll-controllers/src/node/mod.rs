//! Nodes: those that are heard of no more become `Unknown`, conditions become taints, and pods that don't tolerate
//! `NoExecute` taints are evicted (`pkg/controller/nodelifecycle` and `pkg/controller/tainteviction` upstream).

pub mod eviction;
pub mod taints;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::meta::{Meta, Object, Time, nullable};
use plimsoll_client::{
    Client, Clock, Controller, Event, EventRecorder, EventType, Informer, Outcome, Subject, Target,
    WorkQueue, modify, resources,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::pod::{Pod, by_node};

/// A node is given up after this time without a sign of life (`--node-monitor-grace-period`).
const GRACE: SignedDuration = SignedDuration::from_secs(50);
/// A new node has this time for its first (`--node-startup-grace-period`).
const STARTUP_GRACE: SignedDuration = SignedDuration::from_secs(60);
/// What a kubelet reports.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
const LEASES: &str = "kube-node-lease/";

/// A node, as far as this controller reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeSpec,
    /// `status`.
    #[serde(deserialize_with = "nullable")]
    pub status: NodeStatus,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Cordoned.
    #[serde(deserialize_with = "nullable")]
    pub unschedulable: bool,
    /// Taints.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<taints::Taint>,
}

/// `status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status.
    pub status: String,
    /// When it was last reported.
    pub last_heartbeat_time: Option<Time>,
}

impl Node {
    /// Status of a condition; `None`: it isn't there.
    pub fn condition(&self, kind: &str) -> Option<&str> {
        self.status.conditions.iter().find(|c| c.kind == kind).map(|c| c.status.as_str())
    }
}

/// The controller of node health and taints.
pub struct NodeLifecycle {
    client: Arc<dyn Client>,
    clock: Clock,
    nodes: Informer<Node>,
    leases: Informer<Object>,
    pods: Informer<Pod>,
    recorder: EventRecorder,
    /// When each node was last heard of, by our clock: theirs may be wrong.
    heard: Mutex<HashMap<String, Timestamp>>,
}

impl NodeLifecycle {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        Self {
            recorder: EventRecorder::new(Arc::clone(&client), clock.clone(), "node-controller"),
            nodes: Informer::new(&reader, &resources::NODES.storage, |_| None),
            leases: Informer::new(&reader, &resources::LEASES.storage, |_| None),
            pods: Informer::new(&reader, &resources::PODS.storage, by_node),
            heard: Mutex::default(),
            client,
            clock,
        }
    }

    fn heard(&self) -> MutexGuard<'_, HashMap<String, Timestamp>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn sync_node(&self, name: &str) -> Outcome {
        let Some(node) = self.nodes.get(name) else { return Ok(None) };
        let now = self.clock.now();
        let since = self.heard().get(name).copied().unwrap_or(now);
        let grace = if node.condition("Ready").is_some() { GRACE } else { STARTUP_GRACE };
        let left = grace - now.duration_since(since);
        let lost = left <= SignedDuration::ZERO;
        if lost && REPORTED.iter().any(|c| node.condition(c) != Some("Unknown")) {
            // The change enqueues the node for its taints.
            self.give_up(&node, now).await?;
            return Ok(None);
        }
        self.taint(&node, now).await?;
        if node.condition("Ready").is_some_and(|ready| ready != "True") {
            self.mark_pods(&node, now).await?;
        }
        Ok((!lost).then_some(left))
    }

    async fn give_up(&self, node: &Node, now: Timestamp) -> Result<(), ApiError> {
        let was_ready = node.condition("Ready") == Some("True");
        let at = json!(Time::whole(now));
        let born = node.metadata.creation_timestamp.map_or_else(|| at.clone(), |t| json!(t));
        let target = Target::object(&resources::NODES, "", &node.metadata.name).part("status");
        let written = modify(&*self.client, target, &node.metadata.uid, |object| {
            let mut changed = false;
            for kind in REPORTED {
                changed |= unknown(&mut object["status"]["conditions"], kind, &born, &at);
            }
            changed
        });
        ignore_not_found(written.await)?;
        if was_ready {
            let message = format!("Node {} status is now: NodeNotReady", node.metadata.name);
            let subject = Subject::of("v1", "Node", &node.metadata);
            self.recorder.record(subject, Event::new(EventType::Normal, "NodeNotReady", message));
        }
        Ok(())
    }

    /// Taints are as the conditions say. While no node at all is ready, the fault is probably this process's, and no pod is evicted.
    async fn taint(&self, node: &Node, now: Timestamp) -> Result<(), ApiError> {
        let is_ready = |n: &Node| n.condition("Ready") == Some("True");
        let evict = is_ready(node) || self.nodes.any(is_ready);
        let current = &node.spec.taints;
        if taints::wanted(node, current, evict, now) == *current {
            return Ok(());
        }
        let target = Target::object(&resources::NODES, "", &node.metadata.name);
        let written = modify(&*self.client, target, &node.metadata.uid, |object| {
            let Ok(fresh) = Node::deserialize(&*object) else { return false };
            let wanted = taints::wanted(&fresh, &fresh.spec.taints, evict, now);
            if wanted == fresh.spec.taints {
                return false;
            }
            let keep = |t: &taints::Taint| serde_json::to_value(t).unwrap_or_default();
            let list: Vec<Value> = wanted.iter().map(keep).collect();
            object["spec"]["taints"] = if list.is_empty() { Value::Null } else { Value::Array(list) };
            true
        });
        ignore_not_found(written.await)
    }

    /// Pods of a node that isn't ready aren't ready either (`MarkPodsNotReady`).
    async fn mark_pods(&self, node: &Node, now: Timestamp) -> Result<(), ApiError> {
        let at = json!(Time::whole(now));
        for pod in self.pods.indexed(&node.metadata.name).iter().filter(|p| p.is_ready()) {
            let meta = &pod.metadata;
            let target = Target::object(&resources::PODS, &meta.namespace, &meta.name).part("status");
            let written = modify(&*self.client, target, &meta.uid, |object| {
                let conditions = object["status"]["conditions"].as_array_mut();
                let ready = conditions.into_iter().flatten().find(|c| c["type"] == "Ready");
                let Some(ready) = ready.filter(|c| c["status"] == "True") else { return false };
                ready["status"] = json!("False");
                ready["lastTransitionTime"] = at.clone();
                true
            });
            ignore_not_found(written.await)?;
            let subject = Subject::of("v1", "Pod", meta);
            let event = Event::new(EventType::Warning, "NodeNotReady", "Node is not ready");
            self.recorder.record(subject, event);
        }
        Ok(())
    }
}

fn ignore_not_found(result: Result<(), ApiError>) -> Result<(), ApiError> {
    match result {
        Err(error) if error.code != 404 => Err(error),
        _ => Ok(()),
    }
}

/// Makes a condition `Unknown`; whether it wasn't.
fn unknown(conditions: &mut Value, kind: &str, born: &Value, at: &Value) -> bool {
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return false };
    match list.iter_mut().find(|c| c["type"] == kind) {
        None => list.push(json!({
            "type": kind, "status": "Unknown", "reason": "NodeStatusNeverUpdated",
            "message": "Kubelet never posted node status.", "lastHeartbeatTime": born, "lastTransitionTime": at,
        })),
        Some(c) if c["status"] != "Unknown" => {
            c["status"] = json!("Unknown");
            c["reason"] = json!("NodeStatusUnknown");
            c["message"] = json!("Kubelet stopped posting node status.");
            c["lastTransitionTime"] = at.clone();
        }
        Some(_) => return false,
    }
    true
}

impl Controller for NodeLifecycle {
    fn name(&self) -> &'static str {
        "node-lifecycle"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        vec![self.nodes.signal(), self.leases.signal()]
    }

    fn refresh(&self, queue: &mut WorkQueue, now: Timestamp) {
        let mut heard = self.heard();
        let mut fewer_or_more = false;
        self.nodes.refresh(|seen| {
            let Some(new) = seen.new else {
                heard.remove(seen.path);
                fewer_or_more = true;
                return;
            };
            // Our own `Unknown` is no sign of life.
            let reported = |n: &Node| {
                let known = n.status.conditions.iter().filter(|c| c.status != "Unknown");
                known.cloned().collect::<Vec<_>>()
            };
            let alive = reported(new);
            if seen.old.is_none_or(|old| !alive.is_empty() && reported(old) != alive) {
                heard.insert(seen.path.to_owned(), now);
            }
            fewer_or_more |= seen.old.is_none_or(|o| o.condition("Ready") != new.condition("Ready"));
            queue.add(seen.path);
        });
        self.leases.refresh(|seen| {
            let Some(name) = seen.path.strip_prefix(LEASES).filter(|_| seen.new.is_some()) else { return };
            if let Some(at) = heard.get_mut(name) {
                *at = now;
            }
        });
        drop(heard);
        self.pods.refresh(|_| {});
        if fewer_or_more {
            // Whether any pod is evicted at all depends on all nodes.
            for node in self.nodes.all_where(|n| n.condition("Ready").is_some_and(|r| r != "True")) {
                queue.add(&node.metadata.name);
            }
        }
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.sync_node(key))
    }
}
