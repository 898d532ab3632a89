//! Making and changing Workload objects.

use plimsoll_state::Time;
use serde_json::{Map, Value, json};

use super::{Env, Integration, Write, names, note, notes};
use crate::api::WORKLOADS;
use crate::cache::Kind;
use crate::{clock, json};

/// A Workload of `job` with these podsets: names, labels, owner and finalizer as in Kueue (spec section 3.4).
pub fn skeleton(job: &dyn Integration, podsets: &[Value], env: Env<'_>) -> Value {
    let object = job.object();
    let resource = job.resource();
    let name = plimsoll_api::kueue::workload_name(
        resource.kind,
        resource.group(),
        json::name(object),
        json::uid(object),
    );
    let mut wl = base(job, podsets, env);
    json::set(&mut wl, &["metadata", "name"], json!(name));
    json::set(&mut wl, &["metadata", "labels", names::JOB_UID], json!(json::uid(object)));
    json::set(
        &mut wl,
        &["metadata", "ownerReferences"],
        json!([owner(resource.api_version, resource.kind, object, true)]),
    );
    wl
}

/// The parts that workloads of single jobs and of groups share.
pub fn base(job: &dyn Integration, podsets: &[Value], env: Env<'_>) -> Value {
    let object = job.object();
    let copied = env.cache.rules().copied_labels.iter();
    let labels: Map<String, Value> =
        copied.filter_map(|k| Some((k.clone(), json!(json::label_opt(object, k)?)))).collect();
    let mut wl = json!({
        "apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind,
        "metadata": {"namespace": json::namespace(object), "labels": labels, "finalizers": [names::IN_USE]},
        "spec": {"podSets": podsets, "active": true},
    });
    if !job.queue().is_empty() {
        json::set(&mut wl, &["spec", "queueName"], json!(job.queue()));
    }
    let copied: Map<String, Value> = json::map(object, &["metadata", "annotations"])
        .into_iter()
        .flatten()
        .filter(|(k, _)| {
            let ours = [names::GATED_BY, plimsoll_api::kueue::DEPENDS_ON, plimsoll_api::windows::RUN_WINDOW];
            k.starts_with(names::PROVREQ) || ours.contains(&k.as_str())
        })
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    if !copied.is_empty() {
        json::set(&mut wl, &["metadata", "annotations"], Value::Object(copied));
    }
    if let Some(seconds) = json::label_opt(object, names::MAX_EXEC_TIME).and_then(|s| s.parse::<i64>().ok()) {
        json::set(&mut wl, &["spec", "maximumExecutionTimeSeconds"], json!(seconds));
    }
    wl
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
    /// `spec.priorityClassRef`, if a class decides.
    pub class: Option<(&'static str, &'static str, String)>,
    /// The value.
    pub value: i64,
}

