//! `managedBy` of jobs that MultiKueue is to dispatch (Kueue `jobframework/defaults.go`, `ApplyDefaultForManagedBy`).

use plimsoll_api::json;
use plimsoll_api::resource::{self, Resource};
use serde_json::Value;

use super::config;
use crate::custom_kind::CustomKind;
use crate::names::MULTIKUEUE as CONTROLLER;
use crate::store::{Kind, ObjectStore};
use crate::{Env, names};

/// Path of `managedBy` of most kinds.
pub(super) const SPEC: &[&str] = &["spec", "managedBy"];
/// The same of Kubeflow's.
const RUN_POLICY: &[&str] = &["spec", "runPolicy", "managedBy"];

/// Where the objects of a built-in kind keep `managedBy`, and the name of the kind's own controller there; `None`: Kueue knows
/// no such field of this kind.
pub(super) fn managed_by(resource: Resource) -> Option<(&'static [&'static str], &'static str)> {
    Some(match resource {
        resource::JOBS => (SPEC, "kubernetes.io/job-controller"),
        resource::JOB_SETS => (SPEC, "jobset.sigs.k8s.io/jobset-controller"),
        resource::PYTORCH_JOBS
        | resource::TF_JOBS
        | resource::XGBOOST_JOBS
        | resource::PADDLE_JOBS
        | resource::JAX_JOBS => (RUN_POLICY, "kubeflow.org/training-operator"),
        resource::MPI_JOBS => (RUN_POLICY, "kubeflow.org/mpi-operator"),
        resource::RAY_CLUSTERS | resource::RAY_JOBS | resource::RAY_SERVICES => {
            (SPEC, "ray.io/kuberay-operator")
        }
        resource::APP_WRAPPERS => (SPEC, "workload.codeflare.dev/appwrapper-controller"),
        resource::TRAIN_JOBS => (SPEC, "trainer.kubeflow.org/trainjob-controller"),
        _ => return None,
    })
}

/// Whether a controller other than that of its kind runs this object of a kind that CustomResourceDefinitions add.
pub fn has_other_manager(custom: CustomKind, object: &Value) -> bool {
    managed_by(custom.preferred()).is_some_and(|(path, own)| {
        let manager = json::text(object, path);
        !manager.is_empty() && manager != own
    })
}

/// Sets `managedBy` where it has no value, or that of the kind's own controller, and the queue uses MultiKueue.
pub(crate) fn default_managed_by(resource: Resource, namespace: &str, job: &mut Value, env: Env<'_>) {
    let Some((path, own)) = managed_by(resource) else { return };
    let managed = json::at(job, path);
    if !(managed.is_null() || managed == own) || !queue_dispatches(namespace, job, env.objects) {
        return;
    }
    json::set(job, path, CONTROLLER.into());
}

/// Whether the ClusterQueue of a job has a check of MultiKueue.
fn queue_dispatches(namespace: &str, job: &Value, objects: &ObjectStore) -> bool {
    let queue = json::label(job, names::QUEUE);
    let Some(local) = objects.get(Kind::LocalQueue, namespace, queue) else { return false };
    let queue = json::text(&local, &["spec", "clusterQueue"]);
    let Some(cluster_queue) = objects.get(Kind::ClusterQueue, "", queue) else { return false };
    json::list(&cluster_queue, &["spec", "admissionChecksStrategy", "admissionChecks"])
        .iter()
        .any(|check| config::check(objects, json::text(check, &["name"])).is_some())
}
