//! Priority and fairness: who waits, who is told to come again, and who is served whatever else goes on.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::api::Api;
use crate::support::front::{Front, read};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use plimsoll_apiserver::auth::{AuthConfig, Mode, User};
use plimsoll_apiserver::http::body::Body;
use plimsoll_apiserver::http::listener::Limits;
use plimsoll_apiserver::{Server, ServerConfig};
use serde_json::{Value, json};
use tower::ServiceExt as _;

const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A body that never comes: the request keeps its seat.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

fn config() -> ServerConfig {
    let tokens = ["bulk", "other"].map(|name| (name.to_owned(), User::new(name, &[]))).to_vec();
    let auth = AuthConfig { tokens, anonymous: true, mode: Mode::AlwaysAllow };
    ServerConfig { auth, requests_in_flight: 100, ..ServerConfig::default() }
}

/// A server where the user `bulk` has a level with one seat.
async fn narrow(response: &Value) -> Api {
    let api = Api::new(config()).await;
    let level = json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "narrow"},
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 1, "borrowingLimitPercent": 0, "limitResponse": response,
        }},
    });
    let (status, answer) =
        api.send("POST", &format!("{FLOW}/prioritylevelconfigurations"), Some(&level)).await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["spec"]["limited"]["lendablePercent"], 0, "{answer}");
    let (status, answer) = api.send("POST", &format!("{FLOW}/flowschemas"), Some(&schema("narrow"))).await;
    assert_eq!(status, 201, "{answer}");
    api
}

fn schema(level: &str) -> Value {
    json!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "bulk"},
        "spec": {
            "priorityLevelConfiguration": {"name": level}, "matchingPrecedence": 50,
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [{
                "subjects": [{"kind": "User", "user": {"name": "bulk"}}],
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                                   "clusterScope": true}],
            }],
        },
    })
}

fn request(user: &str, path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path).header("authorization", format!("Bearer {user}"));
    request.body(Full::new(Bytes::new())).unwrap()
}

async fn get(server: &Arc<Server>, user: &str, path: &str) -> Response<Body> {
    server.authenticating_service().oneshot(request(user, path)).await.unwrap()
}

/// Takes a seat of `bulk` until it is aborted.
async fn occupy(server: &Arc<Server>) -> tokio::task::JoinHandle<()> {
    let before = metric(server, "current_executing_requests", "bulk");
    let request = Request::post(CONFIGMAPS).header("authorization", "Bearer bulk").body(Endless).unwrap();
    let answer = server.authenticating_service().oneshot(request);
    let task = tokio::spawn(async move { drop(answer.await) });
    until(|| metric(server, "current_executing_requests", "bulk") > before).await;
    task
}

async fn until(mut is: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("not in time");
}

