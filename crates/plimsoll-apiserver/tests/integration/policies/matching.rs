//! Which requests policies are for, and from when on.

use plimsoll_apiserver::Server;
use plimsoll_apiserver::store::{Expected, Key, Store, Write};

use super::*;

#[tokio::test]
async fn every_way_of_writing_is_judged() {
    let api = world().await;
    let rules = json!({"resourceRules": [rule(&json!(["configmaps", "nodes/status", "deployments/scale"]), &json!(["*"]))]});
    let validations = json!([
        {"expression": "request.operation == 'CREATE' || request.operation == 'DELETE' || object.?data.?a != \
                        optional.of('bad')", "message": "bad is bad"},
        {"expression": "request.operation != 'DELETE' || (object == null && oldObject.?data.?keep != optional.of('yes'))",
         "message": "kept"},
        {"expression": "request.?subResource.orValue('') != 'scale' || request.kind.kind == 'Scale' && object.kind == 'Scale' \
                        && request.resource.resource == 'deployments' && object.spec.replicas - oldObject.spec.replicas < 3",
         "message": "too many"},
        {"expression": "request.?subResource.orValue('') != 'status' || object.status.phase != 'Terminated'", "message": "no end"},
    ]);
    with(&api, json!({"matchConstraints": rules, "validations": validations}), json!({})).await;
    let one = format!("{MAPS}/m");
    assert_eq!(api.send("POST", MAPS, Some(&map("m", &json!({"a": "b", "keep": "yes"})))).await.0, 201);
    let bad = map("m", &json!({"a": "bad"}));
    let apply = format!("{one}?fieldManager=t&force=true");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    assert_eq!(api.send("POST", "/api/v1/nodes", Some(&node)).await.0, 201);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(api.send("POST", deployments, Some(&deployment)).await.0, 201);
    let scale = format!("{deployments}/d/scale");
    assert_eq!(api.send("PATCH", &scale, Some(&json!({"spec": {"replicas": 3}}))).await.0, 200);
    for (method, path, body, message) in [
        ("PATCH", scale.as_str(), &json!({"spec": {"replicas": 6}}), "too many"),
        ("PUT", one.as_str(), &bad, "bad is bad"),
        ("PATCH", &one, &json!({"data": {"a": "bad"}}), "bad is bad"),
        ("APPLY", &apply, &bad, "bad is bad"),
        ("DELETE", &one, &Value::Null, "kept"),
        ("DELETE", MAPS, &Value::Null, "kept"),
        ("PATCH", "/api/v1/nodes/n/status", &json!({"status": {"phase": "Terminated"}}), "no end"),
    ] {
        let (code, answer) = if method == "APPLY" {
            let request = Request::builder().method("PATCH").uri(path);
            let request = request.header("content-type", "application/apply-patch+yaml");
            let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
            let response = api.server.service().oneshot(request).await.unwrap();
            let code = response.status().as_u16();
            let bytes = response.into_body().collect().await.unwrap().to_bytes();
            (code, serde_json::from_slice(&bytes).unwrap_or_default())
        } else {
            let body = Some(body).filter(|b| !b.is_null());
            api.send(method, path, body).await
        };
        assert_eq!(code, 422, "{method} {path}: {answer}");
        assert!(
            answer["message"].as_str().unwrap().ends_with(&format!("denied request: {message}")),
            "{answer}"
        );
    }
    let (code, now) = api.send("GET", &one, None).await;
    assert_eq!((code, &now["data"]["a"]), (200, &json!("b")));
}

#[tokio::test]
async fn policies_hold_at_once_and_never_for_themselves() {
    let api = world().await;
    let everything = json!({"resourceRules": [rule(&json!(["*/*"]), &json!(["*"]))]});
    with(&api, json!({"matchConstraints": everything, "validations": [{"expression": "false"}]}), json!({}))
        .await;
    let new = map("m", &json!({}));
    assert_eq!(api.send("POST", MAPS, Some(&new)).await.0, 422);
    let path = format!("{GROUP}/validatingadmissionpolicies/p");
    let rename = json!({"spec": {"validations": [{"expression": "object.metadata.name != 'm'"}]}});
    assert_eq!(api.send("PATCH", &path, Some(&rename)).await.0, 200);
    assert_eq!(api.send("POST", MAPS, Some(&new)).await.0, 422);
    assert_eq!(api.send("POST", MAPS, Some(&map("n", &json!({})))).await.0, 201);
    assert_eq!(
        api.send("DELETE", &format!("{GROUP}/validatingadmissionpolicybindings/b"), None).await.0,
        200
    );
    assert_eq!(api.send("POST", MAPS, Some(&new)).await.0, 201);
}

