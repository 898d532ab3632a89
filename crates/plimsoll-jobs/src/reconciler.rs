//! Kueue's generic reconciler (`pkg/controller/jobframework/reconciler.go`, `ReconcileGenericJob`), step by step in its
//! order.

use std::time::Duration;

use plimsoll_api::json;
use plimsoll_api::kueue::QuotaReleaseStrategy;
use plimsoll_api::resource::{PODS, WORKLOADS};
use serde_json::{Value, json};

use crate::generic_job::{FoundWorkloads, GenericJob, NewWorkload, ReclaimablePod, Step, events};
use crate::multikueue::runs_elsewhere;
use crate::plan::{
    Plan, UPDATED_ADMISSION_CHECK, Write, delete, event, patch, patch_status, remove_finalizer,
};
use crate::pod_view::Identifiers;
use crate::podset::{self, Error};
use crate::store::Kind;
use crate::{Env, ancestors, elastic, names, priority_class, workload};

/// Pause before a missing object is looked up again.
const RETRY: Duration = Duration::from_secs(1);

/// The writes for a job of this framework, if it is queued.
///
/// # Errors
/// The writes for a job that is not queued itself: none, or those for a job within a queued one.
pub(crate) fn of_framework(framework: &str, job: &dyn GenericJob, env: Env<'_>) -> Result<Plan, Plan> {
    if env.config.has_framework(framework) { of_job(job, env) } else { Err(Plan::new()) }
}

/// [`of_framework`] for a framework that is on.
///
/// # Errors
/// As there.
pub(crate) fn of_job(job: &dyn GenericJob, env: Env<'_>) -> Result<Plan, Plan> {
    let (object, config) = (job.object(), env.config);
    if !config.manages_namespace(env.objects, json::namespace(object)) {
        return Err(Plan::new());
    }
    if let Some(plan) = ancestors::child(job, env) {
        return Err(plan);
    }
    if config.manages(object) { Ok(reconcile(job, env)) } else { Err(Plan::new()) }
}

/// The writes for this job. Empty when job and workload agree, but for what admission checks say meanwhile.
pub fn reconcile(job: &dyn GenericJob, env: Env<'_>) -> Plan {
    let wl = match one_workload(job, env) {
        Step::Continue(wl) => wl,
        Step::Update(wl) => return update(job, &wl, env),
        Step::Plan(plan) => return plan,
    };
    let Some(wl) = wl else {
        return if job.is_on_hold() == Some(true) { Plan::new() } else { without_workload(job, env) };
    };
    if let Some(conditions) = job.custom_workload_conditions(&wl, env) {
        return vec![patch_status(WORKLOADS, &wl, &json!({ "conditions": conditions }))];
    }
    if json::is_true(&wl, "Finished") {
        let mut plan = job.finalize();
        if let Some(write) = remove_finalizer(WORKLOADS, &wl, names::IN_USE) {
            plan.push(write);
            plan.push(declared_finished(job, &wl));
        }
        return plan;
    }
    if json::deleting(&wl) {
        let plan = job.stop(Some(&wl), "WorkloadDeleted", "Workload is deleted", env.now);
        if !plan.is_empty() {
            // A stop may take several writes, and the workload is needed until the last: it has the pod templates.
            return plan;
        }
        return remove_finalizer(WORKLOADS, &wl, names::IN_USE).into_iter().collect();
    }
    match job.is_on_hold() {
        Some(true) if json::is_true(&wl, "QuotaReserved") => {
            return workload::unreserve(&wl, "OnHold", "Job is on hold", env.now);
        }
        Some(true) => return Plan::new(),
        Some(false) if workload::is_on_hold(&wl) => {
            let message = "Workload no longer on hold; waiting for quota reservation";
            return workload::unreserve(&wl, "PendingEvaluation", message, env.now);
        }
        _ => {}
    }
    if let Some(finished) = job.finished() {
        let mut plan = workload::finish(&wl, finished.reason(), &finished.message, env.now);
        plan.extend(job.finalize());
        return plan;
    }
    // The process that began to stop it may have ended in between.
    if job.is_stopping() {
        let completed = || stop(job, Some(&wl), "NotAdmitted", "Not admitted by cluster queue", env);
        return resume(job, &wl, env).unwrap_or_else(completed);
    }
    if let Some(plan) = sync(job, &wl, env) {
        return plan;
    }
    if env.config.wait_for_pods_ready
        && let Some(conditions) = workload::pods_ready(&wl, job.pods_ready(), env.now)
    {
        return vec![patch_status(WORKLOADS, &wl, &json!({ "conditions": conditions }))];
    }
    if let Some(evicted) = json::condition(&wl, "Evicted").filter(|c| c["status"] == "True") {
        return evict(job, &wl, evicted, env);
    }
    let admitted = json::is_true(&wl, "Admitted");
    if job.is_suspended() {
        if admitted {
            return start(job, &wl, env);
        }
        let mut plan = admission_check_update(job, &wl);
        plan.extend(update_queue_name(job, &wl));
        return plan;
    }
    // Pods of an elastic job are gated one by one.
    if !admitted && !env.is_elastic(job.object()) {
        return stop(job, Some(&wl), "NotAdmitted", "Not admitted by cluster queue", env);
    }
    Plan::new()
}

