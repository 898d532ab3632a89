//! Workload objects: construction, priority, conditions.

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::json;
use plimsoll_api::resource::{Resource, WORKLOADS};
use plimsoll_state::Time;
use serde_json::{Map, Value, json};

use crate::plan::{Plan, patch_status};
use crate::store::Kind;
use crate::{Env, names, podset};

/// A Workload of a job with these podsets (Kueue `NewWorkload` and `GetWorkloadNameForOwnerWithGVK`): Kueue's name, labels,
/// finalizer and owner.
pub fn new(resource: Resource, job: &Value, queue_name: &str, pod_sets: &[Value], env: Env<'_>) -> Value {
    let names = env.config.workload_names;
    let name = names.of(resource.kind, resource.group(), json::name(job), json::uid(job));
    let mut wl = without_owner(job, queue_name, pod_sets, env);
    json::set(&mut wl, &["metadata", "name"], json!(name));
    json::set(&mut wl, &["metadata", "labels", names::JOB_UID], json!(json::uid(job)));
    let owner = owner(resource.api_version, resource.kind, job, true);
    json::set(&mut wl, &["metadata", "ownerReferences"], json!([owner]));
    wl
}

/// [`new`] without name and owner, for jobs of several objects. Labels and annotations are those of `job`.
pub fn without_owner(job: &Value, queue_name: &str, pod_sets: &[Value], env: Env<'_>) -> Value {
    let copied = env.config.label_keys_to_copy.iter();
    let labels: Map<String, Value> =
        copied.filter_map(|k| Some((k.clone(), json!(json::label_opt(job, k)?)))).collect();
    let mut pod_sets = pod_sets.to_vec();
    podset::sanitize(&mut pod_sets);
    let mut wl = json!({
        "apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind,
        "metadata": {"namespace": json::namespace(job), "labels": labels, "finalizers": [names::IN_USE]},
        "spec": {"podSets": pod_sets, "active": true},
    });
    if !queue_name.is_empty() {
        json::set(&mut wl, &["spec", "queueName"], json!(queue_name));
    }
    let copied: Map<String, Value> = json::map(job, &["metadata", "annotations"])
        .into_iter()
        .flatten()
        .filter(|(k, _)| {
            let ours = [names::GATED_BY, plimsoll_api::kueue::DEPENDS_ON, plimsoll_api::windows::RUN_WINDOW];
            k.starts_with(names::PROVREQ)
                || ours.contains(&k.as_str())
                || (k.as_str() == plimsoll_api::kueue::PARTIAL_PREEMPTION && env.can_shrink(job))
                || env.config.annotation_keys_to_copy.contains(k)
        })
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    if !copied.is_empty() {
        json::set(&mut wl, &["metadata", "annotations"], Value::Object(copied));
    }
    if let Some(seconds) = maximum_time(job) {
        json::set(&mut wl, &["spec", "maximumExecutionTimeSeconds"], json!(seconds));
    }
    wl
}

/// For how many seconds a job may run, by its label (Kueue `MaximumExecutionTimeSecondsForObject`): a number of 32 bits. The
/// webhook takes greater ones as well, and they bound nothing.
pub(crate) fn maximum_time(job: &Value) -> Option<i32> {
    json::label_opt(job, names::MAX_EXEC_TIME)?.parse::<i32>().ok().filter(|seconds| *seconds > 0)
}

/// An owner reference to `object`.
pub fn owner(api_version: &str, kind: &str, object: &Value, controller: bool) -> Value {
    let mut out = json!({
        "apiVersion": api_version, "kind": kind, "name": json::name(object), "uid": json::uid(object),
    });
    if controller {
        out["controller"] = json!(true);
        out["blockOwnerDeletion"] = json!(true);
    }
    out
}

/// Resolved priority of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// `spec.priorityClassRef` (group, kind, name), if a class decides.
    pub class: Option<(&'static str, &'static str, String)>,
    /// The value.
    pub value: i64,
}

