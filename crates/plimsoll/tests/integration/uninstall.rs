//! Plimsoll is removed while jobs run and wait, as `docs/cluster.md` says, and installed again.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::common::{Up, assert_within_quota, job, pod, queue};
use crate::deploy;
use crate::real_cluster::{
    self, DEPLOYMENTS, MUTATING, Real, Site, convert, create, documented, list, until, until_shown,
};
use plimsoll_api::json;
use plimsoll_api::webhooks::{CONVERSION_SERVICE, CONVERT, NAMESPACE};
use plimsoll_runtime::api::{
    Api, CLUSTER_QUEUES, FLAVORS, JOBS, LOCAL_QUEUES, NAMESPACES, PODS, Resource, WORKLOADS,
};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";
const SERVICES: Resource =
    Resource { api_version: "apiregistration.k8s.io/v1", plural: "apiservices", kind: "APIService" };
const ACCOUNTS: Resource = Resource { api_version: "v1", plural: "serviceaccounts", kind: "ServiceAccount" };
/// Longer than any test, though pods run in a tenth of the time.
const LONG: u32 = 36000;

#[tokio::test(flavor = "multi_thread")]
async fn jobs_outlive_an_uninstall() {
    if deploy::kubectl().is_none() {
        eprintln!("skipped: no kubectl");
        return;
    }
    let up = Up::start(&["--no-scheduler", "--nodes", "4", "--speed", "10"]).await;
    let site = Site { api: up.api.clone(), kubeconfig: up.kubeconfig.clone(), kubectl: "kubectl".into() };
    uninstalled_and_installed(&site).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_outlive_an_uninstall_on_a_real_kube_apiserver() {
    let Some(assets) = real_cluster::assets(&["kube-controller-manager"]) else { return };
    let mut cluster = Real::start(&assets).await;
    let controllers = "deployment-controller,replicaset-controller,job-controller,garbage-collector-controller,\
                       namespace-controller";
    cluster.populate(4, controllers).await;
    uninstalled_and_installed(&cluster.site()).await;
    cluster.stop().await;
}

/// What a name stands for now: UID, node and phase of pods by job or own name.
async fn pods_of(api: &Api, name: &str) -> BTreeSet<(String, String, String)> {
    let pods = list(api, PODS).await;
    let of =
        |p: &&Value| json::name(p) == name || p["metadata"]["labels"]["batch.kubernetes.io/job-name"] == name;
    let text = |p: &Value, at: &[&str]| json::text(p, at).to_owned();
    pods.iter()
        .filter(of)
        .map(|p| {
            (text(p, &["metadata", "uid"]), text(p, &["spec", "nodeName"]), text(p, &["status", "phase"]))
        })
        .collect()
}

async fn runs(api: &Api, name: &str, count: usize) {
    until_shown(&format!("{name} runs"), async || {
        let pods = pods_of(api, name).await;
        let run = pods.iter().filter(|(_, _, phase)| phase == "Running").count();
        if run == count { Ok(()) } else { Err(format!("{pods:?}")) }
    })
    .await;
}

/// The workload of a job or pod.
async fn workload(api: &Api, owner: &str) -> Value {
    let all = list(api, WORKLOADS).await;
    let of = |w: &&Value| json::list(w, &["metadata", "ownerReferences"]).iter().any(|o| o["name"] == owner);
    all.iter().find(of).unwrap_or_else(|| panic!("no workload of {owner}")).clone()
}

/// Deletes an object as `kubectl delete` does, and waits until it has gone.
async fn goes(api: &Api, resource: Resource, namespace: &str, name: &str) {
    let uid = json::uid(&api.get(resource, namespace, name).await.unwrap()).to_owned();
    api.delete_with_dependents(resource, namespace, name, &uid).await.unwrap();
    until_shown(&format!("{} {name} is gone", resource.kind), async || {
        match api.find(resource, namespace, name).await.unwrap() {
            None => Ok(()),
            Some(object) => Err(format!("{} {}", object["metadata"], object["status"])),
        }
    })
    .await;
}

/// The manifests, and the process that the containers would run.
async fn start(site: &Site, log: &str) -> real_cluster::Process {
    // The process registers its own address, which the manifests of a container would not take away.
    let service = json!({"namespace": NAMESPACE, "name": CONVERSION_SERVICE, "path": CONVERT});
    convert(&site.api, &json!({"url": null, "service": service})).await;
    site.install(&["--node", "node-0", "--node", "node-1", "--frameworks", "batch/job,pod"]);
    let config = site.kubeconfig.with_file_name("config.yaml");
    std::fs::write(
        &config,
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [batch/job, pod]}\n",
    )
    .unwrap();
    let account: PathBuf = real_cluster::account(&site.kubeconfig).await;
    let process = real_cluster::run_with(&account, log, &["--config", config.to_str().unwrap()]);
    real_cluster::registered(&site.api).await;
    process
}

