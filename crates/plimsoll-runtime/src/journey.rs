//! The way of an admission from the job to its bound pods, as steps with a begin and an end, for an exporter of traces
//! (target [`TARGET`], level trace). All steps of one workload carry its UID. Without an exporter nothing is computed.

use std::sync::Arc;

use plimsoll_api::json;
use plimsoll_queueing::WorkloadUpdate;
use plimsoll_scheduler::{Event as SchedulerEvent, PodRef};
use plimsoll_state::Time;
use serde_json::Value;
use tracing::Level;

use crate::cache::{Cache, Kind};
use crate::clock;

/// Target of the steps.
pub const TARGET: &str = "plimsoll::journey";

/// Whether an exporter is there.
fn wanted() -> bool {
    tracing::enabled!(target: TARGET, Level::TRACE)
}

/// Now, if an exporter is there.
pub fn begin() -> Option<Time> {
    wanted().then(clock::now)
}

/// A step of a workload: its name, when it began (Unix time in nanoseconds; it ends now), and what it was about.
fn step(workload: &Value, name: &'static str, from: Time, about: &str) {
    let key = format!("{}/{}", json::namespace(workload), json::name(workload));
    step_of(json::uid(workload), &key, name, from, about);
}

fn step_of(uid: &str, key: &str, name: &'static str, from: Time, about: &str) {
    let end = clock::now().0;
    tracing::trace!(target: TARGET, uid, workload = key, step = name, from = from.0.min(end), end, about);
}

/// A workload has been made for a job: the first step, from the job's creation. `writing`: when the write began.
pub fn created(workload: &Value, cache: &Cache, writing: Option<Time>) {
    let Some(writing) = writing else { return };
    let owner = json::controller(workload).map_or("", |o| json::text(o, &["name"]));
    let job = cache.get(Kind::Job, json::namespace(workload), owner);
    let seen = job.and_then(|j| clock::parse(json::text(&j, &["metadata", "creationTimestamp"])));
    step(workload, "job seen", seen.unwrap_or(writing).min(writing), owner);
    step(workload, "create workload", writing, owner);
}

/// The status of a workload has been written: a new admission's decision and write are steps.
pub fn written(update: &WorkloadUpdate, object: &Value, writing: Option<Time>) {
    let (Some(writing), Some(Some(admission))) = (writing, &update.admission) else { return };
    let created = clock::parse(json::text(object, &["metadata", "creationTimestamp"])).unwrap_or(writing);
    let requeued = json::condition(object, "Requeued").filter(|c| c["status"] == "True");
    let requeued = requeued.and_then(|c| clock::parse(json::text(c, &["lastTransitionTime"])));
    let key = update.key.to_string();
    let queued = requeued.unwrap_or(created).min(writing);
    let end = writing.0;
    let about = admission.cluster_queue.as_str();
    tracing::trace!(
        target: TARGET, uid = update.uid, workload = key, step = "wait for admission", from = queued.0, end, about
    );
    step_of(&update.uid, &key, "write admission", writing, about);
}

fn owned_by(cache: &Cache, uid: &str) -> Vec<Arc<Value>> {
    cache.objects(|objects| objects.owned_by(uid).collect())
}

/// A job has been started: from when its workload was admitted.
pub fn started(job_uid: &str, job: &str, cache: &Cache) {
    if !wanted() {
        return;
    }
    for workload in owned_by(cache, job_uid) {
        let admitted = json::condition(&workload, "Admitted").filter(|c| c["status"] == "True");
        let admitted = admitted.and_then(|c| clock::parse(json::text(c, &["lastTransitionTime"])));
        if let Some(admitted) = admitted {
            step(&workload, "start job", admitted, job);
        }
    }
}

/// A pod has been bound: from its creation. Pods without a workload are left out.
pub fn bound(pod: &PodRef, node: &str, answer: &SchedulerEvent, cache: &Cache) {
    if !wanted() || !matches!(answer, SchedulerEvent::Bound(_)) {
        return;
    }
    let Some(object) = cache.get(Kind::Pod, &pod.namespace, &pod.name) else { return };
    let owner = json::controller(&object).map_or(pod.uid.as_str(), |o| json::text(o, &["uid"]));
    let created = clock::parse(json::text(&object, &["metadata", "creationTimestamp"]));
    for workload in owned_by(cache, owner) {
        let about = format!("{}/{} to {node}", pod.namespace, pod.name);
        step(&workload, "bind pod", created.unwrap_or_else(clock::now), &about);
    }
}