/// Priority of a job (Kueue `jobframework.ExtractPriority`): the WorkloadPriorityClass of its label, else the pods'
/// PriorityClass, else the cluster's default class (the lowest if there are several), else 0.
///
/// # Errors
/// When a named class is not known (yet): what Kueue warns of, which says nothing of the class that pods name.
pub fn priority(
    job: &Value,
    priority_class: Option<&str>,
    podsets: &[Value],
    env: Env<'_>,
) -> Result<Priority, Option<String>> {
    if let Some(name) = json::label_opt(job, names::PRIORITY_CLASS).filter(|n| !n.is_empty()) {
        let Some(class) = env.objects.get(Kind::WorkloadPriorityClass, "", name) else {
            return Err(Some(format!("WorkloadPriorityClass \"{name}\" not found")));
        };
        let class_ref = ("kueue.x-k8s.io", "WorkloadPriorityClass", name.to_owned());
        return Ok(Priority { class: Some(class_ref), value: class["value"].as_i64().unwrap_or(0) });
    }
    let mut templates = podsets.iter().map(|p| json::text(p, &["template", "spec", "priorityClassName"]));
    if let Some(name) = priority_class.or_else(|| templates.find(|n| !n.is_empty())) {
        let Some(class) = env.objects.get(Kind::PriorityClass, "", name) else {
            return Err(None);
        };
        return Ok(by_class(&class));
    }
    let classes = env.objects.all(Kind::PriorityClass);
    let default = classes.filter(|c| c["globalDefault"] == true).min_by_key(|c| c["value"].as_i64());
    Ok(default.map_or(Priority { class: None, value: 0 }, |c| by_class(&c)))
}

fn by_class(class: &Value) -> Priority {
    let class_ref = ("scheduling.k8s.io", "PriorityClass", json::name(class).to_owned());
    Priority { class: Some(class_ref), value: class["value"].as_i64().unwrap_or(0) }
}

/// Writes a priority into a Workload.
pub fn set_priority(wl: &mut Value, priority: &Priority) {
    json::set(wl, &["spec", "priority"], json!(priority.value));
    match &priority.class {
        Some((group, kind, name)) => {
            json::set(wl, &["spec", "priorityClassRef"], json!({"group": group, "kind": kind, "name": name}));
        }
        None => {
            json::remove(wl, &["spec", "priorityClassRef"]);
        }
    }
}

/// The conditions of `wl` with `PodsReady` updated (Kueue `reconciler.go`, `generatePodsReadyCondition`); `None` when it is
/// up to date. The engine's timeouts of `waitForPodsReady` start from it.
pub fn pods_ready(wl: &Value, ready: bool, now: Time) -> Option<Vec<Value>> {
    const KIND: &str = "PodsReady";
    const WAITING: (&str, &str) = ("WaitForStart", "Not all pods are ready or succeeded");
    const RECOVERING: (&str, &str) = ("WaitForRecovery", "At least one pod has failed, waiting for recovery");
    let old = json::condition(wl, KIND);
    let was = |status: &str| old.is_some_and(|o| o["status"] == status);
    let had = |reason: &str| old.is_some_and(|o| o["reason"] == reason);
    let (status, (reason, message)) = if !json::is_true(wl, "Admitted") {
        (false, WAITING)
    } else if ready {
        let again = was("False") && had("WaitForRecovery") || was("True") && had("Recovered");
        let reason = if again { "Recovered" } else { "Started" };
        (true, (reason, "All pods reached readiness and the workload is running"))
    } else if was("True") || was("False") && had("WaitForRecovery") {
        (false, RECOVERING)
    } else {
        (false, WAITING)
    };
    // Another generation of the workload is no reason to write it (Kueue `HasConditionWithTypeAndReason`).
    if was(if status { "True" } else { "False" }) && had(reason) {
        return None;
    }
    set_status_condition(wl, KIND, status, reason, message, now)
}

/// Writes that mark the workload finished.
pub fn finish(wl: &Value, reason: &str, message: &str, now: Time) -> Plan {
    set_status_condition(wl, "Finished", true, reason, message, now)
        .map(|conditions| patch_status(WORKLOADS, wl, &json!({ "conditions": conditions })))
        .into_iter()
        .collect()
}

/// Whether a workload is kept back by its integration (Kueue `IsOnHold`).
pub(crate) fn is_on_hold(wl: &Value) -> bool {
    json::condition(wl, "QuotaReserved").is_some_and(|c| c["status"] == "False" && c["reason"] == "OnHold")
}

/// Takes the quota back from a workload, and queues it for this reason (Kueue `UnsetQuotaReservationWithCondition`).
pub(crate) fn unreserve(wl: &Value, reason: &str, message: &str, now: Time) -> Plan {
    let mut new = wl.clone();
    let mut set = |kind: &str, reason: &str, message: &str| {
        if let Some(conditions) = set_status_condition(&new, kind, false, reason, message, now) {
            json::set(&mut new, &["status", "conditions"], Value::Array(conditions));
        }
    };
    set("QuotaReserved", reason, message);
    for kind in ["Admitted", names::NODES_RESERVED] {
        if json::is_true(wl, kind) {
            set(kind, "NoReservation", "The workload has no reservation");
        }
    }
    let mut status = Map::new();
    status.insert("conditions".to_owned(), new["status"]["conditions"].take());
    if wl["status"]["admission"].is_object() {
        status.insert("admission".to_owned(), Value::Null);
    }
    vec![patch_status(WORKLOADS, wl, &Value::Object(status))]
}