fn declared_finished(job: &dyn GenericJob, wl: &Value) -> Write {
    let text = format!("Workload '{}/{}' is declared finished", json::namespace(wl), json::name(wl));
    event(job.resource(), job.object(), false, "FinishedWorkload", &text)
}

fn stop(job: &dyn GenericJob, wl: Option<&Value>, reason: &str, message: &str, env: Env<'_>) -> Plan {
    job.stop(wl, reason, message, env.now)
}

/// Finds the one workload of the job (Kueue `ensureOneWorkload`): other workloads are deleted, and a job that runs
/// without one is stopped.
fn one_workload(job: &dyn GenericJob, env: Env<'_>) -> Step {
    let prebuilt = env.objects.identifiers().prebuilt_of(job.object());
    if !prebuilt.is_empty() {
        return prebuilt_workload(job, prebuilt, env);
    }
    if env.is_elastic(job.object())
        && let Some(step) = elastic::one_workload(job, env)
    {
        return step;
    }
    let FoundWorkloads { matching, mut to_delete, mut plan } = job.find_workloads(env);
    let mut update = None;
    if matching.is_none()
        && job.is_suspended()
        && to_delete.first().is_some_and(|w| !json::is_true(w, "QuotaReserved"))
    {
        update = Some(to_delete.remove(0));
    }
    if matching.is_none() && !job.is_suspended() && job.finished().is_none() {
        let (only, message) = match to_delete.as_slice() {
            [] => (None, "Missing Workload; unable to restore pod templates"),
            [one] => {
                (Some(&**one), "No matching Workload; restoring pod templates according to existent Workload")
            }
            _ => (None, "No matching Workload; restoring pod templates according to existent Workload"),
        };
        plan.extend(stop(job, only, "NoMatchingWorkload", message, env));
        if !plan.is_empty() {
            // The workload has the pod templates and is deleted after the last write of the stop.
            return Step::Plan(plan);
        }
    }
    for wl in &to_delete {
        plan.extend(remove(job, wl));
    }
    if !plan.is_empty() {
        return Step::Plan(plan);
    }
    match update {
        Some(wl) => Step::Update(wl),
        None => Step::Continue(matching),
    }
}

