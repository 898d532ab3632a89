//! Built-in admission that no recorded scenario shows, through HTTP.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::support::api::Api;
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

async fn server(objects: &[(&str, Value)]) -> Api {
    let api = Api::new(ServerConfig::default()).await;
    for (path, object) in objects {
        let (status, answer) = api.send("POST", path, Some(object)).await;
        assert_eq!(status, 201, "{path}: {answer}");
    }
    api
}

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

fn node(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}},
    })
}

#[tokio::test]
async fn pods_say_where_their_node_is() {
    let place =
        json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "rack": "1"});
    let mut forged = pod("bound", &json!({}));
    forged["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "forged"});
    let api = server(&[
        ("/api/v1/nodes", node("placed", &place)),
        ("/api/v1/nodes", node("bare", &json!({}))),
        (PODS, forged),
    ])
    .await;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"},
        "target": {"kind": "Node", "name": "placed"},
    });
    assert_eq!(api.send("POST", &format!("{PODS}/bound/binding"), Some(&binding)).await.0, 201);
    for (name, node) in [("made", "placed"), ("plain", "bare"), ("lost", "nowhere")] {
        let (status, _) = api.send("POST", PODS, Some(&pod(name, &json!({"nodeName": node})))).await;
        assert_eq!(status, 201, "{name}");
    }
    let labels = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"});
    for (name, wanted) in
        [("bound", labels.clone()), ("made", labels), ("plain", Value::Null), ("lost", Value::Null)]
    {
        let (_, pod) = api.send("GET", &format!("{PODS}/{name}"), None).await;
        assert_eq!(pod["metadata"]["labels"], wanted, "{name}");
    }
}

#[tokio::test]
async fn resized_pods_fit_their_node_and_its_limits() {
    let range = json!({
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Pod", "max": {"cpu": "4"}}]},
    });
    let sized = |cpu: &str| json!([{"name": "c", "image": "i", "resources": {"limits": {"cpu": cpu}}}]);
    let api = server(&[
        ("/api/v1/nodes", node("n", &json!({}))),
        ("/api/v1/nodes", node("w", &json!({"kubernetes.io/os": "windows"}))),
        ("/api/v1/namespaces/default/limitranges", range),
        (PODS, pod("free", &json!({"containers": sized("1")}))),
        (PODS, pod("placed", &json!({"containers": sized("1"), "nodeName": "n"}))),
        (PODS, pod("windows", &json!({"containers": sized("1"), "nodeName": "w"}))),
        (PODS, pod("lost", &json!({"containers": sized("1"), "nodeName": "x"}))),
    ])
    .await;
    for (name, cpu, wanted) in [
        ("free", "3", ""),
        ("free", "5", "maximum cpu usage per Pod is 4, but limit is 5"),
        ("placed", "2", ""),
        (
            "placed",
            "3",
            "node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000",
        ),
        ("windows", "2", "pod resize is only supported on linux nodes, node \"w\" is \"windows\""),
        ("lost", "2", "node \"x\" not found"),
    ] {
        let path = format!("{PODS}/{name}");
        let (_, mut pod) = api.send("GET", &path, None).await;
        pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": cpu}, "requests": {"cpu": cpu}});
        let (status, answer) = api.send("PUT", &format!("{path}/resize?dryRun=All"), Some(&pod)).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!(status, if wanted.is_empty() { 200 } else { 403 }, "{name} {cpu}: {message}");
        assert!(message.ends_with(wanted), "{name} {cpu}: {message}");
    }
}

#[tokio::test]
async fn what_a_change_leaves_out_of_priority_stays() {
    let api = server(&[(PODS, pod("p", &json!({})))]).await;
    let path = format!("{PODS}/p");
    let (_, mut pod) = api.send("GET", &path, None).await;
    for key in ["priority", "preemptionPolicy"] {
        pod["spec"].as_object_mut().unwrap().remove(key);
    }
    let (status, answer) = api.send("PUT", &path, Some(&pod)).await;
    assert_eq!((status, &answer["spec"]["priority"]), (200, &json!(0)), "{answer}");
    assert_eq!(answer["spec"]["preemptionPolicy"], "PreemptLowerPriority");
}

#[tokio::test]
async fn ingresses_get_the_newest_default_class() {
    let classes = "/apis/networking.k8s.io/v1/ingressclasses";
    let class = |name: &str, default: &str| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": {"name": name, "annotations": {"ingressclass.kubernetes.io/is-default-class": default}},
            "spec": {"controller": "example.com/c"},
        })
    };
    let api = server(&[
        (classes, class("b", "true")),
        (classes, class("a", "true")),
        (classes, class("c", "false")),
    ])
    .await;
    let ingress = |name: &str, annotations: Value, class: Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"ingressClassName": class, "defaultBackend": {"service": {"name": "s", "port": {"number": 1}}}},
        })
    };
    let (none, old) = (json!({}), json!({"kubernetes.io/ingress.class": "x"}));
    for (name, annotations, given, wanted) in [
        ("none", &none, Value::Null, json!("a")),
        ("own", &none, json!("c"), json!("c")),
        ("old", &old, Value::Null, Value::Null),
    ] {
        let object = ingress(name, annotations.clone(), given);
        let path = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
        let (status, answer) = api.send("POST", path, Some(&object)).await;
        assert_eq!((status, &answer["spec"]["ingressClassName"]), (201, &wanted), "{name}: {answer}");
    }
}

