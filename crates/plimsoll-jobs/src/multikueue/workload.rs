//! The plan of a workload (Kueue `multikueue/workload.go`, `Reconcile` and `reconcileGroup`).

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::event::EventRecord;
use plimsoll_api::kueue::{CHARGED_PODS, REPLACEMENT_FOR};
use plimsoll_api::resource::WORKLOADS;
use plimsoll_api::{json, timestamp};
use plimsoll_state::{Duration, Time};
use serde_json::{Value, json};

use super::dispatch::{lacking_message, nominate};
use super::group::{Group, READY, Together, is_between_slices, removals};
use super::nomination::Nomination;
use super::{Copy, Memory, ORIGIN, Plan, Question, Sight, Step, WorkloadKey, adapter, config, preemption};
use crate::plan::{self, Write, patch_status};
use crate::store::Kind;
use crate::{Env, elastic, workload};

/// Longest message of a check (`maxConditionMsgSize`).
const LONGEST: usize = 32 * 1024;
const PENDING: &str = "Pending";
const RETRY: &str = "Retry";
const REJECTED: &str = "Rejected";

/// What is to be done for a workload. `workers` are all worker clusters with what they have of it.
pub fn plan(key: &WorkloadKey, workers: &BTreeMap<String, Sight>, memory: &Memory, env: Env<'_>) -> Plan {
    let local = env.objects.get(Kind::Workload, &key.namespace, &key.name);
    let Some(local) = local.filter(|wl| !json::deleting(wl)) else {
        return Plan::apart(removals(copies(workers)));
    };
    // A slice that another one replaces, and one that waits for its place, keep what workers have of the job.
    if env.is_elastic(&local) && is_between_slices(&local) {
        return Plan::default();
    }
    // Also where the check was rejected, or the job is gone.
    if json::is_true(&local, "Finished") || !json::is_true(&local, "QuotaReserved") {
        return Plan::apart(removals(copies(workers)));
    }
    let Some(row) = config::row(env.objects, &local).filter(|row| row["state"] != REJECTED) else {
        return Plan::default();
    };
    let (adapter, name) = match adapter::of_workload(&local, env.config, env.objects) {
        Ok(found) => found,
        Err(problem) => return Plan::manager(set_check(&local, row, REJECTED, &problem, env.now)),
    };
    let jobs = adapter.local_jobs(&key.namespace, name, env.objects);
    let Some(job) = jobs.first() else {
        // Its own controller finishes a workload without a job.
        return Plan::default();
    };
    if let Err(problem) = adapter.may_dispatch(job) {
        let problem = format!("The owner is not managed by Kueue: {problem}");
        return Plan::manager(set_check(&local, row, REJECTED, &problem, env.now));
    }
    let check = config::check(env.objects, json::text(row, &["name"]));
    let Some(Ok(clusters)) = check.map(|check| config::clusters(env.objects, &check)) else {
        // The check says what is wrong with it.
        return Plan::default();
    };
    let mut group = Group {
        key,
        local: &local,
        row,
        adapter,
        jobs,
        remotes: BTreeMap::new(),
        lost: BTreeMap::new(),
        elsewhere: BTreeMap::new(),
        lacking: BTreeSet::new(),
        env,
    };
    for (name, sight) in workers {
        match (sight, clusters.contains(name)) {
            (Sight::Connected(copy), true) => match copy.lacks.get(&group.adapter.kind) {
                None => drop(group.remotes.insert(name, copy.clone())),
                Some(lack) => {
                    group.lacking.insert(name);
                    let unserved = lack.why.is_empty();
                    if unserved {
                        group.elsewhere.insert(name, copy.clone());
                    }
                    // What can't be watched may be there. The cluster that runs the job has its time to serve the kind again.
                    if !unserved || group.cluster() == name {
                        group.lost.insert(name, lack.since);
                    }
                }
            },
            (Sight::Connected(copy), false) => drop(group.elsewhere.insert(name, copy.clone())),
            (Sight::Lost { since }, true) => drop(group.lost.insert(name, *since)),
            (Sight::Lost { .. }, false) => {}
        }
    }
    of_group(group, &clusters, memory)
}

fn copies(workers: &BTreeMap<String, Sight>) -> impl Iterator<Item = (&str, &Copy)> {
    workers.iter().filter_map(|(name, sight)| match sight {
        Sight::Connected(copy) => Some((name.as_str(), copy)),
        Sight::Lost { .. } => None,
    })
}

