//! Webhooks whose rules name another version than the request came in (`matchPolicy: Equivalent`): they get the object
//! in the version they know, and what they patch there arrives.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, Mutex};

use crate::support::api::Api;
use crate::support::https::{self, Https};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A webhook of every kind: what it was asked, and what it patches.
#[derive(Default)]
struct Hook {
    asked: Mutex<Vec<Value>>,
    patch: Mutex<Option<Value>>,
    breaks: Mutex<bool>,
}

impl Hook {
    /// What has been asked since the last time.
    fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn admit(&self, review: &Value, mutating: bool) -> Value {
        self.asked.lock().unwrap().push(review["request"].clone());
        let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
        if let Some(patch) = self.patch.lock().unwrap().as_ref().filter(|_| mutating) {
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(BASE64_STANDARD.encode(patch.to_string()));
        }
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    /// `v1` has `spec.load` as text (`12t`), `v2` as a number of tonnes.
    fn convert(&self, review: &Value) -> Value {
        let to = review["request"]["desiredAPIVersion"].as_str().unwrap();
        let objects = review["request"]["objects"].as_array().unwrap();
        let converted: Vec<Value> = objects.iter().map(|o| converted(o.clone(), to)).collect();
        let status = if *self.breaks.lock().unwrap() { "Failure" } else { "Success" };
        let response = json!({"uid": review["request"]["uid"], "result": {"status": status, "message": "no such hull"},
            "convertedObjects": converted});
        json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response})
    }
}

pub fn converted(mut object: Value, to: &str) -> Value {
    if object["apiVersion"] == to {
        return object;
    }
    if to == "test.dev/v2" {
        let tonnes = object["spec"]["load"].as_str().unwrap_or("0t").trim_end_matches('t').to_owned();
        object["spec"] = json!({"tonnes": tonnes.parse::<i64>().unwrap_or(0)});
    } else {
        object["spec"] = json!({"load": format!("{}t", object["spec"]["tonnes"])});
    }
    object["apiVersion"] = json!(to);
    object
}

async fn answer(hook: Arc<Hook>, request: Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap();
    let answer =
        if path == "/convert" { hook.convert(&review) } else { hook.admit(&review, path == "/mutate") };
    https::json(200, answer.to_string())
}

/// A server and the webhook that it calls.
struct Harness {
    api: Api,
    hook: Arc<Hook>,
    endpoint: Https,
}

impl Harness {
    async fn new() -> Self {
        let hook: Arc<Hook> = Arc::default();
        let shared = Arc::clone(&hook);
        let endpoint = Https::start(&[], move |request| answer(Arc::clone(&shared), request)).await;
        Self { api: Api::new(ServerConfig::default()).await, hook, endpoint }
    }

    fn client(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.endpoint.address), "caBundle": self.endpoint.ca})
    }

    async fn create(&self, path: &str, object: &Value) -> Value {
        let (code, body) = self.api.send("POST", path, Some(object)).await;
        assert_eq!(code, 201, "{path}: {body}");
        body
    }

    /// Both kinds of webhooks for one version of a resource.
    async fn configure(&self, group: &str, version: &str, plural: &str, policy: &str) {
        for (kind, path) in [("Mutating", "/mutate"), ("Validating", "/validate")] {
            let configuration = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
                "metadata": {"name": "hook"},
                "webhooks": [{
                    "name": "hook.test.dev", "clientConfig": self.client(path), "sideEffects": "None",
                    "admissionReviewVersions": ["v1"], "matchPolicy": policy,
                    "rules": [{"apiGroups": [group], "apiVersions": [version], "resources": [plural],
                        "operations": ["*"]}],
                    "matchConditions": [{"name": "version",
                        "expression": format!("[object, oldObject].exists(o, o != null && o.apiVersion.endsWith('{version}'))")}],
                }],
            });
            let plural = format!("{}webhookconfigurations", kind.to_lowercase());
            self.create(&format!("/apis/admissionregistration.k8s.io/v1/{plural}"), &configuration).await;
        }
    }

    async fn define(&self, conversion: &Value) {
        let version = |name: &str, storage: bool| {
            json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {
                    "load": {"type": "string"}, "tonnes": {"type": "integer"}, "flag": {"type": "string"}}}}}},
                "subresources": {"scale": {
                    "specReplicasPath": ".spec.tonnes", "statusReplicasPath": ".status.tonnes"}}})
        };
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "ships.test.dev"},
            "spec": {
                "group": "test.dev", "scope": "Namespaced",
                "names": {"plural": "ships", "singular": "ship", "kind": "Ship", "listKind": "ShipList"},
                "versions": [version("v1", false), version("v2", true)], "conversion": conversion,
            },
        });
        self.create(CRDS, &definition).await;
    }
}

