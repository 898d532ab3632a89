//! The manifests of `deploy/`: made from what the program is made of, accepted by an API server, and the rights in
//! them enough for everything that `plimsoll run` does.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::process::{self, Lines};
use crate::common::{Up, job, queue};
use plimsoll_api::json;
use plimsoll_api::webhooks::{
    CONVERSION_SERVICE, MUTATING, NAMESPACE, SERVICE, VALIDATING, configurations, service_client,
};
use plimsoll_runtime::api::{
    CLUSTER_QUEUES, JOBS, LEASES, POD_TEMPLATES, PODS, PROVISIONING_REQUESTS, PatchKind, Resource, WORKLOADS,
};
use plimsoll_runtime::visibility::register;
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const VISIBILITY: &str = "plimsoll-visibility-server";

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

pub fn documents(file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(dir().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
    all.into_iter().filter(|d| !d.is_null()).collect()
}

/// Files in the order in which they are installed.
pub fn files() -> Vec<String> {
    let [kustomization] = &documents("kustomization.yaml")[..] else { panic!("one kustomization") };
    json::list(kustomization, &["resources"]).iter().map(|f| f.as_str().unwrap().to_owned()).collect()
}

#[test]
fn generated_manifests_are_up_to_date() {
    let client = |path: &str| service_client(NAMESPACE, path);
    let hint = "run `cargo xtask deploy`";
    assert_eq!(documents("webhooks.yaml"), configurations(client, NAMESPACE), "{hint}");
    assert_eq!(documents("roles.yaml"), plimsoll_api::roles::objects(), "{hint}");
    let definitions = plimsoll_apimachinery::crd::definitions_to_install(client);
    let listed = files().iter().filter(|f| f.starts_with("crds/")).count();
    assert_eq!(listed, definitions.len(), "kustomization.yaml lists every definition");
    for want in definitions {
        let file = format!("crds/{}.yaml", json::text(&want, &["spec", "names", "plural"]));
        assert!(documents(&file) == [want], "{file} is not what the program has: {hint}");
        assert!(files().contains(&file), "kustomization.yaml lacks {file}");
    }
}

#[test]
fn the_parts_refer_to_each_other() {
    let all: Vec<Value> = files().iter().flat_map(|f| documents(f)).collect();
    let one = |kind: &str, name: &str| {
        let found: Vec<&Value> = all.iter().filter(|o| o["kind"] == kind && json::name(o) == name).collect();
        assert_eq!(found.len(), 1, "{kind} {name}");
        found[0].clone()
    };
    one("Namespace", NAMESPACE);
    one("Secret", plimsoll_api::webhooks::SECRET);
    one("MutatingWebhookConfiguration", MUTATING);
    one("ValidatingWebhookConfiguration", VALIDATING);
    let deployment = one("Deployment", "plimsoll");
    let pod = &deployment["spec"]["template"];
    let account = json::text(pod, &["spec", "serviceAccountName"]).to_owned();
    one("ServiceAccount", &account);
    let service = one("Service", SERVICE);
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    let container = &pod["spec"]["containers"][0];
    let ports: Vec<&Value> = json::list(container, &["ports"]).iter().map(|p| &p["name"]).collect();
    assert!(ports.contains(&&service["spec"]["ports"][0]["targetPort"]));
    // Of two Services with the same port only that of the conversion webhook leads to replicas that are not ready.
    let conversion = one("Service", CONVERSION_SERVICE);
    assert_eq!(conversion["spec"]["publishNotReadyAddresses"], true);
    assert_eq!(service["spec"]["publishNotReadyAddresses"], Value::Null);
    for part in ["selector", "ports"] {
        assert_eq!(conversion["spec"][part], service["spec"][part]);
    }
    let command = container["command"].to_string();
    assert!(command.contains(&format!("--conversion-service={CONVERSION_SERVICE}\"")), "{command}");
    let visibility = one("Service", VISIBILITY);
    assert_eq!(visibility["spec"]["selector"], pod["metadata"]["labels"]);
    assert!(ports.contains(&&visibility["spec"]["ports"][0]["targetPort"]));
    assert_eq!(documents("apiservices.yaml"), register::objects(NAMESPACE, VISIBILITY, None));
    for probe in ["livenessProbe", "readinessProbe"] {
        assert!(ports.contains(&&container[probe]["httpGet"]["port"]), "{probe}");
    }
    // The program takes these arguments; the address can't be asked.
    let args: Vec<String> = json::list(container, &["command"])
        .iter()
        .skip(1)
        .map(|a| a.as_str().unwrap().replace("$(POD_NAMESPACE)", NAMESPACE))
        .collect();
    let out = crate::common::binary().args(&args).arg("--kubeconfig=/nowhere/file").output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(text.contains("/nowhere/file") && !text.contains("Usage"), "{text}");
}

/// `.ci/helm-chart` renders the chart. What it takes from `deploy/` is there, and its defaults are those of the Deployment.
#[test]
fn the_chart_has_the_manifests_of_deploy() {
    let chart = dir().join("chart");
    let linked = |file: &str| {
        let at = chart.join("files").join(file);
        std::fs::read_to_string(&at).unwrap_or_else(|e| panic!("{}: {e}", at.display()))
    };
    let templated = ["kustomization.yaml", "namespace.yaml", "poddisruptionbudget.yaml"];
    for file in files().iter().filter(|f| !templated.contains(&f.as_str())) {
        assert!(linked(file) == std::fs::read_to_string(dir().join(file)).unwrap(), "{file}");
    }
    assert_eq!(linked("shards.yaml"), std::fs::read_to_string(dir().join("shards.yaml")).unwrap());
    let [values] = &documents("chart/values.yaml")[..] else { panic!("one document") };
    let [deployment] = &documents("deployment.yaml")[..] else { panic!("one Deployment") };
    let pod = &deployment["spec"]["template"]["spec"];
    let (container, manager) = (&pod["containers"][0], &values["controllerManager"]["manager"]);
    let image = ["repository", "tag"].map(|part| json::text(manager, &["image", part])).join(":");
    assert_eq!(container["image"], image);
    for (value, at) in [
        (&manager["image"]["pullPolicy"], &container["imagePullPolicy"]),
        (&manager["resources"], &container["resources"]),
        (&manager["containerSecurityContext"], &container["securityContext"]),
        (&manager["podSecurityContext"], &pod["securityContext"]),
        (&manager["priorityClassName"], &pod["priorityClassName"]),
        (&values["controllerManager"]["tolerations"], &pod["tolerations"]),
        (&values["controllerManager"]["replicas"], &deployment["spec"]["replicas"]),
    ] {
        assert_eq!(value, at);
    }
}

/// Where an object of the manifests goes.
fn path(object: &Value) -> String {
    let plural = format!("{}s", json::text(object, &["kind"]).to_lowercase());
    let version = json::text(object, &["apiVersion"]);
    let root = if version.contains('/') { "apis" } else { "api" };
    match json::namespace(object) {
        "" => format!("/{root}/{version}/{plural}"),
        namespace => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
    }
}

pub fn kubectl() -> Option<Command> {
    let found =
        Command::new("kubectl").args(["version", "--client"]).output().is_ok_and(|o| o.status.success());
    found.then(|| Command::new("kubectl"))
}

/// Installs with kubectl as a user would, or, where there is none, without the definitions and the roles of their users, which are there already.
async fn install(up: &Up) {
    if let Some(mut kubectl) = kubectl() {
        let done = kubectl
            .args(["apply", "--server-side", "--force-conflicts", "-k"])
            .arg(dir())
            .arg("--kubeconfig")
            .arg(&up.kubeconfig)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{text}");
        return;
    }
    eprintln!("no kubectl: the manifests are created one by one");
    let there = |file: &str| file.starts_with("crds/") || file == "roles.yaml";
    for object in files().iter().filter(|f| !there(f)).flat_map(|f| documents(f)) {
        let path = path(&object);
        let (version, plural) = (json::text(&object, &["apiVersion"]), path.rsplit('/').next().unwrap());
        let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let resource = Resource {
            api_version: leak(version),
            plural: leak(plural),
            kind: leak(json::text(&object, &["kind"])),
        };
        up.api.create(resource, &object).await.unwrap_or_else(|e| panic!("{e}: {object}"));
    }
}

/// A workload with a check that asks the cluster autoscaler, whom this plays.
async fn asks_for_nodes(up: &Up, log: &dyn Fn() -> String) {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/provisioning-requests.yaml");
    up.apply(&std::fs::read_to_string(examples).unwrap()).await;
    let config = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ProvisioningRequestConfig",
        "metadata": {"name": "here"}, "spec": {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"}});
    let check = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": {"name": "nodes"},
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": {
            "apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "here"}}});
    for object in [config, check] {
        up.create(&object).await.unwrap();
    }
    let patch = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "nodes"}]}}});
    up.api.patch(CLUSTER_QUEUES, "", "cq", "", PatchKind::Merge, &patch).await.unwrap();
    up.create(&job("third", &json!({QUEUE: "main"}), 1, 1)).await.unwrap();
    let name = up
        .until("a request with its template", async |up| {
            let templates = up.list(POD_TEMPLATES).await;
            let owned = json::controller(templates.first()?)?["kind"] == "ProvisioningRequest";
            let request = up.list(PROVISIONING_REQUESTS).await.first().map(|r| json::name(r).to_owned());
            request.filter(|_| owned)
        })
        .await;
    let done = json!({"status": {"conditions": [{"type": "Provisioned", "status": "True", "reason": "Done",
        "message": "done", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    up.api.patch(PROVISIONING_REQUESTS, "team", &name, "status", PatchKind::Merge, &done).await.unwrap();
    up.until_shown("the workload runs, and its request goes", async |up| {
        let ended = json::is_true(&up.get(JOBS, "team", "third").await, "Complete");
        let gone = up.list(PROVISIONING_REQUESTS).await.is_empty();
        if ended && gone { Ok(()) } else { Err(format!("ended {ended} gone {gone}\n{}", log())) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_rights_are_enough() {
    let up = Up::start(&["--no-scheduler", "--speed", "10"]).await;
    install(&up).await;
    let kubeconfig = up.dir.join("account");
    crate::common::account_kubeconfig(&up.kubeconfig, &kubeconfig).await;
    let log = up.dir.join("log");
    let mut child = crate::common::binary()
        .args(["--log", "warn,plimsoll_runtime=debug", "run", "--output", "json", "--webhook-port", "0"])
        .args(["--leader-elect-resource-namespace", NAMESPACE, "--metrics-bind-address", "0"])
        .args(["--visibility-port", "0", "--visibility-service", VISIBILITY, "--kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    Lines::of(child.stdout.take().unwrap()).next();
    up.apply(&queue(3)).await;
    up.create(&crate::common::suspended_job("first", &json!({QUEUE: "main"}), 2, 2)).await.unwrap();
    up.create(&crate::common::suspended_job("second", &json!({QUEUE: "main"}), 2, 2)).await.unwrap();
    up.create(&crate::common::pod("plain", &json!({QUEUE: "main"}), 1)).await.unwrap();
    let mut important = crate::common::pod("important", &json!({}), 30);
    important["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("99");
    up.create(&important).await.unwrap();
    let shown = || std::fs::read_to_string(&log).unwrap_or_default();
    up.until_shown("everything runs to its end", async |up| {
        let (jobs, pods) = (up.list(JOBS).await, up.list(PODS).await);
        let workloads = up.list(WORKLOADS).await;
        let ended = workloads.len() == 3 && workloads.iter().all(|w| json::is_true(w, "Finished"));
        let done = jobs.len() == 2 && jobs.iter().all(|j| json::is_true(j, "Complete"));
        let plain = pods.iter().any(|p| json::name(p) == "plain" && p["status"]["phase"] == "Succeeded");
        let told = pods.iter().any(|p| {
            json::name(p) == "important" && crate::common::condition(p, "PodScheduled").1 == "Unschedulable"
        });
        // Its own Deployment's pods are placed by itself here.
        let own = pods
            .iter()
            .filter(|p| json::namespace(p) == NAMESPACE && p["status"]["phase"] == "Running")
            .count();
        if ended && done && plain && told && own == 2 {
            return Ok(());
        }
        let denied: Vec<String> =
            shown().lines().filter(|l| l.contains("forbidden")).take(10).map(str::to_owned).collect();
        Err(format!("ended {ended} done {done} plain {plain} told {told} own {own}\n{}", denied.join("\n")))
    })
    .await;
    asks_for_nodes(&up, &shown).await;
    let service =
        Resource { api_version: "apiregistration.k8s.io/v1", plural: "apiservices", kind: "APIService" };
    up.until("the visibility API is registered with its authority", async |up| {
        let object = up.get(service, "", "v1beta2.visibility.kueue.x-k8s.io").await;
        object["spec"]["caBundle"].is_string().then_some(())
    })
    .await;
    let lease = up.get(LEASES, NAMESPACE, "plimsoll").await;
    assert!(!json::text(&lease, &["spec", "holderIdentity"]).is_empty());
    process::signal(&child, "TERM");
    assert_eq!(process::ended(&mut child), Some(0));
    let denied: Vec<String> =
        shown().lines().filter(|l| l.contains("forbidden")).map(str::to_owned).collect();
    assert!(denied.is_empty(), "{}", denied.join("\n"));
    assert_eq!(up.get(LEASES, NAMESPACE, "plimsoll").await["spec"]["holderIdentity"], "");
}
