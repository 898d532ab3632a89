//! Ray's clusters, jobs and services (KubeRay): the head and each group of workers are roles, and so is the pod that submits a
//! RayJob.

use plimsoll_api::json;
use plimsoll_client::Resource;
use serde_json::{Value, json};

use super::Operator;
use super::plan::{Counts, Role, State, Wanted};

/// RayClusters.
pub(super) const RAY_CLUSTER: Operator = Operator {
    choice: "ray",
    resource: Resource::builtin("ray.io", "v1", "rayclusters", "ray.io/rayclusters"),
    kind: "RayCluster",
    short_names: &[],
    reads: None,
    defaults: &[],
    suspend: &["spec", "suspend"],
    roles: |cluster| roles(cluster, &cluster["spec"]),
    status: cluster_status,
    ended: |_| false,
};

/// RayJobs.
pub(super) const RAY_JOB: Operator = Operator {
    choice: "ray",
    resource: Resource::builtin("ray.io", "v1", "rayjobs", "ray.io/rayjobs"),
    kind: "RayJob",
    short_names: &[],
    reads: None,
    defaults: &[("submissionMode", "K8sJobMode")],
    suspend: &["spec", "suspend"],
    roles: job_roles,
    status: job_status,
    ended: |job| matches!(json::text(job, &["status", "jobDeploymentStatus"]), "Complete" | "Failed"),
};

/// RayServices.
pub(super) const RAY_SERVICE: Operator = Operator {
    choice: "ray",
    resource: Resource::builtin("ray.io", "v1", "rayservices", "ray.io/rayservices"),
    kind: "RayService",
    short_names: &[],
    reads: None,
    defaults: &[],
    suspend: &["spec", "rayClusterConfig", "suspend"],
    roles: |service| roles(service, &service["spec"]["rayClusterConfig"]),
    status: service_status,
    ended: |_| false,
};

const HEAD: &str = "head";
const SUBMITTER: &str = "submitter";

fn roles(object: &Value, cluster: &Value) -> Vec<Role> {
    let name = json::name(object);
    let labels = |kind: &str, group: &str| {
        vec![
            ("ray.io/cluster", name.to_owned()),
            ("ray.io/node-type", kind.to_owned()),
            ("ray.io/group", group.to_owned()),
        ]
    };
    let head =
        Wanted { name: format!("{name}-head"), labels: labels("head", "headgroup"), ..Wanted::default() };
    let head = Role {
        name: HEAD.to_owned(),
        template: cluster["headGroupSpec"]["template"].clone(),
        pods: vec![head],
        ..Role::default()
    };
    let workers = json::list(cluster, &["workerGroupSpecs"]).iter().map(|group| {
        let of = json::text(group, &["groupName"]);
        let number = |key: &str| json::int(group, &[key]).unwrap_or(1);
        let pod = |index: i64| Wanted {
            name: format!("{name}-{of}-worker-{index}"),
            labels: labels("worker", of),
            ..Wanted::default()
        };
        let count = number("replicas").saturating_mul(number("numOfHosts").max(1));
        Role {
            name: of.to_owned(),
            template: group["template"].clone(),
            pods: (0..count).map(pod).collect(),
            ..Role::default()
        }
    });
    std::iter::once(head).chain(workers).collect()
}

/// With the pod that submits the job, which runs its entrypoint here.
fn job_roles(job: &Value) -> Vec<Role> {
    let cluster = &job["spec"]["rayClusterSpec"];
    let mut roles = roles(job, cluster);
    if !matches!(json::text(job, &["spec", "submissionMode"]), "" | "K8sJobMode") {
        return roles;
    }
    let image = cluster.pointer("/headGroupSpec/template/spec/containers/0/image");
    let mut template = job["spec"].get("submitterPodTemplate").cloned().unwrap_or_else(|| {
        json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "ray-job-submitter", "image": image}]}})
    });
    let entrypoint = json::text(job, &["spec", "entrypoint"]).to_owned();
    if let Some(container) = template.pointer_mut("/spec/containers/0")
        && container["command"].is_null()
    {
        container["command"] = json!(["sh", "-c", entrypoint]);
    }
    let pod = Wanted { name: format!("{}-submitter", json::name(job)), ..Wanted::default() };
    roles.push(Role {
        name: SUBMITTER.to_owned(),
        template,
        restart_policy: Some("Never".to_owned()),
        pods: vec![pod],
    });
    roles
}

/// The pods of the cluster.
fn cluster(state: &State<'_>) -> (Counts, Counts) {
    let of = |is_head: bool| {
        state.roles.iter().filter(|(role, _)| *role != SUBMITTER && (*role == HEAD) == is_head).fold(
            Counts::default(),
            |sum, (_, c)| Counts {
                wanted: sum.wanted + c.wanted,
                active: sum.active + c.active,
                ready: sum.ready + c.ready,
                succeeded: sum.succeeded + c.succeeded,
                failed: sum.failed + c.failed,
            },
        )
    };
    (of(true), of(false))
}

fn cluster_state(state: &State<'_>) -> Value {
    let (head, workers) = cluster(state);
    let named = if state.suspended {
        "suspended"
    } else if head.is_ready() && workers.is_ready() {
        "ready"
    } else {
        ""
    };
    json!({"state": named, "desiredWorkerReplicas": workers.wanted, "readyWorkerReplicas": workers.ready,
        "availableWorkerReplicas": workers.active})
}

fn cluster_status(state: &State<'_>) -> Value {
    let mut status = cluster_state(state);
    let ready = status["state"] == "ready";
    status["conditions"] = state.conditions(&[
        ("Provisioned", ready, "AllPodRunningAndReadyFirstTime", "All Ray Pods are ready for the first time"),
        ("RayClusterSuspended", state.suspended, "RayClusterSuspended", ""),
    ]);
    status
}

fn job_status(state: &State<'_>) -> Value {
    let submitter = state.roles.iter().find(|(role, _)| *role == SUBMITTER).map(|(_, c)| *c);
    let ray_cluster = cluster_state(state);
    let ready = ray_cluster["state"] == "ready";
    let (deployment, job, message) = match submitter {
        _ if state.suspended => ("Suspended", "", ""),
        Some(c) if c.is_done() => ("Complete", "SUCCEEDED", "Job finished successfully."),
        Some(c) if c.failed > 0 => ("Failed", "FAILED", "Job failed."),
        // Nothing here says how long a job runs that is submitted over HTTP.
        None if ready => ("Complete", "SUCCEEDED", "Job finished successfully."),
        _ if ready => ("Running", "RUNNING", ""),
        _ => ("Initializing", "", ""),
    };
    let mut status = json!({"jobDeploymentStatus": deployment, "jobStatus": job, "message": message,
        "rayClusterName": json::name(state.object), "rayClusterStatus": ray_cluster});
    for (field, holds) in
        [("startTime", !state.suspended), ("endTime", job == "SUCCEEDED" || job == "FAILED")]
    {
        let time = state.once(field, holds);
        if !time.is_null() {
            status[field] = time;
        }
    }
    status
}

fn service_status(state: &State<'_>) -> Value {
    let ray_cluster = cluster_state(state);
    let ready = ray_cluster["state"] == "ready";
    let conditions = state.conditions(&[(
        "Ready",
        ready,
        "NonZeroServeEndpoints",
        "Number of serve endpoints is greater than 0",
    )]);
    json!({"serviceStatus": if ready { "Running" } else { "" }, "conditions": conditions,
        "activeServiceStatus": {"rayClusterName": json::name(state.object), "rayClusterStatus": ray_cluster}})
}
