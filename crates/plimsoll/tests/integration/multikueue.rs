//! MultiKueue: one manager and two worker clusters, each a process of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::json;
use plimsoll_runtime::api::{
    ADMISSION_CHECKS, CLUSTER_QUEUES, EVENTS, Error, JOBS, LOCAL_QUEUES, MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS, PODS, PatchKind, Resource, SECRETS, STATEFUL_SETS, WORKLOADS,
};
use serde_json::{Value, json};

use crate::common::proxy::{Fault, Proxy};
use crate::common::run::get;
use crate::common::{Up, condition, directory, job, pod, queue};

pub const QUEUE: &str = "kueue.x-k8s.io/queue-name";
pub const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
pub const OWN: &str = "plimsoll-system";
const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                      multiKueue: {workerLostTimeout: 5s, gcInterval: 1s}\nintegrations: {frameworks: [batch/job, pod, deployment, statefulset]}\n";

/// A manager whose data outlive its process.
pub struct Manager {
    dir: PathBuf,
    up: Option<Up>,
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.up.take();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Manager {
    async fn start() -> Self {
        Self::start_with(CONFIG).await
    }

    pub async fn start_with(config: &str) -> Self {
        let dir = directory();
        std::fs::write(dir.join("config.yaml"), config).unwrap();
        let mut manager = Self { dir, up: None };
        manager.restart().await;
        manager
    }

    /// Ends the process as a power failure would, and starts another one.
    async fn restart(&mut self) {
        if let Some(mut up) = self.up.take() {
            up.kill();
        }
        let (data, config) = (self.dir.join("data"), self.dir.join("config.yaml"));
        let (data, config) = (data.display().to_string(), config.display().to_string());
        let metrics = ["--metrics-bind-address", "127.0.0.1:0"];
        let args = [&["--data", &data, "--config", &config, "--nodes", "1"][..], &metrics].concat();
        self.up = Some(Up::start(&args).await);
    }

    pub fn up(&self) -> &Up {
        self.up.as_ref().unwrap()
    }

    /// Makes the queue, with a check for these workers.
    pub async fn dispatch_to(&self, workers: &[(&str, &Path)]) {
        dispatch_to(self.up(), workers).await;
    }
}

/// The same for a manager whose API server is a process of its own.
pub async fn dispatch_to(up: &Up, workers: &[(&str, &Path)]) {
    create_namespace(up).await;
    for (name, kubeconfig) in workers {
        let file = BASE64_STANDARD.encode(std::fs::read(kubeconfig).unwrap());
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": OWN}, "data": {"kubeconfig": file}});
        up.create(&secret).await.unwrap();
        let source = json!({"kubeConfig": {"location": name, "locationType": "Secret"}});
        create_cluster(up, name, source).await;
    }
    let names: Vec<&str> = workers.iter().map(|(name, _)| *name).collect();
    create_queue(up, &names).await;
    until_active(up, CLUSTER_QUEUES, "cq", "Ready").await;
}

async fn create_namespace(up: &Up) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OWN}});
    match up.create(&namespace).await {
        Err(error) if !matches!(error, Error::Status { code: 409, .. }) => panic!("{error}"),
        _ => {}
    }
}

async fn create_cluster(up: &Up, name: &str, source: Value) {
    let cluster = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
        "metadata": {"name": name}, "spec": {"clusterSource": source}});
    up.create(&cluster).await.unwrap();
}

/// Creates the queue, with a check for these workers.
async fn create_queue(up: &Up, workers: &[&str]) {
    for object in [
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig",
            "metadata": {"name": "workers"}, "spec": {"clusters": workers}}),
        json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "elsewhere"},
            "spec": {"controllerName": "kueue.x-k8s.io/multikueue", "parameters":
                {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers"}}}),
    ] {
        up.create(&object).await.unwrap();
    }
    // With its check from the start: once it is ready, jobs are known to be for other clusters when they come.
    let check = "namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: elsewhere}]}\n";
    up.apply(&queue(100).replace("namespaceSelector: {}\n", check)).await;
}

