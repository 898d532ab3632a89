//! Ray's kinds (Kueue `pkg/controller/jobs/{raycluster,rayjob,rayservice}`): a podset for the head, one for each group of
//! workers, and for RayJobs one for the Job that submits it.

use plimsoll_api::{Quantity, json};
use serde_json::{Value, json};

use super::{Elastic, Inject, JobKind, PodTemplate, Updates};
use crate::custom_kind::CustomKind;
use crate::generic_job::{Finished, ScalablePodSet};
use crate::key::Key;
use crate::names;
use crate::pod_view::has_gate;
use crate::podset::Ranks;
use crate::store::{Kind, ObjectStore};
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
    updates: Updates::WholeIfQueued,
    takes_prebuilt: true,
    validate: |cluster, elastic, errors| {
        if elastic {
            validate_elastic(cluster, errors);
        }
        validate_cluster(cluster, &CLUSTER, elastic, errors);
        true
    },
    elastic: Some(Elastic {
        gated: true,
        cluster: |_| "",
        follow: |_, _, _| true,
        scalable: |cluster| scalable(cluster, &CLUSTER),
    }),
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
    // KubeRay copies the annotation to the cluster, whose webhook adds the gate.
    elastic: Some(Elastic {
        gated: false,
        cluster: |job| json::text(job, &["status", "rayClusterName"]),
        follow: |job, cluster, pod_sets| follow(job, &JOB, cluster, pod_sets),
        scalable: |job| scalable(job, &JOB),
    }),
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
    validate: |service, elastic, errors| {
        validate_cluster(service, &SERVICE, elastic, errors);
        true
    },
    elastic: Some(Elastic {
        gated: true,
        cluster: |service| json::text(service, &["status", "activeServiceStatus", "rayClusterName"]),
        follow: |service, cluster, pod_sets| follow(service, &SERVICE, cluster, pod_sets),
        scalable: |service| scalable(service, &SERVICE),
    }),
    ..RAY_CLUSTER
};

/// Where an object has the spec of its cluster, and what messages say of it.
struct ClusterAt {
    path: &'static [&'static str],
    field: &'static str,
    /// Why it may have no autoscaler.
    autoscaling: &'static str,
}

const CLUSTER: ClusterAt = ClusterAt { path: &["spec"], field: "spec", autoscaling: CLUSTER_AUTOSCALING };
const JOB: ClusterAt =
    ClusterAt { path: &["spec", "rayClusterSpec"], field: "spec.rayClusterSpec", autoscaling: AUTOSCALING };
/// Kueue's messages name the field as those of a RayJob.
const SERVICE: ClusterAt =
    ClusterAt { path: &["spec", "rayClusterConfig"], field: "spec.rayClusterSpec", autoscaling: AUTOSCALING };

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

/// Pods of a group of workers (Kueue `effectiveWorkerCount`).
pub(crate) fn workers(group: &Value) -> i64 {
    let hosts = json::int(group, &["numOfHosts"]).unwrap_or(1).max(1);
    json::int(group, &["replicas"]).unwrap_or(1).saturating_mul(hosts)
}

/// Name of the podset of a group of workers.
fn podset_of(group: &Value) -> String {
    json::text(group, &["groupName"]).to_lowercase()
}

fn has_autoscaler(object: &Value, at: &ClusterAt) -> bool {
    json::flag(at.spec(object), &["enableInTreeAutoscaling"])
}

/// Sets the numbers of workers that the autoscaler of Ray asks for in the cluster of a job (Kueue `common.go`, `UpdatePodSets`);
/// whether the job has all groups of the cluster.
fn follow(object: &Value, at: &ClusterAt, cluster: &Value, pod_sets: &mut [Value]) -> bool {
    if !has_autoscaler(object, at) {
        return true;
    }
    worker_groups(CLUSTER.spec(cluster)).iter().all(|group| {
        let name = podset_of(group);
        let Some(podset) = pod_sets.iter_mut().find(|p| p["name"] == name.as_str()) else { return false };
        if !group["replicas"].is_null() {
            podset["count"] = json!(workers(group));
        }
        true
    })
}

