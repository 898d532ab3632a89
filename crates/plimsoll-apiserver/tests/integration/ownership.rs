//! Who owns what after sequences of writes by several managers, and what patches make of what an object calls itself.

#![allow(clippy::unwrap_used)]

use crate::support::api::Api;
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};

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

    // of another object of this name
    let mut other = scale(6);
    other["metadata"]["uid"] = json!("other");
    for (method, body) in [("PUT", other), ("PATCH", json!({"metadata": {"uid": "other"}}))] {
        let (code, status) = api.send(method, &put, Some(&body)).await;
        assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{method}");
        assert!(status["message"].as_str().unwrap().contains("UID in precondition: other"), "{status}");
    }

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

/// A manager that wrote in another version owns what its fields are called in this one.
#[tokio::test]
async fn owners_in_another_version() {
    let api = Api::new(ServerConfig::default()).await;
    let path =
        |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/h");
    let scaler = |version: &str, spec: Value| {
        json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h"}, "spec": spec})
    };
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let whole = json!({"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50});
    assert_eq!(apply(&api, &path("v1"), "m1", &scaler("v1", whole)).await.0, 201);
    let usage = json!({"type": "Utilization", "averageUtilization": 60});
    let metrics = json!({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": usage}}]});
    let metrics = scaler("v2", metrics);
    let unforced = format!("{}?fieldManager=m2", path("v2"));
    let kind = "application/apply-patch+yaml";
    let (code, status) = api.send_text("PATCH", &unforced, kind, metrics.to_string()).await;
    let message = r#"Apply failed with 1 conflict: conflict with "m1": .spec.targetCPUUtilizationPercentage"#;
    assert_eq!((code, status["message"].as_str()), (409, Some(message)));
    let (code, forced) = apply(&api, &path("v2"), "m2", &metrics).await;
    assert_eq!(code, 200, "{forced}");
    let entries = forced["metadata"]["managedFields"].as_array().unwrap();
    let of_first = &entries.iter().find(|e| e["manager"] == "m1").unwrap()["fieldsV1"]["f:spec"];
    assert!(of_first["f:maxReplicas"].is_object(), "{of_first}");
    assert!(of_first["f:targetCPUUtilizationPercentage"].is_null(), "{of_first}");
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

const THINGS: &str = "/apis/example.com/v1/things";

/// A server with Things, which have a scale, bounds and rules.
async fn with_things() -> Api {
    let api = Api::new(ServerConfig::default()).await;
    let number = json!({"type": "integer", "enum": [0, 1, 2, 7, -1], "minimum": 0});
    let names = json!({"type": "object", "additionalProperties": {"type": "string", "maxLength": 1}, "minProperties": 1});
    let list = json!({"type": "array", "items": {"type": "string"}, "minItems": 2});
    let counts = json!({"type": "object", "additionalProperties": list, "default": {"k": ["a", "b"]}});
    let spec = json!({"type": "object", "properties": {"n": number, "names": names, "list": list, "counts": counts,
        "number": {"type": "number", "default": 1000.0}},
        "x-kubernetes-validations": [{"rule": "!has(self.list) || size(self.list) < 9"}]});
    let schema = json!({"type": "object", "properties": {"spec": spec, "status": {"type": "object",
        "properties": {"n": {"type": "integer"}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, made) = api.send("POST", path, Some(&definition)).await;
    assert_eq!(code, 201, "{made}");
    let default =
        made.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/number/default");
    assert_eq!(default.map(Value::to_string).as_deref(), Some("1000"), "as Go writes it");
    api
}

fn thing(spec: &Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec})
}

/// Messages of what is too small show how large it is, and what isn't listed keeps rules from being checked.
#[tokio::test]
async fn custom_resources_are_refused_in_upstreams_words() {
    let api = with_things().await;
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object was \
        invalid; correct the existing errors to complete validation";
    for (spec, errors) in [
        (
            json!({"list": ["a"]}),
            vec!["spec.list: Invalid value: 1: spec.list in body should have at least 2 items"],
        ),
        (
            json!({"names": {}}),
            vec!["spec.names: Invalid value: 0: spec.names in body should have at least 1 properties"],
        ),
        (
            json!({"names": {"k": "ab"}}),
            vec!["spec.names.k: Too long: may not be more than 1 byte", unchecked],
        ),
        (
            json!({"n": 3}),
            vec![
                "spec.n: Unsupported value: 3: supported values: \"0\", \"1\", \"2\", \"7\", \"-1\"",
                unchecked,
            ],
        ),
    ] {
        let (code, status) = api.send("POST", THINGS, Some(&thing(&spec))).await;
        let text = if let [one] = errors.as_slice() {
            (*one).to_owned()
        } else {
            format!("[{}]", errors.join(", "))
        };
        let want = format!("Thing.example.com \"t\" is invalid: {text}");
        assert_eq!((code, status["message"].as_str()), (422, Some(want.as_str())), "{spec}");
    }
}

/// What is decoded loses nulls, what is applied is refused with them, except where they are defaults.
#[tokio::test]
async fn nulls_that_are_applied() {
    let api = with_things().await;
    let nulls = thing(&json!({"list": null, "counts": null}));
    let (code, object) = api.send("POST", &format!("{THINGS}?dryRun=All"), Some(&nulls)).await;
    assert_eq!((code, object["spec"].get("list")), (201, None), "{object}");
    let path = format!("{THINGS}/t?fieldManager=m");
    let kind = "application/apply-patch+yaml";
    let (code, status) = api.send_text("PATCH", &path, kind, nulls.to_string()).await;
    let want = "spec.list: Invalid value: \"null\": spec.list in body must be of type array: \"null\"";
    assert!(code == 422 && status["message"].as_str().is_some_and(|m| m.contains(want)), "{status}");
    let body = thing(&json!({"counts": null})).to_string();
    let (code, object) = api.send_text("PATCH", &path, kind, body).await;
    assert_eq!((code, &object["spec"]["counts"]), (201, &json!({"k": ["a", "b"]})), "{object}");
}

/// A Scale may be written while there is no number yet; the object is what is checked.
#[tokio::test]
async fn scales_of_custom_resources_without_a_number() {
    let api = with_things().await;
    assert_eq!(api.send("POST", THINGS, Some(&thing(&json!({})))).await.0, 201);
    let path = format!("{THINGS}/t/scale");
    let scale = |n: i64| json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t"}, "spec": {"replicas": n}});
    let (code, status) = api.send("PUT", &path, Some(&scale(-1))).await;
    let want = "Thing.example.com \"t\" is invalid: [spec.n: Invalid value: -1: spec.n in body should be greater than or \
        equal to 0, .spec.n: Invalid value: -1: should be a non-negative integer]";
    assert_eq!((code, status["message"].as_str()), (422, Some(want)));
    assert_eq!(api.send("GET", &path, None).await.0, 500, "there is no number to show");
    let (code, answer) = api.send("PATCH", &path, Some(&json!({"spec": {"replicas": 2}}))).await;
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(2)), "{answer}");
}

/// Managed fields that a custom resource is given: an empty list is none, and of versions that the definition doesn't
/// have nothing can be said.
#[tokio::test]
async fn managed_fields_of_custom_resources() {
    let api = with_things().await;
    assert_eq!(
        api.send("POST", &format!("{THINGS}?fieldManager=m"), Some(&thing(&json!({"n": 1})))).await.0,
        201
    );
    let entry = |version: &str| {
        json!({"apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:n": {}}},
            "manager": "z", "operation": "Update"})
    };
    for (i, (given, managers)) in [
        (json!([]), vec!["m"]),
        (json!([entry("example.com/v1")]), vec!["m", "z"]),
        (json!([entry("example.com/v1"), entry("example.com/v2")]), vec![]),
        (json!([entry("example.com/v1")]), vec!["m", "z"]),
        (json!([entry("apps/v1")]), vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let patch = json!({"metadata": {"managedFields": given, "labels": {"i": i.to_string()}}});
        let (code, object) = api.send("PATCH", &format!("{THINGS}/t?fieldManager=m"), Some(&patch)).await;
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let mut found: Vec<&str> = entries.iter().filter_map(|e| e["manager"].as_str()).collect();
        found.sort_unstable();
        assert_eq!((code, found), (200, managers), "{patch}");
    }
}
