//! Mutating webhooks that are called again, after the plugins.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt;
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};

use crate::support::api::Api;
use crate::support::https::{self, Https};

/// A container comes from a webhook, and its limits from a LimitRange: the webhook sees them when it is called again.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_see_what_plugins_make_of_their_changes() {
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let heard = Arc::clone(&seen);
    let hook = Https::start(&[], move |request: http::Request<hyper::body::Incoming>| {
        let heard = Arc::clone(&heard);
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            let containers = review["request"]["object"]["spec"]["containers"].clone();
            heard.lock().unwrap().push(containers.clone());
            let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
            if containers.as_array().unwrap().len() == 1 {
                let patch = json!([{"op": "add", "path": "/spec/containers/-", "value": {"name": "side", "image": "i"}}]);
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(BASE64_STANDARD.encode(patch.to_string()));
            }
            let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            https::json(200, answer.to_string())
        }
    })
    .await;
    let api = Api::new(ServerConfig::default()).await;
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}});
    assert_eq!(api.send("POST", "/api/v1/namespaces/default/limitranges", Some(&range)).await.0, 201);
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "m"},
        "webhooks": [{
            "name": "side.example.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "reinvocationPolicy": "IfNeeded",
            "clientConfig": {"url": format!("https://127.0.0.1:{}/", hook.address.port()), "caBundle": hook.ca},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        }],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert_eq!(api.send("POST", path, Some(&configuration)).await.0, 201);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let (code, made) = api.send("POST", "/api/v1/namespaces/default/pods", Some(&pod)).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["containers"][1]["resources"]["limits"]["cpu"], "2");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(
        (seen[0].as_array().unwrap().len(), &seen[1][1]["resources"]["limits"]["cpu"]),
        (1, &json!("2"))
    );
}