/// The podsets of groups with a least number of workers, of one host each (Kueue KEP-12100): pods are let go one by one, and a
/// worker of several hosts needs all of its pods. The least number, where there may be more than that.
fn scalable(object: &Value, at: &ClusterAt) -> Vec<ScalablePodSet> {
    let single = |group: &&Value| json::int(group, &["numOfHosts"]).unwrap_or(1) <= 1;
    let row = |group: &Value| {
        let (least, most) = (group["minReplicas"].as_i64()?, group["maxReplicas"].as_i64());
        let least = Some(least).filter(|least| most.is_none_or(|most| *least < most));
        Some(ScalablePodSet { name: podset_of(group), least })
    };
    worker_groups(at.spec(object)).iter().filter(single).filter_map(row).collect()
}

/// Whether the groups of a RayCluster have as many pods as these podsets.
pub(crate) fn has_sizes_of(cluster: &Value, pod_sets: &[Value]) -> bool {
    let own = groups(cluster, &CLUSTER);
    let size =
        |t: &PodTemplate| pod_sets.iter().find(|p| p["name"] == t.podset.as_str()).map(|p| &p["count"]);
    own.len() == pod_sets.len() && own.iter().all(|t| size(t).is_some_and(|count| *count == t.count))
}

/// Gives the groups of workers of one RayCluster the sizes that those of another one have (Kueue `syncWorkerReplicas`). A size
/// that is not written is: defaults of the two clusters may differ.
pub(crate) fn resize(from: &Value, to: &mut Value) {
    let Some(Value::Array(groups)) = to.pointer_mut("/spec/workerGroupSpecs") else { return };
    for group in groups {
        let same = |other: &&Value| other["groupName"] == group["groupName"];
        let Some(other) = worker_groups(CLUSTER.spec(from)).iter().find(same) else { continue };
        if workers(other) == workers(group) {
            continue;
        }
        for field in ["replicas", "numOfHosts"] {
            let size = json::int(other, &[field]).unwrap_or(1);
            if json::int(group, &[field]).unwrap_or(1) != size {
                json::set(group, &[field], json!(size));
            }
        }
    }
}

/// Name of the RayCluster that runs a RayJob or RayService; `None`: it is neither.
pub(crate) fn cluster_name(kind: Kind, job: &Value) -> Option<&str> {
    let tables = [&RAY_JOB, &RAY_SERVICE];
    let table = tables.into_iter().find(|table| Kind::Custom(table.kind) == kind)?;
    Some((table.elastic?.cluster)(job))
}

/// What a job that runs on a worker cluster has recorded of its RayCluster there ([`names::RAY_CLUSTER_SIZES`]): its name, its
/// generation, and the pods of groups of workers.
pub(crate) fn recorded_sizes(job: &Value) -> Option<(&str, i64, &str)> {
    let (name, rest) = json::annotation(job, names::RAY_CLUSTER_SIZES)?.split_once('/')?;
    let (generation, sizes) = rest.split_once('/')?;
    Some((name, generation.parse().ok()?, sizes))
}

/// That RayCluster, as far as it is recorded; `None`: the job runs here, or nowhere any more.
pub(crate) fn recorded_cluster(kind: Kind, job: &Value) -> Option<Value> {
    let (name, generation, sizes) = recorded_sizes(job)?;
    let runs = cluster_name(kind, job).is_some_and(|now| !now.is_empty() && now == name);
    if !runs || json::text(job, &["spec", "managedBy"]) != names::MULTIKUEUE {
        return None;
    }
    let size = |row: &str| {
        let (group, pods) = row.rsplit_once('=')?;
        let pods = pods.parse::<i64>().ok().filter(|pods| *pods >= 0)?;
        Some(json!({"groupName": group, "replicas": pods}))
    };
    let groups: Vec<Value> = sizes.split(',').filter_map(size).collect();
    let metadata = json!({"name": name, "generation": generation});
    Some(json!({"metadata": metadata, "spec": {"workerGroupSpecs": groups}}))
}

