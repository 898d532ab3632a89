//! The jobs of Kubeflow's training operator and MPIJobs (Kueue `pkg/controller/jobs/{kubeflow,mpijob}`): a podset for each
//! replica type that a job has.

use plimsoll_api::json;
use serde_json::{Value, json};

use super::{Inject, JobKind, PodTemplate, Updates};
use crate::custom_kind::CustomKind;
use crate::generic_job::Finished;
use crate::podset::Ranks;

/// Label: index of a pod in its replica type.
const INDEX: &str = "training.kubeflow.org/replica-index";
/// Annotation of a template: two podsets that are placed together.
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";
/// Annotation of a template: the first rank of a podset.
const INDEX_OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";

/// PyTorchJobs.
pub(crate) const PYTORCH_JOB: JobKind = kind(CustomKind::PYTORCH_JOB, "vpytorchjob.kb.io", |job| {
    replicas(job, "pytorchReplicaSpecs", &["Master", "Worker"])
});
/// TFJobs.
pub(crate) const TF_JOB: JobKind = kind(CustomKind::TF_JOB, "vtfjob.kb.io", |job| {
    replicas(job, "tfReplicaSpecs", &["Chief", "Master", "PS", "Worker", "Evaluator"])
});
/// XGBoostJobs.
pub(crate) const XGBOOST_JOB: JobKind = kind(CustomKind::XGBOOST_JOB, "vxgboostjob.kb.io", |job| {
    replicas(job, "xgbReplicaSpecs", &["Master", "Worker"])
});
/// PaddleJobs.
pub(crate) const PADDLE_JOB: JobKind = kind(CustomKind::PADDLE_JOB, "vpaddlejob.kb.io", |job| {
    replicas(job, "paddleReplicaSpecs", &["Master", "Worker"])
});
/// JAXJobs.
pub(crate) const JAX_JOB: JobKind =
    kind(CustomKind::JAX_JOB, "vjaxjob.kb.io", |job| replicas(job, "jaxReplicaSpecs", &["Worker"]));
/// MPIJobs.
pub(crate) const MPI_JOB: JobKind = JobKind {
    default: offset_workers,
    groups: true,
    updates: Updates::Whole,
    ..kind(CustomKind::MPI_JOB, "vmpijob.kb.io", |job| {
        replicas(job, "mpiReplicaSpecs", &["Launcher", "Worker"])
    })
};

/// All of them have the same run policy and status.
const fn kind(
    kind: CustomKind,
    validating_webhook: &'static str,
    templates: fn(&Value) -> Vec<PodTemplate>,
) -> JobKind {
    JobKind {
        kind,
        validating_webhook,
        suspend: &["spec", "runPolicy", "suspend"],
        templates,
        groups: false,
        inject: Inject::Templates,
        is_active,
        finished,
        pods_ready: |job| json::is_true(job, "Running"),
        reclaimable_pods: None,
        priority_class,
        default: |_| (),
        adjust: |_, _| (),
        skip: |_| false,
        on_hold: None,
        updates: Updates::Changes,
        takes_prebuilt: true,
        validate: |_, _, _| true,
        elastic: None,
    }
}

/// The templates of the replica types that a job has, in this order.
fn replicas(job: &Value, field: &str, types: &[&str]) -> Vec<PodTemplate> {
    let template = |kind: &&str| {
        let replica = job["spec"][field].get(*kind).filter(|r| r.is_object())?;
        Some(PodTemplate {
            podset: kind.to_lowercase(),
            count: json::int(replica, &["replicas"]).unwrap_or(1),
            pointer: format!("/spec/{field}/{kind}/template"),
            field: format!("spec.{field}[{kind}].template"),
            ranks: Ranks { index_label: Some(INDEX.into()), groups: None },
            otherwise: None,
        })
    };
    types.iter().filter_map(template).collect()
}

fn is_active(job: &Value) -> bool {
    let replicas = json::map(job, &["status", "replicaStatuses"]).into_iter().flatten();
    replicas.into_iter().any(|(_, status)| json::int(status, &["active"]).unwrap_or(0) != 0)
}

fn finished(job: &Value) -> Option<Finished> {
    let ends = |c: &&Value| c["status"] == "True" && (c["type"] == "Succeeded" || c["type"] == "Failed");
    let end = json::list(job, &["status", "conditions"]).iter().find(ends)?;
    Some(Finished { message: json::text(end, &["message"]).to_owned(), success: end["type"] != "Failed" })
}

/// The scheduling policy names it, else the templates do, in the order of the podsets.
fn priority_class(job: &Value) -> Option<&str> {
    let class = json::text(job, &["spec", "runPolicy", "schedulingPolicy", "priorityClass"]);
    (!class.is_empty()).then_some(class)
}

/// Where the launcher works, too, it has the first rank, unless the two podsets are a group (Kueue `mpijob_webhook.go`,
/// `Default`).
fn offset_workers(job: &mut Value) {
    let role = |kind: &str| job["spec"]["mpiReplicaSpecs"].get(kind).filter(|r| r.is_object());
    let (Some(launcher), Some(_)) = (role("Launcher"), role("Worker")) else { return };
    let grouped = json::annotation(&launcher["template"], GROUP).is_some();
    if json::flag(job, &["spec", "runLauncherAsWorker"]) && !grouped {
        let worker =
            ["spec", "mpiReplicaSpecs", "Worker", "template", "metadata", "annotations", INDEX_OFFSET];
        json::set(job, &worker, json!("1"));
    }
}
