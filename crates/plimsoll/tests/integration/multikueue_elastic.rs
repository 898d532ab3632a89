//! MultiKueue: jobs that grow and shrink while they run on a worker.

#![allow(clippy::unwrap_used, clippy::panic)]

use plimsoll_api::json;
use plimsoll_runtime::api::{
    CLUSTER_QUEUES, JOBS, PODS, PatchKind, RAY_CLUSTERS, RAY_JOBS, Resource, WORKLOADS,
};
use serde_json::{Value, json};

use crate::common::{Up, condition, job, queue};
use crate::job_kinds::definition;
use crate::multikueue::{QUEUE, dispatch_to, patch};

const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

/// A manager and two workers, the second of which has room for six pods.
async fn clusters() -> (Up, Up, Up) {
    let args = ["--speed", "10", "--with", "ray"];
    let (manager, one, two) = (Up::start(&args).await, Up::start(&args).await, Up::start(&args).await);
    one.apply(&queue(1)).await;
    two.apply(&queue(6)).await;
    dispatch_to(&manager, &[("one", &one.kubeconfig), ("two", &two.kubeconfig)]).await;
    (manager, one, two)
}

/// Waits until so many pods of the job run, as the manager's shows it, and both clusters are charged for as many.
async fn runs(manager: &Up, worker: &Up, resource: Resource, name: &str, pods: i64) {
    manager
        .until_shown(&format!("{name} has {pods} pods"), async |manager| {
            let ours = manager.get(resource, "team", name).await;
            let ready = if resource == JOBS {
                json::int(&ours, &["status", "ready"])
            } else {
                // All but the head.
                json::int(&ours, &["status", "readyWorkerReplicas"]).map(|n| n + 1)
            };
            let mut used = Vec::new();
            for up in [manager, worker] {
                let queue = up.get(CLUSTER_QUEUES, "", "cq").await;
                used.push(queue["status"]["flavorsUsage"][0]["resources"][0]["total"].clone());
            }
            let there = worker.list(PODS).await.iter().filter(|p| p["status"]["phase"] == "Running").count();
            let want = json!(pods.to_string());
            let holds = ready == Some(pods)
                && used.iter().all(|u| *u == want)
                && i64::try_from(there).is_ok_and(|n| n == pods);
            if holds {
                Ok(())
            } else {
                Err(format!("{used:?}, {there} pods\n{ours}\n{:?}", statuses(manager, worker).await))
            }
        })
        .await;
}

async fn statuses(manager: &Up, worker: &Up) -> Vec<(String, Value, Value)> {
    let mut all = Vec::new();
    for up in [manager, worker] {
        for wl in up.list(WORKLOADS).await {
            all.push((json::name(&wl).to_owned(), wl["spec"]["podSets"].clone(), wl["status"].clone()));
        }
    }
    all
}

/// Waits until a slice of the worker has no quota.
async fn until_slice_waits(worker: &Up) {
    worker
        .until_shown("a slice waits on the worker", async |worker| {
            let all = worker.list(WORKLOADS).await;
            let waits = all.iter().any(|w| condition(w, "QuotaReserved").0 == "False");
            waits.then_some(()).ok_or_else(|| format!("{all:?}"))
        })
        .await;
}

async fn resize(up: &Up, resource: Resource, name: &str, pods: i64, size: fn(&Value, i64) -> Value) {
    let now = up.get(resource, "team", name).await;
    patch(up, resource, "team", name, &size(&now, pods)).await;
}

