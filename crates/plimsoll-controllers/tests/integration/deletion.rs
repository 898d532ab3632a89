//! Deletion: propagation, dependents, namespaces, pods of vanished nodes.

use plimsoll_client::{Propagation, resources};
use serde_json::{Value, json};

use crate::harness::{Harness, is_true, job};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_ways_to_delete_a_job() {
    let harness = Harness::new().await;
    for name in ["background", "foreground", "orphan"] {
        harness.create(&resources::JOBS, "default", job(name, None, &json!({"parallelism": 2}))).await;
    }
    harness.until("pods", |w| w.list(&resources::PODS, "default").len() == 6).await;
    let of = |w: &Harness, job: &str| {
        let pods = w.list(&resources::PODS, "default");
        pods.into_iter().filter(|p| p["metadata"]["labels"]["job-name"] == job).collect::<Vec<_>>()
    };
    harness.delete(&resources::JOBS, "default", "background", Propagation::Background).await;
    assert!(harness.job("background").is_null());
    harness.until("background", |w| of(w, "background").is_empty()).await;
    harness.delete(&resources::JOBS, "default", "foreground", Propagation::Foreground).await;
    harness.until("foreground", |w| w.job("foreground").is_null()).await;
    assert!(of(&harness, "foreground").is_empty());
    harness.delete(&resources::JOBS, "default", "orphan", Propagation::Orphan).await;
    harness.until("orphan", |w| w.job("orphan").is_null()).await;
    let left = of(&harness, "orphan");
    assert_eq!(left.len(), 2);
    for pod in left {
        assert!(pod["metadata"].get("ownerReferences").is_none_or(|o| o == &json!([])), "{pod}");
    }
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_go_with_their_last_owner() {
    let harness = Harness::new().await;
    let map = |name: &str, owners: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}});
    let owner = |object: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": object["metadata"]["name"], "uid": object["metadata"]["uid"]});
    let maps = &resources::CONFIG_MAPS;
    let one = harness.create(maps, "default", map("one", json!([]))).await;
    let two = harness.create(maps, "default", map("two", json!([]))).await;
    let both = harness.create(maps, "default", map("both", json!([owner(&one), owner(&two)]))).await;
    harness.create(maps, "default", map("grandchild", json!([owner(&both)]))).await;
    let mut stranger = owner(&one);
    stranger["uid"] = json!("00000000-0000-0000-0000-000000000000");
    // An owner of that name but with another UID is none.
    harness.create(maps, "default", map("stranger", json!([stranger]))).await;
    harness.until("the stranger's end", |w| w.get(maps, "default", "stranger").is_none()).await;
    harness.delete(maps, "default", "one", Propagation::Background).await;
    let owners = |w: &Harness| {
        let both = w.get(maps, "default", "both").unwrap_or_default();
        both["metadata"]["ownerReferences"].as_array().map(Vec::len)
    };
    harness.until("one owner less", |w| owners(w) == Some(1)).await;
    assert!(harness.get(maps, "default", "both").is_some());
    harness.delete(maps, "default", "two", Propagation::Background).await;
    harness.until("the grandchild's end", |w| w.get(maps, "default", "grandchild").is_none()).await;
    assert!(harness.get(maps, "default", "both").is_none());
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_goes_with_everything_in_it() {
    let harness = Harness::new().await;
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    harness.create(&resources::NAMESPACES, "", object).await;
    harness
        .until("furniture", |w| {
            w.get(&resources::CONFIG_MAPS, "n", "kube-root-ca.crt").is_some()
                && w.get(&resources::SERVICE_ACCOUNTS, "n", "default").is_some()
        })
        .await;
    // It comes back, whatever is done to it.
    let uid =
        |w: &Harness| Some(w.get(&resources::SERVICE_ACCOUNTS, "n", "default")?["metadata"]["uid"].clone());
    let first = uid(&harness);
    harness.delete(&resources::SERVICE_ACCOUNTS, "n", "default", Propagation::Background).await;
    harness.until("a new account", |w| uid(w).is_some() && uid(w) != first).await;
    harness
        .change(&resources::CONFIG_MAPS, "n", "kube-root-ca.crt", |map| {
            map["data"] = json!({"ca.crt": "other"});
            true
        })
        .await;
    let ca = |w: &Harness| {
        w.get(&resources::CONFIG_MAPS, "n", "kube-root-ca.crt").unwrap()["data"]["ca.crt"].clone()
    };
    harness.until("the certificate again", |w| ca(w) == "PEM").await;
    let mut made = job("j", None, &json!({"parallelism": 3}));
    made["metadata"]["namespace"] = json!("n");
    harness.create(&resources::JOBS, "n", made).await;
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "held", "finalizers": ["example.dev/hold"]}});
    harness.create(&resources::CONFIG_MAPS, "n", held).await;
    harness.until("pods", |w| w.list(&resources::PODS, "n").len() == 3).await;
    harness.delete(&resources::NAMESPACES, "", "n", Propagation::Background).await;
    harness
        .until("what is held", |w| {
            let namespace = w.get(&resources::NAMESPACES, "", "n").unwrap();
            is_true(&namespace, "NamespaceFinalizersRemaining") && w.list(&resources::PODS, "n").is_empty()
        })
        .await;
    harness.until("conditions", |w| {
        let namespace = w.get(&resources::NAMESPACES, "", "n").unwrap();
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        let message = |kind: &str| conditions.iter().find(|c| c["type"] == kind).map(|c| c["message"].clone());
        message("NamespaceContentRemaining") == Some(json!("Some resources are remaining: configmaps. has 1 resource instances"))
            && message("NamespaceFinalizersRemaining")
                == Some(json!("Some content in the namespace has finalizers remaining: example.dev/hold in 1 resource instances"))
    })
    .await;
    harness
        .change(&resources::CONFIG_MAPS, "n", "held", |map| {
            map["metadata"]["finalizers"] = json!([]);
            true
        })
        .await;
    harness.until("the end", |w| w.get(&resources::NAMESPACES, "", "n").is_none()).await;
    let store = &harness.store;
    let left: Vec<_> =
        store.resources().into_iter().filter(|r| !store.list(r, Some("n")).is_empty()).collect();
    assert!(left.is_empty(), "{left:?}");
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_vanished_nodes_go() {
    let harness = Harness::new().await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    harness.create(&resources::NODES, "", node).await;
    for (name, node) in [("stays", "n1"), ("goes", "n2")] {
        let spec = json!({"nodeName": node, "containers": [{"name": "c", "image": "x"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        harness.create(&resources::PODS, "default", pod).await;
    }
    harness.until("the end of one", |w| w.get(&resources::PODS, "default", "goes").is_none()).await;
    assert!(harness.get(&resources::PODS, "default", "stays").is_some());
    harness.delete(&resources::NODES, "", "n1", Propagation::Background).await;
    harness.until("the end of both", |w| w.list(&resources::PODS, "default").is_empty()).await;
    harness.stop().await;
}