#[tokio::test]
async fn claims_grow_where_their_class_lets_them() {
    let class = |name: &str, grows: bool| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": "example.com/p", "allowVolumeExpansion": grows,
        })
    };
    let claim = |name: &str, class: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {
                "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        })
    };
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    let api = server(&[
        (classes, class("grows", true)),
        (classes, class("stays", false)),
        (CLAIMS, claim("a", "grows")),
        (CLAIMS, claim("b", "stays")),
        (CLAIMS, claim("c", "grows")),
    ])
    .await;
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    for name in ["a", "b"] {
        assert_eq!(api.send("PATCH", &format!("{CLAIMS}/{name}/status"), Some(&bound)).await.0, 200);
    }
    let size = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    for (name, code, wanted) in [
        ("a", 200, ""),
        (
            "b",
            403,
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        ),
        // Refused before admission sees it.
        (
            "c",
            422,
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        ),
    ] {
        let (status, answer) = api.send("PATCH", &format!("{CLAIMS}/{name}"), Some(&size)).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.ends_with(wanted), "{name}: {message}");
        assert_eq!(status, code, "{name}: {message}");
    }
}

#[tokio::test]
async fn quotas_hold_what_their_status_says() {
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    let quota = |name: &str, hard: Value, scopes: Value| {
        json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
            "spec": {"hard": hard, "scopes": scopes},
        })
    };
    let gpus = "requests.example.com/gpu";
    let api = server(&[
        (quotas, quota("unseen", json!({"pods": "0"}), json!([]))),
        (quotas, quota("gpus", json!({gpus: "1"}), json!([]))),
        (quotas, quota("short", json!({"pods": "1", "cpu": "1"}), json!(["Terminating"]))),
    ])
    .await;
    for (name, hard, used) in [
        ("gpus", json!({gpus: "1"}), json!({gpus: "0"})),
        ("short", json!({"pods": "1", "cpu": "1"}), json!({"pods": "0", "cpu": "0"})),
    ] {
        let status = json!({"status": {"hard": hard, "used": used}});
        assert_eq!(api.send("PATCH", &format!("{quotas}/{name}/status"), Some(&status)).await.0, 200);
    }
    let asks = |requests: Value| json!([{"name": "c", "image": "i", "resources": {"requests": requests.clone(), "limits": requests}}]);
    for (name, spec, wanted) in [
        ("free", json!({}), ""),
        (
            "greedy",
            json!({"containers": asks(json!({"example.com/gpu": "2"}))}),
            "exceeded quota: gpus, requested: requests.example.com/gpu=2, used: requests.example.com/gpu=0, limited: requests.example.com/gpu=1",
        ),
        ("vague", json!({"activeDeadlineSeconds": 5}), "failed quota: short: must specify cpu for: c"),
        ("whole", json!({"activeDeadlineSeconds": 5, "resources": {"requests": {"cpu": "1"}}}), ""),
        (
            "more",
            json!({"activeDeadlineSeconds": 5, "containers": asks(json!({"cpu": "1"}))}),
            "exceeded quota: short, requested: cpu=1,pods=1, used: cpu=1,pods=1, limited: cpu=1,pods=1",
        ),
    ] {
        let (status, answer) = api.send("POST", PODS, Some(&pod(name, &spec))).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(message.ends_with(wanted), "{name}: {message}");
        assert_eq!(status, if wanted.is_empty() { 201 } else { 403 }, "{name}: {message}");
    }
    // A pod that gets a deadline comes into scope.
    let deadline = json!({"spec": {"activeDeadlineSeconds": 9}});
    let (status, answer) = api.send("PATCH", &format!("{PODS}/free"), Some(&deadline)).await;
    assert_eq!(
        (status, &answer["message"]),
        (403, &json!("pods \"free\" is forbidden: failed quota: short: must specify cpu for: c"))
    );
}

/// `CheckRequest` of upstream's controller.go: every quota's constraints come before any quota's usage.
#[tokio::test]
async fn quotas_ask_for_requests_before_they_count() {
    let quotas = "/api/v1/namespaces/default/resourcequotas";
    // By name the full one comes first.
    let api = server(&[]).await;
    for (name, hard, used) in [
        ("full", json!({"pods": "0"}), json!({"pods": "0"})),
        ("q", json!({"requests.cpu": "1"}), json!({"requests.cpu": "0"})),
    ] {
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}});
        assert_eq!(api.send("POST", quotas, Some(&quota)).await.0, 201);
        let status = json!({"status": {"hard": hard, "used": used}});
        assert_eq!(api.send("PATCH", &format!("{quotas}/{name}/status"), Some(&status)).await.0, 200);
    }
    let cpu =
        json!({"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}]});
    for (spec, wanted) in [
        (
            json!({"containers": [{"name": "main", "image": "i"}]}),
            "failed quota: q: must specify requests.cpu for: main",
        ),
        (cpu, "exceeded quota: full, requested: pods=1, used: pods=0, limited: pods=0"),
    ] {
        let (status, answer) = api.send("POST", PODS, Some(&pod("p", &spec))).await;
        assert_eq!((status, &answer["message"]), (403, &json!(format!("pods \"p\" is forbidden: {wanted}"))));
    }
}
