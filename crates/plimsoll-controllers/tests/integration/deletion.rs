//! Deletion: propagation, dependents, namespaces, pods of vanished nodes.

use plimsoll_client::{Propagation, resources};
use serde_json::{Value, json};

use crate::harness::{Harness, is_true, job};
use crate::support;

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
    harness
        .until("no finalizers", |w| {
            of(w, "orphan").iter().all(|p| p["metadata"].get("finalizers").is_none_or(|f| f == &json!([])))
        })
        .await;
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

/// Such as one that was restored from a file, or lost its owner before the Job controller got to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_without_a_job_loses_the_jobs_finalizer() {
    let harness = Harness::new().await;
    let spec = json!({"containers": [{"name": "c", "image": "x"}]});
    let metadata = json!({"name": "p", "finalizers": ["batch.kubernetes.io/job-tracking"]});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    harness.create(&resources::PODS, "default", pod).await;
    let held = |w: &Harness| {
        let pod = w.get(&resources::PODS, "default", "p").unwrap_or_default();
        pod["metadata"]["finalizers"].as_array().is_some_and(|f| !f.is_empty())
    };
    harness.until("no finalizer", |w| !held(w)).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_to_go_without_a_node_makes_room_for_another() {
    let harness = Harness::new().await;
    let spec = json!({"podReplacementPolicy": "Failed"});
    harness.create(&resources::JOBS, "default", job("waits", None, &spec)).await;
    let pods = |w: &Harness| w.list(&resources::PODS, "default");
    harness.until("a pod", |w| pods(w).len() == 1).await;
    let first = pods(&harness).remove(0)["metadata"].clone();
    harness
        .delete(&resources::PODS, "default", first["name"].as_str().unwrap(), Propagation::Background)
        .await;
    harness
        .until("another pod", |w| {
            let pods = pods(w);
            pods.len() == 1 && pods[0]["metadata"]["uid"] != first["uid"]
        })
        .await;
    assert_eq!(harness.job("waits")["status"]["failed"], 1);
    harness.stop().await;
}

/// The definition goes, and with it the kind of the owners, before all dependents were looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_of_custom_resources_go_with_their_definition() {
    let harness = support::Harness::new(50.0).await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let version = json!({"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object"}}});
    let names = json!({"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"});
    let spec = json!({"group": "test.dev", "scope": "Namespaced", "names": names, "versions": [version]});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ships.test.dev"}, "spec": spec});
    harness.create(definitions, &definition).await;
    let ships = "/apis/test.dev/v1/namespaces/default/ships";
    harness.until("the kind", ships, |list| list["kind"] == "ShipList").await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for i in 0..300 {
        let name = format!("ship-{i}");
        let ship = json!({"apiVersion": "test.dev/v1", "kind": "Ship", "metadata": {"name": name}});
        let ship = harness.create(ships, &ship).await;
        let owner = json!([{"apiVersion": "test.dev/v1", "kind": "Ship", "name": name, "uid": ship["metadata"]["uid"]}]);
        let cargo = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"cargo": "yes"}, "ownerReferences": owner}});
        harness.create(maps, &cargo).await;
    }
    harness.delete(&format!("{definitions}/ships.test.dev")).await;
    let cargo = format!("{maps}?labelSelector=cargo");
    harness.until("the end of the cargo", &cargo, |list| list["items"] == json!([])).await;
    harness.stop().await;
}
