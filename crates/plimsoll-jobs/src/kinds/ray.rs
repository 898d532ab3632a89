//! Ray's kinds (Kueue `pkg/controller/jobs/{raycluster,rayjob,rayservice}`): a podset for the head, one for each group of
//! workers, and for RayJobs one for the Job that submits it.

use plimsoll_api::{Quantity, json};
use serde_json::{Value, json};

use super::{Inject, JobKind, PodTemplate};
use crate::custom_kind::CustomKind;
use crate::generic_job::Finished;
use crate::names;
use crate::podset::Ranks;
use crate::webhook::validation::ErrorList;

/// Name of the head's podset.
const HEAD: &str = "head";
/// Name of the podset of the Job that submits a RayJob, and of its container.
const SUBMITTER: (&str, &str) = ("submitter", "ray-job-submitter");
/// Annotation: the head recovers from its Redis.
const FAULT_TOLERANCE: &str = "ray.io/ft-enabled";
/// Most podsets of a Workload.
const MAX_POD_SETS: usize = 18;
/// What the Job that cleans Redis up requests (KubeRay `raycluster_controller.go`).
const REDIS_CLEANUP: [(&str, &str); 2] = [("cpu", "200m"), ("memory", "256Mi")];

/// RayClusters.
pub(crate) const RAY_CLUSTER: JobKind = JobKind {
    kind: CustomKind::RAY_CLUSTER,
    validating_webhook: "vraycluster.kb.io",
    suspend: &["spec", "suspend"],
    templates: |cluster| groups(cluster, &CLUSTER),
    groups: true,
    inject: Inject::Templates,
    is_active: |cluster| state(cluster, &["status", "state"]),
    // A cluster never ends by itself.
    finished: |_| None,
    pods_ready: |cluster| state(cluster, &["status", "state"]),
    reclaimable_pods: None,
    priority_class: |_| None,
    default: |_| (),
    adjust: |cluster, pod_sets| charge_head(cluster, &CLUSTER, pod_sets),
    skip: |_| false,
    on_hold: None,
    keeps_queue_name: true,
    validate: |cluster, errors| {
        validate_cluster(cluster, &CLUSTER, CLUSTER_AUTOSCALING, errors);
        true
    },
};

/// RayJobs.
pub(crate) const RAY_JOB: JobKind = JobKind {
    kind: CustomKind::RAY_JOB,
    validating_webhook: "vrayjob.kb.io",
    templates: job_templates,
    is_active: |job| !matches!(deployment_status(job), "" | "Suspended"),
    finished: job_finished,
    pods_ready: |job| state(job, &["status", "rayClusterStatus", "state"]),
    adjust: |job, pod_sets| {
        charge_head(job, &JOB, pod_sets);
        if submission_mode(job) == "SidecarMode" {
            push_container(pod_sets, json!({"name": SUBMITTER.1, "resources": submitter_resources()}));
        }
    },
    // A job in a cluster that is there already uses that one's quota.
    skip: selects_cluster,
    on_hold: Some(|job| deployment_status(job) == "ValidationFailed"),
    validate: validate_job,
    ..RAY_CLUSTER
};

/// RayServices.
pub(crate) const RAY_SERVICE: JobKind = JobKind {
    kind: CustomKind::RAY_SERVICE,
    validating_webhook: "vrayservice.kb.io",
    suspend: &["spec", "rayClusterConfig", "suspend"],
    templates: |service| groups(service, &SERVICE),
    is_active: |service| json::is_true(service, "Ready"),
    pods_ready: |service| json::is_true(service, "Ready"),
    adjust: |service, pod_sets| charge_head(service, &SERVICE, pod_sets),
    // The Job that cleans Redis up has to run before the Workload goes (Kueue's gate
    // DeferRayServiceFinalizationForRedisCleanup).
    skip: |service| json::deleting(service) && is_fault_tolerant(service, &SERVICE),
    validate: |service, errors| {
        validate_cluster(service, &SERVICE, AUTOSCALING, errors);
        true
    },
    ..RAY_CLUSTER
};

