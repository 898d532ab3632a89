//! From Kueue to Plimsoll and back, as `docs/cluster.md` says: Kueue's manager with its webhooks, Kubernetes' controllers and
//! scheduler against a real kube-apiserver. Each takes over the jobs that run and wait.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use plimsoll_api::json;
use plimsoll_api::webhooks::{CONVERT, MUTATING, NAMESPACE, VALIDATING, configurations};
use plimsoll_client::certificates::{Authority, Subject};
use plimsoll_runtime::api::{Api, CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, NAMESPACES, PODS, SECRETS, WORKLOADS};
use serde_json::{Value, json};

use crate::common::{assert_within_quota, condition, job, pod, queue};
use crate::real_cluster::{
    self, Process, Real, convert, create, documented, list, regular, run_with, until, until_shown,
};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// Longer than any test.
const LONG: u32 = 36000;
const SYSTEM: &str = "kueue-system";
const SERVICE: &str = "kueue-webhook-service";
const SECRET: &str = "kueue-webhook-server-cert";

/// Webhooks that the manager serves with these integrations, without the letter that says which kind they are.
const SERVED: [&str; 7] =
    ["admissioncheck", "clusterqueue", "cohort", "job", "pod", "resourceflavor", "workload"];

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// What Kueue needs besides its definitions.
struct Kueue {
    port: u16,
    config: PathBuf,
    certificates: PathBuf,
}

impl Kueue {
    /// Kueue's namespace and its empty Secret, as in its manifests.
    async fn install(cluster: &Real) -> Self {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}});
        cluster.api.create(NAMESPACES, &namespace).await.unwrap();
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": SYSTEM}});
        cluster.api.create(SECRETS, &secret).await.unwrap();
        let certificates = cluster.kubeconfig.with_file_name("kueue-certs");
        std::fs::create_dir_all(&certificates).unwrap();
        let config = cluster.kubeconfig.with_file_name("kueue.yaml");
        let port = free_port();
        std::fs::write(&config, configuration(port, &certificates).to_string()).unwrap();
        Self { port, config, certificates }
    }

    /// What applying Kueue's manifests does to webhooks and conversion, at a port of the loopback. The manager fills in its
    /// authority.
    async fn register(&self, api: &Api) {
        let client = |path: &str| json!({"url": format!("https://127.0.0.1:{}{path}", self.port)});
        let mut conversion = client(CONVERT);
        conversion["service"] = Value::Null;
        conversion["caBundle"] = Value::Null;
        convert(api, &conversion).await;
        for mut configuration in configurations(client, SYSTEM) {
            let name = json::name(&configuration).replace("plimsoll", "kueue");
            configuration["metadata"]["name"] = name.into();
            let webhooks = configuration["webhooks"].as_array_mut().unwrap();
            webhooks.retain(|w| {
                let name = json::text(w, &["name"]).split('.').next().unwrap();
                SERVED.contains(&&name[1..])
            });
            api.create(regular(&configuration), &configuration).await.unwrap();
        }
    }

    /// What the kubelet does for the manager: it mounts the certificate. That of the Secret is for the Service alone, so the same
    /// authority issues another one, for the loopback.
    async fn mount_certificate(&self, api: &Api) {
        if self.certificates.join("tls.crt").exists() {
            return;
        }
        let data = until("Kueue has an authority", async || {
            let secret = api.get(SECRETS, SYSTEM, SECRET).await.unwrap();
            secret["data"]["ca.key"].is_string().then(|| secret["data"].clone())
        })
        .await;
        let text = |name: &str| {
            String::from_utf8(BASE64_STANDARD.decode(json::text(&data, &[name])).unwrap()).unwrap()
        };
        let authority = Authority::load(&text("ca.crt"), &pkcs8(&text("ca.key"))).unwrap();
        let names = vec![format!("{SERVICE}.{SYSTEM}.svc"), "127.0.0.1".to_owned()];
        let subject = Subject { common_name: SERVICE, organization: None, valid: None };
        let issued = authority.server(&subject, names).unwrap();
        std::fs::write(self.certificates.join("tls.key"), issued.key).unwrap();
        std::fs::write(self.certificates.join("tls.crt"), issued.certificate).unwrap();
    }

    /// Starts the manager, and waits until its webhooks answer.
    async fn start(&self, cluster: &Real, log: &str) -> Process {
        let mut program = Command::new(cluster.assets.join("kueue-manager"));
        program.arg("--config").arg(&self.config).arg("--feature-gates=VisibilityOnDemand=false");
        let process = Process::start(&mut program, &cluster.kubeconfig, log);
        self.mount_certificate(&cluster.api).await;
        let mut probe = pod("probe", &json!({QUEUE: "main"}), LONG);
        probe["metadata"]["namespace"] = json!("default");
        until_shown("Kueue's webhooks answer", async || {
            let created = cluster.api.create(PODS, &probe).await;
            let created = created.map_err(|e| format!("{e}\n{}", process.log()))?;
            let gated = !json::list(&created, &["spec", "schedulingGates"]).is_empty();
            let uid = json::uid(&created).to_owned();
            cluster.api.delete(PODS, "default", "probe", &uid, Some(0)).await.unwrap();
            gated.then_some(()).ok_or_else(|| "not gated".to_owned())
        })
        .await;
        process
    }
}

