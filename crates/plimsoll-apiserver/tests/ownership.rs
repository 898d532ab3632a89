//! Who owns what after sequences of writes by several managers, and what patches make of what an object calls itself.

#![allow(clippy::unwrap_used)]

mod support;

use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};
use support::api::Api;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Applies; the answer's code and the object or status.
async fn apply(api: &Api, path: &str, manager: &str, object: &Value) -> (u16, Value) {
    let path = format!("{path}?fieldManager={manager}&force=true");
    api.send_text("PATCH", &path, "application/apply-patch+yaml", object.to_string()).await
}

/// The entries that own the replicas: manager, operation, subresource, whether they have a time.
async fn owners(api: &Api) -> Vec<(String, String, String, bool)> {
    let (_, object) = api.send("GET", &format!("{DEPLOYMENTS}/d"), None).await;
    let text = |e: &Value, key: &str| e[key].as_str().unwrap_or_default().to_owned();
    let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let owning = entries.filter(|e| e["fieldsV1"]["f:spec"]["f:replicas"].is_object());
    owning
        .map(|e| (text(e, "manager"), text(e, "operation"), text(e, "subresource"), e["time"].is_string()))
        .collect()
}

fn deployment(probe: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "1"}},
        "template": {"metadata": {"labels": {"a": "1"}},
            "spec": {"containers": [{"name": "c", "image": "i", "livenessProbe": probe}]}}}})
}

/// Owners of the replicas come and go through `scale` as through a Scale of its own version.
#[tokio::test]
async fn owners_of_a_scale() {
    let api = Api::new(ServerConfig::default()).await;
    let object = deployment(&json!({"tcpSocket": {"port": 80}}));
    let (code, _) = api.send("POST", &format!("{DEPLOYMENTS}?fieldManager=m1"), Some(&object)).await;
    assert_eq!(code, 201);
    let path = format!("{DEPLOYMENTS}/d/scale");
    let scale = |n: i64| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": n}})
    };
    let owner = |manager: &str, operation: &str, subresource: &str, timed: bool| {
        (manager.to_owned(), operation.to_owned(), subresource.to_owned(), timed)
    };
    assert_eq!(owners(&api).await, [owner("m1", "Update", "", true)]);
    let put = format!("{path}?fieldManager=m2");
    for _ in 0..2 {
        assert_eq!(api.send("PUT", &put, Some(&scale(4))).await.0, 200);
        assert_eq!(owners(&api).await, [owner("m2", "Update", "scale", false)]);
    }
    // a Scale without a number has nothing that could be owned
    assert_eq!(api.send("PUT", &put, Some(&scale(0))).await.0, 200);
    assert_eq!(owners(&api).await, []);
    assert_eq!(api.send("PATCH", &put, Some(&json!({"spec": {"replicas": 3}}))).await.0, 200);
    assert_eq!(owners(&api).await, [], "what nobody applied isn't tracked");
    let unforced = format!("{path}?fieldManager=m3");
    let kind = "application/apply-patch+yaml";
    let (code, status) = api.send_text("PATCH", &unforced, kind, scale(5).to_string()).await;
    assert_eq!(code, 409);
    let message = r#"Apply failed with 1 conflict: conflict with "before-first-apply" with subresource "scale" using autoscaling/v1: .spec.replicas"#;
    assert_eq!(status["message"], message);
    assert_eq!(apply(&api, &path, "m3", &scale(5)).await.0, 200);
    assert_eq!(owners(&api).await, [owner("m3", "Apply", "scale", false)]);

    // what doesn't change leaves its owner, in an entry of its own and without a time; of two entries of one manager
    // the last counts at the next write
    assert_eq!(api.send("DELETE", &format!("{DEPLOYMENTS}/d"), None).await.0, 200);
    assert_eq!(api.send("POST", &format!("{DEPLOYMENTS}?fieldManager=m1"), Some(&object)).await.0, 201);
    assert_eq!(api.send("PUT", &put, Some(&scale(1))).await.0, 200);
    assert_eq!(owners(&api).await, [owner("m1", "Update", "", false)]);
    assert_eq!(api.send("PUT", &put, Some(&scale(2))).await.0, 200);
    assert_eq!(owners(&api).await, []);
}