/// Whether Ray's autoscaler may change the cluster of a RayJob or RayService.
pub(crate) fn is_autoscaled(kind: Kind, job: &Value) -> bool {
    let tables = [(&RAY_JOB, &JOB), (&RAY_SERVICE, &SERVICE)];
    tables.into_iter().any(|(table, at)| Kind::Custom(table.kind) == kind && has_autoscaler(job, at))
}

/// The key of the RayJob or RayService that owns this object, if that is a RayCluster.
pub(crate) fn of_cluster(kind: CustomKind, object: &Value) -> Option<Key> {
    let owner = json::controller(object).filter(|_| kind == CustomKind::RAY_CLUSTER)?;
    key_of(owner, json::namespace(object))
}

/// The owner reference of the RayCluster that an owner reference names, if it names one.
pub(crate) fn above(owner: &Value, namespace: &str, objects: &ObjectStore) -> Option<Value> {
    let cluster = CustomKind::RAY_CLUSTER;
    if !cluster.has_kind(json::text(owner, &["apiVersion"]), json::text(owner, &["kind"])) {
        return None;
    }
    let object = objects.get(Kind::Custom(cluster), namespace, json::text(owner, &["name"]))?;
    json::controller(&object).cloned()
}

/// The key of the object of Ray that an owner reference names.
pub(crate) fn key_of(owner: &Value, namespace: &str) -> Option<Key> {
    let (api_version, kind) = (json::text(owner, &["apiVersion"]), json::text(owner, &["kind"]));
    let mut kinds = [CustomKind::RAY_CLUSTER, CustomKind::RAY_JOB, CustomKind::RAY_SERVICE].into_iter();
    let kind = kinds.find(|custom| custom.has_kind(api_version, kind))?;
    Some(Key::job(kind.framework(), namespace, json::text(owner, &["name"])))
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
        row(
            podset_of(group),
            workers(group),
            format!("workerGroupSpecs/{i}"),
            format!("workerGroupSpecs[{i}]"),
        )
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
    if has_autoscaler(object, at) {
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
fn validate_cluster(object: &Value, at: &ClusterAt, elastic: bool, errors: &mut ErrorList) {
    let cluster = at.spec(object);
    if has_autoscaler(object, at) && !elastic {
        errors.invalid(&format!("{}.enableInTreeAutoscaling", at.field), true, at.autoscaling);
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

/// Rules of elastic RayClusters (Kueue `raycluster_webhook.go`, `validateElasticJob`).
fn validate_elastic(cluster: &Value, errors: &mut ErrorList) {
    let rows = groups(cluster, &CLUSTER);
    // Kueue looks at the workers first.
    for row in rows.iter().skip(1).chain(rows.first()) {
        let template = cluster.pointer(&row.pointer).unwrap_or(&Value::Null);
        if !has_gate(template, names::ELASTIC_GATE) {
            let gates = template.pointer("/spec/schedulingGates").cloned().unwrap_or_default();
            let detail = "an elastic job must have the ElasticJobSchedulingGate";
            errors.invalid(&format!("{}.spec.schedulingGates", row.field), gates, detail);
        }
    }
    if has_autoscaler(cluster, &CLUSTER) && cluster["spec"]["managedBy"] == names::MULTIKUEUE {
        let detail = "in-tree autoscaling is not supported for a MultiKueue-managed elastic RayCluster";
        errors.forbidden("spec.enableInTreeAutoscaling", detail);
    }
}

/// Rules of RayJobs (Kueue `rayjob_webhook.go`, `validateCreate`); whether the rules of all jobs apply, too.
fn validate_job(job: &Value, elastic: bool, errors: &mut ErrorList) -> bool {
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
    validate_cluster(job, &JOB, elastic, errors);
    true
}