/// An RSA key as PKCS #8 has it (RFC 5208, section 5); Kueue writes PKCS #1.
fn pkcs8(pkcs1: &str) -> String {
    let element = |tag: u8, content: &[u8]| {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x82], &length[..], content].concat()
    };
    let key: String = pkcs1.lines().filter(|line| !line.starts_with("-----")).collect();
    let key = element(0x04, &BASE64_STANDARD.decode(key).unwrap());
    // Version 0, algorithm rsaEncryption.
    let algorithm = [2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
    let whole = BASE64_STANDARD.encode(element(0x30, &[&algorithm[..], &key].concat()));
    let lines: Vec<&str> = whole.as_bytes().chunks(64).map(|c| std::str::from_utf8(c).unwrap()).collect();
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
}

fn configuration(port: u16, certificates: &Path) -> Value {
    let address = || format!("127.0.0.1:{}", free_port());
    json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": SYSTEM,
        "health": {"healthProbeBindAddress": address()}, "metrics": {"bindAddress": address()},
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": certificates.display().to_string()},
        "leaderElection": {"leaderElect": false},
        "internalCertManagement": {
            "enable": true, "webhookServiceName": SERVICE, "webhookSecretName": SECRET},
        "integrations": {"frameworks": ["batch/job", "pod"]},
    })
}

/// kube-scheduler, which places pods while Plimsoll only queues.
fn scheduler(cluster: &Real) -> Process {
    let kubeconfig = cluster.kubeconfig.display();
    let mut program = Command::new(cluster.assets.join("kube-scheduler"));
    program
        .arg(format!("--kubeconfig={kubeconfig}"))
        .arg(format!("--authentication-kubeconfig={kubeconfig}"))
        .arg(format!("--authorization-kubeconfig={kubeconfig}"))
        .arg(format!("--secure-port={}", free_port()))
        .args(["--leader-elect=false", "--bind-address=127.0.0.1"]);
    Process::start(&mut program, &cluster.kubeconfig, "kube-scheduler.log")
}

/// Quota and time of an admission, by the name of the job or pod that owns the workload.
#[derive(Debug, PartialEq)]
struct Given(String, Value, Vec<Value>);

async fn given(api: &Api, owner: &str) -> Given {
    let all = list(api, WORKLOADS).await;
    let of = |w: &&Value| json::list(w, &["metadata", "ownerReferences"]).iter().any(|o| o["name"] == owner);
    let mine: Vec<&Value> = all.iter().filter(of).collect();
    let [workload] = mine[..] else { panic!("{} workloads of {owner}", mine.len()) };
    assert_ne!(condition(workload, "Evicted").0, "True", "{workload}");
    let since = ["QuotaReserved", "Admitted"].map(|kind| json::condition(workload, kind).cloned());
    Given(
        json::uid(workload).to_owned(),
        workload["status"]["admission"].clone(),
        since.into_iter().flatten().collect(),
    )
}

