//! JobSets (jobset.sigs.k8s.io): each Job of a replicated job is a role, and its pods are made without it.

use plimsoll_api::json;
use plimsoll_client::Resource;
use serde_json::{Value, json};

use super::Operator;
use super::plan::{Role, State, Wanted};

/// JobSets.
pub(super) const JOB_SET: Operator = Operator {
    choice: "jobset",
    resource: Resource::builtin("jobset.x-k8s.io", "v1alpha2", "jobsets", "jobset.x-k8s.io/jobsets"),
    kind: "JobSet",
    short_names: &[],
    reads: None,
    defaults: &[],
    suspend: &["spec", "suspend"],
    roles,
    status,
    ended: |job_set| ["Completed", "Failed"].iter().any(|kind| json::is_true(job_set, kind)),
};

fn replicated(job_set: &Value) -> &[Value] {
    json::list(job_set, &["spec", "replicatedJobs"])
}

fn replicas(replicated: &Value) -> i64 {
    json::int(replicated, &["replicas"]).unwrap_or(1)
}

pub(super) fn roles(job_set: &Value) -> Vec<Role> {
    let set = json::name(job_set);
    let mut roles = Vec::new();
    for one in replicated(job_set) {
        let name = json::text(one, &["name"]);
        let spec = &one["template"]["spec"];
        let parallelism = json::int(spec, &["parallelism"]).unwrap_or(1);
        let pods = json::int(spec, &["completions"]).map_or(parallelism, |c| c.min(parallelism));
        // As JobSet's own webhook has it.
        let policy = match json::text(&spec["template"], &["spec", "restartPolicy"]) {
            "" => "OnFailure",
            policy => policy,
        };
        for job in 0..replicas(one) {
            let pod = |index: i64| Wanted {
                name: format!("{set}-{name}-{job}-{index}"),
                labels: vec![
                    ("jobset.sigs.k8s.io/jobset-name", set.to_owned()),
                    ("jobset.sigs.k8s.io/replicatedjob-name", name.to_owned()),
                    ("jobset.sigs.k8s.io/job-index", job.to_string()),
                    ("batch.kubernetes.io/job-completion-index", index.to_string()),
                ],
                annotations: Vec::new(),
            };
            roles.push(Role {
                name: name.to_owned(),
                template: spec["template"].clone(),
                restart_policy: Some(policy.to_owned()),
                pods: (0..pods).map(pod).collect(),
            });
        }
    }
    roles
}

/// A row for each replicated job of a JobSet.
pub(super) fn replicated_jobs_status(state: &State<'_>, job_set: &Value) -> Vec<Value> {
    let jobs = |name: &str| {
        let of: Vec<_> = state.roles.iter().filter(|(role, _)| *role == name).map(|(_, c)| *c).collect();
        let count = |is: fn(&super::plan::Counts) -> bool| of.iter().filter(|c| is(c)).count();
        json!({"name": name,
            "ready": count(|c| c.is_ready() && !c.is_done()),
            "succeeded": count(|c| c.is_done()),
            "failed": count(|c| c.failed > 0),
            "active": count(|c| c.active > 0),
            "suspended": if state.suspended { of.len() } else { 0 }})
    };
    replicated(job_set).iter().map(|r| jobs(json::text(r, &["name"]))).collect()
}

/// The conditions of a JobSet and of what is made of one: why and with which message it is suspended, and the type that says that it
/// is complete.
pub(super) fn conditions(state: &State<'_>, suspended: (&str, &str), complete: &str) -> Value {
    let total = state.total();
    let done = total.is_done() && total.wanted > 0;
    state.conditions(&[
        ("Suspended", state.suspended, suspended.0, suspended.1),
        (complete, done, "AllJobsCompleted", "jobset completed successfully"),
        ("Failed", total.failed > 0, "FailedJobs", "jobset failed due to one or more job failures"),
    ])
}

fn status(state: &State<'_>) -> Value {
    json!({"replicatedJobsStatus": replicated_jobs_status(state, state.object),
        "conditions": conditions(state, ("SuspendedJobs", "jobset is suspended"), "Completed")})
}
