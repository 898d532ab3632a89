//! Groups that another server answers for: looked at, discovered, and asked in the name of the user.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::api::Api;
use crate::support::front::{Front, read as read_answer};
use crate::support::https::{self, Https};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use plimsoll_apiserver::http::listener::Limits;
use serde_json::{Value, json};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.example.dev";

/// Tells what it was asked, and serves discovery.
async fn answer(request: Request<Incoming>) -> Response<Full<Bytes>> {
    if request.uri().path() == "/apis/example.dev/v1" {
        let row = |name: &str| json!({"name": name, "singularName": "", "namespaced": true, "kind": "Boat", "verbs": ["get", "create"]});
        let list = json!({"kind": "APIResourceList", "groupVersion": "example.dev/v1",
                          "resources": [row("boats"), row("boats/engine")]});
        return https::json(200, list.to_string());
    }
    let all = |name: &str| -> Vec<String> {
        request.headers().get_all(name).iter().map(|v| v.to_str().unwrap().to_owned()).collect()
    };
    let heard = json!({
        "method": request.method().as_str(), "path": request.uri().to_string(), "host": all("host"),
        "users": all("x-remote-user"), "groups": all("x-remote-group"), "authorization": all("authorization"),
    });
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut heard = heard;
    heard["body"] = json!(String::from_utf8_lossy(&body));
    https::json(418, heard.to_string())
}

fn service(port: u16, ca: &str) -> Value {
    json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME},
           "spec": {"group": "example.dev", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10,
                    "caBundle": ca, "service": {"namespace": "default", "name": "remote", "port": port}}})
}

/// Waits until the condition has a reason; its message.
async fn until(api: &Api, reason: &str) -> String {
    for _ in 0..600 {
        let (_, object) = api.send("GET", &format!("{SERVICES}/{NAME}"), None).await;
        let condition = &object["status"]["conditions"][0];
        if condition["reason"] == reason {
            assert_eq!(condition["status"], if reason == "Passed" { "True" } else { "False" });
            return condition["message"].as_str().unwrap().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("never {reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_answers_for_its_group() {
    let remote = Https::start(&["remote.default.svc".to_owned()], answer).await;
    let front = Front::start(Limits::default()).await;
    let api = Api::of(front.server.clone());
    let boats = "/apis/example.dev/v1/namespaces/default/boats";
    assert_eq!(front.get(boats).await.0, 404);
    let created = api.send("POST", SERVICES, Some(&service(remote.address.port(), &remote.ca))).await;
    assert_eq!(created.0, 201, "{}", created.1);

    assert_eq!(until(&api, "ServiceNotFound").await, "service/remote in \"default\" is not present");
    let (status, text) = front.get(boats).await;
    assert_eq!((status.as_u16(), &text[..]), (503, &b"service unavailable\n"[..]));
    let discovered = async |api: &Api| {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let (_, all) =
            Api::of(api.server.clone()).with_headers(&[("accept", accept)]).send("GET", "/apis", None).await;
        let groups = all["items"].as_array().unwrap();
        groups.iter().find(|g| g["metadata"]["name"] == "example.dev").cloned().unwrap()["versions"][0]
            .clone()
    };
    assert_eq!(discovered(&api).await["freshness"], "Stale");
    let behind = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "remote"}, "spec": {"ports": [{"port": 443}]}});
    assert_eq!(api.send("POST", "/api/v1/namespaces/default/services", Some(&behind)).await.0, 201);
    let message = until(&api, "ServicePortError").await;
    assert!(message.starts_with("service/remote in \"default\" is not listening on port"), "{message}");
    let named = json!({"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null}});
    let (status, changed) =
        api.send("PATCH", "/api/v1/namespaces/default/services/remote", Some(&named)).await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(until(&api, "Passed").await, "all checks passed");

    let version = discovered(&api).await;
    assert_eq!(version["freshness"], "Current");
    let boat = &version["resources"][0];
    assert_eq!((&boat["resource"], &boat["scope"]), (&json!("boats"), &json!("Namespaced")));
    assert_eq!(boat["subresources"][0]["subresource"], "engine");
    let (_, group) = api.send("GET", "/apis/example.dev", None).await;
    assert_eq!(group["preferredVersion"]["groupVersion"], "example.dev/v1");
    assert_eq!(api.send("GET", "/apis/example.dev/v1", None).await.1["groupVersion"], "example.dev/v1");

    // The server behind hears of the user, and nothing that the client says of itself.
    let mut request = front.request(Method::POST, &format!("{boats}?x=%2F"), "{\"a\":1}");
    request.headers_mut().insert("x-remote-user", "mallory".parse().unwrap());
    let (status, headers, body) = front.send(request).await;
    let heard: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        (status.as_u16(), &headers["content-type"]),
        (418, &http::HeaderValue::from_static("application/json"))
    );
    assert_eq!(
        heard,
        json!({"method": "POST", "path": format!("{boats}?x=%2F"), "host": ["remote.default.svc"], "users": ["admin"],
               "groups": ["system:masters", "system:authenticated"], "authorization": [], "body": "{\"a\":1}"})
    );
    // Nor of two names in one, which it would take for a subresource.
    assert_eq!(front.get(&format!("{boats}/x%2Fengine")).await.0, 404);
    // Its status tells nothing of who owns it.
    let forged = json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["x.io/y"]}});
    let (status, kept) = api.send("PATCH", &format!("{SERVICES}/{NAME}/status"), Some(&forged)).await;
    assert_eq!(
        (status, &kept["metadata"]["finalizers"], &kept["metadata"]["labels"]["a"]),
        (200, &Value::Null, &Value::Null)
    );
    // It is not asked what its users may not do.
    let (status, refused) = api.as_user("alice").send("GET", boats, None).await;
    assert_eq!((status, &refused["reason"]), (403, &json!("Forbidden")));

    // A certificate for another authority is none.
    let other = Https::start(&[], answer).await;
    let patch = json!({"spec": {"caBundle": other.ca}});
    assert_eq!(api.send("PATCH", &format!("{SERVICES}/{NAME}"), Some(&patch)).await.0, 200);
    let message = until(&api, "FailedDiscoveryCheck").await;
    assert!(message.contains("failing or missing response from https://remote.default.svc"), "{message}");
    assert_eq!(api.send("DELETE", &format!("{SERVICES}/{NAME}"), None).await.0, 200);
    assert_eq!(front.get(boats).await.0, 404);
}

