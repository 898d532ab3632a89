//! A real kube-apiserver with what a cluster has around it: controllers and simulated kubelets.
//!
//! `etcd` and `kube-apiserver` are taken from `KUBEBUILDER_ASSETS`, as everywhere; without it tests say so and pass. Programs
//! of Kubernetes and Kueue that are in the same directory take part.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

#[path = "../../src/bench/process.rs"]
#[allow(dead_code)]
mod process;
#[path = "../../src/bench/upstream.rs"]
#[allow(dead_code)]
mod upstream;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, directory};
use plimsoll_api::json;
use plimsoll_api::webhooks::NAMESPACE;
use plimsoll_runtime::api::{Api, NODES, PODS, PatchKind, Resource, WORKLOADS};
use plimsoll_runtime::simulated;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use upstream::Upstream;

pub const DEFINITIONS: Resource = Resource {
    api_version: "apiextensions.k8s.io/v1",
    plural: "customresourcedefinitions",
    kind: "CustomResourceDefinition",
};
pub const DEPLOYMENTS: Resource =
    Resource { api_version: "apps/v1", plural: "deployments", kind: "Deployment" };
pub const MUTATING: Resource = Resource {
    api_version: "admissionregistration.k8s.io/v1",
    plural: "mutatingwebhookconfigurations",
    kind: "MutatingWebhookConfiguration",
};
pub const VALIDATING: Resource = Resource {
    api_version: "admissionregistration.k8s.io/v1",
    plural: "validatingwebhookconfigurations",
    kind: "ValidatingWebhookConfiguration",
};

/// A process of ours that ends with the test.
pub struct Process(Child, PathBuf);

impl Process {
    /// Starts a program that logs into this file beside the kubeconfig.
    pub fn start(program: &mut Command, kubeconfig: &Path, log: &str) -> Self {
        let log = kubeconfig.with_file_name(log);
        let file = std::fs::File::create(&log).unwrap();
        let child = program
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|e| panic!("{program:?}: {e}"));
        Self(child, log)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.1).unwrap_or_default()
    }

    pub fn kill(&mut self) {
        crate::common::process::kill(&mut self.0);
    }

    /// Ends it as an orchestrator does, and gives the exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        crate::common::process::signal(&self.0, "TERM");
        crate::common::process::ended(&mut self.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        crate::common::process::kill(&mut self.0);
    }
}

/// `KUBEBUILDER_ASSETS`, if these programs are there.
pub fn assets(programs: &[&str]) -> Option<PathBuf> {
    let dir = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from).unwrap_or_default();
    let needed = ["etcd", "kube-apiserver"];
    let missing: Vec<&&str> = needed.iter().chain(programs).filter(|p| !dir.join(p).exists()).collect();
    if missing.is_empty() {
        return Some(dir);
    }
    eprintln!("skipped: KUBEBUILDER_ASSETS names no directory with {missing:?}");
    None
}

/// A running API server, and what runs with it.
pub struct Real {
    pub api: Api,
    pub assets: PathBuf,
    pub kubeconfig: PathBuf,
    /// Whether Kubernetes' controllers run: Jobs and Deployments get pods then.
    pub controllers: Option<Process>,
    stop: CancellationToken,
    kubelets: Option<JoinHandle<()>>,
    _upstream: Upstream,
}

impl Drop for Real {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Real {
    pub async fn start(assets: &Path) -> Self {
        let upstream = Upstream::start(assets, directory(), false).await.unwrap();
        let kubeconfig = upstream.kubeconfig.clone();
        let api = client(&kubeconfig).await;
        let stop = CancellationToken::new();
        let assets = assets.to_owned();
        Self { api, assets, kubeconfig, controllers: None, stop, kubelets: None, _upstream: upstream }
    }