fn versions(asked: &Value) -> [&str; 4] {
    ["kind", "resource", "requestKind", "requestResource"].map(|k| asked[k]["version"].as_str().unwrap())
}

const SHIPS: &str = "/apis/test.dev/v2/namespaces/default/ships";

fn ship(name: &str, tonnes: i64) -> Value {
    json!({"apiVersion": "test.dev/v2", "kind": "Ship", "metadata": {"name": name}, "spec": {"tonnes": tonnes}})
}

#[tokio::test]
async fn custom_resources_reach_webhooks_in_the_version_of_their_rules() {
    let harness = Harness::new().await;
    let convert = harness.client("/convert");
    let webhook = json!({"clientConfig": convert, "conversionReviewVersions": ["v1"]});
    harness.define(&json!({"strategy": "Webhook", "webhook": webhook})).await;
    harness.configure("test.dev", "v1", "ships", "Equivalent").await;

    // Unchanged: what is stored is what was written, not what came back from a conversion.
    let made = harness.create(SHIPS, &ship("a", 12)).await;
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!("test.dev/v2"), &json!({"tonnes": 12})));
    let asked = harness.hook.asked();
    assert_eq!(asked.len(), 2);
    for request in &asked {
        assert_eq!(versions(request), ["v1", "v1", "v2", "v2"]);
        assert_eq!(request["object"]["apiVersion"], "test.dev/v1");
        assert_eq!(request["object"]["spec"], json!({"load": "12t"}));
        assert!(request["oldObject"].is_null());
    }

    // A patch in the version of the rule arrives in the one of the request; the validating webhook sees it.
    *harness.hook.patch.lock().unwrap() =
        Some(json!([{"op": "replace", "path": "/spec/load", "value": "70t"}]));
    let (code, body) =
        harness.api.send("PATCH", &format!("{SHIPS}/a"), Some(&json!({"spec": {"tonnes": 13}}))).await;
    assert_eq!((code, &body["spec"]), (200, &json!({"tonnes": 70})), "{body}");
    let asked = harness.hook.asked();
    let seen: Vec<_> = asked.iter().map(|r| (&r["oldObject"]["spec"], &r["object"]["spec"])).collect();
    let load = |t: &str| json!({ "load": t });
    let (old, before, after) = (load("12t"), load("13t"), load("70t"));
    assert_eq!(seen, [(&old, &before), (&old, &after)]);
    let (_, stored) = harness.api.send("GET", &format!("{SHIPS}/a"), None).await;
    assert_eq!(stored["spec"], json!({"tonnes": 70}));
    *harness.hook.patch.lock().unwrap() = None;

    // A conversion that fails refuses the request.
    *harness.hook.breaks.lock().unwrap() = true;
    let (code, body) = harness.api.send("POST", SHIPS, Some(&ship("b", 1))).await;
    let why = "Internal error occurred: conversion webhook for test.dev/v2, Kind=Ship failed: no such hull";
    assert_eq!((code, body["message"].as_str().unwrap()), (500, why), "{body}");
    *harness.hook.breaks.lock().unwrap() = false;
    harness.hook.asked();

    let (code, body) = harness.api.send("DELETE", &format!("{SHIPS}/a"), None).await;
    assert_eq!(code, 200, "{body}");
    for request in harness.hook.asked() {
        assert_eq!(versions(&request), ["v1", "v1", "v2", "v2"]);
        assert!(request["object"].is_null());
        assert_eq!(request["oldObject"]["spec"], json!({"load": "70t"}));
    }
}

#[tokio::test]
async fn without_conversion_only_the_version_differs() {
    let harness = Harness::new().await;
    harness.define(&json!({"strategy": "None"})).await;
    harness.configure("test.dev", "v1", "ships", "Equivalent").await;
    *harness.hook.patch.lock().unwrap() = Some(json!([
        {"op": "test", "path": "/apiVersion", "value": "test.dev/v1"},
        {"op": "add", "path": "/spec/flag", "value": "red"},
    ]));
    let made = harness.create(SHIPS, &ship("a", 12)).await;
    assert_eq!(made["apiVersion"], "test.dev/v2");
    assert_eq!(made["spec"], json!({"tonnes": 12, "flag": "red"}));
    let asked = harness.hook.asked();
    assert_eq!(asked.iter().map(versions).collect::<Vec<_>>(), [["v1", "v1", "v2", "v2"]; 2]);
    assert!(asked.iter().all(|r| r["object"]["apiVersion"] == "test.dev/v1"));
}

