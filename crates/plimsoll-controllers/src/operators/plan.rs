//! From an object and its pods to the next writes: the same for all operators.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::{Quantity, json, timestamp};
use plimsoll_state::Time;
use serde_json::{Map, Value, json};

use super::Operator;
use crate::pod::Pod;

/// Pods that are made from one template.
#[derive(Clone, Debug, Default)]
pub(super) struct Role {
    /// Name, as statuses have it.
    pub name: String,
    /// The template.
    pub template: Value,
    /// Their restart policy, where the template is not to decide.
    pub restart_policy: Option<String>,
    /// The pods.
    pub pods: Vec<Wanted>,
}

/// A pod that is wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Name.
    pub name: String,
    /// Labels besides those of the template.
    pub labels: Vec<(&'static str, String)>,
    /// Annotations besides those of the template.
    pub annotations: Vec<(&'static str, String)>,
}

/// What became of the pods of a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Pods that are wanted.
    pub wanted: usize,
    /// Pods that run or wait.
    pub active: usize,
    /// Pods that are ready.
    pub ready: usize,
    /// Pods that succeeded.
    pub succeeded: usize,
    /// Pods that failed.
    pub failed: usize,
}

impl Counts {
    /// Whether all pods succeeded.
    pub fn is_done(self) -> bool {
        self.succeeded == self.wanted
    }

    /// Whether all pods are ready or have succeeded.
    pub fn is_ready(self) -> bool {
        self.ready + self.succeeded == self.wanted
    }
}

/// What a status is made of.
pub(super) struct State<'a> {
    /// The object.
    pub object: &'a Value,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Its roles in order, and what became of their pods.
    pub roles: Vec<(&'a str, Counts)>,
    /// The time.
    pub now: Time,
}

impl State<'_> {
    /// The conditions of the object with these: type, whether it holds, reason and message.
    pub fn conditions(&self, set: &[(&str, bool, &str, &str)]) -> Value {
        let mut object = self.object.clone();
        for (kind, status, reason, message) in set {
            // One that never held is not mentioned.
            if !status && json::condition(&object, kind).is_none() {
                continue;
            }
            if let Some(new) = set_status_condition(&object, kind, *status, reason, message, self.now) {
                json::set(&mut object, &["status", "conditions"], Value::Array(new));
            }
        }
        json!(json::list(&object, &["status", "conditions"]))
    }

    /// A time of the status that stays once it is there.
    pub fn once(&self, field: &str, holds: bool) -> Value {
        let known = &self.object["status"][field];
        match holds {
            true if known.is_null() => json!(timestamp::text(self.now)),
            _ => known.clone(),
        }
    }

    /// All roles together.
    pub fn total(&self) -> Counts {
        self.roles.iter().fold(Counts::default(), |sum, (_, c)| Counts {
            wanted: sum.wanted + c.wanted,
            active: sum.active + c.active,
            ready: sum.ready + c.ready,
            succeeded: sum.succeeded + c.succeeded,
            failed: sum.failed + c.failed,
        })
    }
}

/// The next writes.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Pods to create.
    pub create: Vec<Value>,
    /// Pods to delete.
    pub delete: Vec<Arc<Pod>>,
    /// The status, if it changes.
    pub status: Option<Value>,
}

/// A suspended object has no pods, one that has ended only those that have ended, too.
pub(super) fn plan(operator: &Operator, object: &Value, pods: &[Arc<Pod>], now: Time) -> Plan {
    let suspended = !operator.suspend.is_empty() && json::flag(object, operator.suspend);
    let roles = (operator.roles)(object);
    let there: BTreeMap<&str, &Arc<Pod>> = pods.iter().map(|p| (p.metadata.name.as_str(), p)).collect();
    let counts = |role: &Role| {
        role.pods.iter().map(|w| there.get(w.name.as_str())).fold(
            Counts { wanted: role.pods.len(), ..Counts::default() },
            |mut sum, pod| {
                let Some(pod) = pod else { return sum };
                match pod.status.phase.as_str() {
                    "Succeeded" => sum.succeeded += 1,
                    "Failed" => sum.failed += 1,
                    _ => sum.active += 1,
                }
                let ready = pod.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
                sum.ready += usize::from(ready && pod.is_active());
                sum
            },
        )
    };
    let state =
        State { object, suspended, roles: roles.iter().map(|r| (r.name.as_str(), counts(r))).collect(), now };
    let mut after = object.clone();
    // The end is final, whatever becomes of the pods.
    if !(operator.ended)(object) {
        after["status"] = (operator.status)(&state);
    }
    let ended = (operator.ended)(&after);
    let changed = after["status"] != object["status"];
    let mut plan = Plan { status: changed.then(|| after["status"].take()), ..Plan::default() };
    let wanted = |name: &str| roles.iter().any(|role| role.pods.iter().any(|w| w.name == name));
    for pod in pods.iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let goes = suspended || !pod.is_terminal() && (ended || !wanted(&pod.metadata.name));
        if goes {
            plan.delete.push(Arc::clone(pod));
        }
    }
    if !suspended && !ended {
        let missing = |role: &Role| -> Vec<Value> {
            let absent = role.pods.iter().filter(|w| !there.contains_key(w.name.as_str()));
            absent.map(|w| pod(operator, object, role, w)).collect()
        };
        plan.create = roles.iter().flat_map(missing).collect();
    }
    plan
}

fn pod(operator: &Operator, object: &Value, role: &Role, wanted: &Wanted) -> Value {
    let merged = |kind: &str, more: &[(&'static str, String)]| {
        let mut all = json::map(&role.template, &["metadata", kind]).cloned().unwrap_or_else(Map::new);
        all.extend(more.iter().map(|(k, v)| ((*k).to_owned(), json!(v))));
        Value::Object(all)
    };
    let mut spec = role.template["spec"].clone();
    if let Some(policy) = &role.restart_policy {
        json::set(&mut spec, &["restartPolicy"], json!(policy));
    }
    canonical_amounts(&mut spec);
    let owner = json!({"apiVersion": operator.resource.api_version(), "kind": operator.kind,
        "name": json::name(object), "uid": json::uid(object), "controller": true, "blockOwnerDeletion": true});
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": wanted.name, "namespace": json::namespace(object), "ownerReferences": [owner],
            "labels": merged("labels", &wanted.labels), "annotations": merged("annotations", &wanted.annotations)},
        "spec": spec})
}

/// Writes what containers request and are limited to as an operator does that has read the template into Kubernetes' types: the
/// schemas of these kinds don't know amounts. Otherwise the next update of the pod would change them, which is forbidden.
fn canonical_amounts(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers {
            for of in ["requests", "limits"] {
                let amounts =
                    container.get_mut("resources").and_then(|r| r.get_mut(of)).and_then(Value::as_object_mut);
                for amount in amounts.into_iter().flat_map(Map::values_mut) {
                    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
                    if let Ok(text) = Quantity::canonical(&text) {
                        *amount = json!(text);
                    }
                }
            }
        }
    }
}
