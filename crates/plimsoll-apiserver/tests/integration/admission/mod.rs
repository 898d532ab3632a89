//! Admission plugins with more to them than a rule: accounts of pods, Pod Security, restrictions of nodes, owners.

#![allow(clippy::unwrap_used, clippy::needless_pass_by_value, clippy::too_many_lines)]

mod accounts;
mod nodes;
mod owners;
mod security;

use crate::support::api::Api;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::{Plugin, Plugins, Server, ServerConfig};
use serde_json::{Value, json};
use tower::ServiceExt;

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with plugins as they are by default, and another one.
async fn server(more: Option<Plugin>) -> Api {
    let plugins = more.map_or_else(Plugins::default, |plugin| Plugins::default().with(plugin));
    Api::of(Server::new(ServerConfig { plugins, ..ServerConfig::default() }).await.unwrap())
}

async fn created(api: &Api, path: &str, object: &Value) -> Value {
    let (code, answer) = api.send("POST", path, Some(object)).await;
    assert_eq!(code, 201, "{path}: {answer}");
    answer
}

/// Code and message.
async fn answer(api: &Api, method: &str, path: &str, object: &Value) -> (u16, String) {
    let body = (!object.is_null()).then_some(object);
    let (code, answer) = api.send(method, path, body).await;
    (code, answer["message"].as_str().unwrap_or("").to_owned())
}

fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn account(name: &str, fields: Value) -> Value {
    let mut account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
    merge(&mut account, &fields);
    account
}

fn pod(name: &str, fields: Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    merge(&mut pod, &fields);
    pod
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// Rights in the whole cluster for a user or a group.
async fn grant(api: &Api, kind: &str, name: &str, rules: Value) {
    const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}]});
    created(api, &format!("{RBAC}/clusterroles"), &role).await;
    created(api, &format!("{RBAC}/clusterrolebindings"), &binding).await;
}

/// Code, message and warnings of a request.
async fn warned(api: &Api, method: &str, path: &str, body: &Value) -> (u16, String, Vec<String>) {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    let request = request.body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let response = api.server.service().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let text = |w: &http::HeaderValue| {
        let text = w.to_str().unwrap().strip_prefix("299 - \"").unwrap().strip_suffix('"').unwrap();
        text.replace("\\\"", "\"")
    };
    let warnings = response.headers().get_all("warning").iter().map(text).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    (code, answer["message"].as_str().unwrap_or("").to_owned(), warnings)
}
