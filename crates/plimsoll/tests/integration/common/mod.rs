//! A control plane in its own process, and what the tests ask it. Everything goes through the front door: HTTPS with
//! the kubeconfig that the program wrote.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
#![allow(dead_code, reason = "the chaos example uses another part of them")]

pub mod process;
pub mod proxy;
pub mod run;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use plimsoll_api::json;
use plimsoll_runtime::api::{Api, Resource};
use serde_json::Value;

/// Longest wait for anything; generous, because test machines are slow.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A running `plimsoll up`.
pub struct Up {
    child: Child,
    pub api: Api,
    pub kubeconfig: PathBuf,
    pub ready: Value,
    pub dir: PathBuf,
}

/// One look of a wait: a request of it may hang, too.
async fn in_time<T>(what: &str, look: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, look)
        .await
        .unwrap_or_else(|_| panic!("one look took longer than {PATIENCE:?}: {what}"))
}

/// A directory of this test alone, removed with [`Up`].
pub fn directory() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("plimsoll-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let dir = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// The program: that of this build, or the one that `PLIMSOLL_BINARY` names.
pub fn binary() -> Command {
    let built = option_env!("CARGO_BIN_EXE_plimsoll").unwrap_or("plimsoll");
    Command::new(std::env::var_os("PLIMSOLL_BINARY").unwrap_or_else(|| built.into()))
}

impl Up {
    pub async fn start(args: &[&str]) -> Self {
        Self::start_in(directory(), args).await
    }

    pub async fn start_in(dir: PathBuf, args: &[&str]) -> Self {
        let kubeconfig = dir.join("kubeconfig");
        Self::start_with(dir, &kubeconfig, args).await
    }

    /// With the kubeconfig somewhere else; `dir` goes with this.
    pub async fn start_with(dir: PathBuf, kubeconfig: &Path, args: &[&str]) -> Self {
        let kubeconfig = kubeconfig.to_owned();
        let port: &[&str] = if args.contains(&"--port") { &[] } else { &["--port", "0"] };
        let mut child = binary()
            .args(["up", "--output", "json", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(port)
            .args(args)
            .stdout(Stdio::piped())
            // Tests that set a format read the log.
            .stderr(match args.contains(&"--log-format") {
                true => std::fs::File::create(dir.join("log")).unwrap().into(),
                false => Stdio::inherit(),
            })
            .spawn()
            .unwrap();
        let line = process::Lines::of(child.stdout.take().unwrap()).next();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        let file = kube::config::Kubeconfig::read_from(&kubeconfig).unwrap();
        let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
        let api = plimsoll_runtime::connect::api(config, "test").unwrap();
        Self { child, api, kubeconfig, ready, dir }
    }

    /// Ends the process without a warning, as a power failure would.
    pub fn kill(&mut self) {
        process::kill(&mut self.child);
    }

    /// Ends the process as Ctrl-C does and gives its exit code.
    pub fn interrupt(&mut self) -> Option<i32> {
        process::signal(&self.child, "INT");
        process::ended(&mut self.child)
    }

    /// Waits for the end and gives the exit code.
    pub fn wait(&mut self) -> Option<i32> {
        process::ended(&mut self.child)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Creates every document of a manifest, in order.
    pub async fn apply(&self, text: &str) {
        for document in serde_saphyr::from_multiple::<Value>(text).unwrap() {
            if !document.is_null() {
                self.create(&document).await.unwrap_or_else(|e| panic!("{e}: {document}"));
            }
        }
    }

    pub async fn create(&self, object: &Value) -> Result<Value, plimsoll_runtime::api::Error> {
        self.api.create(resource(object), object).await
    }

    pub async fn list(&self, resource: Resource) -> Vec<Value> {
        let list = self.api.get_path(&resource.collection("")).await.unwrap();
        json::list(&list, &["items"]).to_vec()
    }

    pub async fn get(&self, resource: Resource, namespace: &str, name: &str) -> Value {
        self.api.get(resource, namespace, name).await.unwrap()
    }

    /// Asks until it holds; shows what was seen last when it never does.
    pub async fn until_shown(&self, what: &str, mut holds: impl AsyncFnMut(&Self) -> Result<(), String>) {
        let began = Instant::now();
        while let Err(seen) = in_time(what, holds(self)).await {
            assert!(began.elapsed() < PATIENCE, "waited too long: {what}\nseen: {seen}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Asks until `ready` says something.
    pub async fn until<T>(&self, what: &str, mut ready: impl AsyncFnMut(&Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = in_time(what, ready(self)).await {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "waited too long: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        process::kill(&mut self.child);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The resource of an object, for the kinds in the tests.
pub fn resource(object: &Value) -> Resource {
    use plimsoll_runtime::api::*;
    const DEFINITIONS: Resource = Resource {
        api_version: "apiextensions.k8s.io/v1",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
    };
    /// A kind of the tests' own.
    const TRAINS: Resource = Resource { api_version: "example.com/v1", plural: "trains", kind: "Train" };
    const DEPLOYMENTS: Resource =
        Resource { api_version: "apps/v1", plural: "deployments", kind: "Deployment" };
    const STATEFUL_SETS: Resource =
        Resource { api_version: "apps/v1", plural: "statefulsets", kind: "StatefulSet" };
    const CLAIMS: Resource =
        Resource { api_version: "resource.k8s.io/v1", plural: "resourceclaims", kind: "ResourceClaim" };
    let all = [
        CLAIMS,
        DEPLOYMENTS,
        STATEFUL_SETS,
        CORE_EVENTS,
        PODS,
        NODES,
        NAMESPACES,
        JOBS,
        PRIORITY_CLASSES,
        WORKLOADS,
        CLUSTER_QUEUES,
        LOCAL_QUEUES,
        COHORTS,
        FLAVORS,
        WORKLOAD_PRIORITY_CLASSES,
        LIMIT_RANGES,
        RUNTIME_CLASSES,
        ADMISSION_CHECKS,
        MULTIKUEUE_CONFIGS,
        MULTIKUEUE_CLUSTERS,
        SECRETS,
        TOPOLOGIES,
        PREEMPTION_CONFIGS,
        RUN_WINDOWS,
        QUOTA_LOANS,
        SERVICES,
        BUDGETS,
        VOLUMES,
        VOLUME_CLAIMS,
        STORAGE_CLASSES,
        PROVISIONING_CONFIGS,
        PROVISIONING_REQUESTS,
        POD_TEMPLATES,
        CLAIM_TEMPLATES,
        DEVICE_CLASSES,
        DEVICE_SLICES,
        DEFINITIONS,
        TRAINS,
        LEADER_WORKER_SETS,
        SPARK_APPLICATIONS,
        JOB_KINDS,
    ];
    let kind = json::text(object, &["kind"]);
    all.into_iter().find(|r| r.kind == kind).unwrap_or_else(|| panic!("{kind}"))
}

/// One ClusterQueue with this much cpu, one flavor, and a LocalQueue `main` in namespace `team`.
pub fn queue(cpu: u32) -> String {
    format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: team}}\n---\n\
         apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: any}}\n---\n\
         apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: cq}}\nspec:\n  \
         namespaceSelector: {{}}\n  resourceGroups:\n  - coveredResources: [cpu]\n    flavors:\n    - name: any\n      \
         resources: [{{name: cpu, nominalQuota: {cpu}}}]\n---\n\
         apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {{name: main, namespace: team}}\n\
         spec: {{clusterQueue: cq}}\n"
    )
}

pub fn pod(name: &str, labels: &Value, seconds: u32) -> Value {
    serde_json::json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "work", "image": "busybox",
            "command": ["sleep", seconds.to_string()], "resources": {"requests": {"cpu": "1"}}}]}})
}

