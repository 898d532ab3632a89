//! Groups that another server answers for: looked at, discovered, and asked in the name of the user.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use crate::support::api::Api;
use crate::support::front::Front;
use crate::support::https::{self, Https};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::http::listener::Limits;
use serde_json::{Value, json};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.example.dev";

/// Tells what it was asked, and serves discovery.
async fn answer(request: Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
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
