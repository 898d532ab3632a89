//! `plimsoll up` with a part left out, so that somebody else's program does it.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Up, job, pod, queue};
use plimsoll_runtime::api::{CLUSTER_QUEUES, JOBS, NAMESPACES, PODS, WORKLOADS};
use plimsoll_runtime::json;
use serde_json::{Value, json};

async fn namespace(up: &Up) {
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    up.api.create(NAMESPACES, &team).await.unwrap();
}

#[tokio::test]
async fn without_queueing_pods_are_placed_and_nothing_of_kueue_is_there() {
    let up = Up::start(&["--no-queueing", "--speed", "100"]).await;
    let error = up.api.get_path(&CLUSTER_QUEUES.collection("")).await.unwrap_err().to_string();
    assert!(error.contains("404") || error.contains("could not find"), "{error}");
    namespace(&up).await;
    // No webhook looks at the queue's name: the job is not suspended.
    let queued = json!({"kueue.x-k8s.io/queue-name": "main"});
    up.create(&job("now", &queued, 2, 1)).await.unwrap();
    up.until("the job is complete", async |up| {
        let job = up.get(JOBS, "team", "now").await;
        assert_ne!(job["spec"]["suspend"], true);
        json::is_true(&job, "Complete").then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_placement_jobs_are_admitted_and_pods_wait() {
    let up = Up::start(&["--no-placement", "--speed", "100"]).await;
    up.apply(&queue(4)).await;
    up.create(&job("queued", &json!({"kueue.x-k8s.io/queue-name": "main"}), 1, 1)).await.unwrap();
    let waiting: Value = up
        .until("the job's pod is there", async |up| {
            let pods = up.list(PODS).await;
            pods.into_iter().find(|p| json::name(p).starts_with("queued-"))
        })
        .await;
    assert!(up.list(WORKLOADS).await.iter().all(|w| json::is_true(w, "Admitted")));
    // Whatever places pods would have done so by the time that a binding is made by hand.
    let name = json::name(&waiting);
    let now = up.get(PODS, "team", name).await;
    assert_eq!(now["spec"]["nodeName"], Value::Null);
    let node = json!({"apiVersion": "v1", "kind": "Node", "name": "node-0"});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": node});
    up.api.create_sub(PODS, "team", name, "binding", &binding).await.unwrap();
    up.until("the job is complete", async |up| {
        json::is_true(&up.get(JOBS, "team", "queued").await, "Complete").then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_both_it_is_an_api_server_with_nodes() {
    let up = Up::start(&["--no-queueing", "--no-placement", "--nodes", "1", "--speed", "100"]).await;
    assert!(up.api.get_path(&CLUSTER_QUEUES.collection("")).await.is_err());
    namespace(&up).await;
    let mut bound = pod("bound", &json!({}), 1);
    bound["spec"]["nodeName"] = json!("node-0");
    up.create(&bound).await.unwrap();
    up.create(&pod("waits", &json!({}), 1)).await.unwrap();
    up.until("the pod with a node runs", async |up| {
        (up.get(PODS, "team", "bound").await["status"]["phase"] == "Succeeded").then_some(())
    })
    .await;
    assert_eq!(up.get(PODS, "team", "waits").await["spec"]["nodeName"], Value::Null);
}