pub fn job(name: &str, labels: &Value, pods: u32, seconds: u32) -> Value {
    serde_json::json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "work", "image": "busybox", "command": ["sleep", seconds.to_string()],
                "resources": {"requests": {"cpu": "1"}}}]}}}})
}

/// A [`job`] that is suspended from the beginning: without webhooks one that isn't may have ended before it is noticed.
pub fn suspended_job(name: &str, labels: &Value, pods: u32, seconds: u32) -> Value {
    let mut job = job(name, labels, pods, seconds);
    job["spec"]["suspend"] = true.into();
    job
}

/// `status`, `reason` and `message` of a condition; empty when it is not there.
pub fn condition<'a>(object: &'a Value, kind: &str) -> (&'a str, &'a str, &'a str) {
    let c = json::condition(object, kind).unwrap_or(&Value::Null);
    (json::text(c, &["status"]), json::text(c, &["reason"]), json::text(c, &["message"]))
}

fn units(resource: &str, quantity: &Value) -> i64 {
    let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
    let q: plimsoll_api::Quantity = text.parse().unwrap();
    if resource == "cpu" { q.milli_value() } else { q.value() }
}

/// Quota by (ClusterQueue, flavor, resource) as the specs give it.
pub fn quotas(cluster_queues: &[Value]) -> BTreeMap<(String, String, String), i64> {
    let mut out = BTreeMap::new();
    for cq in cluster_queues {
        for group in json::list(cq, &["spec", "resourceGroups"]) {
            for flavor in json::list(group, &["flavors"]) {
                for r in json::list(flavor, &["resources"]) {
                    let resource = json::text(r, &["name"]).to_owned();
                    let amount = units(&resource, &r["nominalQuota"]);
                    let key = (json::name(cq).to_owned(), json::text(flavor, &["name"]).to_owned(), resource);
                    out.insert(key, amount);
                }
            }
        }
    }
    out
}

