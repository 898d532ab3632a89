//! All replicas of Plimsoll have died, nobody else schedules, and its webhooks refuse pods: against a real kube-apiserver,
//! with the manifests that `plimsoll install` prints.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeSet;

use crate::common::{job, pod, queue};
use crate::real_cluster::{self, DEPLOYMENTS, Real, create, list, run, running, until, until_shown};
use plimsoll_api::json;
use plimsoll_api::webhooks::NAMESPACE;
use plimsoll_runtime::api::{Api, JOBS, PODS, Resource, WORKLOADS};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CONTROLLERS: &str =
    "deployment-controller,replicaset-controller,job-controller,garbage-collector-controller";

/// Pods of Deployments in Plimsoll's namespace, as their controllers create them; where those are, they do.
fn deployments(cluster: &Real) {
    if cluster.controllers.is_some() {
        return;
    }
    let api = cluster.api.clone();
    tokio::spawn(async move {
        for i in 0.. {
            let Ok(all) = api.get_path(&DEPLOYMENTS.collection(NAMESPACE)).await else { return };
            let Ok(pods) = api.get_path(&PODS.collection(NAMESPACE)).await else { return };
            let pods = json::list(&pods, &["items"]);
            for deployment in json::list(&all, &["items"]) {
                let wanted = &deployment["spec"]["selector"]["matchLabels"];
                let is_own = |p: &&Value| {
                    let labels = wanted.as_object().into_iter().flatten();
                    !json::deleting(p)
                        && labels.fold(true, |is, (key, value)| is && p["metadata"]["labels"][key] == *value)
                };
                let present = pods.iter().filter(is_own).count();
                for n in present..usize::try_from(deployment["spec"]["replicas"].as_u64().unwrap()).unwrap() {
                    let mut pod = deployment["spec"]["template"].clone();
                    pod["apiVersion"] = json!("v1");
                    pod["kind"] = json!("Pod");
                    pod["metadata"]["namespace"] = json!(NAMESPACE);
                    pod["metadata"]["name"] = json!(format!("{}-{i}-{n}", json::name(deployment)));
                    let _ = api.create(PODS, &pod).await;
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    });
}

/// UIDs of Plimsoll's own pods that run on these nodes, one on each, if that is so.
async fn own(api: &Api, nodes: &[&str]) -> Result<BTreeSet<String>, String> {
    let pods = running(api, NAMESPACE).await;
    let on: Vec<&str> = pods.iter().map(|p| json::text(p, &["spec", "nodeName"])).collect();
    if BTreeSet::from_iter(on.iter().copied()) != BTreeSet::from_iter(nodes.iter().copied()) {
        return Err(format!("{on:?}"));
    }
    Ok(pods.iter().map(|p| json::uid(p).to_owned()).collect())
}

/// What the API server answers to this pod.
async fn refusal(api: &Api, resource: Resource, object: &Value) -> String {
    let error = api.create(resource, object).await.map(|o| o.to_string()).unwrap_err().to_string();
    assert!(error.contains("failed calling webhook"), "{error}");
    error
}

async fn runs(api: &Api, name: &str) {
    until_shown(&format!("{name} runs"), async || {
        let pods = list(api, PODS).await;
        let shown =
            |p: &Value| format!("{} {} {}", json::name(p), p["spec"]["nodeName"], p["status"]["phase"]);
        let found = pods.iter().any(|p| json::name(p) == name && p["status"]["phase"] == "Running");
        found.then_some(()).ok_or_else(|| pods.iter().map(shown).collect::<Vec<_>>().join("\n"))
    })
    .await;
}

/// Deletes all pods of Plimsoll at once, as if their nodes had gone.
async fn delete_own(api: &Api) {
    for pod in list(api, PODS).await.iter().filter(|p| json::namespace(p) == NAMESPACE) {
        if let Err(e) = api.delete(PODS, NAMESPACE, json::name(pod), json::uid(pod), Some(0)).await {
            assert!(e.is_not_found(), "{e}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_on_named_nodes_come_back_on_a_real_kube_apiserver() {
    let Some(assets) = real_cluster::assets(&[]) else { return };
    let mut cluster = Real::start(&assets).await;
    cluster.populate(4, CONTROLLERS).await;
    cluster.site().install(&["--node", "node-0", "--node", "node-1"]);
    deployments(&cluster);
    let api = cluster.api.clone();
    let nodes = ["node-0", "node-1"];
    // The first start is one without replicas, too: Services have no endpoints.
    let first = until_shown("its pods run, though nobody schedules", async || own(&api, &nodes).await).await;
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "early"}});
    api.create(crate::common::resource(&team), &team).await.unwrap();
    let mut early = pod("early", &json!({}), 3600);
    early["metadata"]["namespace"] = json!("early");
    refusal(&api, PODS, &early).await;

    // Their containers are simulated: this is what they run.
    let account = real_cluster::account(&cluster.kubeconfig).await;
    let mut replicas = [run(&account, "first.log"), run(&account, "second.log")];
    real_cluster::registered(&api).await;
    create(&api, &queue(4)).await;
    api.create(PODS, &pod("before", &json!({}), 36000)).await.unwrap();
    let admitted = pod("admitted", &json!({QUEUE: "main"}), 36000);
    api.create(PODS, &admitted).await.unwrap();
    runs(&api, "before").await;
    runs(&api, "admitted").await;
    let given = until("its workload says that they run", async || {
        Some(list(&api, WORKLOADS).await).filter(|all| json::is_true(&all[0], "PodsReady"))
    })
    .await;
    // It waits for a node when the replicas die.
    let mut large = pod("large", &json!({}), 36000);
    large["spec"]["nodeSelector"] = json!({"size": "large"});
    api.create(PODS, &large).await.unwrap();

    replicas.iter_mut().for_each(real_cluster::Process::kill);
    delete_own(&api).await;
    let second = until_shown("new pods run, though nobody schedules and webhooks fail", async || {
        own(&api, &nodes)
            .await
            .and_then(|new| if new.is_disjoint(&first) { Ok(new) } else { Err("old pods".to_owned()) })
    })
    .await;
    assert_eq!(second.len(), 2);
    let refused = refusal(&api, PODS, &pod("other", &json!({}), 36000)).await;
    assert!(refused.contains("mpod.kb.io"), "{refused}");
    refusal(&api, JOBS, &job("other", &json!({QUEUE: "main"}), 1, 36000)).await;
    // The namespaces of the system are spared: CNI, DNS and the like start.
    let mut system = pod("system", &json!({}), 36000);
    system["metadata"]["namespace"] = json!("kube-system");
    api.create(PODS, &system).await.unwrap();
    // What runs is left alone.
    let label = json!({"metadata": {"labels": {"size": "large"}}});
    let merge = plimsoll_runtime::api::PatchKind::Merge;
    api.patch(plimsoll_runtime::api::NODES, "", "node-3", "", merge, &label).await.unwrap();

    let _third = run(&account, "third.log");
    let _fourth = run(&account, "fourth.log");
    until("pods are accepted again", async || api.create(PODS, &pod("other", &json!({}), 36000)).await.ok())
        .await;
    for name in ["other", "large", "system", "before", "admitted"] {
        runs(&api, name).await;
    }
    api.create(PODS, &pod("queued", &json!({QUEUE: "main"}), 36000)).await.unwrap();
    runs(&api, "queued").await;
    let still = api.get(WORKLOADS, "team", json::name(&given[0])).await.unwrap();
    assert_eq!(still["status"]["admission"], given[0]["status"]["admission"]);
    assert_eq!(still["status"]["conditions"], given[0]["status"]["conditions"]);
    cluster.stop().await;
}

/// Without named nodes an administrator names one, by the command of the documentation.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_command_brings_replicas_back() {
    let Some(assets) = real_cluster::assets(&["kube-controller-manager"]) else { return };
    let mut cluster = Real::start(&assets).await;
    cluster.populate(2, CONTROLLERS).await;
    cluster.site().install(&[]);
    let api = cluster.api.clone();
    let pending = async |wanted: usize| {
        until_shown("pods wait for a scheduler", async || {
            let pods = list(&api, PODS).await;
            let waits = pods.iter().filter(|p| p["status"]["phase"] == "Pending").count();
            if waits == wanted { Ok(()) } else { Err(format!("{waits} of {}", pods.len())) }
        })
        .await;
    };
    pending(2).await;
    let command = real_cluster::documented("patch deployment plimsoll");
    cluster.site().shell(&command.replace("cp-1", "node-1"));
    until_shown("a pod runs on the named node", async || own(&api, &["node-1"]).await).await;
    let account = real_cluster::account(&cluster.kubeconfig).await;
    let _first = run(&account, "first.log");
    real_cluster::registered(&api).await;
    create(&api, &queue(4)).await;
    api.create(PODS, &pod("other", &json!({QUEUE: "main"}), 36000)).await.unwrap();
    runs(&api, "other").await;
    cluster.stop().await;
}
