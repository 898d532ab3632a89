//! The jobs of Kubeflow's training operator, and MPIJobs: each replica type is a role.

use plimsoll_api::json;
use plimsoll_client::Resource;
use serde_json::{Map, Value, json};

use super::Operator;
use super::plan::{Role, State, Wanted};

macro_rules! kind {
    ($choice:literal, $version:literal, $plural:literal, $kind:literal, $roles:expr) => {
        Operator {
            choice: $choice,
            resource: Resource::builtin("kubeflow.org", $version, $plural, concat!("kubeflow.org/", $plural)),
            kind: $kind,
            short_names: &[],
            reads: None,
            defaults: &[],
            suspend: &["spec", "runPolicy", "suspend"],
            roles: $roles,
            status,
            ended: |job| ["Succeeded", "Failed"].iter().any(|kind| json::is_true(job, kind)),
        }
    };
}

/// PyTorchJobs.
pub(super) const PYTORCH_JOB: Operator =
    kind!("kubeflow", "v1", "pytorchjobs", "PyTorchJob", |job| roles(job, "pytorchReplicaSpecs"));
/// TFJobs.
pub(super) const TF_JOB: Operator =
    kind!("kubeflow", "v1", "tfjobs", "TFJob", |job| roles(job, "tfReplicaSpecs"));
/// XGBoostJobs.
pub(super) const XGBOOST_JOB: Operator =
    kind!("kubeflow", "v1", "xgboostjobs", "XGBoostJob", |job| roles(job, "xgbReplicaSpecs"));
/// PaddleJobs.
pub(super) const PADDLE_JOB: Operator =
    kind!("kubeflow", "v1", "paddlejobs", "PaddleJob", |job| roles(job, "paddleReplicaSpecs"));
/// JAXJobs.
pub(super) const JAX_JOB: Operator =
    kind!("kubeflow", "v1", "jaxjobs", "JAXJob", |job| roles(job, "jaxReplicaSpecs"));
/// MPIJobs.
pub(super) const MPI_JOB: Operator =
    kind!("mpi", "v2beta1", "mpijobs", "MPIJob", |job| roles(job, "mpiReplicaSpecs"));

/// Replica types whose end is that of the job, the first one that a job has.
const LEADERS: [&str; 3] = ["Chief", "Master", "Launcher"];

fn roles(job: &Value, field: &str) -> Vec<Role> {
    let name = json::name(job);
    let role = |(kind, replica): (&String, &Value)| {
        let lower = kind.to_lowercase();
        let pod = |index: i64| Wanted {
            name: format!("{name}-{lower}-{index}"),
            labels: vec![
                ("training.kubeflow.org/job-name", name.to_owned()),
                ("training.kubeflow.org/replica-type", lower.clone()),
                ("training.kubeflow.org/replica-index", index.to_string()),
            ],
            annotations: Vec::new(),
        };
        let policy = match json::text(replica, &["restartPolicy"]) {
            "" | "ExitCode" => "Never",
            policy => policy,
        };
        Role {
            name: kind.clone(),
            template: replica["template"].clone(),
            restart_policy: Some(policy.to_owned()),
            pods: (0..json::int(replica, &["replicas"]).unwrap_or(1)).map(pod).collect(),
        }
    };
    json::map(job, &["spec", field]).into_iter().flatten().map(role).collect()
}

fn status(state: &State<'_>) -> Value {
    let leader = LEADERS.iter().find_map(|l| state.roles.iter().find(|(role, _)| role == l));
    let total = state.total();
    let done = leader.map_or_else(|| total.is_done() && total.wanted > 0, |(_, counts)| counts.is_done());
    let failed = total.failed > 0;
    let done = done && !failed;
    let runs = !state.suspended && !done && !failed && total.active > 0;
    let kind = json::text(state.object, &["kind"]);
    let message =
        |what: &str| format!("{kind} {}/{} {what}.", json::namespace(state.object), json::name(state.object));
    let statuses: Map<String, Value> = state
        .roles
        .iter()
        .map(|(role, c)| {
            let active = if done || failed { 0 } else { c.active };
            ((*role).to_owned(), json!({"active": active, "succeeded": c.succeeded, "failed": c.failed}))
        })
        .collect();
    let conditions = state.conditions(&[
        ("Created", true, &format!("{kind}Created"), &message("is created")),
        ("Suspended", state.suspended, &format!("{kind}Suspended"), &message("is suspended")),
        ("Running", runs, &format!("{kind}Running"), &message("is running")),
        ("Succeeded", done, &format!("{kind}Succeeded"), &message("successfully completed")),
        ("Failed", failed, &format!("{kind}Failed"), &message("has failed")),
    ]);
    let mut status = json!({"conditions": conditions, "replicaStatuses": statuses});
    for (field, holds) in [("startTime", runs), ("completionTime", done)] {
        let time = state.once(field, holds);
        if !time.is_null() {
            status[field] = time;
        }
    }
    status
}