/// What unfinished workloads hold, by (ClusterQueue, flavor, resource).
pub fn reserved(workloads: &[Value]) -> BTreeMap<(String, String, String), i64> {
    let mut out = BTreeMap::new();
    for wl in workloads.iter().filter(|w| !json::is_true(w, "Finished")) {
        let admission = &wl["status"]["admission"];
        for psa in json::list(admission, &["podSetAssignments"]) {
            let name = &psa["name"];
            let count = psa["count"].as_i64().unwrap_or(1);
            let done = json::list(wl, &["status", "reclaimablePods"]).iter().find(|r| r["name"] == *name);
            let left = count - done.and_then(|r| r["count"].as_i64()).unwrap_or(0);
            for (resource, total) in psa["resourceUsage"].as_object().into_iter().flatten() {
                let flavor = json::text(psa, &["flavors", resource]).to_owned();
                let key = (json::text(admission, &["clusterQueue"]).to_owned(), flavor, resource.clone());
                *out.entry(key).or_insert(0) += units(resource, total) * left / count.max(1);
            }
        }
    }
    out
}

/// Nothing is ever reserved beyond its quota (no borrowing in these tests).
pub fn assert_within_quota(cluster_queues: &[Value], workloads: &[Value]) {
    let quotas = quotas(cluster_queues);
    for (key, used) in reserved(workloads) {
        let quota = quotas.get(&key).copied().unwrap_or(0);
        assert!(used <= quota, "{key:?}: {used} reserved of {quota}");
    }
}

/// Writes a kubeconfig with nothing but a token of the ServiceAccount of `deploy/`.
pub async fn account_kubeconfig(admin: &Path, to: &Path) {
    let token = token(admin, plimsoll_api::webhooks::NAMESPACE, "plimsoll").await;
    let file = kube::config::Kubeconfig::read_from(admin).unwrap();
    let mut file = serde_json::to_value(&file).unwrap();
    let name = file["users"][0]["name"].clone();
    file["users"] = serde_json::json!([{"name": name, "user": {"token": token}}]);
    std::fs::write(to, file.to_string()).unwrap();
}

/// A token of a ServiceAccount.
pub async fn token(admin: &Path, namespace: &str, account: &str) -> String {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let file = kube::config::Kubeconfig::read_from(admin).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    let client = kube::Client::try_from(config).unwrap();
    let body =
        serde_json::json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())
        .unwrap();
    let answer: Value = client.request(request).await.unwrap();
    let token = json::text(&answer, &["status", "token"]);
    assert!(!token.is_empty(), "{answer}");
    token.to_owned()
}