fn of_group(mut group: Group<'_>, clusters: &[String], memory: &Memory) -> Plan {
    if let Some(plan) = finished(&group) {
        return plan;
    }
    if let Some(plan) = evicted(&group) {
        return plan;
    }
    // The copy of an evicted workload is deactivated before it is evicted, too: it is no other copy for that.
    let mut apart = if group.has("Evicted") { BTreeMap::new() } else { out_of_sync(&mut group) };
    let mut plan = match group.first_with("Admitted").map(|(cluster, ..)| cluster) {
        Some(cluster) => admitted(&group, cluster),
        None if group.state() == READY => without_worker(&group, clusters),
        None => gated(&group, clusters, memory),
    };
    // What is removed comes before what is created in its place, which waits for the next look.
    for (cluster, writes) in std::mem::take(&mut plan.apart) {
        apart.entry(cluster).or_insert(writes);
    }
    plan.apart = apart;
    plan
}

/// A worker's copy has finished: so does the workload, with the job's status.
fn finished(group: &Group<'_>) -> Option<Plan> {
    let (cluster, _, condition) = group.first_with("Finished")?;
    let text = |key: &str| json::text(condition, &[key]);
    if text("reason") == "OutOfSync" && !group.is_elastic() {
        if group.state() != READY {
            return Some(Plan::default());
        }
        let message = format!(
            "Remote workload on worker cluster {cluster:?} is out of sync with its user job, resetting for re-dispatch"
        );
        return Some(retry(group, &message, true));
    }
    let mut first = group.mirror_jobs(cluster);
    // MultiKueue removes the copy of a finished workload, so it mirrors the job's final status first.
    if group.job_is_stale(cluster, text("reason")) {
        return Some(Plan { first, ..Plan::default() });
    }
    let finish = workload::finish(group.local, text("reason"), text("message"), group.env.now);
    first.extend(finish.into_iter().map(Step::Manager));
    Some(Plan { first, ..Plan::default() })
}

/// A worker's copy is evicted, or the workload is and no worker can be asked.
fn evicted(group: &Group<'_>) -> Option<Plan> {
    let Some(cluster) = group.evicts() else { return forgotten(group) };
    if group.has("Evicted") {
        return Some(Plan { first: group.mirror_jobs(cluster), ..Plan::default() });
    }
    if group.state() != READY {
        return None;
    }
    let message = format!(
        "Workload evicted on worker cluster: {:?}, resetting for re-admission. Previously: {:?}",
        group.cluster(),
        group.state()
    );
    let mut plan = Plan::manager(set_row(group.local, group.row, RETRY, &message, group.env.now));
    plan.first.push(Step::Manager(event(group.local, false, &message)));
    Some(plan)
}

/// An eviction without the job on a worker: the manager's counts as stopped. A worker that is lost may have it, and has its time to
/// come back; Kueue waits for it without end.
fn forgotten(group: &Group<'_>) -> Option<Plan> {
    if !group.has("Evicted") || group.has_remote_job() {
        return None;
    }
    if let Some(plan) = group.end_elsewhere() {
        return Some(plan);
    }
    let left = group.lost.values().map(|since| group.time_left(*since)).max().unwrap_or(Duration::ZERO);
    if left > Duration::ZERO {
        return Some(Plan::after(left));
    }
    let writes: Vec<Write> = group.jobs.iter().filter_map(|job| group.adapter.forget_pods(job)).collect();
    Some(Plan::manager(writes))
}

/// Brings copies in line whose spec is another one: their priority is changed, all else takes a new copy. Copies that are
/// removed are taken out of the group.
fn out_of_sync(group: &mut Group<'_>) -> BTreeMap<String, Vec<Write>> {
    let mut apart = BTreeMap::new();
    let mut removed: Vec<(&str, Copy)> = Vec::new();
    for (cluster, copy) in &group.remotes {
        let differs = |w: &&Value| !json::deleting(w) && !same_spec(group.local, w);
        let Some(remote) = copy.workload.as_deref().filter(differs) else { continue };
        let in_line = with_counts(group, remote).or_else(|| with_priority(group.local, remote));
        match in_line {
            Some(write) => drop(apart.insert((*cluster).to_owned(), vec![write])),
            None => removed.push((*cluster, copy.clone())),
        }
    }
    apart.extend(removals(removed.iter().map(|(cluster, copy)| (*cluster, copy))));
    for (cluster, _) in removed {
        group.remotes.insert(cluster, Copy::default());
    }
    apart
}

/// Preemption gates are each cluster's own (Kueue `isRemoteSpecOutOfSync`).
fn same_spec(local: &Value, remote: &Value) -> bool {
    let spec = |workload: &Value| {
        let mut spec = workload["spec"].clone();
        json::remove(&mut spec, &["preemptionGates"]);
        spec
    };
    spec(local) == spec(remote)
}

