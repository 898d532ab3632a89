//! Pods that may be deleted forcefully, on nodes that become unreachable (Kueue's gate `FailureRecoveryPolicy`).

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{Up, condition};
use plimsoll_api::json;
use plimsoll_runtime::api::{EVENTS, NODES, PODS, PatchKind};
use serde_json::{Value, json};

const CONFIG: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                      featureGates: {FailureRecoveryPolicy: true}\n";
const ANNOTATION: &str = "kueue.x-k8s.io/safe-to-forcefully-delete";

/// The pods that are left, in the order of their names.
async fn left(up: &Up) -> Vec<String> {
    up.list(PODS).await.iter().map(|p| json::name(p).to_owned()).collect()
}

async fn lose(up: &Up, node: &str) {
    // The node controller removes such a taint with another effect, because the simulated kubelet reports. Kueue compares
    // the key alone.
    let taint = json!({"key": "node.kubernetes.io/unreachable", "effect": "PreferNoSchedule"});
    let lost = json!({"spec": {"taints": [taint]}});
    up.api.patch(NODES, "", node, "", PatchKind::Merge, &lost).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_opt_in_are_deleted_from_unreachable_nodes() {
    let dir = crate::common::directory();
    let config = dir.join("kueue.yaml");
    std::fs::write(&config, CONFIG).unwrap();
    let named = config.display().to_string();
    // A simulated kubelet as slow as this does not end a pod within the test.
    let up = Up::start_in(dir, &["--speed", "0.001", "--nodes", "2", "--config", &named]).await;
    let nodes: Vec<String> = up.list(NODES).await.iter().map(|n| json::name(n).to_owned()).collect();
    for (name, node, annotations, finalizers) in [
        ("free", &nodes[0], json!({ANNOTATION: "true"}), json!([])),
        ("held", &nodes[0], json!({ANNOTATION: "true"}), json!(["example.com/hold"])),
        ("other", &nodes[0], json!({ANNOTATION: "false"}), json!([])),
        ("reachable", &nodes[1], json!({ANNOTATION: "true"}), json!([])),
    ] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default",
                "annotations": annotations, "finalizers": finalizers},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "c", "image": "i", "command": ["sleep", "600"]}]},
        });
        up.create(&pod).await.unwrap();
        up.api.delete(PODS, "default", name, "", None).await.unwrap();
    }
    lose(&up, &nodes[0]).await;
    let held = up
        .until("the pod without finalizers is gone", async |up| {
            assert!(left(up).await.contains(&"held".to_owned()));
            let held = up.get(PODS, "default", "held").await;
            let forced = json::int(&held, &["metadata", "deletionGracePeriodSeconds"]) == Some(0);
            (forced && !left(up).await.contains(&"free".to_owned())).then_some(held)
        })
        .await;
    assert_eq!(held["status"]["phase"], "Failed", "{held}");
    let message = format!(
        "Pod forcefully terminated after 1m0.000000001s grace period due to unreachable node `{}` (triggered by \
         `{ANNOTATION}` annotation)",
        nodes[0]
    );
    let want = ("True", "KueueForcefullyDeleted", message.as_str());
    assert_eq!(condition(&held, "KueueFailureRecovery"), want);
    assert_eq!(left(&up).await, ["held", "other", "reachable"]);
    for name in ["other", "reachable"] {
        assert_eq!(up.get(PODS, "default", name).await["status"]["phase"], "Pending");
    }
    let events = up
        .until("an event for each pod", async |up| {
            let mut events = up.list(EVENTS).await;
            events.retain(|event| event["reason"] == "KueueForcefullyDeleted");
            (events.len() == 2).then_some(events)
        })
        .await;
    for event in &events {
        let of = |key: &str| json::text(event, &[key]);
        let from = (of("type"), of("action"), of("reportingController"), of("note"));
        let want = ("Warning", "ForcefulTermination", "kueue-pod-termination-controller", message.as_str());
        assert_eq!(from, want);
    }

    // Its time is over already: it goes as soon as its node is lost.
    lose(&up, &nodes[1]).await;
    let released = json!({"metadata": {"finalizers": Value::Null}});
    up.api.patch(PODS, "default", "held", "", PatchKind::Merge, &released).await.unwrap();
    up.until("all pods that opt in are gone", async |up| (left(up).await == ["other"]).then_some(())).await;
}
