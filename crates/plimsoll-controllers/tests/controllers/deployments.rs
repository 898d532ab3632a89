//! Deployments: rollout, scaling, deletion.

use plimsoll_client::{Propagation, resources};
use serde_json::{Value, json};

use crate::world::{World, is_true};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_rolls_out_scales_and_goes() {
    let world = World::new().await;
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
    world.create(&resources::DEPLOYMENTS, "default", object).await;
    let settled = |w: &World, replicas: i64, image: &str| {
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
    world.until("the first rollout", |w| settled(w, 4, "x:1")).await;
    let get = |w: &World| w.get(&resources::DEPLOYMENTS, "default", "web").unwrap();
    world.until("progress", |w| is_true(&get(w), "Available") && is_true(&get(w), "Progressing")).await;
    let image = |image: &'static str| {
        move |d: &mut Value| {
            d["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            true
        }
    };
    world.change(&resources::DEPLOYMENTS, "default", "web", image("x:2")).await;
    world.until("the second rollout", |w| settled(w, 4, "x:2")).await;
    let sets = world.list(&resources::REPLICA_SETS, "default");
    assert_eq!(sets.len(), 2);
    assert_eq!(get(&world)["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    world
        .change(&resources::DEPLOYMENTS, "default", "web", |d| {
            d["spec"]["replicas"] = json!(7);
            true
        })
        .await;
    world.until("growth", |w| settled(w, 7, "x:2")).await;
    // Back: the old ReplicaSet is used again, with a new revision.
    world.change(&resources::DEPLOYMENTS, "default", "web", image("x:1")).await;
    world.until("the way back", |w| settled(w, 7, "x:1")).await;
    assert_eq!(world.list(&resources::REPLICA_SETS, "default").len(), 2);
    assert_eq!(get(&world)["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    // A pod that is deleted comes back.
    let pod = world.list(&resources::PODS, "default")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    world.delete(&resources::PODS, "default", &pod, Propagation::Background).await;
    world
        .until("its replacement", |w| {
            settled(w, 7, "x:1") && w.get(&resources::PODS, "default", &pod).is_none()
        })
        .await;
    world.delete(&resources::DEPLOYMENTS, "default", "web", Propagation::Background).await;
    world
        .until("the end", |w| {
            w.list(&resources::REPLICA_SETS, "default").is_empty()
                && w.list(&resources::PODS, "default").is_empty()
        })
        .await;
    world.stop().await;
}