/// The write that takes a copy along when its elastic job has shrunk; `None`: that is not what differs.
fn with_counts(group: &Group<'_>, remote: &Value) -> Option<Write> {
    let counts = |wl: &Value| -> Vec<(Value, i64)> {
        let pod_sets = json::list(wl, &["spec", "podSets"]).iter();
        pod_sets.map(|p| (p["name"].clone(), p["count"].as_i64().unwrap_or(1))).collect()
    };
    let (wanted, has) = (counts(group.local), counts(remote));
    let shrunk = wanted.len() == has.len()
        && wanted != has
        && wanted.iter().zip(&has).all(|(new, old)| new.0 == old.0 && new.1 <= old.1);
    if !(group.is_elastic() && shrunk) {
        return None;
    }
    let mut new = remote.clone();
    new["spec"] = group.local["spec"].clone();
    // Each cluster has its own.
    match &remote["spec"]["preemptionGates"] {
        Value::Null => drop(json::remove(&mut new, &["spec", "preemptionGates"])),
        gates => json::set(&mut new, &["spec", "preemptionGates"], gates.clone()),
    }
    elastic::keep_all_charged(remote, &mut new);
    plan::patch(WORKLOADS, remote, &new)
}

/// The write that gives a copy the priority of the workload; `None`: more differs, a class of pods decides, or the copy has none of
/// workloads (Kueue `PriorityChanged`).
fn with_priority(local: &Value, remote: &Value) -> Option<Write> {
    let class = |w: &Value| json::text(w, &["spec", "priorityClassRef", "kind"]).to_owned();
    if class(local) == "PriorityClass" || class(remote) != "WorkloadPriorityClass" {
        return None;
    }
    let mut new = remote.clone();
    for key in ["priorityClassRef", "priority"] {
        match &local["spec"][key] {
            Value::Null => drop(json::remove(&mut new, &["spec", key])),
            value => json::set(&mut new, &["spec", key], value.clone()),
        }
    }
    same_spec(local, &new).then(|| plan::patch(WORKLOADS, remote, &new)).flatten()
}

/// A check that is ready without an admitted copy: its worker is lost, or the copy is. A cluster that the check does not name any
/// more is none of its workers, connected or not.
fn without_worker(group: &Group<'_>, clusters: &[String]) -> Plan {
    let cluster = group.cluster();
    if cluster.is_empty() {
        let message = "Admission check is Ready but no admitting cluster is recorded; this is unexpected, please report it";
        return retry(group, message, false);
    }
    if group.remotes.contains_key(cluster) || !clusters.iter().any(|name| name == cluster) {
        return retry(group, "Admitting remote no longer exists", false);
    }
    let left = group.time_left(group.lost.get(cluster).copied().unwrap_or(group.env.now));
    if left > Duration::ZERO { Plan::after(left) } else { retry(group, "Admitting remote lost", false) }
}

/// A worker has admitted its copy: the others lose theirs, and that worker gets the job.
fn admitted(group: &Group<'_>, cluster: &str) -> Plan {
    let apart = group.remove_all_but(Some(cluster));
    let evicted = json::condition(group.local, "Evicted").filter(|c| c["status"] == "True");
    if let Some(evicted) = evicted {
        let remote = group.remotes.get(cluster).and_then(|copy| copy.workload.as_deref());
        let message = format!("Evicted on manager: {}", json::text(evicted, &["message"]));
        let write = remote.and_then(|remote| deactivate(remote, &message, group.env.now));
        let first = write.map(|write| Step::Worker(cluster.to_owned(), write)).into_iter().collect();
        return Plan { first, apart, ..Plan::default() };
    }
    let mut first = group.sync_jobs(cluster);
    if let Some(write) = nominate_late(group, cluster) {
        first.push(Step::Manager(write));
        return Plan { first, apart, ..Plan::default() };
    }
    let ready = ready(group, cluster);
    let admitted_on = (!ready.is_empty() && group.state() != READY).then(|| cluster.to_owned());
    first.extend(ready.into_iter().map(Step::Manager));
    Plan { first, apart, admitted_on, ..Plan::default() }
}

/// The condition that stops a copy for good (Kueue `SetDeactivationTarget`).
fn deactivate(remote: &Value, message: &str, now: Time) -> Option<Write> {
    const REASON: &str = "EvictedOnManagerCluster";
    let conditions = set_status_condition(remote, "DeactivationTarget", true, REASON, message, now)?;
    Some(patch_status(WORKLOADS, remote, &json!({ "conditions": conditions })))
}