/// What is emptied is not what goes: an applied probe of which nothing is left is a probe without a handler.
#[tokio::test]
async fn what_was_emptied_stays() {
    let api = Api::new(ServerConfig::default()).await;
    let path = format!("{DEPLOYMENTS}/d");
    let object = deployment(&json!({"tcpSocket": {"port": 80}}));
    assert_eq!(apply(&api, &path, "m1", &object).await.0, 201);
    let (code, status) = apply(&api, &path, "m1", &deployment(&json!({}))).await;
    assert_eq!(code, 422, "{status}");
    assert!(status["message"].as_str().unwrap().contains("must specify a handler type"), "{status}");
    let labelled = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"x": "1"}}});
    assert_eq!(apply(&api, &path, "m2", &labelled).await.0, 200);
    let nothing = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": null});
    let (code, object) = apply(&api, &path, "m2", &nothing).await;
    assert_eq!((code, &object["metadata"]["labels"]), (200, &Value::Null), "{object}");

    // others that applied the struct around it keep that
    let path = "/api/v1/namespaces/default/limitranges/l";
    let range = |spec: Value| json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": spec});
    assert_eq!(apply(&api, path, "m1", &range(json!({"limits": [{"type": "Pod"}]}))).await.0, 201);
    assert_eq!(apply(&api, path, "m2", &range(json!({}))).await.0, 200);
    let (_, object) = apply(&api, path, "m1", &range(json!({}))).await;
    let managers: Vec<_> = object["metadata"]["managedFields"].as_array().unwrap().iter().collect();
    assert_eq!(managers.len(), 2, "{object}");
}

/// A patched document of a built-in kind is read as what it calls itself, a strategic one as what it was.
#[tokio::test]
async fn patches_of_kind_and_version() {
    let api = Api::new(ServerConfig::default()).await;
    let object = json!({"metadata": {"name": "q"}, "data": {"a": "1"}});
    assert_eq!(api.send("POST", CONFIG_MAPS, Some(&object)).await.0, 201);
    let path = format!("{CONFIG_MAPS}/q?dryRun=All");
    let unnamed = "the name of the object (q based on URL) was undeterminable: name must be provided";
    for (patch, kind, code, end) in [
        (json!({"kind": "X"}), "strategic-merge", 200, ""),
        (json!({"apiVersion": "a/b/c", "kind": null}), "strategic-merge", 200, ""),
        (json!({"$patch": "replace", "metadata": {"name": "q"}}), "strategic-merge", 200, ""),
        (json!({"$patch": "delete"}), "strategic-merge", 400, unnamed),
        (json!({"kind": 1}), "strategic-merge", 422, "cannot convert int64 to string"),
        (json!({"apiVersion": true}), "strategic-merge", 422, "unrecognized type: string"),
        (json!({"kind": null}), "merge", 200, ""),
        (json!({"apiVersion": "/v1"}), "merge", 200, ""),
        (json!({"apiVersion": null}), "merge", 400, unnamed),
        (
            json!({"kind": 1}),
            "merge",
            422,
            "cannot unmarshal number into Go struct field .kind of type string",
        ),
        (json!({"apiVersion": "a/b/c"}), "merge", 422, "unexpected GroupVersion string: a/b/c"),
        (json!({"kind": "Pod"}), "merge", 422, "converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
        (
            json!({"kind": "Pod", "apiVersion": null}),
            "merge",
            422,
            "converting (core.Pod) to (core.ConfigMap): unknown conversion",
        ),
        (
            json!({"kind": "X", "apiVersion": null}),
            "merge",
            422,
            "no kind \"X\" is registered for the internal version of group \"\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
        ),
        (json!([{"op": "remove", "path": "/kind"}]), "json", 200, ""),
        (json!([{"op": "remove", "path": "/apiVersion"}]), "json", 400, unnamed),
    ] {
        let content = format!("application/{kind}-patch+json");
        let (got, answer) = api.send_text("PATCH", &path, &content, patch.to_string()).await;
        assert_eq!(got, code, "{patch} {answer}");
        if code == 200 {
            assert_eq!(
                (&answer["kind"], &answer["apiVersion"]),
                (&json!("ConfigMap"), &json!("v1")),
                "{patch}"
            );
        } else {
            assert!(answer["message"].as_str().unwrap().ends_with(end), "{patch} {answer}");
        }
    }
}