pub async fn patch(up: &Up, resource: Resource, namespace: &str, name: &str, body: &Value) {
    up.api.patch(resource, namespace, name, "", PatchKind::Merge, body).await.unwrap();
}

/// Waits for a reason of the condition `Active`.
pub async fn until_active(up: &Up, resource: Resource, name: &str, want: &str) {
    up.until_shown(&format!("{name} is {want}"), async |up| {
        let object = up.get(resource, "", name).await;
        let (_, reason, message) = condition(&object, "Active");
        if reason == want { Ok(()) } else { Err(format!("{reason}: {message}")) }
    })
    .await;
}

/// The workloads of jobs with this name.
pub async fn workload(up: &Up, job: &str) -> Option<Value> {
    let prefix = format!("job-{job}-");
    up.list(WORKLOADS).await.into_iter().find(|w| json::name(w).starts_with(&prefix))
}

/// Waits until the job runs on this worker, as the manager shows it; the worker's job.
pub async fn until_runs_on(manager: &Up, name: &str, worker: &Up, cluster: &str, pods: i64) -> Value {
    manager
        .until_shown(&format!("{name} runs on {cluster}"), async |manager| {
            let wl = workload(manager, name).await.ok_or("no workload")?;
            let job = manager.get(JOBS, "team", name).await;
            let on = wl["status"]["clusterName"] == cluster;
            let mirrored = json::int(&job, &["status", "active"]) == Some(pods);
            let admitted = json::is_true(&wl, "Admitted");
            if on && mirrored && admitted {
                Ok(())
            } else {
                Err(format!("{}\n{}", wl["status"], job["status"]))
            }
        })
        .await;
    worker.get(JOBS, "team", name).await
}

/// Waits until a job is complete, and its workload finished.
pub async fn until_complete(up: &Up, name: &str) {
    up.until_shown(&format!("{name} is complete"), async |up| {
        let job = up.get(JOBS, "team", name).await;
        let wl = workload(up, name).await.unwrap_or_default();
        let done = json::is_true(&job, "Complete") && json::is_true(&wl, "Finished");
        if done { Ok(()) } else { Err(format!("{}\n{}", job["status"], wl["status"])) }
    })
    .await;
}