fn prebuilt_workload(job: &dyn GenericJob, name: &str, env: Env<'_>) -> Step {
    let object = job.object();
    let Some(wl) = env.objects.get(Kind::Workload, json::namespace(object), name) else {
        return Step::Continue(None);
    };
    if json::controller(&wl).is_some_and(|owner| owner["uid"] != json::uid(object)) {
        // It belongs to another job.
        return Step::Continue(None);
    }
    let adopted = job.adopt(&wl);
    if !adopted.is_empty() {
        return Step::Plan(adopted);
    }
    let found = job.find_workloads(env);
    let dispatched = json::label_opt(&wl, names::ORIGIN).is_some();
    // Those of pods are compared by their podsets alone.
    let limited = job.resource() == PODS
        || json::int(&wl, &["spec", "maximumExecutionTimeSeconds"])
            == workload::maximum_time(object).map(i64::from);
    let matches = limited && found.matching.is_some_and(|m| json::uid(&m) == json::uid(&wl));
    // Members of a group that a manager of MultiKueue has replaced go. (Kueue leaves all of a prebuilt workload.)
    if matches && dispatched && !found.plan.is_empty() {
        return Step::Plan(found.plan);
    }
    // Quota is released then, and nothing else would stop the job (Kueue: a prebuilt workload that is not in sync counts as none).
    let finished = json::condition(&wl, "Finished").filter(|c| c["status"] == "True");
    if finished.is_some_and(|c| c["reason"] == "OutOfSync") && job.finished().is_none() {
        let stopped = stop(job, None, "NoMatchingWorkload", "missing workload", env);
        if !stopped.is_empty() {
            return Step::Plan(stopped);
        }
    }
    // A prebuilt slice is created before its job grows. A manager of MultiKueue shrinks the two one after the other.
    let ahead = env.is_elastic(object)
        && (elastic::is_replacement(&wl) || (dispatched && elastic::differs_in_size(job, &wl)));
    if ahead || matches || json::is_true(&wl, "Finished") {
        return Step::Continue(Some(wl));
    }
    let message = "The prebuilt workload is out of sync with its user job";
    Step::Plan(workload::finish(&wl, "OutOfSync", message, env.now))
}

fn without_workload(job: &dyn GenericJob, env: Env<'_>) -> Plan {
    if job.finished().is_some() {
        return job.finalize();
    }
    if !env.objects.identifiers().prebuilt_of(job.object()).is_empty() {
        let mut plan = stop(job, None, "NoMatchingWorkload", "missing workload", env);
        plan.push(Write::RequeueAfter(RETRY));
        return plan;
    }
    // Pods that still run would use quota that no workload is charged for. Terminating ones of a group are still its members,
    // and would make a workload of their own.
    let release = env.config.quota_release.of(job.resource());
    let release = if job.resource() == PODS { QuotaReleaseStrategy::OnTerminal } else { release };
    if job.is_active(release) && !env.is_elastic(job.object()) {
        return Plan::new();
    }
    create(job, env)
}

/// Updates reclaimable pods, priority and maximum execution time of the workload; `None` when they are up to date.
fn sync(job: &dyn GenericJob, wl: &Value, env: Env<'_>) -> Option<Plan> {
    let reclaimable = elastic::reclaimable(job, wl, env);
    let write = reclaimable.and_then(|pods| sync_reclaimable_pods(pods, wl, env));
    if let Some(write) = write.or_else(|| elastic::end_kept_charge(wl, env)) {
        return Some(vec![write]);
    }
    if let Some(plan) = sync_admission_gates(job, wl, env.objects.identifiers()) {
        return Some(plan);
    }
    // A prebuilt workload has its own priority and limit, unless it was made for a set of pods.
    let prebuilt = !env.objects.identifiers().prebuilt_of(job.object()).is_empty();
    if prebuilt && json::annotation(wl, names::OWNER_KIND).is_none() {
        return None;
    }
    match priority_class::update(job, wl, env) {
        Ok(plan) if plan.is_empty() => {}
        Ok(plan) => return Some(plan),
        Err(why) => return Some(priority_class::missing(job.resource(), job.object(), why.as_deref())),
    }
    let mut new = wl.clone();
    if job.is_suspended() && !json::is_true(wl, "Admitted") {
        match workload::maximum_time(job.object()) {
            Some(seconds) => json::set(&mut new, &["spec", "maximumExecutionTimeSeconds"], json!(seconds)),
            None => {
                json::remove(&mut new, &["spec", "maximumExecutionTimeSeconds"]);
            }
        }
    }
    patch(WORKLOADS, wl, &new).map(|p| vec![p])
}

/// Copies the admission gates of the job to its workload (Kueue `UpdateAdmissionGatedBy`), which is admitted when the last one
/// is gone. A prebuilt workload has its own.
fn sync_admission_gates(job: &dyn GenericJob, wl: &Value, identifiers: Identifiers) -> Option<Plan> {
    let gates = |o: &Value| json::annotation(o, names::GATED_BY).unwrap_or_default().to_owned();
    let wanted = gates(job.object());
    if wanted == gates(wl) || !identifiers.prebuilt_of(job.object()).is_empty() {
        return None;
    }
    let path = ["metadata", "annotations", names::GATED_BY];
    let mut new = wl.clone();
    if wanted.is_empty() {
        json::remove(&mut new, &path);
    } else {
        json::set(&mut new, &path, json!(wanted));
    }
    let text = format!("Updated workload AdmissionGatedBy to {}", json!(wanted));
    let mut plan: Plan = patch(WORKLOADS, wl, &new).into_iter().collect();
    plan.push(event(job.resource(), job.object(), false, "UpdatedWorkload", &text));
    Some(plan)
}

