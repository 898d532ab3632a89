//! MultiKueue: workers of other versions, which serve no Workloads that the manager can write, or lack kinds of jobs.

#![allow(clippy::unwrap_used, clippy::panic)]

use plimsoll_api::json;
use plimsoll_runtime::api::{ADMISSION_CHECKS, JOBS, MULTIKUEUE_CLUSTERS, RAY_CLUSTERS, Resource, WORKLOADS};
use serde_json::{Value, json};

use crate::common::{Up, condition, job, queue};
use crate::job_kinds::definition;
use crate::multikueue::{QUEUE, dispatch_to, patch, until_active, until_runs_on};

const DEFINITIONS: Resource = Resource {
    api_version: "apiextensions.k8s.io/v1",
    plural: "customresourcedefinitions",
    kind: "CustomResourceDefinition",
};
const SERVED: &str = "plimsoll.dev/JobKindsServed";

/// The definition of a kind in these versions, of which the first is stored.
fn definition_of(resource: Resource, versions: &[&str]) -> Value {
    let mut definition = definition(resource);
    let template = definition["spec"]["versions"][0].clone();
    let version = |(i, name): (usize, &&str)| {
        let mut version = template.clone();
        (version["name"], version["storage"]) = (json!(name), json!(i == 0));
        version
    };
    definition["spec"]["versions"] = versions.iter().enumerate().map(version).collect();
    definition
}

async fn serve_also(up: &Up, resource: Resource, versions: &[&str]) {
    let definition = definition_of(resource, versions);
    let body = json!({"spec": {"versions": definition["spec"]["versions"]}});
    patch(up, DEFINITIONS, "", json::name(&definition), &body).await;
}

