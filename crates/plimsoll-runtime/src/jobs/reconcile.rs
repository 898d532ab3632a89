//! Kueue's generic reconcile (spec section 4.3), step by step in its order.

use serde_json::{Value, json};

use super::podset::{self, Error};
use super::{Env, Found, Integration, Write, elastic, names, notes, workload};
use crate::api::WORKLOADS;
use crate::cache::Kind;
use crate::json;

/// What to write for this job now. Empty when everything is as it should be.
pub fn reconcile(job: &dyn Integration, env: Env<'_>) -> Vec<Write> {
    let wl = match one_workload(job, env) {
        Step::Go(wl) => wl,
        Step::Write(writes) => return writes,
    };
    let Some(wl) = wl else {
        return without_workload(job, env);
    };
    if let Some(conditions) = job.custom_conditions(&wl, env) {
        return vec![super::patch_status(WORKLOADS, &wl, &json!({ "conditions": conditions }))];
    }
    if json::is_true(&wl, "Finished") {
        let mut writes = job.finalize();
        if let Some(patch) = super::drop_finalizer(WORKLOADS, &wl, names::IN_USE) {
            writes.push(patch);
            writes.extend(declared_finished(job, &wl));
        }
        return writes;
    }
    if json::deleting(&wl) {
        let mut writes = job.stop(Some(&wl), "WorkloadDeleted", "Workload is deleted", env.now);
        writes.extend(super::drop_finalizer(WORKLOADS, &wl, names::IN_USE));
        return writes;
    }
    if let Some((message, success)) = job.finished() {
        let reason = if success { "Succeeded" } else { "Failed" };
        let mut writes = workload::finish(&wl, reason, &message, env.now);
        writes.extend(job.finalize());
        return writes;
    }
    // Whoever began to stop it may have died in between.
    if job.is_stopping() {
        return stop(job, Some(&wl), "NotAdmitted", "Not admitted by cluster queue", env);
    }
    if let Some(writes) = sync(job, &wl, env) {
        return writes;
    }
    if env.supervised
        && let Some(conditions) = workload::pods_ready(&wl, job.pods_ready(), env.now)
    {
        return vec![super::patch_status(WORKLOADS, &wl, &json!({ "conditions": conditions }))];
    }
    if let Some(evicted) = json::condition(&wl, "Evicted").filter(|c| c["status"] == "True") {
        return evict(job, &wl, evicted, env);
    }
    let admitted = json::is_true(&wl, "Admitted");
    if job.is_suspended() {
        return if admitted { start(job, &wl, env) } else { follow_queue(job, &wl) };
    }
    // The pods of an elastic job wait one by one.
    if !admitted && !elastic::enabled(job.object(), env) {
        return stop(job, Some(&wl), "NotAdmitted", "Not admitted by cluster queue", env);
    }
    Vec::new()
}

/// What to do before a job can be held against its workload.
pub(super) enum Step {
    /// Nothing: this is its workload, if it has one.
    Go(Option<std::sync::Arc<Value>>),
    /// Write this, and look again.
    Write(Vec<Write>),
}

fn declared_finished(job: &dyn Integration, wl: &Value) -> Vec<Write> {
    let text = format!("Workload '{}/{}' is declared finished", json::namespace(wl), json::name(wl));
    notes(job, false, "FinishedWorkload", &text)
}

/// Stops the job and says so on it.
fn stop(job: &dyn Integration, wl: Option<&Value>, reason: &str, message: &str, env: Env<'_>) -> Vec<Write> {
    job.stop(wl, reason, message, env.now)
}