#[tokio::test]
async fn exact_rules_see_their_version_only() {
    let harness = Harness::new().await;
    harness.define(&json!({"strategy": "None"})).await;
    harness.configure("test.dev", "v1", "ships", "Exact").await;
    harness.create(SHIPS, &ship("a", 12)).await;
    assert_eq!(harness.hook.asked(), Vec::<Value>::new());
    let mut other = ship("b", 1);
    other["apiVersion"] = json!("test.dev/v1");
    harness.create("/apis/test.dev/v1/namespaces/default/ships", &other).await;
    let asked = harness.hook.asked();
    assert_eq!(asked.iter().map(versions).collect::<Vec<_>>(), [["v1"; 4]; 2]);
}

#[tokio::test]
async fn built_in_kinds_are_converted_too() {
    let harness = Harness::new().await;
    harness.configure("autoscaling", "v1", "horizontalpodautoscalers", "Equivalent").await;
    let path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let cpu = |percent: i64| {
        json!([{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": percent}}}])
    };
    let scaler = |name: &str| {
        json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "a", "apiVersion": "apps/v1"},
                "metrics": cpu(55)}})
    };
    harness.create(path, &scaler("a")).await;
    for request in harness.hook.asked() {
        assert_eq!(versions(&request), ["v1", "v1", "v2", "v2"]);
        assert_eq!(request["object"]["apiVersion"], "autoscaling/v1");
        assert_eq!(request["object"]["spec"]["targetCPUUtilizationPercentage"], 55);
        assert!(request["object"]["spec"].get("metrics").is_none());
    }
    let patch = json!([{"op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 66}]);
    *harness.hook.patch.lock().unwrap() = Some(patch);
    let made = harness.create(path, &scaler("b")).await;
    assert_eq!((&made["apiVersion"], &made["spec"]["metrics"]), (&json!("autoscaling/v2"), &cpu(66)));
    assert!(made["spec"].get("targetCPUUtilizationPercentage").is_none());

    // What v1 has no fields for comes back.
    *harness.hook.patch.lock().unwrap() =
        Some(json!([{"op": "replace", "path": "/spec/maxReplicas", "value": 5}]));
    let mut other = scaler("c");
    let target = json!({"type": "AverageValue", "averageValue": "1Gi"});
    other["spec"]["metrics"] =
        json!([{"type": "Resource", "resource": {"name": "memory", "target": target}}]);
    other["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 30, "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}});
    let made = harness.create(path, &other).await;
    assert_eq!(made["spec"]["maxReplicas"], 5);
    assert_eq!(made["spec"]["metrics"], other["spec"]["metrics"], "{made}");
    assert_eq!(made["spec"]["behavior"]["scaleDown"], other["spec"]["behavior"]["scaleDown"]);
    assert!(made["metadata"].get("annotations").is_none(), "{made}");
}

#[tokio::test]
async fn events_are_one_kind_with_two_spellings() {
    let harness = Harness::new().await;
    harness.configure("events.k8s.io", "v1", "events", "Equivalent").await;
    *harness.hook.patch.lock().unwrap() =
        Some(json!([{"op": "replace", "path": "/note", "value": "patched"}]));
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "message": "hello",
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default", "apiVersion": "v1"},
        "reason": "Test", "type": "Normal", "source": {"component": "test"}});
    let made = harness.create("/api/v1/namespaces/default/events", &event).await;
    assert_eq!((&made["apiVersion"], &made["message"]), (&json!("v1"), &json!("patched")), "{made}");
    let asked = harness.hook.asked();
    assert_eq!(asked.len(), 2);
    for request in &asked {
        assert_eq!(
            (&request["kind"]["group"], &request["requestKind"]["group"]),
            (&json!("events.k8s.io"), &json!(""))
        );
        assert_eq!(request["object"]["regarding"]["name"], "p");
    }
    assert_eq!(
        (&asked[0]["object"]["note"], &asked[1]["object"]["note"]),
        (&json!("hello"), &json!("patched"))
    );
}

/// The Scale a webhook was asked about.
fn scale<'a>(asked: &'a Value, object: &str) -> (&'a Value, &'a Value, i64) {
    let object = &asked[object];
    (&object["apiVersion"], &object["kind"], object["spec"]["replicas"].as_i64().unwrap_or(0))
}

