//! JobSets, framework `jobset.x-k8s.io/jobset` (Kueue `pkg/controller/jobs/jobset`): a podset for each replicated job.

use plimsoll_api::json;
use serde_json::Value;

use super::{Inject, JobKind, PodTemplate, Updates};
use crate::custom_kind::CustomKind;
use crate::generic_job::{Finished, ReclaimablePod};
use crate::podset::Ranks;

/// Label: index of a pod in its Job.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Label: index of a Job in its replicated job.
const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";

/// The kind.
pub(crate) const JOB_SET: JobKind = JobKind {
    kind: CustomKind::JOB_SET,
    validating_webhook: "vjobset.kb.io",
    suspend: &["spec", "suspend"],
    templates,
    groups: true,
    inject: Inject::Templates,
    is_active,
    finished,
    pods_ready,
    reclaimable_pods: Some(reclaimable_pods),
    priority_class: |_| None,
    default: |_| (),
    adjust: |_, _| (),
    skip: |_| false,
    on_hold: None,
    updates: Updates::Whole,
    takes_prebuilt: true,
    validate: |_, _, _| true,
    elastic: None,
};

fn replicated_jobs(job_set: &Value) -> &[Value] {
    json::list(job_set, &["spec", "replicatedJobs"])
}

fn statuses(job_set: &Value) -> &[Value] {
    json::list(job_set, &["status", "replicatedJobsStatus"])
}

fn number(value: &Value, key: &str) -> i64 {
    json::int(value, &[key]).unwrap_or(0)
}

/// Number of Jobs of a replicated job.
fn replicas(replicated: &Value) -> i64 {
    json::int(replicated, &["replicas"]).unwrap_or(1)
}

/// Number of pods of each of its Jobs (Kueue `PodsCountPerReplica`).
fn pods_per_replica(replicated: &Value) -> i64 {
    let of = |key: &str| json::int(replicated, &["template", "spec", key]);
    let parallelism = of("parallelism").unwrap_or(1);
    of("completions").map_or(parallelism, |c| c.min(parallelism))
}

fn templates(job_set: &Value) -> Vec<PodTemplate> {
    let template = |(i, replicated): (usize, &Value)| PodTemplate {
        podset: json::text(replicated, &["name"]).to_lowercase(),
        count: replicas(replicated).saturating_mul(pods_per_replica(replicated)),
        pointer: format!("/spec/replicatedJobs/{i}/template/spec/template"),
        field: format!("spec.replicatedJobs[{i}].template.spec.template"),
        ranks: Ranks {
            index_label: Some(INDEX.into()),
            groups: Some((JOB_INDEX.into(), replicas(replicated))),
        },
        otherwise: None,
    };
    replicated_jobs(job_set).iter().enumerate().map(template).collect()
}

fn is_active(job_set: &Value) -> bool {
    statuses(job_set).iter().any(|status| number(status, "active") > 0)
}

fn finished(job_set: &Value) -> Option<Finished> {
    ["Completed", "Failed"].into_iter().find_map(|kind| {
        let end = json::condition(job_set, kind).filter(|c| c["status"] == "True")?;
        Some(Finished { message: json::text(end, &["message"]).to_owned(), success: kind == "Completed" })
    })
}

fn pods_ready(job_set: &Value) -> bool {
    let ready = |status: &Value| number(status, "ready").saturating_add(number(status, "succeeded"));
    let ready = statuses(job_set).iter().map(ready).fold(0, i64::saturating_add);
    replicated_jobs(job_set).iter().map(replicas).fold(0, i64::saturating_add) == ready
}

/// The pods of Jobs that have succeeded.
fn reclaimable_pods(job_set: &Value) -> Vec<ReclaimablePod> {
    let of = |replicated: &Value| {
        let name = json::text(replicated, &["name"]);
        let succeeded = number(statuses(job_set).iter().find(|s| s["name"] == name)?, "succeeded");
        (1..=replicas(replicated)).contains(&succeeded).then(|| ReclaimablePod {
            name: name.to_lowercase(),
            count: succeeded.saturating_mul(pods_per_replica(replicated)),
        })
    };
    replicated_jobs(job_set).iter().filter_map(of).collect()
}