fn sync_reclaimable_pods(mut wanted: Vec<ReclaimablePod>, wl: &Value, env: Env<'_>) -> Option<Write> {
    let podsets = json::list(wl, &["spec", "podSets"]);
    for pod in &mut wanted {
        let podset = podsets.iter().find(|p| p["name"] == pod.name.as_str());
        pod.count = podset.map_or(pod.count, |p| p["count"].as_i64().unwrap_or(1).min(pod.count));
    }
    let mut present: Vec<ReclaimablePod> = json::list(wl, &["status", "reclaimablePods"])
        .iter()
        .map(|r| ReclaimablePod {
            name: json::text(r, &["name"]).to_owned(),
            count: r["count"].as_i64().unwrap_or(0),
        })
        .collect();
    // Those of a slice of an elastic job may be fewer after it has shrunk.
    if json::is_true(wl, "QuotaReserved") && !env.is_elastic(wl) {
        // What was given back is another's by now (Kueue `workload_webhook.go`, `validateReclaimablePodsUpdate`). It is wanted
        // less where partial admission lowered the parallelism.
        for old in &present {
            match wanted.iter_mut().find(|w| w.name == old.name) {
                Some(row) => row.count = row.count.max(old.count),
                None => wanted.push(old.clone()),
            }
        }
    }
    let rows: Vec<Value> = wanted.iter().map(|r| json!({"name": r.name, "count": r.count})).collect();
    wanted.sort();
    present.sort();
    (wanted != present).then(|| patch_status(WORKLOADS, wl, &json!({ "reclaimablePods": rows })))
}

/// Evicts in two phases: the job stops, then, when no pod is active any more, its quota is released.
fn evict(job: &dyn GenericJob, wl: &Value, evicted: &Value, env: Env<'_>) -> Plan {
    let mut plan = stop(job, Some(wl), "WorkloadEvicted", json::text(evicted, &["message"]), env);
    let active =
        job.is_active(env.config.quota_release.of(job.resource())) || elastic::has_running_pods(wl, env);
    if plan.is_empty() && json::is_true(wl, "QuotaReserved") && !active {
        plan.push(stopped(wl, false));
    }
    plan
}

/// Reports that nothing of an evicted workload runs. `ended`: nor will it, because the workload stands for one pod, which was
/// deleted.
pub(crate) fn stopped(wl: &Value, ended: bool) -> Write {
    Write::WorkloadStopped {
        namespace: json::namespace(wl).to_owned(),
        name: json::name(wl).to_owned(),
        ended,
    }
}

/// Takes back the stop of a job whose workload is no longer evicted, and has kept its quota: another client took the eviction
/// back. (Kueue leaves the Job suspended.)
fn resume(job: &dyn GenericJob, wl: &Value, env: Env<'_>) -> Option<Plan> {
    if !json::is_true(wl, "Admitted") || json::is_true(wl, "Evicted") {
        return None;
    }
    job.resume(wl, &podset::infos(wl, env).ok()?, &admitted_by(wl))
}

fn admitted_by(wl: &Value) -> String {
    format!("Admitted by clusterQueue {}", json::text(wl, &["status", "admission", "clusterQueue"]))
}

fn start(job: &dyn GenericJob, wl: &Value, env: Env<'_>) -> Plan {
    // Pods have no `managedBy`: their gates keep them from running here (Kueue `startJob`).
    if job.resource() == PODS && runs_elsewhere(wl, env) {
        return Plan::new();
    }
    let started =
        podset::infos(wl, env).and_then(|infos| job.start(&infos, &admitted_by(wl)).map_err(Error::Conflict));
    match started {
        Ok(plan) => plan,
        Err(Error::Missing(_)) => vec![Write::RequeueAfter(RETRY)],
        Err(Error::Conflict(message)) => workload::finish(wl, "FailedToStart", &message, env.now),
    }
}

