//! `plimsoll install`: what it prints, and that a cluster whose only scheduler has died comes back.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;

use crate::common::run::Run;
use crate::common::{Up, directory, pod, queue};
use crate::deploy;
use plimsoll_api::json;
use plimsoll_api::webhooks::NAMESPACE;
use plimsoll_runtime::api::{NODES, PODS};
use serde_json::{Value, json};

/// What it prints with these flags, and what it says.
fn install(args: &[&str]) -> (String, String) {
    let out = crate::common::binary().arg("install").args(args).output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{error}");
    (String::from_utf8(out.stdout).unwrap(), error)
}

fn objects(args: &[&str]) -> Vec<Value> {
    let (text, _) = install(&[args, &["--output", "json"]].concat());
    let list: Value = serde_json::from_str(&text).unwrap();
    json::list(&list, &["items"]).to_vec()
}

fn refused(args: &[&str]) -> String {
    let out = crate::common::binary().arg("install").args(args).output().unwrap();
    assert!(!out.status.success() && out.stdout.is_empty());
    String::from_utf8(out.stderr).unwrap()
}

fn one<'a>(all: &'a [Value], kind: &str) -> &'a Value {
    let found: Vec<&Value> = all.iter().filter(|o| o["kind"] == kind).collect();
    assert_eq!(found.len(), 1, "{kind}");
    found[0]
}

/// Order does not matter to `kubectl apply --server-side`, but for the namespace and the definitions.
fn sorted(mut all: Vec<Value>) -> Vec<Value> {
    all.sort_by_key(|o| format!("{} {} {}", o["kind"], o["metadata"]["namespace"], o["metadata"]["name"]));
    all
}

#[test]
fn without_flags_it_prints_what_deploy_has() {
    let all: Vec<Value> = deploy::files().iter().flat_map(|f| deploy::documents(f)).collect();
    let (text, warning) = install(&[]);
    let printed: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    assert_eq!(printed[0]["kind"], "Namespace");
    assert_eq!(printed[1]["kind"], "CustomResourceDefinition");
    assert_eq!(sorted(printed), sorted(all));
    assert!(warning.contains("--node"), "{warning}");
}