/// Finds the one workload of the job; others are deleted, and a job that runs without one is stopped.
fn one_workload(job: &dyn Integration, env: Env<'_>) -> Step {
    if let Some(name) = prebuilt(job) {
        return prebuilt_workload(job, name, env);
    }
    if elastic::enabled(job.object(), env)
        && let Some(step) = elastic::one_workload(job, env)
    {
        return step;
    }
    let Found { matching, mut extra, mut writes } = job.find(env);
    let mut update = None;
    if matching.is_none()
        && job.is_suspended()
        && extra.first().is_some_and(|w| !json::is_true(w, "QuotaReserved"))
    {
        update = Some(extra.remove(0));
    }
    if matching.is_none() && !job.is_suspended() && job.finished().is_none() {
        let (only, message) = match extra.as_slice() {
            [] => (None, "Missing Workload; unable to restore pod templates"),
            [one] => {
                (Some(&**one), "No matching Workload; restoring pod templates according to existent Workload")
            }
            _ => (None, "No matching Workload; restoring pod templates according to existent Workload"),
        };
        writes.extend(stop(job, only, "NoMatchingWorkload", message, env));
    }
    for wl in &extra {
        writes.extend(workload::remove(job, wl));
    }
    if !writes.is_empty() {
        return Step::Write(writes);
    }
    match update {
        Some(wl) => Step::Write(workload::update(job, &wl, env)),
        None => Step::Go(matching),
    }
}

/// Name of a workload that somebody else made for this job.
fn prebuilt(job: &dyn Integration) -> Option<&str> {
    let object = job.object();
    json::label_opt(object, names::PREBUILT)
        .or_else(|| json::annotation(object, names::PREBUILT))
        .filter(|n| !n.is_empty())
}

fn prebuilt_workload(job: &dyn Integration, name: &str, env: Env<'_>) -> Step {
    let object = job.object();
    let Some(wl) = env.cache.get(Kind::Workload, json::namespace(object), name) else {
        return Step::Go(None);
    };
    let controller = json::controller(&wl);
    match controller {
        Some(owner) if owner["uid"] == json::uid(object) => {}
        // Somebody else's.
        Some(_) => return Step::Go(None),
        None => {
            let mut new = (*wl).clone();
            let mut owners = json::list(&wl, &["metadata", "ownerReferences"]).to_vec();
            owners.push(workload::owner(job.resource().api_version, job.resource().kind, object, true));
            json::set(&mut new, &["metadata", "ownerReferences"], Value::Array(owners));
            if json::label_opt(&wl, names::JOB_UID).is_none() {
                json::set(&mut new, &["metadata", "labels", names::JOB_UID], json!(json::uid(object)));
            }
            return Step::Write(super::patch(WORKLOADS, &wl, &new).into_iter().collect());
        }
    }
    let found = job.find(env);
    // A slice made elsewhere comes before the job that it is for has grown.
    let ahead = elastic::enabled(object, env) && elastic::is_replacement(&wl);
    if ahead
        || found.matching.is_some_and(|m| json::uid(&m) == json::uid(&wl))
        || json::is_true(&wl, "Finished")
    {
        return Step::Go(Some(wl));
    }
    let message = "The prebuilt workload is out of sync with its user job";
    Step::Write(workload::finish(&wl, "OutOfSync", message, env.now))
}

fn without_workload(job: &dyn Integration, env: Env<'_>) -> Vec<Write> {
    if job.finished().is_some() {
        return job.finalize();
    }
    if prebuilt(job).is_some() {
        let mut writes = stop(job, None, "NoMatchingWorkload", "missing workload", env);
        writes.push(Write::Again(std::time::Duration::from_secs(1)));
        return writes;
    }
    // Pods that still run would use quota that nothing accounts for.
    if job.is_active() && !elastic::enabled(job.object(), env) {
        return Vec::new();
    }
    workload::create(job, env)
}