/// The sum of a metric of flow control over the rows of a schema.
fn metric(server: &Server, name: &str, schema: &str) -> u64 {
    let text = server.metrics_text();
    let rows = text.lines().filter(|l| {
        l.starts_with(&format!("apiserver_flowcontrol_{name}{{"))
            && l.contains(&format!("flow_schema=\"{schema}\""))
    });
    rows.filter_map(|l| l.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[tokio::test]
async fn suggested_and_mandatory_objects_are_there_and_answers_name_them() {
    let api = Api::new(config()).await;
    let (_, schemas) = api.send("GET", &format!("{FLOW}/flowschemas"), None).await;
    let items = schemas["items"].as_array().unwrap();
    assert_eq!(items.len(), 11);
    for item in items {
        let condition = &item["status"]["conditions"][0];
        assert_eq!(
            (&condition["type"], &condition["status"]),
            (&json!("Dangling"), &json!("False")),
            "{item}"
        );
    }
    let (_, levels) = api.send("GET", &format!("{FLOW}/prioritylevelconfigurations"), None).await;
    assert_eq!(levels["items"].as_array().unwrap().len(), 8);
    let uid = |list: &Value, name: &str| -> String {
        let found = list["items"].as_array().unwrap().iter().find(|i| i["metadata"]["name"] == name);
        found.unwrap()["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    for (user, path, schema, level) in [
        ("bulk", CONFIGMAPS, "global-default", "global-default"),
        ("bulk", "/healthz", "probes", "exempt"),
        ("bulk", "/version", "global-default", "global-default"),
    ] {
        let answer = get(&api.server, user, path).await;
        assert_eq!(answer.status(), 200);
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-kubernetes-pf-flowschema-uid"), uid(&schemas, schema), "{path}");
        assert_eq!(header("x-kubernetes-pf-prioritylevel-uid"), uid(&levels, level), "{path}");
    }
    assert_eq!(metric(&api.server, "dispatched_requests_total", "probes"), 1);
    assert_eq!(metric(&api.server, "current_executing_requests", "probes"), 0);
}

#[tokio::test]
async fn a_level_without_queues_rejects_what_finds_no_seat() {
    let api = narrow(&json!({"type": "Reject"})).await;
    let server = &api.server;
    let busy = occupy(server).await;
    let refused = get(server, "bulk", CONFIGMAPS).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "1");
    assert!(refused.headers().contains_key("x-kubernetes-pf-flowschema-uid"));
    let text = refused.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(text, "Too many requests, please try again later.\n");
    assert_eq!(metric(server, "rejected_requests_total", "bulk"), 1);
    // Others have levels of their own, and health checks none.
    assert_eq!(get(server, "other", CONFIGMAPS).await.status(), 200);
    assert_eq!(get(server, "bulk", "/healthz").await.status(), 200);
    busy.abort();
    until(|| metric(server, "current_executing_requests", "bulk") == 0).await;
    assert_eq!(get(server, "bulk", CONFIGMAPS).await.status(), 200);
}

#[tokio::test]
async fn requests_wait_for_their_turn_and_leave_with_their_client() {
    let queuing = json!({"queues": 2, "handSize": 1, "queueLengthLimit": 2});
    let api = narrow(&json!({"type": "Queue", "queuing": queuing})).await;
    let server = &api.server;
    let busy = occupy(server).await;
    let waiting = |server: &Arc<Server>| {
        let server = Arc::clone(server);
        tokio::spawn(async move { get(&server, "bulk", CONFIGMAPS).await.status() })
    };
    let (first, second) = (waiting(server), waiting(server));
    until(|| metric(server, "current_inqueue_requests", "bulk") == 2).await;
    assert_eq!(get(server, "bulk", CONFIGMAPS).await.status(), StatusCode::TOO_MANY_REQUESTS);
    second.abort();
    until(|| metric(server, "current_inqueue_requests", "bulk") == 1).await;
    assert!(!first.is_finished());
    busy.abort();
    assert_eq!(first.await.unwrap(), 200);
    until(|| metric(server, "current_executing_seats", "bulk") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_longer_than_a_quarter_of_the_time_of_a_request() {
    let api = narrow(&json!({"type": "Queue", "queuing": {"queues": 1, "handSize": 1}})).await;
    let _busy = occupy(&api.server).await;
    let began = tokio::time::Instant::now();
    assert_eq!(get(&api.server, "bulk", CONFIGMAPS).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(began.elapsed().as_secs(), 15);
}

#[tokio::test]
async fn a_watch_gives_its_seat_back_when_it_has_begun() {
    let api = narrow(&json!({"type": "Reject"})).await;
    let server = &api.server;
    let mut watch = get(server, "bulk", "/api/v1/namespaces?watch=1&resourceVersion=0").await.into_body();
    assert_eq!(metric(server, "current_executing_requests", "bulk"), 1);
    assert!(watch.frame().await.unwrap().is_ok());
    until(|| metric(server, "current_executing_requests", "bulk") == 0).await;
    assert_eq!(get(server, "bulk", CONFIGMAPS).await.status(), 200);
    drop(watch);
}

#[tokio::test]
async fn schemas_follow_their_objects_and_say_whether_their_level_is_there() {
    let api = narrow(&json!({"type": "Reject"})).await;
    let server = &api.server;
    let path = format!("{FLOW}/flowschemas/bulk");
    let dangling = async |status: &str, reason: &str| {
        let (_, object) = api.send("GET", &path, None).await;
        let condition = &object["status"]["conditions"][0];
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!(status), &json!(reason)),
            "{object}"
        );
        assert!(condition["message"].as_str().unwrap().contains("object named \""), "{object}");
    };
    dangling("False", "Found").await;
    let _busy = occupy(server).await;
    assert_eq!(get(server, "bulk", CONFIGMAPS).await.status(), StatusCode::TOO_MANY_REQUESTS);
    // Without its level, the schema is not asked.
    api.send("DELETE", &format!("{FLOW}/prioritylevelconfigurations/narrow"), None).await;
    dangling("True", "NotFound").await;
    assert_eq!(get(server, "bulk", CONFIGMAPS).await.status(), 200);
    // Another level has seats.
    let patch = json!({"spec": {"priorityLevelConfiguration": {"name": "workload-low"}}});
    let (status, answer) = api.send("PATCH", &path, Some(&patch)).await;
    assert_eq!(status, 200, "{answer}");
    dangling("False", "Found").await;
    assert_eq!(get(server, "bulk", CONFIGMAPS).await.status(), 200);
    api.send("DELETE", &path, None).await;
    assert_eq!(get(server, "bulk", CONFIGMAPS).await.status(), 200);
}

/// A load of the kinds that once kept everybody else out, scaled down. What is asked meanwhile has to be answered before
/// the load is done; how long that takes is for a machine on which nothing else runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_requests_do_not_keep_others_out() {
    const LISTS: usize = 20;
    const WRITES: usize = 8;
    let limits = Limits { connections: 200, ..Limits::default() };
    let front = Front::start_with(limits, config()).await;
    let api = Api::of(Arc::clone(&front.server));
    for n in 0..250 {
        let data: Vec<(String, String)> = (0..40).map(|k| (format!("key-{k}"), "x".repeat(30))).collect();
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}")},
            "data": data.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        });
        assert_eq!(api.send("POST", CONFIGMAPS, Some(&object)).await.0, 201);
    }
    // (1) More idle connections than there is room for.
    let mut idle = Vec::new();
    for _ in 0..230 {
        idle.push(front.http2().await);
    }
    // (2) Tables of everything, again and again.
    let done = Arc::new(AtomicUsize::new(0));
    let mut load = tokio::task::JoinSet::new();
    for _ in 0..LISTS {
        let (mut sender, _) = front.http2().await;
        let mut lists = Vec::new();
        for _ in 0..6 {
            let mut request = front.request(Method::GET, CONFIGMAPS, "");
            request.headers_mut().insert("accept", TABLE.parse().unwrap());
            lists.push(sender.send_request(request));
        }
        let done = Arc::clone(&done);
        load.spawn(async move {
            for list in lists {
                let (status, _, body) = read(list.await.unwrap()).await;
                assert_eq!(status, 200);
                let table: Value = serde_json::from_slice(&body).unwrap();
                // The Table has all of them, and `kube-root-ca.crt` perhaps.
                assert!(table["rows"].as_array().unwrap().len() >= 250);
            }
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    // (3) Objects with very many keys, which are not kept.
    let data: serde_json::Map<String, Value> =
        (0..20_000).map(|k| (format!("k{k:06}"), json!("v"))).collect();
    let large = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": data});
    let large = Bytes::from(large.to_string());
    for _ in 0..WRITES {
        let (mut sender, _) = front.http2().await;
        let path = format!("{CONFIGMAPS}?dryRun=All");
        let answer = sender.send_request(front.request(Method::POST, &path, large.clone()));
        let done = Arc::clone(&done);
        load.spawn(async move {
            assert_eq!(read(answer.await.unwrap()).await.0, 201);
            done.fetch_add(1, Ordering::SeqCst);
        });
    }
    for _ in 0..3 {
        assert_eq!(front.get("/healthz").await.0, 200);
        assert_eq!(front.get("/api/v1/namespaces/default").await.0, 200);
    }
    let finished = done.load(Ordering::SeqCst);
    assert!(finished < (LISTS + WRITES) / 2, "{finished} were done before");
    while let Some(one) = load.join_next().await {
        one.unwrap();
    }
    drop(idle);
}