/// As [`answer`], with OpenAPI documents: the Swagger document changes once, and is sent when it is not known.
fn documented(
    version: Arc<AtomicUsize>,
) -> impl Fn(Request<Incoming>) -> BoxFuture<'static, Response<Full<Bytes>>> + Clone + Send + Sync + 'static {
    move |request| {
        let version = version.load(Ordering::SeqCst);
        Box::pin(async move {
            let name = "apis/example.dev/v1";
            let header = |name: &str| request.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
            match request.uri().path() {
                "/openapi/v3" => {
                    let url = |name: &str| json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash=H{version}")});
                    // All but the first two are not its own.
                    let names = [name, "apis/example.dev", "version", "apis/apps/v1"];
                    let paths: Value = names.map(|name| (name.to_owned(), url(name))).into_iter().collect();
                    https::json(200, json!({ "paths": paths }).to_string())
                }
                "/openapi/v3/apis/example.dev/v1" => {
                    let asked = json!({"user": header("x-remote-user"), "query": request.uri().query(), "version": version});
                    let mut answer = https::json(200, asked.to_string());
                    answer.headers_mut().insert("etag", "\"own\"".parse().unwrap());
                    answer
                }
                "/openapi/v2" => {
                    let etag = format!("\"{version}\"");
                    if header("if-none-match").as_ref() == Some(&etag) {
                        return https::json(304, String::new());
                    }
                    let of = |name: &str| {
                        json!({"get": {"responses": {"200": {"description": "OK",
                        "schema": {"$ref": format!("#/definitions/{name}")}}}}})
                    };
                    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
                    let boat = json!({"type": "object", "description": format!("boat {version}"),
                        "properties": {"metadata": {"$ref": format!("#/definitions/{meta}")}}});
                    let document = json!({"swagger": "2.0",
                        "paths": {"/apis/example.dev/v1/boats": of("dev.example.v1.Boat"), "/version/": of("Info")},
                        "definitions": {"dev.example.v1.Boat": boat, "Info": {"type": "string"}, (meta): {"type": "object"}}});
                    let mut answer = https::json(200, document.to_string());
                    answer.headers_mut().insert("etag", etag.parse().unwrap());
                    answer
                }
                _ => answer(request).await,
            }
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_another_server_are_merged() {
    let version = Arc::new(AtomicUsize::new(1));
    let remote = Https::start(&["remote.default.svc".to_owned()], documented(Arc::clone(&version))).await;
    let front = Front::start(Limits::default()).await;
    let api = Api::of(front.server.clone());
    let read = async |path: &str| {
        let (status, body) = front.get(path).await;
        (status.as_u16(), serde_json::from_slice::<Value>(&body).unwrap_or_default())
    };
    let (_, index) = read("/openapi/v3").await;
    let (_, swagger) = read("/openapi/v2").await;
    let named = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "remote"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    assert_eq!(api.send("POST", "/api/v1/namespaces/default/services", Some(&named)).await.0, 201);
    let created = api.send("POST", SERVICES, Some(&service(remote.address.port(), &remote.ca))).await;
    assert_eq!(created.0, 201, "{}", created.1);
    until(&api, "Passed").await;

    // Version 3: two entries more, which lead there.
    let (_, with) = read("/openapi/v3").await;
    let mut want = index.clone();
    for name in ["apis/example.dev", "apis/example.dev/v1"] {
        want["paths"][name] = json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash=H1")});
    }
    assert_eq!(with, want);
    let document = "/openapi/v3/apis/example.dev/v1";
    let (status, headers, body) =
        front.send(front.request(Method::GET, &format!("{document}?hash=H1"), "")).await;
    assert_eq!((status.as_u16(), &headers["etag"]), (200, &http::HeaderValue::from_static("\"own\"")));
    let asked: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(asked, json!({"user": "admin", "query": "hash=H1", "version": 1}));

    // Version 2: everything in one document, in which every reference leads somewhere.
    let (_, with) = read("/openapi/v2").await;
    let (before, after) = (swagger["paths"].as_object().unwrap(), with["paths"].as_object().unwrap());
    assert_eq!(after.len(), before.len() + 1);
    assert!(before.iter().all(|(path, item)| after[path] == *item), "own paths stay as they are");
    let response = &with["paths"]["/apis/example.dev/v1/boats"]["get"]["responses"]["200"];
    assert_eq!(response["schema"]["$ref"], "#/definitions/dev.example.v1.Boat");
    let boat = &with["definitions"]["dev.example.v1.Boat"];
    assert_eq!(boat["description"], "boat 1");
    let meta = boat["properties"]["metadata"]["$ref"].as_str().unwrap();
    assert_eq!(with.pointer(&meta[1..]), Some(&json!({"type": "object"})), "{meta}");
    let own = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert_eq!(with["definitions"][own], swagger["definitions"][own]);
    assert!(with["definitions"]["Info"].is_null());
    // In the binary form, too.
    let mut request = front.request(Method::GET, "/openapi/v2", "");
    let binary = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    request.headers_mut().insert("accept", binary.parse().unwrap());
    let (status, _, body) = front.send(request).await;
    assert_eq!(status.as_u16(), 200);
    assert!(body.windows(6).any(|w| w == b"boat 1"));

    // A changed document is read again with the next look.
    version.store(2, Ordering::SeqCst);
    let patch = json!({"spec": {"versionPriority": 11}});
    assert_eq!(api.send("PATCH", &format!("{SERVICES}/{NAME}"), Some(&patch)).await.0, 200);
    let changed = async || {
        let (_, with) = read("/openapi/v2").await;
        with["definitions"]["dev.example.v1.Boat"]["description"] == "boat 2"
    };
    let mut tries = 0;
    while !changed().await {
        tries += 1;
        assert!(tries < 600, "never read again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let url = read("/openapi/v3").await.1["paths"]["apis/example.dev/v1"]["serverRelativeURL"].clone();
    assert_eq!(url, "/openapi/v3/apis/example.dev/v1?hash=H2");

    // Connections that are to become something else are not passed on.
    let mut request =
        front.request(Method::GET, "/apis/example.dev/v1/namespaces/default/boats/b/engine", "");
    for (name, value) in [("connection", "upgrade"), ("upgrade", "websocket")] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let (mut sender, _) = front.http1().await;
    let (status, _, body) = read_answer(sender.send_request(request).await.unwrap()).await;
    let refused: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status.as_u16(), &refused["reason"]), (501, &json!("NotImplemented")));
    assert!(refused["message"].as_str().unwrap().contains("upgraded connections"), "{refused}");

    assert_eq!(api.send("DELETE", &format!("{SERVICES}/{NAME}"), None).await.0, 200);
    assert_eq!(read("/openapi/v3").await.1, index);
    assert_eq!(read("/openapi/v2").await.1, swagger);
    assert_eq!(front.get(document).await.0, 404);
}
