//! `plimsoll run` against a real kube-apiserver: with the rights of `deploy/` and nothing else, killed in the middle.
//!
//! `etcd` and `kube-apiserver` are taken from `KUBEBUILDER_ASSETS`, as everywhere; without it the test says so and
//! passes. Jobs are part of it where `kube-controller-manager` is in that directory too: a bare API server has no
//! Job controller. Kubelets are simulated.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "../../src/bench/process.rs"]
#[allow(dead_code)]
mod process;
#[path = "../../src/bench/upstream.rs"]
#[allow(dead_code)]
mod upstream;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, assert_within_quota, directory, job, pod, queue, resource};
use plimsoll_api::json;
use plimsoll_api::webhooks::NAMESPACE;
use plimsoll_runtime::api::{Api, CLUSTER_QUEUES, JOBS, LEASES, PODS, Resource, WORKLOADS};
use plimsoll_runtime::simulated;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use upstream::Upstream;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const TOTAL: &str = "kueue.x-k8s.io/pod-group-total-count";

/// A process of ours that ends with the test.
struct Process(Child, PathBuf);

impl Process {
    fn log(&self) -> String {
        std::fs::read_to_string(&self.1).unwrap_or_default()
    }

    fn kill(&mut self) {
        crate::common::process::kill(&mut self.0);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        crate::common::process::kill(&mut self.0);
    }
}

async fn client(kubeconfig: &Path) -> Api {
    let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    plimsoll_runtime::connect::api(config, "test").unwrap()
}

async fn list(api: &Api, resource: Resource) -> Vec<Value> {
    // "storage is (re)initializing": a definition was created or changed a moment ago, and clients retry.
    let list = until("a list", async || match api.get_path(&resource.collection("")).await {
        Err(e) if e.to_string().contains("initializing") => None,
        list => Some(list.unwrap()),
    });
    json::list(&list.await, &["items"]).to_vec()
}

fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    all.into_iter().filter(|d| !d.is_null()).collect()
}

/// Creates what `deploy/kustomization.yaml` lists, and waits until the definitions are served.
async fn install(api: &Api) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let [kustomization] = &documents(&dir.join("kustomization.yaml"))[..] else { panic!("one document") };
    let files = json::list(kustomization, &["resources"]).iter().map(|f| dir.join(f.as_str().unwrap()));
    for object in files.flat_map(|f| documents(&f)) {
        let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let kind = json::text(&object, &["kind"]);
        let resource = Resource {
            api_version: leak(json::text(&object, &["apiVersion"])),
            plural: leak(&format!("{}s", kind.to_lowercase())),
            kind: leak(kind),
        };
        // Nothing here calls webhooks of a Service, and the program registers its own address.
        if kind.ends_with("WebhookConfiguration") {
            let mut empty = object.clone();
            empty["webhooks"] = json!([]);
            api.create(resource, &empty).await.unwrap_or_else(|e| panic!("{e}: {}", json::name(&object)));
            continue;
        }
        api.create(resource, &object).await.unwrap_or_else(|e| panic!("{e}: {}", json::name(&object)));
    }
    until("the definitions are served", async || {
        api.get_path(&WORKLOADS.collection("")).await.is_ok().then_some(())
    })
    .await;
}

async fn until<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ready().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// `plimsoll run` with a token of the ServiceAccount.
fn run(kubeconfig: &Path, log: &str) -> Process {
    let log = kubeconfig.with_file_name(log);
    let child = crate::common::binary()
        .args(["--log", "warn,plimsoll_runtime=debug", "run", "--output", "json", "--webhook-port", "0"])
        .args(["--leader-elect-resource-namespace", NAMESPACE, "--metrics-bind-address", "0"])
        .args(["--leader-elect-lease-duration", "3s", "--leader-elect-renew-deadline", "2s"])
        .args(["--leader-elect-retry-period", "500ms", "--kubeconfig"])
        .arg(kubeconfig)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    Process(child, log)
}

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

