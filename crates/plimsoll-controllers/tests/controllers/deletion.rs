//! Deletion: propagation, dependents, namespaces, pods of vanished nodes.

use plimsoll_client::{Propagation, resources};
use serde_json::{Value, json};

use crate::world::{World, is_true, job};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_ways_to_delete_a_job() {
    let world = World::new().await;
    for name in ["background", "foreground", "orphan"] {
        world.create(&resources::JOBS, "default", job(name, None, &json!({"parallelism": 2}))).await;
    }
    world.until("pods", |w| w.list(&resources::PODS, "default").len() == 6).await;
    let of = |w: &World, job: &str| {
        let pods = w.list(&resources::PODS, "default");
        pods.into_iter().filter(|p| p["metadata"]["labels"]["job-name"] == job).collect::<Vec<_>>()
    };
    world.delete(&resources::JOBS, "default", "background", Propagation::Background).await;
    assert!(world.job("background").is_null());
    world.until("background", |w| of(w, "background").is_empty()).await;
    world.delete(&resources::JOBS, "default", "foreground", Propagation::Foreground).await;
    world.until("foreground", |w| w.job("foreground").is_null()).await;
    assert!(of(&world, "foreground").is_empty());
    world.delete(&resources::JOBS, "default", "orphan", Propagation::Orphan).await;
    world.until("orphan", |w| w.job("orphan").is_null()).await;
    let left = of(&world, "orphan");
    assert_eq!(left.len(), 2);
    for pod in left {
        assert!(pod["metadata"].get("ownerReferences").is_none_or(|o| o == &json!([])), "{pod}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_go_with_their_last_owner() {
    let world = World::new().await;
    let map = |name: &str, owners: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
    let owner = |object: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
    let maps = &resources::CONFIG_MAPS;
    let one = world.create(maps, "default", map("one", json!([]))).await;
    let two = world.create(maps, "default", map("two", json!([]))).await;
    let both = world.create(maps, "default", map("both", json!([owner(&one), owner(&two)]))).await;
    world.create(maps, "default", map("grandchild", json!([owner(&both)]))).await;
    let mut stranger = owner(&one);
    stranger["uid"] = json!("00000000-0000-0000-0000-000000000000");
    // An owner of that name but with another UID is none.
    world.create(maps, "default", map("stranger", json!([stranger]))).await;
    world.until("the stranger's end", |w| w.get(maps, "default", "stranger").is_none()).await;
    world.delete(maps, "default", "one", Propagation::Background).await;
    let owners = |w: &World| {
        let both = w.get(maps, "default", "both").unwrap_or_default();
        both["metadata"]["ownerReferences"].as_array().map(Vec::len)
    };
    world.until("one owner less", |w| owners(w) == Some(1)).await;
    assert!(world.get(maps, "default", "both").is_some());
    world.delete(maps, "default", "two", Propagation::Background).await;
    world.until("the grandchild's end", |w| w.get(maps, "default", "grandchild").is_none()).await;
    assert!(world.get(maps, "default", "both").is_none());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_goes_with_everything_in_it() {
    let world = World::new().await;
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    world.create(&resources::NAMESPACES, "", object).await;
    world
        .until("furniture", |w| {
            w.get(&resources::CONFIG_MAPS, "n", "kube-root-ca.crt").is_some()
                && w.get(&resources::SERVICE_ACCOUNTS, "n", "default").is_some()
        })
        .await;
    // It comes back, whatever is done to it.
    let uid =
        |w: &World| Some(w.get(&resources::SERVICE_ACCOUNTS, "n", "default")?["metadata"]["uid"].clone());
    let first = uid(&world);
    world.delete(&resources::SERVICE_ACCOUNTS, "n", "default", Propagation::Background).await;
    world.until("a new account", |w| uid(w).is_some() && uid(w) != first).await;
    world
        .change(&resources::CONFIG_MAPS, "n", "kube-root-ca.crt", |map| {
            map["data"] = json!({"ca.crt": "other"});
            true
        })
        .await;
    let ca = |w: &World| {
        w.get(&resources::CONFIG_MAPS, "n", "kube-root-ca.crt").unwrap()["data"]["ca.crt"].clone()
    };
    world.until("the certificate again", |w| ca(w) == "PEM").await;
    let mut made = job("j", None, &json!({"parallelism": 3}));
    made["metadata"]["namespace"] = json!("n");
    world.create(&resources::JOBS, "n", made).await;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["example.dev/hold"]}});
    world.create(&resources::CONFIG_MAPS, "n", held).await;
    world.until("pods", |w| w.list(&resources::PODS, "n").len() == 3).await;
    world.delete(&resources::NAMESPACES, "", "n", Propagation::Background).await;
    world
        .until("what is held", |w| {
            let namespace = w.get(&resources::NAMESPACES, "", "n").unwrap();
            is_true(&namespace, "NamespaceFinalizersRemaining") && w.list(&resources::PODS, "n").is_empty()
        })
        .await;
    world.until("conditions", |w| {
        let namespace = w.get(&resources::NAMESPACES, "", "n").unwrap();
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        let message = |kind: &str| conditions.iter().find(|c| c["type"] == kind).map(|c| c["message"].clone());
        message("NamespaceContentRemaining") == Some(json!("Some resources are remaining: configmaps. has 1 resource instances"))
            && message("NamespaceFinalizersRemaining")
                == Some(json!("Some content in the namespace has finalizers remaining: example.dev/hold in 1 resource instances"))
    })
    .await;
    world
        .change(&resources::CONFIG_MAPS, "n", "held", |map| {
            map["metadata"]["finalizers"] = json!([]);
            true
        })
        .await;
    world.until("the end", |w| w.get(&resources::NAMESPACES, "", "n").is_none()).await;
    let store = &world.store;
    let left: Vec<_> =
        store.resources().into_iter().filter(|r| !store.list(r, Some("n")).is_empty()).collect();
    assert!(left.is_empty(), "{left:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_vanished_nodes_go() {
    let world = World::new().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    world.create(&resources::NODES, "", node).await;
    for (name, node) in [("stays", "n1"), ("goes", "n2")] {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "x"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        world.create(&resources::PODS, "default", pod).await;
    }
    world.until("the end of one", |w| w.get(&resources::PODS, "default", "goes").is_none()).await;
    assert!(world.get(&resources::PODS, "default", "stays").is_some());
    world.delete(&resources::NODES, "", "n1", Propagation::Background).await;
    world.until("the end of both", |w| w.list(&resources::PODS, "default").is_empty()).await;
    world.stop().await;
}