#[test]
fn flags_change_the_manifests() {
    let all = objects(&["--namespace", "batch", "--image", "example.com/plimsoll:2", "--replicas", "3"]);
    assert_eq!(one(&all, "Namespace")["metadata"]["name"], "batch");
    let text = Value::from(all.clone()).to_string();
    // The webhooks also spare the default namespace.
    let left = text.replace(&format!(r#""kube-system","kueue-system","{NAMESPACE}","batch""#), "");
    assert!(!left.contains(NAMESPACE), "{left}");
    let deployment = one(&all, "Deployment");
    assert_eq!(deployment["spec"]["replicas"], 3);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "example.com/plimsoll:2");

    let all = objects(&["--failure-policy", "Ignore"]);
    let hooks = all.iter().filter(|o| json::text(o, &["kind"]).ends_with("WebhookConfiguration"));
    let policies: BTreeSet<&str> =
        hooks.flat_map(|c| json::list(c, &["webhooks"])).map(|w| json::text(w, &["failurePolicy"])).collect();
    assert_eq!(policies, BTreeSet::from(["Ignore"]));

    let all = objects(&["--placement"]);
    let kinds: BTreeSet<&str> = all.iter().map(|o| json::text(o, &["kind"])).collect();
    for absent in ["CustomResourceDefinition", "MutatingWebhookConfiguration", "Service", "Secret"] {
        assert!(!kinds.contains(absent), "{absent}");
    }
    let args = one(&all, "Deployment")["spec"]["template"]["spec"]["containers"][0]["command"].to_string();
    assert!(args.contains("--placement") && !args.contains("webhook"), "{args}");
    assert!(!kinds.is_empty() && one(&objects(&["--replicas", "1"]), "Deployment").is_object());
    assert!(!objects(&["--replicas", "1"]).iter().any(|o| o["kind"] == "PodDisruptionBudget"));
}

/// A Deployment for each shard, with what its processes may do, and nothing that a part of them can't answer.
#[test]
fn shards_have_deployments_and_rights_of_their_own() {
    let all = objects(&["--shards", "default,research", "--namespace", "batch"]);
    let of_kind = |kind: &str| all.iter().filter(|o| o["kind"] == kind).collect::<Vec<_>>();
    let names = |kind: &str| of_kind(kind).into_iter().map(json::name).collect::<BTreeSet<_>>();
    let each = BTreeSet::from(["plimsoll-default", "plimsoll-research"]);
    assert_eq!((names("Deployment"), names("PodDisruptionBudget")), (each.clone(), each));
    for deployment in of_kind("Deployment") {
        let shard = json::name(deployment).trim_start_matches("plimsoll-");
        let template = &deployment["spec"]["template"];
        let labels = json!({"app.kubernetes.io/name": "plimsoll", "plimsoll.dev/shard": shard});
        assert_eq!(
            (&deployment["spec"]["selector"]["matchLabels"], &template["metadata"]["labels"]),
            (&labels, &labels)
        );
        let budget =
            of_kind("PodDisruptionBudget").into_iter().find(|o| json::name(o) == json::name(deployment));
        assert_eq!(budget.unwrap()["spec"]["selector"]["matchLabels"], labels);
        // The program takes its arguments.
        let container = &template["spec"]["containers"][0];
        let args = json::list(container, &["command"]).iter().skip(1).map(|a| a.as_str().unwrap());
        let args: Vec<String> = args.map(|a| a.replace("$(POD_NAMESPACE)", "batch")).collect();
        assert!(args.contains(&format!("--shard={shard}")), "{args:?}");
        let out = crate::common::binary().args(&args).arg("--kubeconfig=/nowhere/file").output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains("/nowhere/file") && !said.contains("Usage"), "{said}");
    }
    assert_eq!(
        (of_kind("APIService").len(), names("Service")),
        (0, BTreeSet::from(["plimsoll-conversion-service", "plimsoll-webhook-service"]))
    );
    let role = of_kind("Role").into_iter().find(|role| json::name(role) == "plimsoll-shards").unwrap();
    assert_eq!(json::namespace(role), "batch");
    assert_eq!(role["rules"][0]["resourceNames"], json!(["plimsoll-default", "plimsoll-research"]));
    let pinned = objects(&["--shards", "default,a", "--node", "x", "--node", "y"]);
    let pinned: Vec<&Value> = pinned.iter().filter(|o| o["kind"] == "Deployment").collect();
    let all: BTreeSet<(&str, &str)> = pinned
        .iter()
        .map(|o| (json::name(o), json::text(o, &["spec", "template", "spec", "nodeName"])))
        .collect();
    let [d, a] = ["plimsoll-default", "plimsoll-a"].map(|name| [format!("{name}-0"), format!("{name}-1")]);
    assert_eq!(all, BTreeSet::from([(&*d[0], "x"), (&*d[1], "y"), (&*a[0], "x"), (&*a[1], "y")]));
}

/// The program takes the arguments of the container, with the files where they are mounted.
#[test]
fn configuration_files_are_mounted() {
    let dir = directory();
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("scheduler.yaml");
    let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n";
    std::fs::write(&file, text).unwrap();
    let all = objects(&["--frameworks", "batch/job,pod", "--scheduler-config", file.to_str().unwrap()]);
    let map = one(&all, "ConfigMap");
    assert_eq!(map["data"]["scheduler_config.yaml"], text);
    let kueue: Value =
        serde_saphyr::from_str(json::text(map, &["data", "controller_manager_config.yaml"])).unwrap();
    assert_eq!(kueue["integrations"]["frameworks"], json!(["batch/job", "pod"]));
    let template = &one(&all, "Deployment")["spec"]["template"];
    let spec = &template["spec"];
    assert_eq!(spec["volumes"][0]["configMap"]["name"], map["metadata"]["name"]);
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], spec["volumes"][0]["name"]);
    let mount = json::text(&spec["containers"][0]["volumeMounts"][0], &["mountPath"]);
    for name in ["controller_manager_config.yaml", "scheduler_config.yaml"] {
        std::fs::write(dir.join(name), json::text(map, &["data", name])).unwrap();
    }
    let args: Vec<String> = json::list(&spec["containers"][0], &["command"])
        .iter()
        .skip(1)
        .map(|a| a.as_str().unwrap().replace("$(POD_NAMESPACE)", NAMESPACE))
        .map(|a| a.replace(mount, dir.to_str().unwrap()))
        .collect();
    let out = crate::common::binary().args(&args).arg("--kubeconfig=/nowhere/file").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(said.contains("/nowhere/file") && !said.contains("Usage"), "{said}");
    // Another file starts new pods.
    let hash = |all: &[Value]| one(all, "Deployment")["spec"]["template"]["metadata"]["annotations"].clone();
    assert_ne!(hash(&all), hash(&objects(&["--frameworks", "batch/job"])));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn bad_input_is_refused() {
    for (args, want) in [
        (&["--namespace", "Team"][..], "--namespace: Invalid value: \"Team\""),
        (&["--namespace", "a.b"], "--namespace: Invalid value"),
        (&["--node", "cp_1"], "--node: Invalid value"),
        (&["--image", " "], "--image: must not be empty"),
        (&["--shards", "a,b"], "--shards: one must be `default`"),
        (&["--shards", "default,a,a"], "--shards: each shard is named once"),
        (&["--shards", "default,A"], "lower-case letters"),
        (&["--shards", "default", "--placement"], "--shards: shards are made of queues, too"),
        (&["--replicas", "0"], "--replicas"),
        (&["--node", "a", "--replicas", "2"], "--replicas"),
        (&["--frameworks", "batch/jobs"], "did you mean \"batch/job\"?"),
        (&["--config", "/nowhere/file"], "/nowhere/file"),
    ] {
        let text = refused(args);
        assert!(text.contains(want), "{args:?}: {text}");
    }
}