/// Plays an elastic job of this kind; `size` is the change of its object that gives it so many pods.
async fn plays(resource: Resource, made: Value, size: fn(&Value, i64) -> Value) {
    let (manager, _one, two) = clusters().await;
    let made =
        manager.until("the kind is served", async |up| up.api.create(resource, &made).await.ok()).await;
    let name = json::name(&made);
    runs(&manager, &two, resource, name, 2).await;
    assert!(manager.list(PODS).await.is_empty(), "none of the pods is here");
    let first = two.get(resource, "team", name).await;

    // It grows by a second slice.
    resize(&manager, resource, name, 4, size).await;
    runs(&manager, &two, resource, name, 4).await;

    // Beyond the quota of its worker it waits there, and what runs goes on.
    resize(&manager, resource, name, 8, size).await;
    until_slice_waits(&two).await;
    resize(&manager, resource, name, 5, size).await;
    runs(&manager, &two, resource, name, 5).await;

    resize(&manager, resource, name, 3, size).await;
    runs(&manager, &two, resource, name, 3).await;
    let last = two.get(resource, "team", name).await;
    assert_eq!(json::uid(&last), json::uid(&first), "it is the same one");
    assert!(manager.list(PODS).await.is_empty(), "none of the pods is here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ray_cluster_grows_and_shrinks_on_its_worker() {
    let container = json!({"name": "ray", "image": "ray", "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"spec": {"containers": [container]}});
    let made = json!({"apiVersion": RAY_CLUSTERS.api_version, "kind": RAY_CLUSTERS.kind,
        "metadata": {"name": "a", "namespace": "team", "labels": {QUEUE: "main"}, "annotations": {ELASTIC: "true"}},
        "spec": {"headGroupSpec": {"template": template},
            "workerGroupSpecs": [{"groupName": "small", "replicas": 1, "template": template}]}});
    plays(RAY_CLUSTERS, made, |now, pods| {
        let mut groups = now["spec"]["workerGroupSpecs"].clone();
        groups[0]["replicas"] = json!(pods - 1);
        json!({"spec": {"workerGroupSpecs": groups}})
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_grows_and_shrinks_on_its_worker() {
    let mut made = job("a", &json!({QUEUE: "main"}), 2, 36000);
    made["metadata"]["annotations"] = json!({ELASTIC: "true"});
    json::remove(&mut made, &["spec", "completions"]);
    plays(JOBS, made, |_, pods| json!({"spec": {"parallelism": pods}})).await;
}

/// KubeRay on the worker, played by the test: the RayCluster of the RayJob `a`, and its pods.
struct KubeRay<'a> {
    worker: &'a Up,
}

impl KubeRay<'_> {
    async fn status(&self, body: Value) {
        let api = &self.worker.api;
        let body = json!({ "status": body });
        api.patch(RAY_JOBS, "team", "a", "status", PatchKind::Merge, &body).await.unwrap();
    }

    /// Makes the RayCluster, with labels and annotations of its job.
    async fn starts(&self, job: &Value) {
        let owner = json!({"apiVersion": RAY_JOBS.api_version, "kind": RAY_JOBS.kind, "name": "a", "uid": json::uid(job), "controller": true});
        let cluster = json!({"apiVersion": RAY_CLUSTERS.api_version, "kind": RAY_CLUSTERS.kind,
            "metadata": {"name": "a-cluster", "namespace": "team", "ownerReferences": [owner],
                "labels": job["metadata"]["labels"], "annotations": job["metadata"]["annotations"]},
            "spec": job["spec"]["rayClusterSpec"]});
        self.worker.api.create(RAY_CLUSTERS, &cluster).await.unwrap();
        let ready = json!({"jobDeploymentStatus": "Running", "rayClusterName": "a-cluster", "rayClusterStatus": {"state": "ready"}});
        self.status(ready).await;
    }

    /// The autoscaler wants so many workers.
    async fn scales(&self, replicas: i64) {
        let cluster = self.worker.get(RAY_CLUSTERS, "team", "a-cluster").await;
        let mut groups = cluster["spec"]["workerGroupSpecs"].clone();
        groups[0]["replicas"] = json!(replicas);
        let body = json!({"spec": {"workerGroupSpecs": groups}});
        patch(self.worker, RAY_CLUSTERS, "team", "a-cluster", &body).await;
    }

    /// Makes a pod of the RayCluster.
    async fn makes(&self, name: &str, template: &str) {
        let cluster = self.worker.get(RAY_CLUSTERS, "team", "a-cluster").await;
        let owner = json!({"apiVersion": RAY_CLUSTERS.api_version, "kind": RAY_CLUSTERS.kind, "name": "a-cluster",
            "uid": json::uid(&cluster), "controller": true});
        let mut pod = cluster.pointer(template).unwrap().clone();
        for (key, value) in [("apiVersion", "v1"), ("kind", "Pod")] {
            pod[key] = json!(value);
        }
        for (key, value) in
            [("name", json!(name)), ("namespace", json!("team")), ("ownerReferences", json!([owner]))]
        {
            json::set(&mut pod, &["metadata", key], value);
        }
        self.worker.create(&pod).await.unwrap();
    }

    /// Waits until these pods run and the others are gated, and both clusters are charged for this much.
    async fn until(&self, manager: &Up, running: &[&str], charged: &str) {
        self.worker
            .until_shown(&format!("{running:?} run for {charged}"), async |worker| {
                let pods = worker.list(PODS).await;
                let mut run: Vec<&str> =
                    pods.iter().filter(|p| p["status"]["phase"] == "Running").map(json::name).collect();
                run.sort_unstable();
                let gates = |p: &&Value| !json::list(p, &["spec", "schedulingGates"]).is_empty();
                let gated = pods.iter().filter(gates).count();
                let mut used = Vec::new();
                for up in [manager, worker] {
                    let queue = up.get(CLUSTER_QUEUES, "", "cq").await;
                    used.push(queue["status"]["flavorsUsage"][0]["resources"][0]["total"].clone());
                }
                let holds =
                    run == running && gated == pods.len() - run.len() && used.iter().all(|u| u == charged);
                if holds {
                    Ok(())
                } else {
                    Err(format!("{run:?}, {gated} gated, {used:?}\n{:?}", statuses(manager, worker).await))
                }
            })
            .await;
    }
}

/// The autoscaler of Ray resizes the RayCluster of a RayJob on the worker, and the job grows and shrinks by slices.
#[tokio::test(flavor = "multi_thread")]
async fn a_ray_job_grows_and_shrinks_with_the_autoscaler_on_its_worker() {
    const WORKER: &str = "/spec/workerGroupSpecs/0/template";
    let (manager, worker) = (Up::start(&["--nodes", "0"]).await, Up::start(&["--nodes", "1"]).await);
    for up in [&manager, &worker] {
        for kind in [RAY_JOBS, RAY_CLUSTERS] {
            up.create(&definition(kind)).await.unwrap();
        }
    }
    worker.apply(&queue(6)).await;
    dispatch_to(&manager, &[("one", &worker.kubeconfig)]).await;
    let container = json!({"name": "ray", "image": "ray", "command": ["sleep", "36000"],
        "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"spec": {"containers": [container]}});
    let made = json!({"apiVersion": RAY_JOBS.api_version, "kind": RAY_JOBS.kind,
        "metadata": {"name": "a", "namespace": "team", "labels": {QUEUE: "main"}, "annotations": {ELASTIC: "true"}},
        "spec": {"managedBy": "kueue.x-k8s.io/multikueue", "entrypoint": "run", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true, "rayClusterSpec": {
            "enableInTreeAutoscaling": true, "autoscalerOptions": {"resources": {"requests": {"cpu": "500m"}}},
            "headGroupSpec": {"template": template},
            "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "template": template}]}}});
    manager.until("the kind is served", async |up| up.api.create(RAY_JOBS, &made).await.ok()).await;
    let theirs = worker
        .until("the job starts on the worker", async |worker| {
            let job = worker.api.get(RAY_JOBS, "team", "a").await.ok()?;
            (!json::flag(&job, &["spec", "suspend"])).then_some(job)
        })
        .await;
    let ray = KubeRay { worker: &worker };
    ray.starts(&theirs).await;
    ray.makes("head", "/spec/headGroupSpec/template").await;
    ray.makes("w-0", WORKER).await;
    // The autoscaler runs beside the head, for half a CPU.
    ray.until(&manager, &["head", "w-0"], "2500m").await;

    ray.scales(3).await;
    ray.makes("w-1", WORKER).await;
    ray.makes("w-2", WORKER).await;
    ray.until(&manager, &["head", "w-0", "w-1", "w-2"], "4500m").await;

    // Beyond the quota of its worker a slice waits there, and what runs goes on.
    ray.scales(6).await;
    ray.makes("w-3", WORKER).await;
    until_slice_waits(&worker).await;
    let waiting = worker.get(PODS, "team", "w-3").await;
    assert!(!json::list(&waiting, &["spec", "schedulingGates"]).is_empty(), "{waiting}");
    for name in ["w-2", "w-3"] {
        let pod = worker.get(PODS, "team", name).await;
        worker.api.delete(PODS, "team", name, json::uid(&pod), None).await.unwrap();
    }
    ray.scales(2).await;
    ray.until(&manager, &["head", "w-0", "w-1"], "3500m").await;
    let last = worker.get(RAY_JOBS, "team", "a").await;
    assert_eq!(json::uid(&last), json::uid(&theirs), "it is the same one");

    ray.status(json!({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"})).await;
    manager
        .until_shown("the job is over", async |manager| {
            let ours = manager.get(RAY_JOBS, "team", "a").await;
            let all = manager.list(WORKLOADS).await;
            let over = all.iter().all(|w| json::is_true(w, "Finished"));
            let holds = over && ours["status"]["jobDeploymentStatus"] == "Complete";
            if holds { Ok(()) } else { Err(format!("{}\n{all:?}", ours["status"])) }
        })
        .await;
}