async fn submit(api: &Api) {
    let second = queue(1).replace("name: team", "name: going").replace("name: cq", "name: spare");
    let second = second
        .replace("namespace: team", "namespace: going")
        .replace("clusterQueue: cq", "clusterQueue: spare");
    create(api, &queue(5)).await;
    create(api, &second.replace("name: any", "name: unused")).await;
    api.create(JOBS, &job("running", &json!({QUEUE: "main"}), 2, LONG)).await.unwrap();
    runs(api, "running", 2).await;
    api.create(JOBS, &job("ending", &json!({QUEUE: "main"}), 1, LONG)).await.unwrap();
    runs(api, "ending", 1).await;
    for i in 0..2 {
        let mut member = pod(&format!("member-{i}"), &json!({QUEUE: "main", GROUP: "group"}), LONG);
        member["metadata"]["annotations"] = json!({TOTAL: "2"});
        api.create(PODS, &member).await.unwrap();
    }
    runs(api, "member-0", 1).await;
    runs(api, "member-1", 1).await;
    api.create(JOBS, &job("waiting", &json!({QUEUE: "main"}), 2, LONG)).await.unwrap();
    api.create(PODS, &pod("gated", &json!({QUEUE: "main"}), LONG)).await.unwrap();
    let mut elsewhere = job("elsewhere", &json!({QUEUE: "main"}), 1, LONG);
    elsewhere["metadata"]["namespace"] = json!("going");
    api.create(JOBS, &elsewhere).await.unwrap();
    runs(api, "elsewhere", 1).await;
    until("all have workloads", async || (list(api, WORKLOADS).await.len() == 6).then_some(())).await;
}

async fn uninstalled_and_installed(site: &Site) {
    let api = &site.api;
    let mut first = start(site, "first.log").await;
    submit(api).await;
    let names = ["running", "ending", "member-0", "member-1", "elsewhere"];
    let mut before = Vec::new();
    for name in names {
        before.push((name, pods_of(api, name).await));
    }
    let admitted = workload(api, "running").await;
    assert!(json::is_true(&admitted, "Admitted"), "{admitted}");

    // The processes have died, and the webhooks refuse everything: the commands work even then.
    assert_eq!(first.terminate(), Some(0), "{}", first.log());
    let commands = documented("plimsoll uninstall");
    let said = site.shell(&commands);
    assert!(said.contains("workload/") && said.contains("pod/member-0"), "{said}");
    nothing_is_left(api).await;
    for (name, pods) in &before {
        assert_eq!(pods_of(api, name).await, *pods, "{name}");
    }
    let waiting = api.get(JOBS, "team", "waiting").await.unwrap();
    assert_eq!((&waiting["spec"]["suspend"], &waiting["status"]["active"]), (&json!(true), &Value::Null));
    assert!(
        !json::list(&api.get(PODS, "team", "gated").await.unwrap(), &["spec", "schedulingGates"]).is_empty()
    );
    let still = workload(api, "running").await;
    assert_eq!((&still["spec"], &still["status"]), (&admitted["spec"], &admitted["status"]));
    while_it_is_away(api).await;
    // The definitions are as they were, and what is installed again finds its objects.
    let _second = start(site, "second.log").await;
    adopted(api, &admitted).await;
    for (name, pods) in before.iter().filter(|(name, _)| ["running", "member-1"].contains(name)) {
        assert_eq!(pods_of(api, name).await, *pods, "{name}");
    }
    continued(api).await;
}

