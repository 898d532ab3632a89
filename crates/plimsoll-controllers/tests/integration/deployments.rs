//! Deployments: rollout, scaling, deletion.

use plimsoll_client::{Propagation, resources};
use serde_json::{Value, json};

use crate::harness::{Harness, is_true};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_rolls_out_scales_and_goes() {
    let harness = Harness::new().await;
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "x:1"}]},
            },
        },
    });
    harness.create(&resources::DEPLOYMENTS, "default", object).await;
    let settled = |w: &Harness, replicas: i64, image: &str| {
        let d = w.get(&resources::DEPLOYMENTS, "default", "web").unwrap();
        let pods = w.list(&resources::PODS, "default");
        let images = pods.iter().filter(|p| p["spec"]["containers"][0]["image"] == image).count();
        d["status"]["availableReplicas"] == replicas
            && d["status"]["updatedReplicas"] == replicas
            && d["status"]["replicas"] == replicas
            && d["status"]["observedGeneration"] == d["metadata"]["generation"]
            && i64::try_from(images).unwrap() == replicas
            && pods.len() == images
    };
    harness.until("the first rollout", |w| settled(w, 4, "x:1")).await;
    let get = |w: &Harness| w.get(&resources::DEPLOYMENTS, "default", "web").unwrap();
    harness.until("progress", |w| is_true(&get(w), "Available") && is_true(&get(w), "Progressing")).await;
    let image = |image: &'static str| {
        move |d: &mut Value| {
            d["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            true
        }
    };
    harness.change(&resources::DEPLOYMENTS, "default", "web", image("x:2")).await;
    harness.until("the second rollout", |w| settled(w, 4, "x:2")).await;
    let sets = harness.list(&resources::REPLICA_SETS, "default");
    assert_eq!(sets.len(), 2);
    assert_eq!(get(&harness)["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    harness
        .change(&resources::DEPLOYMENTS, "default", "web", |d| {
            d["spec"]["replicas"] = json!(7);
            true
        })
        .await;
    harness.until("growth", |w| settled(w, 7, "x:2")).await;
    // Back: the old ReplicaSet is used again, with a new revision.
    harness.change(&resources::DEPLOYMENTS, "default", "web", image("x:1")).await;
    harness.until("the way back", |w| settled(w, 7, "x:1")).await;
    assert_eq!(harness.list(&resources::REPLICA_SETS, "default").len(), 2);
    assert_eq!(get(&harness)["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    // A pod that is deleted comes back.
    let pod = harness.list(&resources::PODS, "default")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    harness.delete(&resources::PODS, "default", &pod, Propagation::Background).await;
    harness
        .until("its replacement", |w| {
            settled(w, 7, "x:1") && w.get(&resources::PODS, "default", &pod).is_none()
        })
        .await;
    harness.delete(&resources::DEPLOYMENTS, "default", "web", Propagation::Background).await;
    harness
        .until("the end", |w| {
            w.list(&resources::REPLICA_SETS, "default").is_empty()
                && w.list(&resources::PODS, "default").is_empty()
        })
        .await;
    harness.stop().await;
}