/// The write that nominates the cluster that admitted its copy, if it is not nominated any more: the manager has started since, or
/// it was lost for a while. The webhook lets a workload have no other.
fn nominate_late(group: &Group<'_>, cluster: &str) -> Option<Write> {
    let replaces = json::annotation(group.local, REPLACEMENT_FOR).is_some();
    let mut names = json::list(group.local, &["status", "nominatedClusterNames"]).to_vec();
    let may = group.cluster().is_empty() && !replaces && !matches!(group.state(), RETRY | REJECTED);
    if !may || names.iter().any(|name| *name == cluster) {
        return None;
    }
    names.push(json!(cluster));
    Some(patch_status(WORKLOADS, group.local, &json!({ "nominatedClusterNames": names })))
}

/// The check is ready, and the workload has its cluster (Kueue `syncAdmittingRemoteState`).
fn ready(group: &Group<'_>, cluster: &str) -> Vec<Write> {
    if matches!(group.state(), RETRY | REJECTED)
        || (!group.cluster().is_empty() && group.cluster() != cluster)
    {
        // A workload can't change its cluster. The copy of the other one is evicted with the workload.
        return Vec::new();
    }
    let message = format!("The workload was admitted on {cluster:?}");
    if group.state() == READY && group.cluster() == cluster && group.row["message"] == message.as_str() {
        return Vec::new();
    }
    let mut status = json!({
        "admissionChecks": rows(group.local, group.row, READY, &message, group.env.now),
        "clusterName": cluster,
    });
    if !group.local["status"]["nominatedClusterNames"].is_null() {
        status["nominatedClusterNames"] = Value::Null;
    }
    if let Some(admission) = with_places(group, cluster) {
        status["admission"] = admission;
    }
    vec![patch_status(WORKLOADS, group.local, &status), event(group.local, false, &message)]
}

/// The admission with the placement of podsets done that a worker's topology has placed (Kueue
/// `updateDelayedTopologyRequest`).
fn with_places(group: &Group<'_>, cluster: &str) -> Option<Value> {
    const ASSIGNMENTS: &str = "podSetAssignments";
    let remote = group.remotes.get(cluster)?.workload.as_deref()?;
    let mut admission = group.local["status"]["admission"].clone();
    let before = admission.clone();
    for placed in json::list(remote, &["status", "admission", ASSIGNMENTS]) {
        let own = admission[ASSIGNMENTS].as_array_mut().into_iter().flatten();
        let own = own.filter(|own| own["name"] == placed["name"] && placed["topologyAssignment"].is_object());
        for own in own.filter(|own| own["delayedTopologyRequest"] == PENDING) {
            own["delayedTopologyRequest"] = json!(READY);
        }
    }
    (admission != before).then_some(admission)
}

/// No copy is admitted: the next may preempt, and all clusters get theirs.
fn gated(group: &Group<'_>, clusters: &[String], memory: &Memory) -> Plan {
    let (opened, wait) = preemption::open(group);
    let mut plan = pending(group, clusters, memory);
    plan.first.extend(opened.map(|(cluster, write)| Step::Worker(cluster, write)));
    plan.requeue_after = plan.requeue_after.into_iter().chain(wait).min();
    plan
}