/// UIDs and nodes of the running pods of these jobs or pods.
async fn pods(api: &Api, owners: &[&str]) -> BTreeSet<(String, String)> {
    let mut all = real_cluster::running(api, "team").await;
    all.retain(|p| {
        let job = json::text(p, &["metadata", "labels", "batch.kubernetes.io/job-name"]);
        owners.contains(&json::name(p)) || owners.contains(&job)
    });
    all.iter().map(|p| (json::uid(p).to_owned(), json::text(p, &["spec", "nodeName"]).to_owned())).collect()
}

/// Waits until exactly the workloads of these jobs and pods are admitted and as many pods run, within quota all the time.
async fn admitted(api: &Api, owners: &[&str], count: usize, by: &Process) {
    until_shown(&format!("{owners:?} run"), async || {
        let workloads = list(api, WORKLOADS).await;
        assert_within_quota(&list(api, CLUSTER_QUEUES).await, &workloads);
        let runs = |w: &&Value| json::is_true(w, "Admitted") && !json::is_true(w, "Finished");
        let found: BTreeSet<&str> = workloads
            .iter()
            .filter(runs)
            .map(|w| json::text(&w["metadata"]["ownerReferences"][0], &["name"]))
            .collect();
        let run = pods(api, owners).await.len();
        if found == owners.iter().copied().collect() && run == count {
            return Ok(());
        }
        Err(format!("{found:?} with {run} pods\n{}", by.log()))
    })
    .await;
}

/// What the queues say of their use.
async fn usage(api: &Api) -> Value {
    let cq = api.get(CLUSTER_QUEUES, "", "cq").await.unwrap();
    let lq = api.get(LOCAL_QUEUES, "team", "main").await.unwrap();
    let of = |o: &Value| {
        let at = [
            "flavorsReservation",
            "flavorsUsage",
            "reservingWorkloads",
            "admittedWorkloads",
            "pendingWorkloads",
        ];
        at.map(|field| o["status"][field].clone())
    };
    json!([of(&cq), of(&lq)])
}

/// [`usage`], once as many workloads have quota and wait.
async fn settled(api: &Api, reserving: u32, pending: u32) -> Value {
    until_shown("the queues say what they have given", async || {
        let now = usage(api).await;
        let says = |i: usize| (&now[i][2], &now[i][4]) == (&json!(reserving), &json!(pending));
        if says(0) && says(1) { Ok(now) } else { Err(now.to_string()) }
    })
    .await
}

/// Waits until the queues say the same again.
async fn same_usage(api: &Api, want: &Value) {
    until_shown("the queues have the same usage", async || {
        let now = usage(api).await;
        if now == *want { Ok(()) } else { Err(format!("{now} and not {want}")) }
    })
    .await;
}

async fn submit(api: &Api, name: &str, pods: u32) {
    api.create(JOBS, &job(name, &json!({QUEUE: "main"}), pods, LONG)).await.unwrap();
}

async fn delete(api: &Api, name: &str) {
    let uid = json::uid(&api.get(JOBS, "team", name).await.unwrap()).to_owned();
    api.delete_with_dependents(JOBS, "team", name, &uid).await.unwrap();
}

