//! What users read from the objects that they have.

use std::sync::Arc;

use serde_json::Value;

use crate::api::{Kind, is_true, list, name_of, text};
use crate::network::Network;
use crate::scenario::extensions::is_elastic;
use crate::scenario::objects;

/// To how many pods a Job is asked to shrink, if it is.
pub(super) fn job_asked_to_shrink(job: &str, network: &Network) -> Option<i64> {
    let mine = |w: &&Arc<Value>| owning_job(w) == Some(job) && !is_true(w, "Finished");
    network.api.all(Kind::Workload).filter(mine).filter_map(|w| asked_to_shrink(w)).min()
}

/// The name of the Job that owns a Workload.
pub(super) fn owning_job(workload: &Value) -> Option<&str> {
    let owners = list(workload, &["metadata", "ownerReferences"]).iter();
    owners.filter(|o| o["kind"] == "Job").map(|o| text(o, &["name"])).next()
}

/// To how many pods a Workload of one podset is asked to shrink, if it has more.
pub(super) fn asked_to_shrink(workload: &Value) -> Option<i64> {
    let assigned = list(workload, &["status", "admission", "podSetAssignments"]).first()?;
    let target = assigned["reclaimTargetCount"].as_i64()?;
    let count = list(workload, &["spec", "podSets"]).first()?["count"].as_i64()?;
    (target < count).then_some(target)
}

/// Requests in CPUs of a pod of this template.
pub fn pod_size(template: &Value) -> i64 {
    let containers = list(template, &["spec", "containers"]);
    containers.iter().map(|c| text(c, &["resources", "requests", "cpu"]).parse().unwrap_or(0)).sum()
}

/// Requests in CPUs of a Job with all its pods.
pub fn job_size(job: &Value) -> i64 {
    let pods = if is_elastic(job) { &job["spec"]["parallelism"] } else { &job["spec"]["completions"] };
    pods.as_i64().unwrap_or(1) * pod_size(&job["spec"]["template"])
}

/// Requests in CPUs of a workload with all its pods.
pub fn size(workload: &Value) -> i64 {
    let podset = |p: &Value| p["count"].as_i64().unwrap_or(1) * pod_size(&p["template"]);
    list(workload, &["spec", "podSets"]).iter().map(podset).sum()
}

/// The workload of a job, whatever its form.
pub fn workload_of(name: &str, network: &Network) -> Option<Arc<Value>> {
    let owns = |w: &&Arc<Value>| {
        let owners = list(w, &["metadata", "ownerReferences"]);
        let is_of = |owner: &str| owner == name || owner.starts_with(&objects::pod_prefix(name));
        if owners.is_empty() {
            name_of(w).1 == name
        } else {
            owners.iter().any(|o| is_of(text(o, &["name"])))
        }
    };
    network.api.all(Kind::Workload).find(owns).cloned()
}

/// Whether no object of the cluster owns it.
pub fn is_own(workload: &Value) -> bool {
    list(workload, &["metadata", "ownerReferences"]).is_empty()
}

pub fn reserved(workload: &Value) -> bool {
    workload["status"]["admission"].is_object() || is_true(workload, "QuotaReserved")
}

/// Whether the check's controller has something to say.
pub fn asks(workload: &Value) -> bool {
    let pending = list(workload, &["status", "admissionChecks"]).iter().any(|c| c["state"] == "Pending");
    pending && workload["status"]["admission"].is_object() && !is_true(workload, "Evicted")
}
