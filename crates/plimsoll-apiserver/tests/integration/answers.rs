//! What answers carry beside objects: warnings, and the form they are in.

#![allow(clippy::unwrap_used)]

use crate::support::api::Api;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use plimsoll_apiserver::ServerConfig;
use plimsoll_apiserver::http::body::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

async fn ask(api: &Api, method: &str, path: &str, accept: &str, body: &Value) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    api.server.service().oneshot(request.body(Full::new(body)).unwrap()).await.unwrap()
}

/// Whoever asks for something that will go is told so, once; nobody is told of what isn't there.
#[tokio::test]
async fn deprecated_kinds_are_warned_of() {
    let api = Api::new(ServerConfig::default()).await;
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "e"}});
    let path = "/api/v1/namespaces/default/endpoints";
    let one = format!("{path}/e");
    let words = ["299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\""];
    for (method, path, body, code, warned) in [
        ("POST", path, &endpoints, 201, true),
        ("GET", path, &Value::Null, 200, true),
        ("GET", "/api/v1/endpoints", &Value::Null, 200, true),
        ("GET", one.as_str(), &Value::Null, 200, true),
        ("PUT", &one, &endpoints, 200, true),
        ("DELETE", &one, &Value::Null, 200, true),
        ("GET", &one, &Value::Null, 404, true),
        ("POST", &one, &endpoints, 405, false),
        ("GET", "/api/v1/namespaces/default/services", &Value::Null, 200, false),
    ] {
        let response = ask(&api, method, path, "application/json", body).await;
        assert_eq!(response.status(), code, "{method} {path}");
        let warnings = response.headers().get_all(header::WARNING);
        let warnings: Vec<&str> = warnings.iter().map(|w| w.to_str().unwrap()).collect();
        assert_eq!(warnings, if warned { &words[..] } else { &[] }, "{method} {path}");
    }
}

/// Ports and addresses are allocated before it shows that a Service is there already.
#[tokio::test]
async fn what_a_service_of_the_same_name_has_is_taken() {
    let api = Api::new(ServerConfig::default()).await;
    let path = "/api/v1/namespaces/default/services";
    let of = |name: &str, spec: &Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    let port = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 31000}]});
    let address = json!({"clusterIP": "10.0.0.9", "ports": [{"port": 80}]});
    let plain = json!({"ports": [{"port": 80}]});
    for (name, spec, message) in [
        (
            "a",
            &port,
            "Service \"a\" is invalid: spec.ports[0].nodePort: Invalid value: 31000: provided port is already allocated",
        ),
        (
            "b",
            &address,
            "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.0.0.9\"]: failed to allocate IP 10.0.0.9: provided IP is already allocated",
        ),
        ("c", &plain, "services \"c\" already exists"),
    ] {
        let body = of(name, spec);
        let made = ask(&api, "POST", path, "application/json", &body).await;
        assert_eq!(made.status(), 201, "{name}");
        let mut again = object(made).await;
        let refused = ask(&api, "POST", path, "application/json", &body).await;
        assert_eq!(object(refused).await["message"], message, "{name}");
        // Its own are not in the way of a new version.
        again["metadata"]["labels"] = json!({"a": "b"});
        let put = ask(&api, "PUT", &format!("{path}/{name}"), "application/json", &again).await;
        assert_eq!(put.status(), 200, "{name}");
    }
}

/// A client that asks for a generated name may try again, also where it gave a name itself.
#[tokio::test]
async fn a_name_that_exists_beside_a_prefix() {
    let api = Api::new(ServerConfig::default()).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let of = |prefix: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "generateName": prefix}});
    assert_eq!(ask(&api, "POST", path, "application/json", &of("a-")).await.status(), 201);
    let plain = "configmaps \"a\" already exists";
    let generated = format!("{plain}, the server was not able to generate a unique name for the object");
    for (query, prefix, message, retry) in [
        ("", "", plain, None),
        ("", "a-", generated.as_str(), Some("1")),
        ("?dryRun=All", "a-", generated.as_str(), Some("1")),
    ] {
        let response = ask(&api, "POST", &format!("{path}{query}"), "application/json", &of(prefix)).await;
        assert_eq!(response.status(), 409, "{prefix}");
        let after = response.headers().get(header::RETRY_AFTER).map(|h| h.to_str().unwrap().to_owned());
        assert_eq!(after.as_deref(), retry, "{prefix}");
        assert_eq!(object(response).await["message"], message, "{prefix}");
    }
}

#[tokio::test]
async fn discovery_is_json_whatever_is_asked_for() {
    let api = Api::new(ServerConfig::default()).await;
    for path in ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1"] {
        for accept in ["application/vnd.kubernetes.protobuf", "application/json", "*/*"] {
            let response = ask(&api, "GET", path, accept, &Value::Null).await;
            let form = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
            assert_eq!(
                (response.status().as_u16(), form.as_str()),
                (200, "application/json"),
                "{path} {accept}"
            );
        }
    }
}

async fn object(response: Response<Body>) -> Value {
    use http_body_util::BodyExt;
    serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap()
}