fn controllers(assets: &Path, upstream: &Upstream) -> Option<Process> {
    let program = assets.join("kube-controller-manager");
    if !program.exists() {
        eprintln!("no kube-controller-manager in {}: pods and pod groups only", assets.display());
        return None;
    }
    let log = upstream.kubeconfig.with_file_name("kube-controller-manager.log");
    let child = std::process::Command::new(program)
        .arg(format!("--kubeconfig={}", upstream.kubeconfig.display()))
        .args(["--controllers=job-controller,garbage-collector-controller", "--leader-elect=false"])
        .args(["--secure-port=0"])
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    Some(Process(child, log))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_kube_apiserver_is_served_with_the_rights_of_deploy() {
    let Some(assets) = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from) else {
        eprintln!("skipped: KUBEBUILDER_ASSETS names no directory with etcd and kube-apiserver");
        return;
    };
    let upstream = Upstream::start(&assets, directory(), false).await.unwrap();
    let api = client(&upstream.kubeconfig).await;
    install(&api).await;
    let manager = controllers(&assets, &upstream);
    let account = upstream.kubeconfig.with_file_name("account");
    crate::common::account_kubeconfig(&upstream.kubeconfig, &account).await;
    let stop = CancellationToken::new();
    let options = plimsoll_kubelet::Options { speed: 10.0, ..plimsoll_kubelet::Options::default() };
    let now = plimsoll_runtime::clock::now().0;
    let nodes = (0..4).map(|i| plimsoll_kubelet::nodes::node(i, &Default::default(), now)).collect();
    simulated::create_nodes(&api, nodes).await.unwrap();
    // Admission taints new nodes; who would take it away is not here.
    for i in 0..4 {
        let (path, free) = (format!("node-{i}"), json!({"spec": {"taints": null}}));
        let nodes = plimsoll_runtime::api::NODES;
        let merge = plimsoll_runtime::api::PatchKind::Merge;
        api.patch(nodes, "", &path, "", merge, &free).await.unwrap();
    }
    let kubelets = tokio::spawn(simulated::run(api.clone(), options, stop.clone()));

    let mut first = run(&account, "first.log");
    until("webhooks are registered", async || {
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        let all = api.get_path(path).await.unwrap();
        let any = json::list(&all, &["items"]).iter().any(|c| !json::list(c, &["webhooks"]).is_empty());
        any.then_some(())
    })
    .await;
    for object in serde_saphyr::from_multiple::<Value>(&queue(4)).unwrap() {
        api.create(resource(&object), &object).await.unwrap_or_else(|e| panic!("{e}: {object}"));
    }
    let jobs = if manager.is_some() { 8 } else { 0 };
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
    stop.cancel();
    let _ = kubelets.await;
}

/// A program that admits workloads, as an administrator.
fn admits(program: &mut std::process::Command, kubeconfig: &Path, log: &str) -> Process {
    let log = kubeconfig.with_file_name(log);
    let child = program
        .env("KUBECONFIG", kubeconfig)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    Process(child, log)
}

/// Kueue, as its own performance test runs it (`test/performance/scheduler/minimalkueue`), and Plimsoll take turns on the same
/// objects: what either has admitted keeps its quota and its place, and what waits is admitted by the other.
#[tokio::test(flavor = "multi_thread")]
async fn kueue_and_plimsoll_take_over_from_each_other() {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let Some(assets) = assets.filter(|dir| dir.join("minimalkueue").exists()) else {
        eprintln!(
            "skipped: KUBEBUILDER_ASSETS names no directory with etcd, kube-apiserver and minimalkueue"
        );
        return;
    };
    let upstream = Upstream::start(&assets, directory(), false).await.unwrap();
    let api = client(&upstream.kubeconfig).await;
    install(&api).await;
    for object in serde_saphyr::from_multiple::<Value>(&queue(4)).unwrap() {
        api.create(resource(&object), &object).await.unwrap_or_else(|e| panic!("{e}: {object}"));
    }
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
        let mut program = std::process::Command::new(assets.join("minimalkueue"));
        admits(program.arg("--enableTAS"), &upstream.kubeconfig, "kueue.log")
    };
    let plimsoll = || {
        let mut program = crate::common::binary();
        let own =
            ["run", "--queueing", "--leader-elect=false", "--metrics-bind-address", "0", "--kubeconfig"];
        admits(program.args(own).arg(&upstream.kubeconfig), &upstream.kubeconfig, "plimsoll.log")
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
