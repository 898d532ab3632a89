//! Watches that always have something to say end when they should, and say how far they are.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use crate::support::api::Api;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::ServerConfig;
use plimsoll_apiserver::http::body::Body;
use serde_json::{Value, json};

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const OBJECTS: usize = 400;

/// More changes than are read in a few seconds; the version before them.
async fn backlog(api: &Api) -> String {
    let (_, list) = api.send("GET", CONFIGMAPS, None).await;
    for i in 0..OBJECTS {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{i:03}")},
            "data": {"text": "x".repeat(10_000)}});
        let (code, body) = api.send("POST", CONFIGMAPS, Some(&object)).await;
        assert_eq!(code, 201, "{body}");
    }
    list["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

/// Reads a watch slowly, for as long as it lasts: how many events it had, and how long it took.
async fn read_slowly(api: &Api, query: &str) -> (Vec<Value>, Duration) {
    let begin = Instant::now();
    let mut events = api.watch(&format!("{CONFIGMAPS}?watch=true&{query}")).await;
    let mut all = Vec::new();
    while let Some(event) = events.next_if_any().await {
        all.push(event);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (all, begin.elapsed())
}

#[tokio::test]
async fn a_busy_watch_ends_in_time() {
    let api = Api::new(ServerConfig::default()).await;
    let version = backlog(&api).await;
    for query in [format!("&resourceVersion={version}"), String::new()] {
        let (events, took) = read_slowly(&api, &format!("timeoutSeconds=1{query}")).await;
        assert!(took >= Duration::from_secs(1), "{query}: it ended after {took:?}");
        assert!(events.len() < OBJECTS, "{query}: all {} events were read, in {took:?}", events.len());
    }
}

#[tokio::test]
async fn a_busy_watch_has_its_bookmarks() {
    let api = Api::new(ServerConfig::default()).await;
    let version = backlog(&api).await;
    // The last bookmark comes two seconds before the end.
    let query = format!("resourceVersion={version}&allowWatchBookmarks=true&timeoutSeconds=3");
    let (events, _) = read_slowly(&api, &query).await;
    assert!(events.len() < OBJECTS, "there was always something to say");
    let revision =
        |e: &Value| e["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    let mark = events.iter().position(|e| e["type"] == "BOOKMARK").expect("a bookmark");
    // Everything up to it has been told, and nothing after it.
    assert_eq!(revision(&events[mark]), revision(&events[mark - 1]));
    assert!(events[mark + 1..].iter().all(|e| revision(e) > revision(&events[mark])));
}

#[tokio::test]
async fn a_watch_whose_turn_comes_late_tells_what_was_there() {
    let api = Api::new(ServerConfig::default()).await;
    let (_, list) = api.send("GET", CONFIGMAPS, None).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    assert_eq!(api.send("POST", CONFIGMAPS, Some(&object)).await.0, 201);
    for query in [String::new(), format!("&resourceVersion={version}")] {
        let mut events = api.watch(&format!("{CONFIGMAPS}?watch=true&timeoutSeconds=1{query}")).await;
        // Nobody asks for a frame until its time is over.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        let mut names = Vec::new();
        while let Some(event) = events.next_if_any().await {
            names.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
        }
        assert!(names.contains(&"one".to_owned()), "{query}: {names:?}");
    }
}

async fn create(api: &Api, name: &str) {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    assert_eq!(api.send("POST", CONFIGMAPS, Some(&object)).await.0, 201);
}

/// Names in the next frame, and how long it took to come.
async fn frame(body: &mut Body) -> (Vec<String>, Duration) {
    let begin = tokio::time::Instant::now();
    let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let events = data.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    let name = |line: &[u8]| {
        let event: Value = serde_json::from_slice(line).unwrap();
        event["object"]["metadata"]["name"].as_str().unwrap().to_owned()
    };
    (events.map(name).collect(), begin.elapsed())
}

#[tokio::test(start_paused = true)]
async fn changes_in_quick_succession_share_a_frame_and_others_do_not_wait() {
    let api = Api::new(ServerConfig::default()).await;
    let (_, list) = api.send("GET", CONFIGMAPS, None).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{CONFIGMAPS}?watch=true&resourceVersion={version}");
    let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
    let mut body = tower::ServiceExt::oneshot(api.server.service(), request).await.unwrap().into_body();
    tokio::time::sleep(Duration::from_millis(10)).await;
    create(&api, "alone").await;
    assert_eq!(frame(&mut body).await, (vec!["alone".to_owned()], Duration::ZERO));
    create(&api, "second").await;
    let (both, ()) = tokio::join!(frame(&mut body), async {
        // By now the watch has seen the second one.
        tokio::task::yield_now().await;
        create(&api, "third").await;
    });
    assert_eq!(both.0, ["second", "third"]);
    assert!(both.1 <= Duration::from_millis(2), "{both:?}");
    tokio::time::sleep(Duration::from_millis(10)).await;
    create(&api, "later").await;
    assert_eq!(frame(&mut body).await, (vec!["later".to_owned()], Duration::ZERO));
}