/// A job for MultiKueue, whether or not the webhook knows of the queue's check by now.
fn dispatched(name: &str) -> Value {
    let mut job = job(name, &json!({QUEUE: "main"}), 2, 36000);
    job["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
    job
}

/// Waits until a MultiKueueCluster has this condition, with these parts in its message.
async fn until_told(up: &Up, name: &str, kind: &str, status: &str, parts: &[&str]) {
    up.until_shown(&format!("{name} has {kind}={status} {parts:?}"), async |up| {
        let cluster = up.get(MULTIKUEUE_CLUSTERS, "", name).await;
        let (now, _, message) = condition(&cluster, kind);
        let holds = now == status && parts.iter().all(|part| message.contains(part));
        if holds { Ok(()) } else { Err(cluster["status"].to_string()) }
    })
    .await;
}

/// A worker with Kueue's API in v1beta1 alone is not connected, until it has v1beta2. The test plays its controllers.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_an_older_api_waits_for_a_newer_one_and_the_others_run_jobs() {
    let old = Up::start(&["--no-queueing", "--nodes", "1"]).await;
    old.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}))
        .await
        .unwrap();
    old.create(&definition_of(WORKLOADS, &["v1beta1"])).await.unwrap();
    let new = Up::start(&["--nodes", "1"]).await;
    new.apply(&queue(2)).await;
    let manager = Up::start(&["--nodes", "0"]).await;
    dispatch_to(&manager, &[("old", &old.kubeconfig), ("new", &new.kubeconfig)]).await;
    let why = "no matches for kind \"Workload\" in version \"kueue.x-k8s.io/v1beta2\"";
    until_told(&manager, "old", "Active", "False", &[why]).await;
    until_active(&manager, MULTIKUEUE_CLUSTERS, "old", "ClientConnectionFailed").await;
    until_active(&manager, MULTIKUEUE_CLUSTERS, "new", "Active").await;
    until_active(&manager, ADMISSION_CHECKS, "elsewhere", "SomeActiveClusters").await;
    manager.create(&dispatched("first")).await.unwrap();
    until_runs_on(&manager, "first", &new, "new", 2).await;

    serve_also(&old, WORKLOADS, &["v1beta1", "v1beta2"]).await;
    until_active(&manager, MULTIKUEUE_CLUSTERS, "old", "Active").await;
    until_active(&manager, ADMISSION_CHECKS, "elsewhere", "Active").await;
    // The other one is full.
    manager.create(&dispatched("second")).await.unwrap();
    let copy = old
        .until("it gets a copy", async |old| {
            let all = old.list(WORKLOADS).await;
            all.into_iter().find(|w| json::name(w).starts_with("job-second-"))
        })
        .await;
    let admitted = json!({"type": "Admitted", "status": "True", "reason": "Admitted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let body = json!({"status": {"conditions": [admitted]}});
    old.api
        .patch(WORKLOADS, "team", json::name(&copy), "status", plimsoll_runtime::api::PatchKind::Merge, &body)
        .await
        .unwrap();
    // What a job controller of Kueue does there.
    old.until("it gets the job", async |old| old.api.get(JOBS, "team", "second").await.ok()).await;
    patch(&old, JOBS, "team", "second", &json!({"spec": {"suspend": false}})).await;
    until_runs_on(&manager, "second", &old, "old", 2).await;
    let first = manager.get(JOBS, "team", "first").await;
    assert_eq!(json::int(&first, &["status", "active"]), Some(2), "the first one runs on");
}

fn ray_cluster(name: &str) -> Value {
    let container = json!({"name": "ray", "image": "ray", "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"spec": {"containers": [container]}});
    json!({"apiVersion": RAY_CLUSTERS.api_version, "kind": RAY_CLUSTERS.kind,
        "metadata": {"name": name, "namespace": "team", "labels": {QUEUE: "main"}},
        "spec": {"managedBy": "kueue.x-k8s.io/multikueue", "headGroupSpec": {"template": template},
            "workerGroupSpecs": [{"groupName": "small", "replicas": 1, "template": template}]}})
}

/// Waits until the RayCluster runs on this worker.
async fn until_on(manager: &Up, name: &str, worker: &Up, cluster: &str) {
    manager
        .until_shown(&format!("{name} runs on {cluster}"), async |manager| {
            let prefix = format!("raycluster-{name}-");
            let all = manager.list(WORKLOADS).await;
            let wl = all.into_iter().find(|w| json::name(w).starts_with(&prefix)).ok_or("no workload")?;
            let on = wl["status"]["clusterName"] == cluster && json::is_true(&wl, "Admitted");
            if on { Ok(()) } else { Err(wl["status"].to_string()) }
        })
        .await;
    worker
        .until_shown(&format!("{name} is let go on {cluster}"), async |worker| {
            let theirs = worker.get(RAY_CLUSTERS, "team", name).await;
            (!json::flag(&theirs, &["spec", "suspend"])).then_some(()).ok_or(theirs.to_string())
        })
        .await;
}

/// A worker that serves another version of a kind of jobs gets none of its jobs, and all others. It gets them from when it serves
/// the manager's version, and no restart is needed.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_kind_gets_none_of_its_jobs_until_it_serves_it() {
    let args = ["--speed", "10", "--with", "ray"];
    let (one, two) = (Up::start(&["--speed", "10"]).await, Up::start(&args).await);
    let manager = Up::start(&args).await;
    one.create(&definition_of(RAY_CLUSTERS, &["v1alpha1"])).await.unwrap();
    // All of them fit there in the end: the one that loses its worker is dispatched again, too.
    one.apply(&queue(6)).await;
    two.apply(&queue(2)).await;
    dispatch_to(&manager, &[("one", &one.kubeconfig), ("two", &two.kubeconfig)]).await;
    let why = "no matches for kind \"RayCluster\" in version \"ray.io/v1\"";
    until_told(&manager, "one", SERVED, "False", &[why, "\"RayJob\"", "\"RayService\""]).await;
    until_told(&manager, "one", "Active", "True", &["Connected"]).await;
    until_active(&manager, MULTIKUEUE_CLUSTERS, "two", "Active").await;

    let create = async |name: &str| {
        let object = ray_cluster(name);
        manager.until("it is created", async |up| up.api.create(RAY_CLUSTERS, &object).await.ok()).await;
    };
    create("a").await;
    until_on(&manager, "a", &two, "two").await;
    assert!(one.list(WORKLOADS).await.is_empty(), "the other one has no copy");
    let shown = manager.get(MULTIKUEUE_CLUSTERS, "", "two").await;
    assert_eq!(json::condition(&shown, SERVED), None, "nothing was ever missing there");
    manager.create(&dispatched("batch")).await.unwrap();
    until_runs_on(&manager, "batch", &one, "one", 2).await;

    // The definition goes where it was.
    let name = "rayclusters.ray.io";
    let known = two.get(DEFINITIONS, "", name).await;
    two.api.delete(DEFINITIONS, "", name, json::uid(&known), None).await.unwrap();
    until_told(&manager, "two", SERVED, "False", &[]).await;
    until_told(&manager, "two", "Active", "True", &["Connected"]).await;
    create("b").await;
    let wanted = "No connected worker cluster serves kind \"RayCluster\" in version \"ray.io/v1\": [one two]";
    manager
        .until_shown("the check says that no worker serves the kind", async |up| {
            let all = up.list(WORKLOADS).await;
            let wl = all.into_iter().find(|w| json::name(w).starts_with("raycluster-b-")).ok_or("none")?;
            let row = &wl["status"]["admissionChecks"][0];
            let holds = row["state"] == "Pending" && row["message"] == wanted;
            if holds { Ok(()) } else { Err(wl["status"].to_string()) }
        })
        .await;
    serve_also(&one, RAY_CLUSTERS, &["v1alpha1", "v1"]).await;
    until_on(&manager, "b", &one, "one").await;
    until_told(&manager, "one", SERVED, "False", &["\"RayJob\"", "\"RayService\""]).await;
    let shown = manager.get(MULTIKUEUE_CLUSTERS, "", "one").await;
    assert!(!condition(&shown, SERVED).2.contains("RayCluster"), "{shown}");
    let batch = manager.get(JOBS, "team", "batch").await;
    assert_eq!(json::int(&batch, &["status", "active"]), Some(2), "the other job runs on");
}