/// Brings reclaimable pods, the priority and the maximum execution time in line; `None` when they are.
fn sync(job: &dyn Integration, wl: &Value, env: Env<'_>) -> Option<Vec<Write>> {
    if let Some(mut wanted) = job.reclaimable() {
        let podsets = json::list(wl, &["spec", "podSets"]);
        for (name, count) in &mut wanted {
            let podset = podsets.iter().find(|p| p["name"] == name.as_str());
            *count = podset.map_or(*count, |p| p["count"].as_i64().unwrap_or(1).min(*count));
        }
        let present: Vec<(String, i64)> = json::list(wl, &["status", "reclaimablePods"])
            .iter()
            .map(|r| (json::text(r, &["name"]).to_owned(), r["count"].as_i64().unwrap_or(0)))
            .collect();
        let mut sorted = (wanted.clone(), present);
        sorted.0.sort();
        sorted.1.sort();
        if sorted.0 != sorted.1 {
            let rows: Vec<Value> = wanted.iter().map(|(n, c)| json!({"name": n, "count": c})).collect();
            return Some(vec![super::patch_status(WORKLOADS, wl, &json!({ "reclaimablePods": rows }))]);
        }
    }
    let mut new = wl.clone();
    follow_priority(job, wl, &mut new, env);
    if job.is_suspended() && !json::is_true(wl, "Admitted") {
        let label = json::label_opt(job.object(), names::MAX_EXEC_TIME).and_then(|s| s.parse::<i64>().ok());
        match label {
            Some(seconds) => json::set(&mut new, &["spec", "maximumExecutionTimeSeconds"], json!(seconds)),
            None => {
                json::remove(&mut new, &["spec", "maximumExecutionTimeSeconds"]);
            }
        }
    }
    super::patch(WORKLOADS, wl, &new).map(|p| vec![p])
}

/// Puts the priority of the job's class into `new`, where that may still change.
pub(super) fn follow_priority(job: &dyn Integration, wl: &Value, new: &mut Value, env: Env<'_>) {
    if json::label_opt(job.object(), names::PRIORITY_CLASS).is_some()
        && let Ok(priority) = workload::priority(job, json::list(wl, &["spec", "podSets"]), env)
        && priority
            .class
            .as_ref()
            .is_some_and(|(_, _, n)| wl["spec"]["priorityClassRef"]["name"] != n.as_str())
        && (!json::is_true(wl, "QuotaReserved") || wl["spec"]["priorityClassRef"].is_object())
    {
        workload::set_priority(new, &priority);
    }
}

/// Two-phase eviction: stop first; the reservation goes only when nothing is active any more.
fn evict(job: &dyn Integration, wl: &Value, evicted: &Value, env: Env<'_>) -> Vec<Write> {
    let mut writes = stop(job, Some(wl), "WorkloadEvicted", json::text(evicted, &["message"]), env);
    let active = job.is_active() || elastic::has_running_pods(wl, env);
    if writes.is_empty() && json::is_true(wl, "QuotaReserved") && !active {
        writes.push(Write::Stopped(json::namespace(wl).to_owned(), json::name(wl).to_owned()));
    }
    writes
}

fn start(job: &dyn Integration, wl: &Value, env: Env<'_>) -> Vec<Write> {
    let message =
        format!("Admitted by clusterQueue {}", json::text(wl, &["status", "admission", "clusterQueue"]));
    let started =
        podset::infos(wl, env).and_then(|infos| job.start(&infos, &message).map_err(Error::Conflict));
    match started {
        Ok(writes) => writes,
        Err(Error::Missing(_)) => vec![Write::Again(std::time::Duration::from_secs(1))],
        Err(Error::Conflict(message)) => workload::finish(wl, "FailedToStart", &message, env.now),
    }
}

fn follow_queue(job: &dyn Integration, wl: &Value) -> Vec<Write> {
    let queue = job.queue();
    if json::text(wl, &["spec", "queueName"]) == queue || json::is_true(wl, "QuotaReserved") {
        return Vec::new();
    }
    let mut new = wl.clone();
    json::set(&mut new, &["spec", "queueName"], json!(queue));
    super::patch(WORKLOADS, wl, &new).into_iter().collect()
}