#[tokio::test]
async fn equivalent_versions_are_matched() {
    let api = world().await;
    let rules = json!({"resourceRules": [{"apiGroups": ["autoscaling"], "apiVersions": ["v1"], "operations": ["*"],
                                          "resources": ["horizontalpodautoscalers"]}]});
    let expression = "request.kind.version == 'v1' && request.requestKind.version == 'v2' \
                      && object.apiVersion == 'autoscaling/v1' && object.spec.targetCPUUtilizationPercentage < 60";
    let hpa = |percent: i64| {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": format!("h{percent}")},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                 "metrics": [{"type": "Resource", "resource":
                    {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": percent}}}]}})
    };
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    with(&api, json!({"matchConstraints": rules, "validations": [{"expression": expression}]}), json!({}))
        .await;
    assert_eq!(api.send("POST", path, Some(&hpa(50))).await.0, 201);
    assert_eq!(api.send("POST", path, Some(&hpa(70))).await.0, 422);
}

#[tokio::test]
async fn a_scale_is_judged_in_every_version_of_its_resource() {
    let api = world().await;
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}})
    };
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "ships.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced", "versions": [version("v1", true), version("v2", false)],
            "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"}},
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(api.send("POST", definitions, Some(&definition)).await.0, 201);
    let ship = json!({"apiVersion": "test.dev/v1", "kind": "Ship", "metadata": {"name": "a"}, "spec": {"replicas": 1}});
    assert_eq!(api.send("POST", "/apis/test.dev/v1/namespaces/default/ships", Some(&ship)).await.0, 201);
    let rules = json!({"resourceRules": [{"apiGroups": ["test.dev"], "apiVersions": ["v1"], "operations": ["UPDATE"],
                                          "resources": ["ships/scale"]}]});
    let expression = "object.kind == 'Scale' && request.kind.kind == 'Scale' && request.resource.version == 'v1' \
                      && object.spec.replicas < 5";
    with(&api, json!({"matchConstraints": rules, "validations": [{"expression": expression}]}), json!({}))
        .await;
    for version in ["v1", "v2"] {
        for (replicas, wanted) in [(4, 200), (5, 422)] {
            let path = format!("/apis/test.dev/{version}/namespaces/default/ships/a/scale");
            let (code, answer) =
                api.send("PATCH", &path, Some(&json!({"spec": {"replicas": replicas}}))).await;
            assert_eq!(code, wanted, "{version}: {answer}");
        }
    }
}

#[tokio::test]
async fn what_is_in_force_does_not_keep_a_server_from_starting() {
    let store = Store::in_memory();
    let start = || async { Api::of(Server::over(ServerConfig::default(), store.clone()).await.unwrap()) };
    let api = start().await;
    let everything = json!([rule(&json!(["*/*"]), &json!(["*"]))]);
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [{"name": "w.test.dev", "failurePolicy": "Fail", "sideEffects": "None", "rules": everything,
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"}}],
    });
    install(&api, "validatingwebhookconfigurations", &hooks).await;
    let spec =
        json!({"matchConstraints": {"resourceRules": everything}, "validations": [{"expression": "false"}]});
    with(&api, spec, json!({})).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    assert_eq!(api.send("POST", "/api/v1/namespaces", Some(&namespace)).await.0, 422);
    drop(api);
    // What is there stays as it is, and what was lost is made again.
    let revision = |name: &str| store.get(&Key::new("/namespaces", "", name)).map(|r| r.revision);
    let before = revision("kube-system");
    store.commit(Write::delete(Key::new("/namespaces", "", "kube-public"), Expected::Present)).await.unwrap();
    let api = start().await;
    assert!(revision("kube-public").is_some());
    assert_eq!(revision("kube-system"), before);
    // They still hold for everybody else.
    assert_eq!(api.send("POST", "/api/v1/namespaces", Some(&namespace)).await.0, 422);
}