/// Plimsoll in Kueue's role, from what `plimsoll install` prints.
async fn plimsoll(cluster: &Real, log: &str) -> Process {
    // Kueue's manifests name a Service, which those of Plimsoll replace; a URL would stay beside it.
    convert(
        &cluster.api,
        &json!({"url": null, "service": {"namespace": SYSTEM, "name": SERVICE, "path": CONVERT}}),
    )
    .await;
    cluster.site().install(&["--queueing", "--frameworks", "batch/job,pod"]);
    let config = cluster.kubeconfig.with_file_name("config.yaml");
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                integrations: {frameworks: [batch/job, pod]}\n";
    std::fs::write(&config, text).unwrap();
    let account = real_cluster::account(&cluster.kubeconfig).await;
    let process = run_with(&account, log, &["--queueing", "--config", config.to_str().unwrap()]);
    real_cluster::registered(&cluster.api).await;
    process
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_handed_from_kueue_to_plimsoll_and_back() {
    let programs = ["kueue-manager", "kube-scheduler", "kube-controller-manager"];
    let Some(assets) = real_cluster::assets(&programs) else { return };
    let mut cluster = Real::start(&assets).await;
    cluster.populate(4, "job-controller,garbage-collector-controller").await;
    let api = cluster.api.clone();
    let _scheduler = scheduler(&cluster);
    // Kueue's definitions are those of the manifests of Plimsoll.
    real_cluster::install_definitions(&api).await;
    let kueue = Kueue::install(&cluster).await;
    kueue.register(&api).await;
    let mut first = kueue.start(&cluster, "kueue-1.log").await;

    create(&api, &queue(5)).await;
    submit(&api, "a", 2).await;
    api.create(PODS, &pod("single", &json!({QUEUE: "main"}), LONG)).await.unwrap();
    admitted(&api, &["a", "single"], 3, &first).await;
    submit(&api, "b", 3).await;
    let (of_a, of_single) = (given(&api, "a").await, given(&api, "single").await);
    let (running, used) = (pods(&api, &["a", "single"]).await, settled(&api, 2, 1).await);
    first.terminate();

    // Step 1 of the page.
    for command in ["mutating", "validating"] {
        cluster.site().shell(&format!(
            "kubectl delete {command}webhookconfiguration kueue-{command}-webhook-configuration"
        ));
    }
    let mut second = plimsoll(&cluster, "plimsoll.log").await;
    same_usage(&api, &used).await;
    submit(&api, "c", 1).await;
    admitted(&api, &["a", "single", "c"], 4, &second).await;
    assert_eq!((given(&api, "a").await, given(&api, "single").await), (of_a, of_single));
    assert_eq!(pods(&api, &["a", "single"]).await, running);
    delete(&api, "a").await;
    admitted(&api, &["single", "b", "c"], 5, &second).await;
    submit(&api, "d", 2).await;
    let before = [given(&api, "single").await, given(&api, "b").await, given(&api, "c").await];
    let (running, used) = (pods(&api, &["single", "b", "c"]).await, settled(&api, 3, 1).await);
    assert_eq!(second.terminate(), Some(0));
    let denied: Vec<String> =
        second.log().lines().filter(|l| l.contains("forbidden")).map(str::to_owned).collect();
    assert!(denied.is_empty(), "{denied:?}");

    // Step 3 of the page.
    cluster.site().shell(&documented("kubectl delete mutatingwebhookconfiguration plimsoll-mutating"));
    for (plural, name) in [("mutating", MUTATING), ("validating", VALIDATING)] {
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}webhookconfigurations/{name}");
        assert!(api.get_path(&path).await.unwrap_err().is_not_found(), "{name}");
    }
    let scaled = api.get(real_cluster::DEPLOYMENTS, NAMESPACE, "plimsoll").await.unwrap();
    assert_eq!(scaled["spec"]["replicas"], 0);
    kueue.register(&api).await;
    let third = kueue.start(&cluster, "kueue-2.log").await;
    same_usage(&api, &used).await;
    let after = [given(&api, "single").await, given(&api, "b").await, given(&api, "c").await];
    assert_eq!(after, before);
    assert_eq!(pods(&api, &["single", "b", "c"]).await, running);
    delete(&api, "b").await;
    admitted(&api, &["single", "c", "d"], 4, &third).await;
    cluster.stop().await;
}
