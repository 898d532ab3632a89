//! MultiKueue: jobs that grow and shrink while they run on a worker.

#![allow(clippy::unwrap_used, clippy::panic)]

use plimsoll_api::json;
use plimsoll_runtime::api::{CLUSTER_QUEUES, JOBS, PODS, RAY_CLUSTERS, Resource, WORKLOADS};
use serde_json::{Value, json};

use crate::common::{Up, condition, job, queue};
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