/// What `kubectl get componentstatuses` shows: the store, which is what this server is a component with.
#[tokio::test]
async fn the_store_is_a_component() {
    let api = Api::new(ServerConfig::default()).await;
    let path = "/api/v1/componentstatuses";
    let conditions = json!([{"type": "Healthy", "status": "True", "message": "ok"}]);
    let rows = [
        (
            "",
            "application/json",
            json!({
                "kind": "ComponentStatusList", "apiVersion": "v1", "metadata": {},
                "items": [{"metadata": {"name": "etcd-0"}, "conditions": conditions}],
            }),
        ),
        (
            "/etcd-0",
            "application/json",
            json!({
                "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": "etcd-0"},
                "conditions": conditions,
            }),
        ),
        (
            "/nope",
            "application/json",
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
                "message": "componentstatus \"nope\" not found", "code": 404,
                "details": {"name": "nope", "kind": "componentstatus"},
            }),
        ),
        (
            "?labelSelector=a%3Db",
            "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": null,
            }),
        ),
    ];
    for (rest, accept, want) in rows {
        let response = ask(&api, "GET", &format!("{path}{rest}"), accept, &Value::Null).await;
        let warning = response.headers()[header::WARNING].to_str().unwrap().to_owned();
        assert_eq!(warning, "299 - \"v1 ComponentStatus is deprecated in v1.19+\"", "{rest}");
        assert_eq!(object(response).await, want, "{rest}");
    }
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = object(ask(&api, "GET", path, accept, &Value::Null).await).await;
    assert_eq!(table["rows"][0]["cells"], json!(["etcd-0", "Healthy", "ok", ""]));
}

/// Fields that a Scale doesn't have are dropped with a warning, or refused, as those of any other object.
#[tokio::test]
async fn unknown_fields_of_a_scale_are_warned_of() {
    let api = Api::new(ServerConfig::default()).await;
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let object = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "1"}},
        "template": {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    assert_eq!(ask(&api, "POST", path, "application/json", &object).await.status(), 201);
    let scale = r#"{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": 2, "size": 3}}"#;
    let twice = "apiVersion: autoscaling/v1\nkind: Scale\nspec:\n  replicas: 3\n  replicas: 2\n";
    let unknown = "299 - \"unknown field \\\"spec.size\\\"\"";
    for (method, content, body, refused, warning) in [
        ("PUT", "application/json", scale, 400, unknown),
        ("PATCH", "application/merge-patch+json", r#"{"spec": {"size": 3}}"#, 422, unknown),
        ("PATCH", "application/strategic-merge-patch+json", r#"{"spec": {"size": 3}}"#, 422, unknown),
        (
            "PATCH",
            "application/apply-patch+yaml",
            twice,
            400,
            "299 - \"line 5: key \\\"replicas\\\" already set in map\"",
        ),
    ] {
        for (validation, code, warnings) in
            [("Strict", refused, vec![]), ("Warn", 200, vec![warning]), ("Ignore", 200, vec![])]
        {
            let force = if content.ends_with("yaml") { "&force=true" } else { "" };
            let uri = format!("{path}/d/scale?fieldManager=m&fieldValidation={validation}{force}");
            let request = Request::builder().method(method).uri(uri);
            let request = request.header(header::CONTENT_TYPE, content);
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let response = api.server.service().oneshot(request).await.unwrap();
            let found = response.headers().get_all(header::WARNING);
            let found: Vec<&str> = found.iter().map(|w| w.to_str().unwrap()).collect();
            assert_eq!((response.status().as_u16(), found), (code, warnings), "{content} {validation}");
        }
    }
}

/// Fields that are there twice in a patch, and operations with fields that there aren't, are warned of or refused.
#[tokio::test]
async fn patches_are_read_strictly() {
    let api = Api::new(ServerConfig::default()).await;
    let path = "/api/v1/namespaces/default/configmaps";
    let object = json!({"metadata": {"name": "c"}, "data": {"a": "0"}});
    assert_eq!(ask(&api, "POST", path, "application/json", &object).await.status(), 201);
    let twice = r#"{"data": {"a": "1", "a": "2"}}"#;
    let operation = r#"[{"op": "add", "path": "/data/b", "value": "1", "valeu": "2", "op": "add"}]"#;
    let duplicate = vec!["299 - \"duplicate field \\\"data.a\\\"\""];
    let odd = vec![
        "299 - \"json patch duplicate field \\\"[0].op\\\"\"",
        "299 - \"json patch unknown field \\\"[0].valeu\\\"\"",
    ];
    for (content, body, words) in
        [("merge", twice, &duplicate), ("strategic-merge", twice, &duplicate), ("json", operation, &odd)]
    {
        for (validation, code) in [("Strict", 422), ("Warn", 200), ("Ignore", 200)] {
            let uri = format!("{path}/c?fieldValidation={validation}");
            let request = Request::builder().method("PATCH").uri(uri);
            let request = request.header(header::CONTENT_TYPE, format!("application/{content}-patch+json"));
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let response = api.server.service().oneshot(request).await.unwrap();
            let found = response.headers().get_all(header::WARNING);
            let found: Vec<&str> = found.iter().map(|w| w.to_str().unwrap()).collect();
            let words = if validation == "Warn" { words.as_slice() } else { &[] };
            let code_found = response.status().as_u16();
            assert_eq!((code_found, found.as_slice()), (code, words), "{content} {validation}");
        }
    }
}
