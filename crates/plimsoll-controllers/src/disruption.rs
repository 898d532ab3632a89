//! Statuses of PodDisruptionBudgets (`pkg/controller/disruption` upstream): how many pods of a budget may be evicted now.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use plimsoll_apimachinery::meta::{Meta, OwnerReference, Selector, Time, nullable};
use plimsoll_apimachinery::{ApiError, Gvk};
use plimsoll_client::{
    Client, Clock, Controller, Event, EventRecorder, EventType, Informer, Outcome, Resource, Subject,
    WorkQueue, resources,
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch::Receiver;

use super::apps::model::share;
use super::apps::replicaset::write_status;
use super::pod::Pod;

/// Time for a pod to go after its eviction; then it counts as healthy again.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_mins(2);

/// A budget.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Budget {
    metadata: Meta,
    spec: Spec,
    #[serde(deserialize_with = "nullable")]
    status: Value,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    min_available: Value,
    max_unavailable: Value,
    selector: Option<Selector>,
}

impl Budget {
    fn selects(&self, meta: &Meta) -> bool {
        self.spec.selector.as_ref().is_some_and(|s| s.matches(&meta.labels))
    }

    /// Pods whose eviction was granted, and when.
    fn disrupted(&self) -> BTreeMap<String, Timestamp> {
        let map = self.status["disruptedPods"].as_object();
        let at = |v: &Value| v.as_str().and_then(|t| t.parse().ok());
        map.into_iter().flatten().filter_map(|(name, v)| Some((name.clone(), at(v)?))).collect()
    }
}

/// The numbers of a status.
#[derive(Debug, PartialEq, Eq)]
struct Count {
    expected: i32,
    desired: i32,
    healthy: i32,
    disrupted: BTreeMap<String, Timestamp>,
}