    /// Starts Kubernetes' controllers, where they are, and kubelets whose pods take a tenth of the time.
    pub async fn populate(&mut self, nodes: usize, controllers: &str) {
        let program = self.assets.join("kube-controller-manager");
        if program.exists() {
            let mut program = Command::new(program);
            program
                .arg(format!("--kubeconfig={}", self.kubeconfig.display()))
                .arg(format!("--controllers={controllers}"))
                .args(["--leader-elect=false", "--secure-port=0"]);
            self.controllers =
                Some(Process::start(&mut program, &self.kubeconfig, "kube-controller-manager.log"));
        } else {
            eprintln!("no kube-controller-manager in {}", self.assets.display());
        }
        let options = plimsoll_kubelet::Options { speed: 10.0, ..plimsoll_kubelet::Options::default() };
        let now = plimsoll_runtime::clock::now().0;
        let all = (0..nodes).map(|i| plimsoll_kubelet::nodes::node(i, &Default::default(), now)).collect();
        simulated::create_nodes(&self.api, all).await.unwrap();
        // Admission taints new nodes; who would take it away is not here.
        for i in 0..nodes {
            let free = json!({"spec": {"taints": null}});
            self.api.patch(NODES, "", &format!("node-{i}"), "", PatchKind::Merge, &free).await.unwrap();
        }
        self.kubelets = Some(tokio::spawn(simulated::run(self.api.clone(), options, self.stop.clone())));
    }

    /// Stops the kubelets, and waits until they have.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(kubelets) = self.kubelets.take() {
            let _ = kubelets.await;
        }
    }

    /// As administrators see it.
    pub fn site(&self) -> Site {
        let own = self.assets.join("kubectl");
        let kubectl = if own.exists() { own } else { "kubectl".into() };
        Site { api: self.api.clone(), kubeconfig: self.kubeconfig.clone(), kubectl }
    }
}

/// A cluster as its administrators see it.
pub struct Site {
    pub api: Api,
    pub kubeconfig: PathBuf,
    pub kubectl: PathBuf,
}

impl Site {
    /// Applies what `plimsoll install` prints with these flags.
    pub fn install(&self, flags: &[&str]) {
        let out = crate::common::binary().arg("install").args(flags).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let mut apply = Command::new(&self.kubectl)
            .args(["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        apply.stdin.take().unwrap().write_all(&out.stdout).unwrap();
        assert!(apply.wait().unwrap().success());
    }

    /// Runs commands of a page with `kubectl` and `plimsoll` of the test.
    pub fn shell(&self, commands: &str) -> String {
        let functions =
            "kubectl() { command \"$KUBECTL\" \"$@\"; }\nplimsoll() { command \"$PLIMSOLL\" \"$@\"; }";
        let out = Command::new("timeout")
            .args([&PATIENCE.as_secs().to_string(), "sh", "-ec", &format!("{functions}\n{commands}")])
            .env("KUBECTL", &self.kubectl)
            .env("PLIMSOLL", crate::common::binary().get_program())
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(out.status.success(), "{commands}\n{said}");
        said
    }
}

/// The commands of `docs/cluster.md` that have these words in them.
pub fn documented(words: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md");
    let text = std::fs::read_to_string(file).unwrap();
    let blocks = text.split("```sh\n").skip(1).map(|b| b.split("```").next().unwrap());
    let found: Vec<&str> = blocks.filter(|b| b.contains(words)).collect();
    assert_eq!(found.len(), 1, "commands of docs/cluster.md with {words:?}: {found:?}");
    found[0].to_owned()
}

pub async fn client(kubeconfig: &Path) -> Api {
    let file = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    plimsoll_runtime::connect::api(config, "test").unwrap()
}

pub async fn list(api: &Api, resource: Resource) -> Vec<Value> {
    // "storage is (re)initializing": a definition was created or changed a moment ago, and clients retry.
    let list = until("a list", async || match api.get_path(&resource.collection("")).await {
        Err(e) if e.to_string().contains("initializing") => None,
        list => Some(list.unwrap()),
    });
    json::list(&list.await, &["items"]).to_vec()
}

pub fn documents(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    all.into_iter().filter(|d| !d.is_null()).collect()
}

/// The resource of an object of any kind, by the rule that plurals of Kubernetes' kinds follow.
pub fn regular(object: &Value) -> Resource {
    let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let kind = json::text(object, &["kind"]);
    Resource {
        api_version: leak(json::text(object, &["apiVersion"])),
        plural: leak(&format!("{}s", kind.to_lowercase())),
        kind: leak(kind),
    }
}

/// Changes who converts Kueue's kinds.
pub async fn convert(api: &Api, client: &Value) {
    let patch = json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}});
    for definition in list(api, DEFINITIONS).await {
        if definition["spec"]["conversion"]["strategy"] == "Webhook" {
            let name = json::name(&definition);
            api.patch(DEFINITIONS, "", name, "", PatchKind::Merge, &patch).await.unwrap();
        }
    }
}