/// Events with what pending checks of a workload that has quota say (Kueue `recordAdmissionCheckUpdate`). As there each reconcile
/// records them, and the recorder makes a series of repeats.
fn admission_check_update(job: &dyn GenericJob, wl: &Value) -> Plan {
    if !json::is_true(wl, "QuotaReserved") {
        return Plan::new();
    }
    let said = |check: &Value| {
        let (name, message) = (json::text(check, &["name"]), json::text(check, &["message"]));
        (check["state"] == "Pending" && !message.is_empty()).then(|| format!("{name}: {message}"))
    };
    let said: Vec<String> = json::list(wl, &["status", "admissionChecks"]).iter().filter_map(said).collect();
    if said.is_empty() {
        return Plan::new();
    }
    events(job, false, UPDATED_ADMISSION_CHECK, &said.join("; "))
}

/// Moves a waiting workload to the queue that its job names now.
fn update_queue_name(job: &dyn GenericJob, wl: &Value) -> Plan {
    let queue = job.queue_name();
    if json::text(wl, &["spec", "queueName"]) == queue || json::is_true(wl, "QuotaReserved") {
        return Plan::new();
    }
    let mut new = wl.clone();
    json::set(&mut new, &["spec", "queueName"], json!(queue));
    patch(WORKLOADS, wl, &new).into_iter().collect()
}

fn job_priority(
    job: &dyn GenericJob,
    pod_sets: &[Value],
    env: Env<'_>,
) -> Result<workload::Priority, Option<String>> {
    workload::priority(job.object(), job.priority_class(), pod_sets, env)
}

/// Writes that create the workload of a job that has none.
fn create(job: &dyn GenericJob, env: Env<'_>) -> Plan {
    let NewWorkload { mut plan, object: mut wl } = match job.construct_workload(env) {
        Ok(new) => new,
        Err(plan) => return plan,
    };
    if env.is_elastic(job.object()) && !elastic::prepare(job, &mut wl, env) {
        return vec![Write::RequeueAfter(RETRY)];
    }
    match job_priority(job, json::list(&wl, &["spec", "podSets"]), env) {
        Ok(p) => workload::set_priority(&mut wl, &p),
        Err(why) => {
            plan.extend(priority_class::missing(job.resource(), job.object(), why.as_deref()));
            return plan;
        }
    }
    let text = format!("Created Workload: {}/{}", json::namespace(&wl), json::name(&wl));
    plan.push(Write::Create(WORKLOADS, wl));
    plan.push(event(job.resource(), job.object(), false, "CreatedWorkload", &text));
    plan
}

/// Writes that delete a workload that does not match its job.
fn remove(job: &dyn GenericJob, wl: &Value) -> Plan {
    let mut plan: Plan = remove_finalizer(WORKLOADS, wl, names::IN_USE).into_iter().collect();
    plan.push(delete(WORKLOADS, wl));
    let text = format!("Deleted not matching Workload: {}/{}", json::namespace(wl), json::name(wl));
    plan.push(event(job.resource(), job.object(), false, "DeletedWorkload", &text));
    plan
}

/// Writes that update a workload without reserved quota to its suspended job (Kueue `updateWorkloadToMatchJob`).
fn update(job: &dyn GenericJob, wl: &Value, env: Env<'_>) -> Plan {
    let NewWorkload { mut plan, object: mut wanted } = match job.construct_workload(env) {
        Ok(new) => new,
        Err(plan) => return plan,
    };
    match job_priority(job, json::list(&wanted, &["spec", "podSets"]), env) {
        Ok(p) => workload::set_priority(&mut wanted, &p),
        Err(why) => return priority_class::missing(job.resource(), job.object(), why.as_deref()),
    }
    elastic::set_first_floors(job, &mut wanted, env);
    let mut new = wl.clone();
    json::set(&mut new, &["spec"], wanted["spec"].take());
    // The user decides whether it is active.
    json::set(&mut new, &["spec", "active"], json!(wl["spec"]["active"].as_bool().unwrap_or(true)));
    if let Some(write) = patch(WORKLOADS, wl, &new) {
        plan.push(write);
        let text = format!(
            "Updated not matching Workload for suspended job: {}/{}",
            json::namespace(wl),
            json::name(wl)
        );
        plan.push(event(job.resource(), job.object(), false, "UpdatedWorkload", &text));
    }
    plan
}
