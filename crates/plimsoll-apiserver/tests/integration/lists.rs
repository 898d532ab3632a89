//! Lists too large to be made at once: the same objects in every form, however many pieces they are made in.

#![allow(clippy::unwrap_used)]

use crate::support::api::Api;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use plimsoll_apimachinery::proto;
use plimsoll_apiserver::{Server, ServerConfig};
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt as _;

/// More than one piece of any form.
const MANY: usize = 330;
const PODS: &str = "/api/v1/namespaces/default/pods";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

async fn with_pods(many: usize) -> Arc<Server> {
    let server = Server::new(ServerConfig::default()).await.unwrap();
    let api = Api::of(Arc::clone(&server));
    api.send(
        "POST",
        "/api/v1/namespaces/default/serviceaccounts",
        Some(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"},
        })),
    )
    .await;
    for n in 0..many {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pod-{n:05}"), "labels": {"odd": (n % 2 == 1).to_string()},
                         "annotations": {"text": "a \"quoted\" line\nand another\n\n  indented"}},
            "spec": {"nodeName": format!("node-{}", n % 3), "containers": [{
                "name": "main", "image": "registry.example/image:1", "env": [{"name": "A", "value": "1"}],
            }]},
        });
        let (status, answer) = api.send("POST", PODS, Some(&pod)).await;
        assert_eq!(status, 201, "{answer}");
    }
    server
}

async fn get(server: &Arc<Server>, path: &str, accept: &str) -> (http::HeaderMap, Bytes) {
    let request = Request::get(path).header("accept", accept).body(Full::new(Bytes::new())).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200, "{path} {accept}");
    let (parts, body) = response.into_parts();
    (parts.headers, body.collect().await.unwrap().to_bytes())
}

fn read(accept: &str, body: &[u8]) -> Value {
    match accept {
        _ if accept.starts_with(PROTOBUF) => proto::decode_body(body).unwrap(),
        _ if accept.contains("yaml") => plimsoll_apimachinery::decode::yaml(body).unwrap(),
        _ => serde_json::from_slice(body).unwrap(),
    }
}

/// All items in pages that are made at once, and the last page without them.
async fn in_pages(server: &Arc<Server>, path: &str, accept: &str) -> (Vec<Value>, Value) {
    let (mut items, mut next) = (Vec::new(), String::new());
    loop {
        let page = format!("{path}limit=7&continue={next}");
        let (_, body) = get(server, &page, accept).await;
        let mut list = read(accept, &body);
        let member = if list["rows"].is_array() { "rows" } else { "items" };
        items.append(list[member].take().as_array_mut().unwrap());
        match list["metadata"]["continue"].as_str().filter(|c| !c.is_empty()) {
            Some(token) => next = token.to_owned(),
            None => return (items, list),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_lists_are_the_same_in_every_form() {
    let server = with_pods(MANY).await;
    let forms = [
        "application/json".to_owned(),
        "application/yaml".to_owned(),
        TABLE.to_owned(),
        TABLE.replace("json", "yaml"),
        format!("application/json;{PARTIAL}"),
        format!("application/yaml;{PARTIAL}"),
        PROTOBUF.to_owned(),
        format!("{PROTOBUF};{PARTIAL}"),
    ];
    for accept in &forms {
        for query in ["?", "?pretty=1&"] {
            let path = format!("{PODS}{query}");
            let (headers, body) = get(&server, &path, accept).await;
            assert!(headers["content-type"].to_str().unwrap().starts_with(accept.split(';').next().unwrap()));
            let mut whole = read(accept, &body);
            let member = if accept.contains("Table") { "rows" } else { "items" };
            let items = whole[member].take();
            let (wanted, rest) = in_pages(&server, &path, accept).await;
            assert_eq!(wanted.len(), MANY);
            assert_eq!(items.as_array().unwrap().len(), MANY, "{accept}");
            // Ages in tables go on meanwhile.
            if !accept.contains("Table") {
                assert_eq!(items, Value::Array(wanted), "{accept} {query}");
                assert_eq!(whole, rest, "{accept} {query}");
            } else {
                for (row, wanted) in items.as_array().unwrap().iter().zip(&wanted) {
                    assert_eq!(row["object"], wanted["object"]);
                    assert_eq!(row["cells"][0], wanted["cells"][0]);
                }
                assert_eq!(whole["columnDefinitions"], rest["columnDefinitions"]);
            }
        }
    }
}

/// What is sent in pieces has no length in advance, and is indented as a whole would be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_lists_are_sent_as_they_are_made() {
    let server = with_pods(MANY).await;
    let request = |limit: usize| {
        let path = format!("{PODS}?limit={limit}");
        Request::get(path).header("accept", TABLE).body(Full::new(Bytes::new())).unwrap()
    };
    let response = server.service().oneshot(request(MANY)).await.unwrap();
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), None);
    // Whoever doesn't want it any more leaves nothing behind that others wait for.
    drop(response);
    let response = server.service().oneshot(request(5)).await.unwrap();
    assert!(http_body::Body::size_hint(response.body()).exact().is_some());

    let (_, pretty) = get(&server, &format!("{PODS}?pretty=1"), "application/json").await;
    let again: Value = serde_json::from_slice(&pretty).unwrap();
    assert_eq!(
        String::from_utf8(pretty.to_vec()).unwrap(),
        serde_json::to_string_pretty(&again).unwrap() + "\n"
    );
    let (_, table) = get(&server, &format!("{PODS}?pretty=1"), TABLE).await;
    let again: Value = serde_json::from_slice(&table).unwrap();
    assert_eq!(
        String::from_utf8(table.to_vec()).unwrap(),
        serde_json::to_string_pretty(&again).unwrap() + "\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_search_large_collections_in_pieces() {
    let server = with_pods(MANY).await;
    let api = Api::of(Arc::clone(&server));
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap().iter();
        items.map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let (_, list) = api.send("GET", &format!("{PODS}?fieldSelector=spec.nodeName=node-2"), None).await;
    let wanted: Vec<String> = (0..MANY).filter(|n| n % 3 == 2).map(|n| format!("pod-{n:05}")).collect();
    assert_eq!(names(&list), wanted);
    // In pages, each of which ends among records that don't match.
    let (mut found, mut next) = (Vec::new(), String::new());
    loop {
        let path = format!(
            "{PODS}?fieldSelector=spec.nodeName=node-2&labelSelector=odd=true&limit=9&continue={next}"
        );
        let (_, list) = api.send("GET", &path, None).await;
        found.extend(names(&list));
        match list["metadata"]["continue"].as_str() {
            Some(token) => next = token.to_owned(),
            None => break,
        }
    }
    let wanted: Vec<String> =
        (0..MANY).filter(|n| n % 3 == 2 && n % 2 == 1).map(|n| format!("pod-{n:05}")).collect();
    assert_eq!(found, wanted);
}

/// The initial events of a watch are those of the list, in a form that has to be made and behind a selector, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_begin_in_pieces() {
    let server = with_pods(MANY).await;
    let path =
        format!("{PODS}?watch=1&resourceVersion=0&timeoutSeconds=1&fieldSelector=spec.nodeName=node-1");
    for accept in ["application/json", TABLE] {
        let (_, body) = get(&server, &path, accept).await;
        let events: Vec<Value> = body
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).unwrap())
            .collect();
        assert_eq!(events.len(), MANY / 3, "{accept}");
        assert!(events.iter().all(|e| e["type"] == "ADDED"));
    }
}