/// A pod of another user, which nothing but Plimsoll can place.
async fn placed(up: &Up, name: &str) {
    up.until("a pod of another user runs", async |up| {
        let pods = up.list(PODS).await;
        pods.iter().any(|p| json::name(p) == name && p["status"]["phase"] == "Running").then_some(())
    })
    .await;
}

/// UIDs of Plimsoll's own pods that run, with their nodes.
async fn own(up: &Up) -> BTreeSet<(String, String)> {
    let pods = up.list(PODS).await;
    let own = pods.iter().filter(|p| json::namespace(p) == NAMESPACE && p["status"]["phase"] == "Running");
    own.map(|p| (json::text(p, &["spec", "nodeName"]).to_owned(), json::uid(p).to_owned())).collect()
}

/// All replicas have died: Plimsoll's pods are gone, its webhooks refuse all pods, and there is no other scheduler.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_another_scheduler_comes_back() {
    let Some(mut kubectl) = deploy::kubectl() else {
        eprintln!("skipped: no kubectl");
        return;
    };
    let up = Up::start(&["--no-scheduler", "--nodes", "3"]).await;
    up.apply(&queue(4)).await;
    let nodes: Vec<String> = up.list(NODES).await.iter().map(|n| json::name(n).to_owned()).collect();
    let (manifests, warning) = install(&["--node", &nodes[0], "--node", &nodes[1]]);
    assert_eq!(warning, "");
    let mut apply = kubectl
        .args(["apply", "--server-side", "--force-conflicts", "-f", "-", "--kubeconfig"])
        .arg(&up.kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    apply.stdin.take().unwrap().write_all(manifests.as_bytes()).unwrap();
    assert!(apply.wait().unwrap().success());
    let two = async |up: &Up| {
        let own = own(up).await;
        let on: BTreeSet<&String> = own.iter().map(|(node, _)| node).collect();
        (on == BTreeSet::from([&nodes[0], &nodes[1]])).then_some(own)
    };
    let first = up.until("its pods run, though nobody schedules", two).await;
    let refused = up.create(&pod("other", &json!({}), 3600)).await.unwrap_err();
    assert!(refused.to_string().contains("failed calling webhook"), "{refused}");
    for pod in up.list(PODS).await {
        up.api.delete(PODS, NAMESPACE, json::name(&pod), json::uid(&pod), Some(0)).await.unwrap();
    }
    up.until("new pods run", async |up| two(up).await.filter(|own| own.is_disjoint(&first))).await;
    // Their containers are simulated: this is what one of them runs.
    let account = up.dir.join("account");
    crate::common::account_kubeconfig(&up.kubeconfig, &account).await;
    let args = ["--leader-elect-resource-namespace", NAMESPACE, "--webhook-port", "0"];
    let (run, _) = Run::start(&account, &args);
    let created = async |up: &Up| up.create(&pod("other", &json!({}), 3600)).await.ok();
    up.until("pods are accepted again", created).await;
    placed(&up, "other").await;
    drop(run);
}