/// No copy is admitted: the dispatcher's clusters get one, the others lose theirs (Kueue
/// `nominateAndSynchronizeWorkers`).
fn pending(group: &Group<'_>, clusters: &[String], memory: &Memory) -> Plan {
    let chosen = !group.cluster().is_empty() && !group.is_elastic();
    if group.state() != PENDING || chosen || group.has("Evicted") {
        return Plan::default();
    }
    let others = json::list(group.local, &["status", "admissionChecks"]).iter();
    if others.filter(|row| row["name"] != group.row["name"]).any(|row| row["state"] != READY) {
        // Not before the last of the other checks, so that no worker reserves quota in vain.
        return Plan::default();
    }
    let nomination = match group.together() {
        Together::Waits => return Plan::default(),
        // A cluster that is lost comes back, or its workloads are evicted, and this one is first.
        Together::On(cluster) if !group.remotes.contains_key(cluster.as_str()) => return Plan::default(),
        Together::On(cluster) => {
            let nominated = json::list(group.local, &["status", "nominatedClusterNames"]);
            let write = !nominated.iter().any(|name| *name == cluster.as_str());
            Nomination { clusters: vec![cluster], write, ..Nomination::default() }
        }
        Together::First => nominate(group, clusters, memory),
    };
    let Nomination { clusters, write, ends_in, ends, ask } = nomination;
    let mut plan = Plan { requeue_after: ends_in, round: ends, ..Plan::default() };
    plan.ask = (!ask.is_empty()).then(|| Question { workload: clone_for_worker(group), clusters: ask });
    let mut status = json!({});
    if write {
        status["nominatedClusterNames"] = json!(clusters);
    }
    let message = lacking_message(group, &clusters);
    if let Some(message) = &message {
        status["admissionChecks"] = rows(group.local, group.row, PENDING, message, group.env.now).into();
    }
    if status != json!({}) {
        plan.first.push(Step::Manager(patch_status(WORKLOADS, group.local, &status)));
    }
    plan.first.extend(group.mirror_between_slices());
    let told = message.filter(|message| !message.is_empty());
    plan.first.extend(told.map(|message| Step::Manager(event(group.local, true, &message))));
    let nominated = |cluster: &&str| clusters.iter().any(|c| c == cluster);
    let rest = group.remotes.iter().filter(|(cluster, _)| !nominated(cluster)).chain(&group.elsewhere);
    plan.apart = removals(rest.map(|(cluster, copy)| (*cluster, copy)));
    let missing =
        group.remotes.iter().filter(|(cluster, copy)| nominated(cluster) && copy.workload.is_none());
    for (cluster, _) in missing {
        plan.apart.insert((*cluster).to_owned(), vec![Write::Create(WORKLOADS, clone_for_worker(group))]);
    }
    plan
}

/// The workload as a worker gets it (Kueue `cloneForCreate`).
fn clone_for_worker(group: &Group<'_>) -> Value {
    let mut metadata = json!({"name": group.key.name, "namespace": group.key.namespace});
    for key in ["labels", "annotations"] {
        if let Some(map) = json::map(group.local, &["metadata", key]) {
            metadata[key] = Value::Object(map.clone());
        }
    }
    // Its reclaimable pods are its own.
    json::remove(&mut metadata, &["annotations", CHARGED_PODS]);
    let mut copy = json!({
        "apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind,
        "metadata": metadata, "spec": group.local["spec"],
    });
    // Where the other groups of a job are, it competes with no other worker.
    if group.env.config.multikueue.orchestrates_preemption && group.together() == Together::First {
        preemption::close(&mut copy);
    }
    json::remove(&mut copy, &["metadata", "labels", crate::names::JOB_UID]);
    json::set(&mut copy, &["metadata", "labels", ORIGIN], group.env.config.multikueue.origin.as_str().into());
    copy
}

/// The check asks for another try.
fn retry(group: &Group<'_>, message: &str, warns: bool) -> Plan {
    let mut plan = Plan::manager(set_check(group.local, group.row, RETRY, message, group.env.now));
    if warns {
        plan.first.push(Step::Manager(event(group.local, true, &with_state(message, group.row))));
    }
    plan
}

/// Sets the state of the check, and says in its message what it was before (Kueue `updateACS`).
fn set_check(local: &Value, row: &Value, state: &str, message: &str, now: Time) -> Option<Write> {
    set_row(local, row, state, &with_state(message, row), now)
}

/// The message with the state that the check leaves.
fn with_state(message: &str, row: &Value) -> String {
    format!("{message}, Previously: {:?}", json::text(row, &["state"]))
}

fn set_row(local: &Value, row: &Value, state: &str, message: &str, now: Time) -> Option<Write> {
    if row["state"] == state {
        return None;
    }
    let rows = rows(local, row, state, message, now);
    Some(patch_status(WORKLOADS, local, &json!({ "admissionChecks": rows })))
}

/// `status.admissionChecks` with one of them changed (Kueue `SetAdmissionCheckState`).
fn rows(local: &Value, row: &Value, state: &str, message: &str, now: Time) -> Vec<Value> {
    let mut end = message.len().min(LONGEST);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let mut rows = json::list(local, &["status", "admissionChecks"]).to_vec();
    for own in rows.iter_mut().filter(|own| own["name"] == row["name"]) {
        if own["state"] != state {
            own["state"] = json!(state);
            own["lastTransitionTime"] = json!(timestamp::text(now));
        }
        own["message"] = json!(message.get(..end).unwrap_or_default());
    }
    rows
}

fn event(workload: &Value, warning: bool, message: &str) -> Write {
    let record = plan::record(WORKLOADS, workload, warning, "MultiKueue", message);
    Write::Event(Box::new(EventRecord { reporting_controller: plan::WORKLOAD_CONTROLLER.into(), ..record }))
}