/// Creates Kueue's definitions and Plimsoll's, with conversion by a Service that nobody serves, and waits until they are served.
pub async fn install_definitions(api: &Api) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    for file in std::fs::read_dir(dir).unwrap() {
        for object in documents(&file.unwrap().path()) {
            api.create(DEFINITIONS, &object).await.unwrap_or_else(|e| panic!("{e}: {}", json::name(&object)));
        }
    }
    served(api).await;
}

async fn served(api: &Api) {
    until("the definitions are served", async || {
        api.get_path(&WORKLOADS.collection("")).await.is_ok().then_some(())
    })
    .await;
}

/// Creates what `deploy/kustomization.yaml` lists, and waits until the definitions are served.
pub async fn install(api: &Api) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let [kustomization] = &documents(&dir.join("kustomization.yaml"))[..] else { panic!("one document") };
    let files = json::list(kustomization, &["resources"]).iter().map(|f| dir.join(f.as_str().unwrap()));
    for mut object in files.flat_map(|f| documents(&f)) {
        // Nothing here calls webhooks of a Service, and the program registers its own address.
        if json::text(&object, &["kind"]).ends_with("WebhookConfiguration") {
            object["webhooks"] = json!([]);
        }
        let resource = regular(&object);
        api.create(resource, &object).await.unwrap_or_else(|e| panic!("{e}: {}", json::name(&object)));
    }
    served(api).await;
}

/// Creates the objects of a manifest, in order.
pub async fn create(api: &Api, text: &str) {
    for object in serde_saphyr::from_multiple::<Value>(text).unwrap() {
        let resource = crate::common::resource(&object);
        api.create(resource, &object).await.unwrap_or_else(|e| panic!("{e}: {object}"));
    }
}

pub async fn until<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ready().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// As [`until`], with what was seen last when it never holds.
pub async fn until_shown<T>(what: &str, mut holds: impl AsyncFnMut() -> Result<T, String>) -> T {
    let began = Instant::now();
    loop {
        match holds().await {
            Ok(found) => return found,
            Err(seen) => assert!(began.elapsed() < PATIENCE, "waited too long: {what}\nseen: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// `plimsoll run` with a token of the ServiceAccount, as a container of the Deployment: a Lease of 3 s, webhooks on a port of
/// its own.
pub fn run(kubeconfig: &Path, log: &str) -> Process {
    run_with(kubeconfig, log, &[])
}

/// [`run`], with more flags.
pub fn run_with(kubeconfig: &Path, log: &str, more: &[&str]) -> Process {
    let mut program = crate::common::binary();
    program
        .args(["--log", "warn,plimsoll_runtime=debug", "run", "--output", "json", "--webhook-port", "0"])
        .args(["--leader-elect-resource-namespace", NAMESPACE, "--metrics-bind-address", "0"])
        .args(["--leader-elect-lease-duration", "8s", "--leader-elect-renew-deadline", "6s"])
        .args(["--leader-elect-retry-period", "500ms", "--kubeconfig"])
        .arg(kubeconfig)
        .args(more);
    Process::start(&mut program, kubeconfig, log)
}

/// A kubeconfig with a token of Plimsoll's ServiceAccount.
pub async fn account(kubeconfig: &Path) -> PathBuf {
    let account = kubeconfig.with_file_name("account");
    crate::common::account_kubeconfig(kubeconfig, &account).await;
    account
}

/// Waits until a replica has registered its own address.
pub async fn registered(api: &Api) {
    until("webhooks are registered", async || {
        let (mut all, validating) = (list(api, MUTATING).await, list(api, VALIDATING).await);
        all.extend(validating);
        all.retain(|c| json::name(c).starts_with("plimsoll"));
        let webhooks: Vec<&Value> = all.iter().flat_map(|c| json::list(c, &["webhooks"])).collect();
        let here = webhooks.iter().all(|w| w["clientConfig"]["url"].is_string());
        (all.len() == 2 && !webhooks.is_empty() && here).then_some(())
    })
    .await;
}

/// Pods of a namespace that run, and are not being deleted.
pub async fn running(api: &Api, namespace: &str) -> Vec<Value> {
    let mut pods = list(api, PODS).await;
    pods.retain(|p| {
        json::namespace(p) == namespace && p["status"]["phase"] == "Running" && !json::deleting(p)
    });
    pods
}