/// Where an object has the spec of its cluster, and the name of that in messages.
struct ClusterAt {
    path: &'static [&'static str],
    field: &'static str,
}

const CLUSTER: ClusterAt = ClusterAt { path: &["spec"], field: "spec" };
const JOB: ClusterAt = ClusterAt { path: &["spec", "rayClusterSpec"], field: "spec.rayClusterSpec" };
/// Kueue's messages name the field as those of a RayJob.
const SERVICE: ClusterAt = ClusterAt { path: &["spec", "rayClusterConfig"], field: "spec.rayClusterSpec" };

const CLUSTER_AUTOSCALING: &str = "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the \
    ElasticJobsViaWorkloadSlices feature gate and set the \"kueue.x-k8s.io/elastic-job\": \"true\" annotation";
const AUTOSCALING: &str = "a kueue managed job should only use autoscaling when workload slicing is enabled";

impl ClusterAt {
    fn spec<'a>(&self, object: &'a Value) -> &'a Value {
        json::at(object, self.path)
    }
}

fn state(object: &Value, path: &[&str]) -> bool {
    json::text(object, path) == "ready"
}

fn worker_groups(cluster: &Value) -> &[Value] {
    json::list(cluster, &["workerGroupSpecs"])
}

/// The head and each group of workers (Kueue `common.go`, `BuildPodSets`).
fn groups(object: &Value, at: &ClusterAt) -> Vec<PodTemplate> {
    let root = format!("/{}", at.path.join("/"));
    let row = |podset: String, count: i64, pointer: String, field: String| PodTemplate {
        podset,
        count,
        pointer: format!("{root}/{pointer}/template"),
        field: format!("{}.{field}.template", at.field),
        ranks: Ranks::default(),
        otherwise: None,
    };
    let head = row(HEAD.into(), 1, "headGroupSpec".into(), "headGroupSpec".into());
    let worker = |(i, group): (usize, &Value)| {
        let hosts = json::int(group, &["numOfHosts"]).unwrap_or(1).max(1);
        let count = json::int(group, &["replicas"]).unwrap_or(1).saturating_mul(hosts);
        let name = json::text(group, &["groupName"]).to_lowercase();
        row(name, count, format!("workerGroupSpecs/{i}"), format!("workerGroupSpecs[{i}]"))
    };
    let workers = worker_groups(at.spec(object)).iter().enumerate().map(worker);
    std::iter::once(head).chain(workers).collect()
}

fn is_fault_tolerant(object: &Value, at: &ClusterAt) -> bool {
    json::annotation(object, FAULT_TOLERANCE).is_some_and(|v| v.eq_ignore_ascii_case("true"))
        || !at.spec(object)["gcsFaultToleranceOptions"].is_null()
}

/// Adds to the head what KubeRay runs beside it or in its place and its template does not have.
fn charge_head(object: &Value, at: &ClusterAt, pod_sets: &mut [Value]) {
    let cluster = at.spec(object);
    if is_fault_tolerant(object, at)
        && let Some(container) = pod_sets.first_mut().and_then(|head| head.pointer_mut(FIRST_CONTAINER))
    {
        for (resource, least) in REDIS_CLEANUP {
            let path = ["resources", "requests", resource];
            if amount(json::at(container, &path)) < amount(&json!(least)) {
                json::set(container, &path, json!(least));
            }
        }
    }
    if json::flag(cluster, &["enableInTreeAutoscaling"]) {
        let own = &cluster["autoscalerOptions"]["resources"];
        let default = || {
            let each = json!({"cpu": "500m", "memory": "512Mi"});
            json!({"requests": each, "limits": each})
        };
        let resources = if own.is_object() { own.clone() } else { default() };
        push_container(pod_sets, json!({"name": "autoscaler", "resources": resources}));
    }
}

/// The container with Ray in the template of a podset.
const FIRST_CONTAINER: &str = "/template/spec/containers/0";

/// A quantity in thousandths; nothing where there is none.
fn amount(value: &Value) -> i64 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse::<Quantity>().map_or(0, Quantity::milli_value)
}