/// The controller.
pub struct DisruptionController {
    client: Arc<dyn Client>,
    clock: Clock,
    budgets: Informer<Budget>,
    pods: Informer<Pod>,
    /// What scales pods: a change of its size changes budgets.
    scaled: [(&'static Resource, Informer<Value>); 3],
    recorder: EventRecorder,
}

impl DisruptionController {
    /// The controller, not running yet.
    pub fn new(client: Arc<dyn Client>, clock: Clock) -> Self {
        let reader = Arc::clone(client.reader());
        let scaled = [&resources::REPLICA_SETS, &resources::DEPLOYMENTS, &resources::STATEFUL_SETS]
            .map(|r| (r, Informer::new(&reader, &r.storage, |_| None)));
        Self {
            recorder: EventRecorder::new(Arc::clone(&client), clock.clone(), "controllermanager"),
            budgets: Informer::new(&reader, "policy/poddisruptionbudgets", |_| None),
            pods: Informer::new(&reader, &resources::PODS.storage, |_| None),
            scaled,
            client,
            clock,
        }
    }

    fn event(&self, budget: &Budget, kind: EventType, reason: &str, message: impl Into<String>) {
        let subject = Subject::of("policy/v1", "PodDisruptionBudget", &budget.metadata);
        self.recorder.record(subject, Event::new(kind, reason, message));
    }

    async fn sync_budget(&self, path: &str) -> Outcome {
        let Some(budget) = self.budgets.get(path) else { return Ok(None) };
        let mut pods = Vec::new();
        self.pods.in_namespace_shared(&budget.metadata.namespace, |pod| {
            if budget.selects(&pod.metadata) {
                pods.push(Arc::clone(pod));
            }
        });
        if pods.is_empty() {
            self.event(&budget, EventType::Normal, "NoPods", "No matching pods found");
        }
        let now = self.clock.now();
        let (status, again) = match self.count(&budget, &pods, now) {
            Ok(count) => {
                let next =
                    count.disrupted.values().min().map(|at| DELETION_TIMEOUT - now.duration_since(*at));
                (status(&budget, &count, now), next.map(|n| n.max(SignedDuration::from_secs(1))))
            }
            Err(why) => {
                let message = format!("Failed to calculate the number of expected pods: {why}");
                self.event(&budget, EventType::Warning, "CalculateExpectedPodCountFailed", message);
                (failed(&budget, &why, now), None)
            }
        };
        if status != budget.status {
            write_status(&*self.client, &BUDGETS, &budget.metadata, status).await?;
        }
        Ok(again)
    }

    fn count(&self, budget: &Budget, pods: &[Arc<Pod>], now: Timestamp) -> Result<Count, String> {
        let (expected, desired) = self.expected(budget, pods)?;
        let mut disrupted = budget.disrupted();
        disrupted.retain(|name, at| {
            let there = pods.iter().find(|p| p.metadata.name == *name);
            let waiting = there.is_some_and(|p| p.metadata.deletion_timestamp.is_none());
            waiting && now.duration_since(*at) < DELETION_TIMEOUT
        });
        let healthy = pods.iter().filter(|p| {
            p.metadata.deletion_timestamp.is_none()
                && !disrupted.contains_key(&p.metadata.name)
                && p.is_ready()
        });
        Ok(Count { expected, desired, healthy: count(healthy), disrupted })
    }

    /// How many pods there should be, and how many of them healthy (`getExpectedPodCount`).
    fn expected(&self, budget: &Budget, pods: &[Arc<Pod>]) -> Result<(i32, i32), String> {
        let Spec { min_available, max_unavailable, .. } = &budget.spec;
        if !max_unavailable.is_null() {
            let expected = self.scale(budget, pods)?;
            let desired = expected.saturating_sub(share(max_unavailable, expected, true)).max(0);
            return Ok((expected, desired));
        }
        match min_available {
            Value::Number(n) => {
                let desired = n.as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0);
                Ok((count(pods.iter()), desired))
            }
            Value::String(_) => {
                let expected = self.scale(budget, pods)?;
                Ok((expected, share(min_available, expected, true)))
            }
            _ => Ok((0, 0)),
        }
    }

    /// The sizes of everything that controls the pods, together.
    fn scale(&self, budget: &Budget, pods: &[Arc<Pod>]) -> Result<i32, String> {
        let (mut seen, mut total, mut unmanaged) = (HashSet::new(), 0_i32, Vec::new());
        for pod in pods {
            let Some(owner) = pod.metadata.controller() else {
                unmanaged.push(pod.metadata.name.as_str());
                continue;
            };
            if seen.contains(&owner.uid) {
                continue;
            }
            let (uid, replicas) = self
                .replicas(&pod.metadata.namespace, owner)?
                .ok_or_else(|| format!("found no controllers for pod {:?}", pod.metadata.name))?;
            // Several ReplicaSets may belong to one Deployment.
            seen.insert(owner.uid.clone());
            if uid == owner.uid || seen.insert(uid) {
                total = total.saturating_add(replicas);
            }
        }
        if !unmanaged.is_empty() {
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the \
                 status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account \
                 for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
                selector_text(budget.spec.selector.as_ref())
            );
            self.event(budget, EventType::Warning, "UnmanagedPods", message);
        }
        Ok(total)
    }

    /// UID and size of a controller; that of its Deployment for a ReplicaSet that has one.
    fn replicas(&self, namespace: &str, owner: &OwnerReference) -> Result<Option<(String, i32)>, String> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let gvk = Gvk { group: group.to_owned(), version: version.to_owned(), kind: owner.kind.clone() };
        let table = self.client.kinds();
        let Some(kind) = table.kind(&gvk) else { return Ok(None) };
        let read = |resource: &Resource, name: &str| -> Option<Value> {
            self.client.reader().get(&resource.key(namespace, name))?.value().ok()
        };
        let resource = Resource::of(kind);
        let Some(object) =
            read(&resource, &owner.name).filter(|o| o["metadata"]["uid"] == owner.uid.as_str())
        else {
            return Ok(None);
        };
        if kind.subresource("scale").is_none() {
            return Err(format!("{} does not implement the scale subresource", kind.qualified_resource()));
        }
        if (group, owner.kind.as_str()) == ("apps", "ReplicaSet")
            && let Ok(meta) = Meta::deserialize(&object["metadata"])
            && let Some(above) = meta.controller().filter(|o| o.kind == "Deployment")
            && let Some(deployment) = read(&resources::DEPLOYMENTS, &above.name)
        {
            return Ok(Some((above.uid.clone(), wanted(&deployment, "/spec/replicas"))));
        }
        let path = kind.custom.as_ref().and_then(|c| c.scale.as_ref());
        let path = path.and_then(|s| s["specReplicasPath"].as_str()).unwrap_or(".spec.replicas");
        Ok(Some((owner.uid.clone(), wanted(&object, &path.replace('.', "/")))))
    }
}