async fn nothing_is_left(api: &Api) {
    for (resource, what) in
        [(MUTATING, "plimsoll"), (SERVICES, "visibility"), (DEPLOYMENTS, "plimsoll"), (ACCOUNTS, "plimsoll")]
    {
        let all = list(api, resource).await;
        let left: Vec<&str> = all.iter().map(json::name).filter(|n| n.contains(what)).collect();
        assert!(left.is_empty(), "{} {left:?}", resource.kind);
    }
    until_shown("the namespace is gone", async || match api.find(NAMESPACES, "", NAMESPACE).await.unwrap() {
        None => Ok(()),
        Some(object) => Err(object["status"].to_string()),
    })
    .await;
    for resource in [WORKLOADS, CLUSTER_QUEUES, FLAVORS, PODS] {
        for object in list(api, resource).await {
            let held = json::list(&object, &["metadata", "finalizers"]);
            let ours = held.iter().filter_map(Value::as_str).find(|f| f.starts_with("kueue.x-k8s.io/"));
            assert_eq!(ours, None, "{} {}", resource.kind, json::name(&object));
        }
    }
}

/// Jobs end and are created and deleted, and so are a queue and a namespace.
async fn while_it_is_away(api: &Api) {
    goes(api, JOBS, "team", "ending").await;
    until_shown("its workload is gone", async || {
        let left = list(api, WORKLOADS).await.len();
        if left == 5 { Ok(()) } else { Err(format!("{left} workloads")) }
    })
    .await;
    goes(api, PODS, "team", "member-0").await;
    goes(api, NAMESPACES, "", "going").await;
    goes(api, CLUSTER_QUEUES, "", "spare").await;
    goes(api, FLAVORS, "", "unused").await;
    api.create(JOBS, &job("plain", &json!({}), 1, LONG)).await.unwrap();
    let mut queued = job("queued", &json!({QUEUE: "main"}), 1, LONG);
    queued["spec"]["suspend"] = json!(true);
    api.create(JOBS, &queued).await.unwrap();
    api.create(PODS, &pod("other", &json!({}), LONG)).await.unwrap();
    assert_eq!(list(api, LOCAL_QUEUES).await.len(), 1);
}

async fn adopted(api: &Api, admitted: &Value) {
    // Of 5 cpus `running` has 2, and the group has 2 with a member less: `gated` fits, and then nothing.
    runs(api, "plain", 1).await;
    runs(api, "other", 1).await;
    until_shown("what waits is admitted as far as quota goes", async || {
        let workloads = list(api, WORKLOADS).await;
        assert_within_quota(&list(api, CLUSTER_QUEUES).await, &workloads);
        let has: Vec<&str> =
            workloads.iter().filter(|w| json::is_true(w, "Admitted")).map(json::name).collect();
        let runs = |name: &str| has.iter().any(|n| n.contains(name));
        if runs("running") && runs("gated") && has.len() == 3 { Ok(()) } else { Err(format!("{has:?}")) }
    })
    .await;
    let now = workload(api, "running").await;
    assert_eq!(json::uid(&now), json::uid(admitted));
    assert_eq!(now["status"]["admission"], admitted["status"]["admission"]);
    for kind in ["QuotaReserved", "Admitted"] {
        assert_eq!(json::condition(&now, kind), json::condition(admitted, kind), "{kind}");
    }
    assert_eq!(api.get(JOBS, "team", "running").await.unwrap()["spec"]["suspend"], false);
    assert_eq!(api.get(JOBS, "team", "waiting").await.unwrap()["spec"]["suspend"], true);
}

/// What ends releases its quota.
async fn continued(api: &Api) {
    goes(api, JOBS, "team", "running").await;
    runs(api, "waiting", 2).await;
    assert_within_quota(&list(api, CLUSTER_QUEUES).await, &list(api, WORKLOADS).await);
}