/// Adds a container to the head.
fn push_container(pod_sets: &mut [Value], container: Value) {
    let containers = pod_sets.first_mut().and_then(|head| head.pointer_mut("/template/spec/containers"));
    if let Some(Value::Array(containers)) = containers {
        containers.push(container);
    }
}

fn deployment_status(job: &Value) -> &str {
    json::text(job, &["status", "jobDeploymentStatus"])
}

fn submission_mode(job: &Value) -> &str {
    json::text(job, &["spec", "submissionMode"])
}

fn selects_cluster(job: &Value) -> bool {
    json::map(job, &["spec", "clusterSelector"]).is_some_and(|s| !s.is_empty())
}

/// What KubeRay gives the container that submits a RayJob (`job.go`, `GetDefaultSubmitterContainer`).
fn submitter_resources() -> Value {
    json!({"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}})
}

fn job_templates(job: &Value) -> Vec<PodTemplate> {
    let mut templates = groups(job, &JOB);
    if submission_mode(job) == "K8sJobMode" {
        let mut container = json!({"name": SUBMITTER.1, "resources": submitter_resources()});
        if let Some(image) = JOB.spec(job).pointer("/headGroupSpec/template/spec/containers/0/image") {
            json::set(&mut container, &["image"], image.clone());
        }
        templates.push(PodTemplate {
            podset: SUBMITTER.0.into(),
            count: 1,
            pointer: "/spec/submitterPodTemplate".into(),
            field: "spec.submitterPodTemplate".into(),
            ranks: Ranks::default(),
            otherwise: Some(json!({"spec": {"containers": [container], "restartPolicy": "Never"}})),
        });
    }
    templates
}

fn job_finished(job: &Value) -> Option<Finished> {
    matches!(deployment_status(job), "Failed" | "Complete").then(|| Finished {
        message: json::text(job, &["status", "message"]).to_owned(),
        success: json::text(job, &["status", "jobStatus"]) == "SUCCEEDED",
    })
}

/// Rules of clusters (Kueue `common.go`, `ValidateCreate`).
fn validate_cluster(object: &Value, at: &ClusterAt, autoscaling: &str, errors: &mut ErrorList) {
    let cluster = at.spec(object);
    let elastic = json::annotation(object, names::ELASTIC) == Some("true");
    if json::flag(cluster, &["enableInTreeAutoscaling"]) && !elastic {
        errors.invalid(&format!("{}.enableInTreeAutoscaling", at.field), true, autoscaling);
    }
    let groups = worker_groups(cluster);
    if groups.len() >= MAX_POD_SETS {
        errors.too_many(&format!("{}.workerGroupSpecs", at.field), groups.len() + 1, MAX_POD_SETS);
    }
    for (i, _) in groups.iter().enumerate().filter(|(_, group)| group["groupName"] == HEAD) {
        let path = format!("{}.workerGroupSpecs[{i}].groupName", at.field);
        errors.forbidden(&path, "\"head\" is reserved for the head group");
    }
}

/// Rules of RayJobs (Kueue `rayjob_webhook.go`, `validateCreate`); whether the rules of all jobs apply, too.
fn validate_job(job: &Value, errors: &mut ErrorList) -> bool {
    let cluster = !JOB.spec(job).is_null();
    match (selects_cluster(job), cluster) {
        (true, true) => {
            let selector = job["spec"]["clusterSelector"].clone();
            errors.invalid(
                "spec.clusterSelector",
                selector,
                "a kueue managed job should not use an existing cluster",
            );
            return false;
        }
        (true, false) => return false,
        (false, false) => {
            let detail = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector";
            errors.required("spec.rayClusterSpec", detail);
            return false;
        }
        (false, true) => {}
    }
    if !json::flag(job, &["spec", "shutdownAfterJobFinishes"]) {
        let detail = "a kueue managed job should delete the cluster after finishing";
        errors.invalid("spec.shutdownAfterJobFinishes", false, detail);
    }
    validate_cluster(job, &JOB, AUTOSCALING, errors);
    true
}