static BUDGETS: Resource =
    Resource::builtin("policy", "v1", "poddisruptionbudgets", "policy/poddisruptionbudgets");

fn wanted(object: &Value, pointer: &str) -> i32 {
    object.pointer(pointer).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok()).unwrap_or(0)
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}

fn selector_text(selector: Option<&Selector>) -> String {
    let labels = selector.into_iter().flat_map(|s| &s.match_labels);
    labels.map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(",")
}

fn status(budget: &Budget, count: &Count, now: Timestamp) -> Value {
    let surplus = count.healthy.saturating_sub(count.desired);
    let allowed = if count.expected <= 0 { 0 } else { surplus.max(0) };
    let generation = budget.metadata.generation;
    let (truth, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let mut status = json!({
        "currentHealthy": count.healthy, "desiredHealthy": count.desired, "expectedPods": count.expected,
        "disruptionsAllowed": allowed, "observedGeneration": generation,
        "conditions": conditions(budget, truth, reason, "", generation, now),
    });
    if !count.disrupted.is_empty() {
        let at = count.disrupted.iter().map(|(name, at)| (name.clone(), json!(Time::whole(*at))));
        status["disruptedPods"] = Value::Object(at.collect());
    }
    status
}

/// The status says that it isn't known (`failSync`): nothing may be evicted.
fn failed(budget: &Budget, why: &str, now: Timestamp) -> Value {
    let mut status = if budget.status.is_object() { budget.status.clone() } else { json!({}) };
    let observed = status["observedGeneration"].as_i64().unwrap_or(0);
    status["disruptionsAllowed"] = json!(0);
    status["conditions"] = conditions(budget, "False", "SyncFailed", why, observed, now);
    for field in ["currentHealthy", "desiredHealthy", "expectedPods"] {
        if status[field].is_null() {
            status[field] = json!(0);
        }
    }
    status
}

/// The conditions with `DisruptionAllowed` as it is now; its time changes with its status only.
fn conditions(
    budget: &Budget,
    truth: &str,
    reason: &str,
    message: &str,
    generation: i64,
    now: Timestamp,
) -> Value {
    let mut list = budget.status["conditions"].as_array().cloned().unwrap_or_default();
    let old = list.iter().position(|c| c["type"] == "DisruptionAllowed");
    let same = old.and_then(|i| list.get(i)).filter(|c| c["status"] == truth);
    let since = same.map_or_else(|| json!(Time::whole(now)), |c| c["lastTransitionTime"].clone());
    let mut condition = json!({
        "type": "DisruptionAllowed", "status": truth, "reason": reason, "message": message,
        "lastTransitionTime": since,
    });
    if generation != 0 {
        condition["observedGeneration"] = json!(generation);
    }
    match old.and_then(|i| list.get_mut(i)) {
        Some(place) => *place = condition,
        None => list.push(condition),
    }
    Value::Array(list)
}

impl Controller for DisruptionController {
    fn name(&self) -> &'static str {
        "disruption"
    }

    fn signals(&self) -> Vec<Receiver<u64>> {
        let mut signals = vec![self.budgets.signal(), self.pods.signal()];
        signals.extend(self.scaled.iter().map(|(_, informer)| informer.signal()));
        signals
    }

    fn refresh(&self, queue: &mut WorkQueue, _now: Timestamp) {
        self.budgets.refresh(|seen| queue.add(seen.path));
        self.pods.refresh(|seen| {
            for pod in [seen.old, seen.new].into_iter().flatten() {
                self.budgets.in_namespace(&pod.metadata.namespace, |budget| {
                    if budget.selects(&pod.metadata) {
                        queue.add(&budget.metadata.path());
                    }
                });
            }
        });
        for (_, informer) in &self.scaled {
            informer.refresh(|seen| {
                let size = |o: Option<&Arc<Value>>| o.map(|o| o["spec"]["replicas"].clone());
                if size(seen.old) == size(seen.new) {
                    return;
                }
                let Some((namespace, _)) = seen.path.split_once('/') else { return };
                self.budgets.in_namespace(namespace, |budget| queue.add(&budget.metadata.path()));
            });
        }
    }

    fn sync<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<SignedDuration>, ApiError>> {
        Box::pin(self.sync_budget(key))
    }
}
