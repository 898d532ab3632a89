//! Kubeflow's TrainJobs (trainer v2): the pods of the JobSet that the trainer makes of a job and its runtime, made without it.

use plimsoll_api::json;
use plimsoll_client::Resource;
use plimsoll_jobs::train_job_set;
use serde_json::{Value, json};

use super::job_set::{conditions, replicated_jobs_status, roles};
use super::plan::State;
use super::{Operator, Reads};

const GROUP: &str = "trainer.kubeflow.org";
/// Where the JobSet of a job is while its pods are planned.
const JOB_SET: &str = "jobSet";

/// The runtimes of a cluster and of a namespace.
const RUNTIMES: &[(Resource, &str, bool)] = &[
    (
        Resource::builtin(
            GROUP,
            "v1alpha1",
            "clustertrainingruntimes",
            "trainer.kubeflow.org/clustertrainingruntimes",
        ),
        "ClusterTrainingRuntime",
        false,
    ),
    (
        Resource::builtin(GROUP, "v1alpha1", "trainingruntimes", "trainer.kubeflow.org/trainingruntimes"),
        "TrainingRuntime",
        true,
    ),
];

/// TrainJobs.
pub(super) const TRAIN_JOB: Operator = Operator {
    choice: "trainer",
    resource: Resource::builtin(GROUP, "v1alpha1", "trainjobs", "trainer.kubeflow.org/trainjobs"),
    kind: "TrainJob",
    short_names: &[],
    reads: Some(Reads {
        kinds: RUNTIMES,
        of: |job| {
            let of_namespace = json::text(job, &["spec", "runtimeRef", "kind"]) == "TrainingRuntime";
            (usize::from(of_namespace), json::text(job, &["spec", "runtimeRef", "name"]))
        },
        completed: |job, runtime| {
            let mut whole = job.clone();
            whole[JOB_SET] = train_job_set(job, &runtime["spec"]);
            whole
        },
    }),
    defaults: &[],
    suspend: &["spec", "suspend"],
    roles: |job| roles(&job[JOB_SET]),
    status,
    ended: |job| ["Complete", "Failed"].iter().any(|kind| json::is_true(job, kind)),
};

fn status(state: &State<'_>) -> Value {
    json!({"jobsStatus": replicated_jobs_status(state, &state.object[JOB_SET]),
        "conditions": conditions(state, ("Suspended", "TrainJob is suspended"), "Complete")})
}
