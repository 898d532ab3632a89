//! ValidatingAdmissionPolicies through the front door: what is refused when they are made, and what they do to
//! requests.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, clippy::too_many_lines)]

mod making;
mod matching;
mod parameters;
mod requests;

use crate::support::api::Api;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};
use tower::ServiceExt;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn world() -> Api {
    Api::new(ServerConfig::default()).await
}

fn policy(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
           "metadata": {"name": name}, "spec": spec})
}

fn binding(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
           "metadata": {"name": name}, "spec": spec})
}

fn rule(resources: &Value, operations: &Value) -> Value {
    json!({"apiGroups": ["*"], "apiVersions": ["*"], "operations": operations, "resources": resources})
}

/// Constraints for ConfigMaps.
fn maps() -> Value {
    json!({"resourceRules": [rule(&json!(["configmaps"]), &json!(["CREATE", "UPDATE"]))]})
}

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// A policy `p` with these fields over those for ConfigMaps, and a binding `b`.
async fn with(api: &Api, spec: Value, bound: Value) {
    let mut whole = json!({"matchConstraints": maps()});
    merge(&mut whole, spec);
    let mut to = json!({"policyName": "p", "validationActions": ["Deny"]});
    merge(&mut to, bound);
    install(api, "validatingadmissionpolicies", &policy("p", &whole)).await;
    install(api, "validatingadmissionpolicybindings", &binding("b", &to)).await;
}

async fn install(api: &Api, plural: &str, object: &Value) {
    let (code, answer) = api.send("POST", &format!("{GROUP}/{plural}"), Some(object)).await;
    assert_eq!(code, 201, "{answer}");
}

fn merge(into: &mut Value, from: Value) {
    for (key, value) in from.as_object().unwrap() {
        into[key.as_str()] = value.clone();
    }
}

/// Status, body and warnings of a request.
async fn ask(api: &Api, method: &str, path: &str, body: &Value) -> (u16, Value, Vec<String>) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let response = api.server.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|w| w.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default(), warnings)
}