/// Waits until a worker has nothing of a job.
pub async fn until_gone(worker: &Up, name: &str) {
    worker
        .until_shown(&format!("{name} is gone"), async |worker| {
            let jobs = worker.list(JOBS).await;
            let left = workload(worker, name).await.or(jobs.into_iter().find(|j| json::name(j) == name));
            left.map_or(Ok(()), |left| Err(left.to_string()))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_runs_on_the_worker_with_quota_and_moves_when_that_is_lost() {
    let (one, mut two) = (Up::start(&["--nodes", "1"]).await, Up::start(&["--nodes", "1"]).await);
    one.apply(&queue(1)).await;
    two.apply(&queue(4)).await;
    let mut manager = Manager::start().await;
    manager.dispatch_to(&[("one", &one.kubeconfig), ("two", &two.kubeconfig)]).await;
    until_active(manager.up(), MULTIKUEUE_CLUSTERS, "one", "Active").await;
    until_active(manager.up(), ADMISSION_CHECKS, "elsewhere", "Active").await;

    manager.up().create(&job("long", &json!({QUEUE: "main"}), 2, 3600)).await.unwrap();
    let theirs = until_runs_on(manager.up(), "long", &two, "two", 2).await;
    let ours = manager.up().get(JOBS, "team", "long").await;
    assert_eq!(ours["spec"]["managedBy"], "kueue.x-k8s.io/multikueue");
    assert!(theirs["spec"]["managedBy"].is_null());
    assert_eq!(json::label(&theirs, ORIGIN), "multikueue");
    let wl = workload(manager.up(), "long").await.unwrap();
    let check = &wl["status"]["admissionChecks"][0];
    assert_eq!(
        (&check["state"], &check["message"]),
        (&json!("Ready"), &json!("The workload was admitted on \"two\""))
    );
    assert_eq!(json::annotation(&theirs, "kueue.x-k8s.io/prebuilt-workload-name"), Some(json::name(&wl)));
    until_gone(&one, "long").await;
    assert!(manager.up().list(PODS).await.is_empty(), "none of the pods is here");
    let pods = two.list(PODS).await;
    assert!(pods.iter().all(|p| json::label(p, "kueue.x-k8s.io/multikueue-worker-workload-pod") == "true"));

    let url = manager.up().ready["metrics"].as_str().unwrap();
    let (_, metrics) = get(url, "/metrics");
    for want in [
        "multikueue_workloads_dispatched_total{cluster=\"one\",cluster_queue=\"cq\",replica_role=\"standalone\"} 1\n",
        "multikueue_workloads_dispatched_total{cluster=\"two\",cluster_queue=\"cq\",replica_role=\"standalone\"} 1\n",
        "multikueue_workloads_admitted_total{cluster=\"two\",cluster_queue=\"cq\",replica_role=\"standalone\"} 1\n",
    ] {
        assert!(metrics.contains(want), "{want} not in\n{metrics}");
    }
    // The next process goes on with the same job.
    manager.restart().await;
    until_active(manager.up(), MULTIKUEUE_CLUSTERS, "two", "Active").await;
    let again = until_runs_on(manager.up(), "long", &two, "two", 2).await;
    assert_eq!(json::uid(&again), json::uid(&theirs));

    let quota = json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "any",
        "resources": [{"name": "cpu", "nominalQuota": 4}]}]}]}});
    patch(&one, CLUSTER_QUEUES, "", "cq", &quota).await;
    two.kill();
    until_active(manager.up(), MULTIKUEUE_CLUSTERS, "two", "ClientConnectionFailed").await;
    until_active(manager.up(), ADMISSION_CHECKS, "elsewhere", "SomeActiveClusters").await;
    until_runs_on(manager.up(), "long", &one, "one", 2).await;

    // One that ends is mirrored to its end, and nothing of it stays on the worker.
    manager.up().create(&job("short", &json!({QUEUE: "main"}), 2, 1)).await.unwrap();
    until_complete(manager.up(), "short").await;
    until_gone(&one, "short").await;

    // So does nothing of one that is deleted.
    let long = manager.up().get(JOBS, "team", "long").await;
    manager.up().api.delete(JOBS, "team", "long", json::uid(&long), None).await.unwrap();
    until_gone(&one, "long").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_and_checks_say_what_is_wrong_with_them() {
    let worker = Up::start(&["--nodes", "0"]).await;
    worker.apply(&queue(4)).await;
    let manager = Manager::start().await;
    manager.dispatch_to(&[("good", &worker.kubeconfig)]).await;
    let up = manager.up();
    until_active(up, MULTIKUEUE_CLUSTERS, "good", "Active").await;
    // A kubeconfig that is not one any more ends the connection, and its return brings it back.
    let before = up.get(SECRETS, OWN, "good").await;
    let broken = json!({"data": {"kubeconfig": BASE64_STANDARD.encode("nothing: [")}});
    patch(up, SECRETS, OWN, "good", &broken).await;
    until_active(up, MULTIKUEUE_CLUSTERS, "good", "InsecureKubeConfig").await;
    until_active(up, ADMISSION_CHECKS, "elsewhere", "NoUsableClusters").await;
    patch(up, SECRETS, OWN, "good", &json!({"data": before["data"]})).await;
    until_active(up, MULTIKUEUE_CLUSTERS, "good", "Active").await;
    until_active(up, ADMISSION_CHECKS, "elsewhere", "Active").await;
    for (name, source, reason) in [
        (
            "missing",
            json!({"kubeConfig": {"location": "missing", "locationType": "Secret"}}),
            "BadKubeConfig",
        ),
        ("file", json!({"kubeConfig": {"location": "/etc/passwd", "locationType": "Path"}}), "BadKubeConfig"),
        ("profile", json!({"clusterProfileRef": {"name": "p"}}), "MultiKueueClusterProfileFeatureDisabled"),
    ] {
        let cluster = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
            "metadata": {"name": name}, "spec": {"clusterSource": source}});
        up.create(&cluster).await.unwrap();
        until_active(up, MULTIKUEUE_CLUSTERS, name, reason).await;
    }
    // A kubeconfig that leads nowhere, and one whose server does not know the user.
    let file = BASE64_STANDARD.decode(json::text(&before, &["data", "kubeconfig"])).unwrap();
    let file = String::from_utf8(file).unwrap();
    let server = file.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let nowhere = file.replace(server, "https://127.0.0.1:1");
    let of_user = |line: &&str| !["client-", "token:"].iter().any(|key| line.trim().starts_with(key));
    let anonymous: Vec<&str> = file.lines().filter(of_user).collect();
    let stranger = format!("{}\n    token: other\n", anonymous.join("\n"));
    for (name, file) in [("nowhere", nowhere), ("stranger", stranger)] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": OWN},
            "data": {"kubeconfig": BASE64_STANDARD.encode(file)}});
        up.create(&secret).await.unwrap();
        create_cluster(up, name, json!({"kubeConfig": {"location": name, "locationType": "Secret"}})).await;
        until_active(up, MULTIKUEUE_CLUSTERS, name, "ClientConnectionFailed").await;
    }
    until_active(up, MULTIKUEUE_CLUSTERS, "good", "Active").await;
    // A job that another controller runs is not MultiKueue's.
    let mut other = job("other", &json!({QUEUE: "main"}), 1, 1);
    other["spec"]["managedBy"] = "example.com/own".into();
    up.create(&other).await.unwrap();
    let message = up
        .until("it is rejected", async |up| {
            let wl = workload(up, "other").await?;
            let rejected = json::condition(&wl, "Evicted")?;
            Some(json::text(rejected, &["message"]).to_owned())
        })
        .await;
    assert!(message.contains("Expecting spec.managedBy to be"), "{message}");
    assert!(workload(&worker, "other").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_gate_a_kubeconfig_may_be_any_file_with_a_warning() {
    let worker = Up::start(&["--nodes", "0"]).await;
    let gate = "featureGates: {MultiKueueKubeConfigPathValidation: false}\n";
    let manager = Manager::start_with(&format!("{CONFIG}{gate}")).await;
    let location = worker.kubeconfig.display().to_string();
    let cluster = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
        "metadata": {"name": "file"},
        "spec": {"clusterSource": {"kubeConfig": {"location": location, "locationType": "Path"}}}});
    let up = manager.up();
    up.create(&cluster).await.unwrap();
    until_active(up, MULTIKUEUE_CLUSTERS, "file", "Active").await;
    let event = up
        .until("there is a warning", async |up| {
            up.list(EVENTS).await.into_iter().find(|e| e["reason"] == "DeprecatedPathUsage")
        })
        .await;
    assert_eq!((&event["type"], &event["regarding"]["name"]), (&json!("Warning"), &json!("file")));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_on_the_worker_and_stay_gated_here() {
    let worker = Up::start(&["--nodes", "1"]).await;
    worker.apply(&queue(4)).await;
    let manager = Manager::start().await;
    manager.dispatch_to(&[("one", &worker.kubeconfig)]).await;
    let up = manager.up();
    up.create(&pod("single", &json!({QUEUE: "main"}), 2)).await.unwrap();
    for name in ["a", "b"] {
        let labels = json!({QUEUE: "main", "kueue.x-k8s.io/pod-group-name": "group"});
        let mut member = pod(name, &labels, 3600);
        member["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-group-total-count": "2"});
        up.create(&member).await.unwrap();
    }
    for (name, phase) in [("single", "Succeeded"), ("a", "Running"), ("b", "Running")] {
        up.until_shown(&format!("{name} is {phase}"), async |up| {
            let ours = up.get(PODS, "team", name).await;
            assert!(ours["spec"]["nodeName"].is_null(), "{ours}");
            if ours["status"]["phase"] == phase { Ok(()) } else { Err(ours["status"].to_string()) }
        })
        .await;
    }
    let theirs = worker.get(PODS, "team", "a").await;
    assert_eq!(json::label(&theirs, ORIGIN), "multikueue");
    assert!(theirs["spec"]["nodeName"].is_string());
    // What has finished is removed from the worker.
    worker
        .until_shown("the worker has the group alone", async |worker| {
            let pods = worker.list(PODS).await;
            let mut names: Vec<&str> = pods.iter().map(json::name).collect();
            names.sort_unstable();
            if names == ["a", "b"] { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_member_of_a_group_ends_on_the_worker_and_is_replaced() {
    let worker = Up::start(&["--nodes", "1"]).await;
    worker.apply(&queue(4)).await;
    let manager = Manager::start().await;
    manager.dispatch_to(&[("one", &worker.kubeconfig)]).await;
    let up = manager.up();
    let create = async |name: &str| {
        let labels = json!({QUEUE: "main", "kueue.x-k8s.io/pod-group-name": "group"});
        let mut member = pod(name, &labels, 3600);
        member["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-group-total-count": "2"});
        up.create(&member).await.unwrap();
    };
    let until_running = async |up: &Up, want: [&str; 2]| {
        up.until_shown(&format!("{want:?} run"), async |up| {
            let pods = up.list(PODS).await;
            let mut names: Vec<(&str, &str)> =
                pods.iter().map(|p| (json::name(p), json::text(p, &["status", "phase"]))).collect();
            names.sort_unstable();
            if names == want.map(|name| (name, "Running")) { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
    };
    create("a").await;
    create("b").await;
    until_running(up, ["a", "b"]).await;
    let member = up.get(PODS, "team", "a").await;
    up.api.delete(PODS, "team", "a", json::uid(&member), None).await.unwrap();
    worker
        .until_shown("it is deleted on the worker, too", async |worker| {
            let theirs = worker.get(PODS, "team", "a").await;
            if json::deleting(&theirs) { Ok(()) } else { Err(theirs["status"].to_string()) }
        })
        .await;
    create("c").await;
    until_running(&worker, ["b", "c"]).await;
    until_running(up, ["b", "c"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hangs_holds_up_nobody() {
    let (one, two) = (Up::start(&["--nodes", "1"]).await, Up::start(&["--nodes", "1"]).await);
    one.apply(&queue(4)).await;
    two.apply(&queue(4)).await;
    let proxy = Proxy::start(&one.kubeconfig, &one.dir).await;
    let manager = Manager::start().await;
    manager.dispatch_to(&[("one", &proxy.kubeconfig), ("two", &two.kubeconfig)]).await;
    until_active(manager.up(), MULTIKUEUE_CLUSTERS, "one", "Active").await;
    proxy.rule(|_| Fault::Hang);
    let began = Instant::now();
    for name in ["a", "b", "c", "d"] {
        manager.up().create(&job(name, &json!({QUEUE: "main"}), 1, 3600)).await.unwrap();
    }
    for name in ["a", "b", "c", "d"] {
        until_runs_on(manager.up(), name, &two, "two", 1).await;
    }
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "they waited for the other one: {:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_and_a_deployment_run_on_the_worker() {
    let worker = Up::start(&["--nodes", "1"]).await;
    worker.apply(&queue(4)).await;
    let manager = Manager::start().await;
    manager.dispatch_to(&[("one", &worker.kubeconfig)]).await;
    let up = manager.up();
    for (kind, name) in [("StatefulSet", "db"), ("Deployment", "web")] {
        let labels = json!({"app": name});
        let mut spec = pod("p", &json!({}), 3600)["spec"].clone();
        spec["restartPolicy"] = "Always".into();
        let template = json!({"metadata": {"labels": labels}, "spec": spec});
        up.create(&json!({"apiVersion": "apps/v1", "kind": kind,
            "metadata": {"namespace": "team", "name": name, "labels": {QUEUE: "main"}},
            "spec": {"replicas": 2, "serviceName": name, "selector": {"matchLabels": labels}, "template": template}}))
            .await
            .unwrap();
    }
    let running = async |app: &str| {
        let pods = worker.list(PODS).await;
        pods.iter().filter(|p| json::label(p, "app") == app && p["status"]["phase"] == "Running").count()
    };
    worker
        .until_shown("all their pods run on the worker", async |_| {
            let both = (running("db").await, running("web").await);
            if both == (2, 2) { Ok(()) } else { Err(format!("{both:?}")) }
        })
        .await;
    assert!(up.list(PODS).await.iter().all(|p| p["spec"]["nodeName"].is_null()), "none of them is here");
    let theirs = worker.get(STATEFUL_SETS, "team", "db").await;
    let ours = up.get(STATEFUL_SETS, "team", "db").await;
    assert_eq!(json::annotation(&theirs, "kueue.x-k8s.io/multikueue-origin-uid"), Some(json::uid(&ours)));
    up.api.delete(STATEFUL_SETS, "team", "db", json::uid(&ours), None).await.unwrap();
    worker
        .until_shown("nothing is left of the set", async |worker| {
            let left =
                [worker.list(STATEFUL_SETS).await, worker.list(PODS).await, worker.list(WORKLOADS).await];
            // A hash at the end of another name may have these letters, too.
            let of_set = |o: &Value| format!("-{}-", json::name(o)).contains("-db-");
            left.concat().into_iter().find(of_set).map_or(Ok(()), |left| Err(left.to_string()))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn quotas_of_the_manager_follow_those_of_its_workers() {
    let (one, mut two) = (Up::start(&["--nodes", "0"]).await, Up::start(&["--nodes", "0"]).await);
    one.apply(&queue(2)).await;
    two.apply(&queue(4)).await;
    let gate = "featureGates: {MultiKueueManagerQuotaAutomation: true}\n";
    let manager = Manager::start_with(&format!("{CONFIG}{gate}")).await;
    manager.dispatch_to(&[("one", &one.kubeconfig), ("two", &two.kubeconfig)]).await;
    let until = async |cpus: &str, reason: &str| {
        manager
            .up()
            .until_shown(&format!("the quota is {cpus}, {reason}"), async |up| {
                let queue = up.get(CLUSTER_QUEUES, "", "cq").await;
                let flavor = &queue["spec"]["resourceGroups"][0]["flavors"][0];
                let (_, shown, _) = condition(&queue, "MultiKueueManagerQuotaAutomation");
                let quota = flavor["resources"] == json!([{"name": "cpu", "nominalQuota": cpus}]);
                if quota && shown == reason { Ok(()) } else { Err(format!("{flavor} {shown}")) }
            })
            .await;
    };
    manager
        .up()
        .until_shown("it has not been asked for", async |up| {
            let queue = up.get(CLUSTER_QUEUES, "", "cq").await;
            let (status, reason, _) = condition(&queue, "MultiKueueManagerQuotaAutomation");
            if (status, reason) == ("False", "NotRequested") { Ok(()) } else { Err(reason.to_owned()) }
        })
        .await;
    let automated = json!({"spec": {"quotaManagement": "Automated"}});
    patch(manager.up(), MULTIKUEUE_CONFIGS, "", "workers", &automated).await;
    until("6", "QuotaAutomated").await;
    let quota = json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "any",
        "resources": [{"name": "cpu", "nominalQuota": "500m"}]}]}]}});
    patch(&one, CLUSTER_QUEUES, "", "cq", &quota).await;
    until("4500m", "QuotaAutomated").await;
    let local = one.get(LOCAL_QUEUES, "team", "main").await;
    one.api.delete(LOCAL_QUEUES, "team", "main", json::uid(&local), None).await.unwrap();
    until("4", "QuotaAutomated").await;
    // One that can't be reached offers nothing.
    two.kill();
    until("0", "QuotaAutomated").await;
}

const CLUSTER_PROFILES: Resource = Resource {
    api_version: "multicluster.x-k8s.io/v1alpha1",
    plural: "clusterprofiles",
    kind: "ClusterProfile",
};
const DEFINITION: &str = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusterprofiles.multicluster.x-k8s.io",
                 "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}},
    "spec": {"group": "multicluster.x-k8s.io", "scope": "Namespaced",
             "names": {"plural": "clusterprofiles", "singular": "clusterprofile", "kind": "ClusterProfile"},
             "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                           "schema": {"openAPIV3Schema": {"type": "object",
                                      "x-kubernetes-preserve-unknown-fields": true}}}]}}"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_profile_and_an_exec_plugin_make_a_worker() {
    let worker = Up::start(&["--nodes", "1"]).await;
    worker.apply(&queue(4)).await;
    let text = std::fs::read_to_string(&worker.kubeconfig).unwrap();
    let file: Value = serde_saphyr::from_str(&text).unwrap();
    let user = &file["users"][0]["user"];
    let pem = |key: &str| {
        let data = user[key].as_str().map(|data| BASE64_STANDARD.decode(data).unwrap());
        data.map(|data| String::from_utf8(data).unwrap())
    };
    let status = json!({"token": user["token"], "clientCertificateData": pem("client-certificate-data"),
                        "clientKeyData": pem("client-key-data")});
    let credential =
        json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status});
    let path = worker.dir.join("credential.json");
    std::fs::write(&path, credential.to_string()).unwrap();
    let plugin = format!(
        "featureGates: {{MultiKueueClusterProfile: true}}\nmultiKueue:\n  clusterProfile:\n    accessProviders:\n    - name: own\n      \
         execConfig: {{command: cat, args: [{:?}], apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}}\n",
        path.display()
    );
    let config = CONFIG.replace("multiKueue: {workerLostTimeout: 5s, gcInterval: 1s}\n", &plugin);
    let manager = Manager::start_with(&config).await;
    let up = manager.up();
    create_namespace(up).await;
    create_cluster(up, "one", json!({"clusterProfileRef": {"name": "fleet"}})).await;
    create_queue(up, &["one"]).await;
    let until = async |reason: &str, message: &str| {
        up.until_shown(&format!("{reason}: {message}"), async |up| {
            let cluster = up.get(MULTIKUEUE_CLUSTERS, "", "one").await;
            let (_, shown, text) = condition(&cluster, "Active");
            if (shown, text) == (reason, message) { Ok(()) } else { Err(format!("{shown}: {text}")) }
        })
        .await;
    };
    let missing = "load client config failed: ClusterProfile.multicluster.x-k8s.io \"fleet\" not found";
    until("BadClusterProfile", missing).await;
    up.create(&serde_json::from_str::<Value>(DEFINITION).unwrap()).await.unwrap();
    let profile = json!({"apiVersion": CLUSTER_PROFILES.api_version, "kind": CLUSTER_PROFILES.kind,
                         "metadata": {"name": "fleet", "namespace": OWN}, "spec": {}});
    up.until("the kind is served", async |up| up.api.create(CLUSTER_PROFILES, &profile).await.ok()).await;
    let unknown =
        "load client config failed: no matching cluster accessor found for cluster profile \"fleet\"";
    until("BadClusterProfile", unknown).await;
    let provider = json!({"name": "own", "cluster": file["clusters"][0]["cluster"]});
    let status = json!({"status": {"accessProviders": [provider]}});
    up.api.patch(CLUSTER_PROFILES, OWN, "fleet", "status", PatchKind::Merge, &status).await.unwrap();
    until("Active", "Connected").await;
    up.create(&job("there", &json!({QUEUE: "main"}), 2, 3600)).await.unwrap();
    until_runs_on(up, "there", &worker, "one", 2).await;
    let shown = up.get(CLUSTER_PROFILES, OWN, "fleet").await;
    up.api.delete(CLUSTER_PROFILES, OWN, "fleet", json::uid(&shown), None).await.unwrap();
    until("BadClusterProfile", missing).await;
}