#[tokio::test]
async fn scales_reach_webhooks_as_scales() {
    let harness = Harness::new().await;
    harness.configure("apps", "v1", "deployments/scale", "Exact").await;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let path = "/apis/apps/v1/namespaces/default/deployments";
    harness.create(path, &deployment).await;
    assert_eq!(harness.hook.asked(), Vec::<Value>::new());

    // Whichever way it is written, webhooks see a Scale; what they patch there becomes the number of replicas.
    let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 4}]);
    *harness.hook.patch.lock().unwrap() = Some(patch);
    let path = format!("{path}/d");
    let (_, mut put) = harness.api.send("GET", &format!("{path}/scale"), None).await;
    put["spec"]["replicas"] = json!(3);
    put["metadata"]["resourceVersion"] = Value::Null;
    let (version, kind) = (json!("autoscaling/v1"), json!("Scale"));
    for (method, body, before) in [("PATCH", json!({"spec": {"replicas": 3}}), 1), ("PUT", put, 4)] {
        let (code, answer) = harness.api.send(method, &format!("{path}/scale"), Some(&body)).await;
        assert_eq!((code, &answer["kind"], &answer["spec"]["replicas"]), (200, &kind, &json!(4)), "{answer}");
        let asked = harness.hook.asked();
        assert_eq!(asked.len(), 2);
        for (request, after) in asked.iter().zip([3, 4]) {
            assert_eq!(request["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
            assert_eq!(
                request["resource"],
                json!({"group": "apps", "version": "v1", "resource": "deployments"})
            );
            assert_eq!(request["subResource"], "scale");
            assert_eq!(scale(request, "object"), (&version, &kind, after), "{method}");
            assert_eq!(scale(request, "oldObject"), (&version, &kind, before), "{method}");
        }
        let (_, stored) = harness.api.send("GET", &path, None).await;
        assert_eq!((&stored["kind"], &stored["spec"]["replicas"]), (&json!("Deployment"), &json!(4)));
    }

    // A Scale has one version, whichever versions its resource has.
    let harness = Harness::new().await;
    harness.define(&json!({"strategy": "None"})).await;
    harness.create(SHIPS, &ship("a", 12)).await;
    harness.configure("test.dev", "v1", "ships/scale", "Equivalent").await;
    let (code, answer) =
        harness.api.send("PATCH", &format!("{SHIPS}/a/scale"), Some(&json!({"spec": {"replicas": 3}}))).await;
    assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(3)), "{answer}");
    let asked = harness.hook.asked();
    assert_eq!(asked.iter().map(versions).collect::<Vec<_>>(), [["v1", "v1", "v1", "v2"]; 2]);
    assert!(asked.iter().all(|r| scale(r, "object") == (&version, &kind, 3)));
}

#[tokio::test]
async fn policies_judge_what_webhooks_convert() {
    let harness = Harness::new().await;
    let webhook = json!({"clientConfig": harness.client("/convert"), "conversionReviewVersions": ["v1"]});
    harness.define(&json!({"strategy": "Webhook", "webhook": webhook})).await;
    // The heaviest ship, as the old version has it.
    harness.create(SHIPS, &ship("limit", 12)).await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {
            "paramKind": {"apiVersion": "test.dev/v1", "kind": "Ship"},
            "matchConstraints": {"resourceRules": [{"apiGroups": ["test.dev"], "apiVersions": ["v1"],
                "resources": ["ships"], "operations": ["*"]}]},
            "validations": [{"expression": "object.apiVersion == 'test.dev/v1' && object.spec.load == params.spec.load",
                "messageExpression": "object.spec.load + ' is not ' + params.spec.load"}],
        },
    });
    harness.create(&format!("{group}/validatingadmissionpolicies"), &policy).await;
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"],
            "paramRef": {"name": "limit", "namespace": "default", "parameterNotFoundAction": "Deny"}},
    });
    harness.create(&format!("{group}/validatingadmissionpolicybindings"), &binding).await;
    harness.create(SHIPS, &ship("a", 12)).await;
    for (breaks, why) in [
        (false, "denied request: 13t is not 12t"),
        (true, "conversion webhook for test.dev/v2, Kind=Ship failed: no such hull"),
    ] {
        *harness.hook.breaks.lock().unwrap() = breaks;
        let (code, body) = harness.api.send("POST", SHIPS, Some(&ship("b", 13))).await;
        assert_eq!(code, 422, "{body}");
        assert!(body["message"].as_str().unwrap().ends_with(why), "{body}");
    }
}
