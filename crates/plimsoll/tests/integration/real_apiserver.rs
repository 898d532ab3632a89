//! `plimsoll run` against a real kube-apiserver: with the rights of `deploy/` and nothing else, killed in the middle.
//!
//! `etcd` and `kube-apiserver` are taken from `KUBEBUILDER_ASSETS`, as everywhere; without it the test says so and
//! passes. Jobs are part of it where `kube-controller-manager` is in that directory too: a bare API server has no
//! Job controller. Kubelets are simulated.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, assert_within_quota, job, pod, queue};
use crate::real_cluster::{self, Process, Real, create, list, run, until};
use plimsoll_api::json;
use plimsoll_api::webhooks::NAMESPACE;
use plimsoll_runtime::api::{Api, CLUSTER_QUEUES, JOBS, LEASES, PODS, WORKLOADS};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";

/// What holds at every moment.
#[derive(Default)]
struct Watchdog(BTreeMap<String, String>);

impl Watchdog {
    /// Quota is kept, and no workload gets it twice. Gives how many have it.
    async fn look(&mut self, api: &Api) -> usize {
        let workloads = list(api, WORKLOADS).await;
        assert_within_quota(&list(api, CLUSTER_QUEUES).await, &workloads);
        for wl in &workloads {
            let reserved = json::condition(wl, "QuotaReserved").filter(|c| c["status"] == "True");
            let Some(condition) = reserved else { continue };
            let since = json::text(condition, &["lastTransitionTime"]).to_owned();
            let first = self.0.entry(json::uid(wl).to_owned()).or_insert_with(|| since.clone());
            assert_eq!(*first, since, "{} was admitted twice", json::name(wl));
        }
        self.0.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_kube_apiserver_is_served_with_the_rights_of_deploy() {
    let Some(assets) = real_cluster::assets(&[]) else { return };
    let mut cluster = Real::start(&assets).await;
    real_cluster::install(&cluster.api).await;
    cluster.populate(4, "job-controller,garbage-collector-controller").await;
    let api = cluster.api.clone();
    let account = real_cluster::account(&cluster.kubeconfig).await;

    let mut first = run(&account, "first.log");
    real_cluster::registered(&api).await;
    create(&api, &queue(4)).await;
    let jobs = if cluster.controllers.is_some() { 8 } else { 0 };
    for i in 0..jobs {
        let job = job(&format!("job-{i}"), &json!({QUEUE: "main"}), 2, 20);
        api.create(JOBS, &job).await.unwrap();
    }
    for i in 0..6 {
        api.create(PODS, &pod(&format!("plain-{i}"), &json!({QUEUE: "main"}), 20)).await.unwrap();
    }
    for i in 0..3 {
        let mut member = pod(&format!("member-{i}"), &json!({QUEUE: "main", GROUP: "group"}), 20);
        member["metadata"]["annotations"] = json!({TOTAL: "3"});
        api.create(PODS, &member).await.unwrap();
    }
    let all = jobs + 6 + 1;
    let mut watchdog = Watchdog::default();
    until("some are admitted", async || (watchdog.look(&api).await >= 3).then_some(())).await;
    first.kill();
    let before = watchdog.look(&api).await;
    assert!(before < all, "all {all} were admitted before the kill");
    let second = run(&account, "second.log");
    until("everything has ended", async || {
        watchdog.look(&api).await;
        let workloads = list(&api, WORKLOADS).await;
        let ended = workloads.iter().filter(|w| json::is_true(w, "Finished")).count();
        (workloads.len() == all && ended == all).then_some(())
    })
    .await;
    let pods = list(&api, PODS).await;
    let done: Vec<&Value> = pods.iter().filter(|p| p["status"]["phase"] == "Succeeded").collect();
    assert_eq!(done.len(), jobs * 2 + 6 + 3, "pods that ran to their end");
    assert!(done.iter().all(|p| !json::text(p, &["spec", "nodeName"]).is_empty()));
    assert!(list(&api, JOBS).await.iter().all(|j| json::is_true(j, "Complete")));
    let lease = api.get(LEASES, NAMESPACE, "plimsoll").await.unwrap();
    assert!(!json::text(&lease, &["spec", "holderIdentity"]).is_empty());
    let said = first.log() + &second.log();
    let denied: Vec<&str> = said.lines().filter(|l| l.contains("forbidden")).collect();
    assert!(denied.is_empty(), "{}", denied.join("\n"));
    cluster.stop().await;
}

/// Kueue, as its own performance test runs it (`test/performance/scheduler/minimalkueue`), and Plimsoll take turns on the same
/// objects: what either has admitted keeps its quota and its place, and what waits is admitted by the other.
#[tokio::test(flavor = "multi_thread")]
async fn kueue_and_plimsoll_take_over_from_each_other() {
    let Some(assets) = real_cluster::assets(&["minimalkueue"]) else { return };
    let cluster = Real::start(&assets).await;
    let (api, kubeconfig) = (cluster.api.clone(), cluster.kubeconfig.clone());
    real_cluster::install(&api).await;
    create(&api, &queue(4)).await;
    let submit = async |name: &str, cpus: u32| {
        let container =
            json!({"name": "c", "image": "busybox", "resources": {"requests": {"cpu": cpus.to_string()}}});
        let podset = json!({"name": "main", "count": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}});
        let wl = json!({"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind,
            "metadata": {"name": name, "namespace": "team"}, "spec": {"queueName": "main", "podSets": [podset]}});
        api.create(WORKLOADS, &wl).await.unwrap_or_else(|e| panic!("{e}: {name}"));
    };
    let admitted = async |names: &[&str], by: &Process| {
        let began = Instant::now();
        loop {
            let workloads = list(&api, WORKLOADS).await;
            assert_within_quota(&list(&api, CLUSTER_QUEUES).await, &workloads);
            let runs = |w: &&Value| json::is_true(w, "Admitted") && !json::is_true(w, "Finished");
            let mut found: Vec<String> =
                workloads.iter().filter(runs).map(|w| json::name(w).to_owned()).collect();
            found.sort();
            if found == names {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{found:?} and not {names:?} are admitted: {}", by.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    // What a workload was given, and since when.
    let given = async |name: &str| {
        let wl = api.get(WORKLOADS, "team", name).await.unwrap();
        let since = |kind| json::condition(&wl, kind).map(|c| c["lastTransitionTime"].clone());
        (wl["status"]["admission"].clone(), since("QuotaReserved"), since("Admitted"))
    };
    let finish = async |name: &str| {
        let wl = api.get(WORKLOADS, "team", name).await.unwrap();
        let mut conditions = json::list(&wl, &["status", "conditions"]).to_vec();
        conditions
            .push(json!({"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done",
            "lastTransitionTime": wl["metadata"]["creationTimestamp"]}));
        let body = json!({"status": {"conditions": conditions}});
        let merge = plimsoll_runtime::api::PatchKind::Merge;
        api.patch(WORKLOADS, "team", name, "status", merge, &body).await.unwrap();
    };
    let kueue = || {
        let mut program = Command::new(assets.join("minimalkueue"));
        Process::start(program.arg("--enableTAS"), &kubeconfig, "kueue.log")
    };
    let plimsoll = || {
        let mut program = crate::common::binary();
        let own =
            ["run", "--queueing", "--leader-elect=false", "--metrics-bind-address", "0", "--kubeconfig"];
        Process::start(program.args(own).arg(&kubeconfig), &kubeconfig, "plimsoll.log")
    };

    let mut first = kueue();
    submit("a", 3).await;
    admitted(&["a"], &first).await;
    submit("b", 3).await;
    let of_a = given("a").await;
    first.kill();

    let mut second = plimsoll();
    submit("c", 1).await;
    admitted(&["a", "c"], &second).await;
    assert_eq!(given("a").await, of_a, "what Kueue has admitted stays");
    finish("a").await;
    admitted(&["b", "c"], &second).await;
    let (of_b, of_c) = (given("b").await, given("c").await);
    submit("d", 3).await;
    second.kill();

    let mut third = kueue();
    finish("c").await;
    submit("e", 1).await;
    admitted(&["b", "e"], &third).await;
    assert_eq!(given("b").await, of_b, "what Plimsoll has admitted stays");
    assert_eq!(given("c").await.0, of_c.0);
    finish("b").await;
    admitted(&["d", "e"], &third).await;
    third.kill();
}
