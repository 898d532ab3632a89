//! Calls to webhooks share connections, and lose nothing when a webhook closes them.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};

use crate::support::api::Api;
use crate::support::https::{self, Https};

/// Calls after which the webhook closes its connection.
const CLOSES: usize = 4;

async fn create(api: &Api, name: &str) {
    let object = json!({"metadata": {"name": name}});
    let (code, said) = api.send("POST", "/api/v1/namespaces/default/configmaps", Some(&object)).await;
    assert_eq!(code, 201, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_share_connections() {
    let calls: Arc<AtomicUsize> = Arc::default();
    let counted = Arc::clone(&calls);
    let endpoint = Https::start(&[], move |request: Request<Incoming>| {
        let call = counted.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let review: Value = serde_json::from_slice(&body).unwrap();
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            let answer =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            let mut answer = https::json(200, answer.to_string());
            if call == CLOSES {
                answer.headers_mut().insert("connection", http::HeaderValue::from_static("close"));
            }
            answer
        }
    });
    let endpoint = endpoint.await;
    let api = Api::new(ServerConfig::default()).await;
    let hook = json!({
        "name": "hook.test.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
        "clientConfig": {"url": format!("https://{}/", endpoint.address), "caBundle": endpoint.ca},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}],
    });
    let configuration = json!({"metadata": {"name": "hook"}, "webhooks": [hook]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(api.send("POST", path, Some(&configuration)).await.0, 201);
    for call in 1..=CLOSES {
        create(&api, &format!("first-{call}")).await;
    }
    assert_eq!((calls.load(Ordering::SeqCst), endpoint.connections()), (CLOSES, 1));
    for call in 1..=CLOSES {
        create(&api, &format!("second-{call}")).await;
    }
    assert_eq!((calls.load(Ordering::SeqCst), endpoint.connections()), (2 * CLOSES, 2));
}
