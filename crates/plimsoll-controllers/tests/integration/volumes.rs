//! Volumes and claims through HTTP: bound, provisioned, released, protected.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::support::Harness;
use serde_json::{Value, json};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn claim(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "2Gi"}},
        },
    })
}

fn volume(name: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
            "hostPath": {"path": "/tmp/x"},
        },
    })
}

fn class(name: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "plimsoll.dev/simulated", "volumeBindingMode": mode,
    })
}

fn phase(wanted: &str) -> impl Fn(&Value) -> bool {
    move |object| object["status"]["phase"] == wanted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_gets_the_smallest_volume_that_fits() {
    let harness = Harness::new(20.0).await;
    for (name, size) in [("small", "1Gi"), ("large", "9Gi"), ("right", "3Gi")] {
        harness.create(VOLUMES, &volume(name, size)).await;
    }
    harness.until("a free volume", &format!("{VOLUMES}/right"), phase("Available")).await;
    harness.create(CLAIMS, &claim("c", "manual")).await;
    let bound = harness.until("a bound claim", &format!("{CLAIMS}/c"), phase("Bound")).await;
    assert_eq!(bound["spec"]["volumeName"], "right");
    assert_eq!(bound["status"]["capacity"]["storage"], "3Gi");
    assert_eq!(bound["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
    let right = harness.until("a bound volume", &format!("{VOLUMES}/right"), phase("Bound")).await;
    assert_eq!(right["spec"]["claimRef"]["uid"], bound["metadata"]["uid"]);
    // A pod on a node keeps the claim from going.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        },
    });
    harness.create(PODS, &pod).await;
    harness.delete(&format!("{CLAIMS}/c")).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(harness.get(&format!("{CLAIMS}/c")).await["metadata"]["deletionTimestamp"].is_string());
    harness.delete(&format!("{PODS}/p")).await;
    harness.until("no claim", &format!("{CLAIMS}/c"), |c| c["code"] == 404).await;
    // What was made by hand is kept, and not given to anybody else.
    harness.until("a released volume", &format!("{VOLUMES}/right"), phase("Released")).await;
    harness.create(CLAIMS, &claim("next", "manual")).await;
    let next = harness.until("another volume", &format!("{CLAIMS}/next"), phase("Bound")).await;
    assert_eq!(next["spec"]["volumeName"], "large");
    harness.delete(&format!("{VOLUMES}/right")).await;
    harness.until("no volume", &format!("{VOLUMES}/right"), |v| v["code"] == 404).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simulated_volumes_come_when_they_are_asked_for() {
    let harness = Harness::new(20.0).await;
    harness.create(CLASSES, &class("now", "Immediate")).await;
    harness.create(CLASSES, &class("later", "WaitForFirstConsumer")).await;
    harness.create(CLAIMS, &claim("a", "now")).await;
    let bound = harness.until("a volume", &format!("{CLAIMS}/a"), phase("Bound")).await;
    let name = bound["spec"]["volumeName"].as_str().unwrap().to_owned();
    assert_eq!(name, format!("pvc-{}", bound["metadata"]["uid"].as_str().unwrap()));
    let volume = harness.get(&format!("{VOLUMES}/{name}")).await;
    assert_eq!(volume["spec"]["capacity"]["storage"], "2Gi");
    assert_eq!(
        volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"],
        "plimsoll.dev/simulated"
    );
    assert_eq!(volume["spec"]["csi"]["driver"], "simulated.plimsoll.dev");
    // The other class waits until a scheduler has chosen a node.
    harness.create(CLAIMS, &claim("b", "later")).await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(harness.get(&format!("{CLAIMS}/b")).await["status"]["phase"], "Pending");
    let chosen = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}});
    harness.patch(&format!("{CLAIMS}/b"), &chosen).await;
    harness.until("its volume", &format!("{CLAIMS}/b"), phase("Bound")).await;
    // They go with their claims.
    harness.delete(&format!("{CLAIMS}/a")).await;
    harness.until("no volume", &format!("{VOLUMES}/{name}"), |v| v["code"] == 404).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_without_a_class_get_the_default_one() {
    let harness = Harness::new(20.0).await;
    let mut open = claim("early", "");
    open["spec"].as_object_mut().unwrap().remove("storageClassName");
    harness.create(CLAIMS, &open).await;
    // The empty class is a choice: no class.
    harness.create(CLAIMS, &claim("none", "")).await;
    harness.create(CLASSES, &class("other", "Immediate")).await;
    let mut default = class("fast", "Immediate");
    default["metadata"]["annotations"] = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    harness.create(CLASSES, &default).await;
    let early = harness.until("a volume", &format!("{CLAIMS}/early"), phase("Bound")).await;
    assert_eq!(early["spec"]["storageClassName"], "fast");
    open["metadata"]["name"] = json!("late");
    assert_eq!(harness.create(CLAIMS, &open).await["spec"]["storageClassName"], "fast");
    harness.until("a volume", &format!("{CLAIMS}/late"), phase("Bound")).await;
    let none = harness.get(&format!("{CLAIMS}/none")).await;
    assert_eq!(
        (&none["spec"]["storageClassName"], &none["status"]["phase"]),
        (&json!(""), &json!("Pending"))
    );
    harness.stop().await;
}