/// Priority of a job (spec section 2.2): WorkloadPriorityClass label, else the pods' PriorityClass, else the
/// cluster's default class (the lowest if there are several), else 0.
///
/// # Errors
/// When a named class is not known (yet).
pub fn priority(job: &dyn Integration, podsets: &[Value], env: Env<'_>) -> Result<Priority, String> {
    if let Some(name) = json::label_opt(job.object(), names::PRIORITY_CLASS).filter(|n| !n.is_empty()) {
        let Some(class) = env.cache.get(Kind::WorkloadPriorityClass, "", name) else {
            return Err(format!("WorkloadPriorityClass.kueue.x-k8s.io \"{name}\" not found"));
        };
        let class_ref = ("kueue.x-k8s.io", "WorkloadPriorityClass", name.to_owned());
        return Ok(Priority { class: Some(class_ref), value: class["value"].as_i64().unwrap_or(0) });
    }
    let named = podsets
        .iter()
        .map(|p| json::text(p, &["template", "spec", "priorityClassName"]))
        .find(|n| !n.is_empty());
    if let Some(name) = named {
        let Some(class) = env.cache.get(Kind::PriorityClass, "", name) else {
            return Err(format!("priorityclasses.scheduling.k8s.io \"{name}\" not found"));
        };
        return Ok(by_class(&class));
    }
    let classes = env.cache.all(Kind::PriorityClass);
    let default = classes.iter().filter(|c| c["globalDefault"] == true).min_by_key(|c| c["value"].as_i64());
    Ok(default.map_or(Priority { class: None, value: 0 }, |c| by_class(c)))
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

/// Writes that create the workload of a job that has none.
pub fn create(job: &dyn Integration, env: Env<'_>) -> Vec<Write> {
    let (mut writes, mut wl) = match job.compose(env) {
        Ok(composed) => composed,
        Err(writes) => return writes,
    };
    if super::elastic::enabled(job.object(), env) && !super::elastic::prepare(job, &mut wl, env) {
        return vec![Write::Again(std::time::Duration::from_secs(1))];
    }
    match priority(job, json::list(&wl, &["spec", "podSets"]), env) {
        Ok(p) => set_priority(&mut wl, &p),
        Err(message) => {
            writes.extend(class_missing(job, &message));
            return writes;
        }
    }
    let text = format!("Created Workload: {}/{}", json::namespace(&wl), json::name(&wl));
    writes.push(Write::Create(WORKLOADS, wl));
    writes.extend(notes(job, false, "CreatedWorkload", &text));
    writes
}

fn class_missing(job: &dyn Integration, message: &str) -> Vec<Write> {
    let mut writes = notes(job, true, "WorkloadPriorityClassNotFound", message);
    writes.push(Write::Again(std::time::Duration::from_secs(1)));
    writes
}

/// The conditions of `wl` with one of them set (`meta.SetStatusCondition`): the transition time changes only with
/// the status. `None` when nothing changes.
pub fn with_condition(
    wl: &Value,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    now: Time,
) -> Option<Vec<Value>> {
    let text = if status { "True" } else { "False" };
    let old = json::condition(wl, kind);
    let generation = wl["metadata"]["generation"].as_i64().unwrap_or(0);
    if let Some(old) = old
        && old["status"] == text
        && old["reason"] == reason
        && old["message"] == message
        && old["observedGeneration"].as_i64().unwrap_or(0) == generation
    {
        return None;
    }
    let since = old.filter(|o| o["status"] == text).map(|o| o["lastTransitionTime"].clone());
    let mut new = json!({
        "type": kind, "status": text, "reason": reason, "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| json!(clock::text(now))),
    });
    if generation > 0 {
        new["observedGeneration"] = json!(generation);
    }
    let mut list = json::list(wl, &["status", "conditions"]).to_vec();
    match list.iter_mut().find(|c| c["type"] == kind) {
        Some(slot) => *slot = new,
        None => list.push(new),
    }
    Some(list)
}

/// The conditions of `wl` with `PodsReady` brought in line (spec sections 2.9 and 3.3); `None` when it is. The engine's
/// clock for supervision reads it.
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
    with_condition(wl, KIND, status, reason, message, now)
}

/// Writes that mark the workload finished.
pub fn finish(wl: &Value, reason: &str, message: &str, now: Time) -> Vec<Write> {
    with_condition(wl, "Finished", true, reason, message, now)
        .map(|conditions| super::patch_status(WORKLOADS, wl, &json!({ "conditions": conditions })))
        .into_iter()
        .collect()
}

/// Writes that delete a workload that should not be there.
pub fn remove(job: &dyn Integration, wl: &Value) -> Vec<Write> {
    let mut writes: Vec<Write> = super::drop_finalizer(WORKLOADS, wl, names::IN_USE).into_iter().collect();
    writes.push(Write::Delete {
        resource: WORKLOADS,
        namespace: json::namespace(wl).into(),
        name: json::name(wl).into(),
        uid: json::uid(wl).into(),
    });
    let text = format!("Deleted not matching Workload: {}/{}", json::namespace(wl), json::name(wl));
    writes.push(note(job.resource(), job.object(), false, "DeletedWorkload", &text));
    writes
}

/// Writes that bring an unreserved workload in line with its suspended job.
pub fn update(job: &dyn Integration, wl: &Value, env: Env<'_>) -> Vec<Write> {
    let (mut writes, mut wanted) = match job.compose(env) {
        Ok(composed) => composed,
        Err(writes) => return writes,
    };
    match priority(job, json::list(&wanted, &["spec", "podSets"]), env) {
        Ok(p) => set_priority(&mut wanted, &p),
        Err(message) => return class_missing(job, &message),
    }
    let mut new = wl.clone();
    json::set(&mut new, &["spec"], wanted["spec"].take());
    // Whether it is active is the user's.
    json::set(&mut new, &["spec", "active"], json!(wl["spec"]["active"].as_bool().unwrap_or(true)));
    if let Some(patch) = super::patch(WORKLOADS, wl, &new) {
        writes.push(patch);
        let text = format!(
            "Updated not matching Workload for suspended job: {}/{}",
            json::namespace(wl),
            json::name(wl)
        );
        writes.push(note(job.resource(), job.object(), false, "UpdatedWorkload", &text));
    }
    writes
}
