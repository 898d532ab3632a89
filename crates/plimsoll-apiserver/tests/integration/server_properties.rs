//! Random requests against the server and the same rules on a plain map: the same answers, the same state at every
//! revision, and every watch from any revision reproduces it.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use futures::FutureExt;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use plimsoll_apiserver::{ApiService, Server, ServerConfig};
use proptest::prelude::*;
use serde_json::{Value, json};
use tower::ServiceExt;

const NAMESPACES: [&str; 2] = ["default", "kube-public"];
const FINALIZER: &str = "example.com/held";

#[derive(Clone, Debug)]
struct Step {
    namespace: usize,
    name: u8,
    value: u8,
    dry_run: bool,
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    None,
    Right,
    Wrong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// With a finalizer or without.
    Create(bool),
    Replace(Version),
    Merge,
    /// A JSON patch that tests for a value first; `true`: for the one that is there.
    JsonTest(bool),
    Apply,
    /// With a precondition on the UID, right or wrong.
    Delete(Version),
    /// Takes the finalizer off.
    Release,
    /// All of the namespace with this value as label.
    DeleteCollection,
}

#[allow(clippy::too_many_lines, reason = "one case after the other")]
fn step() -> impl Strategy<Value = Step> {
    let version = prop_oneof![Just(Version::None), Just(Version::Right), Just(Version::Wrong)];
    let action = prop_oneof![
        4 => any::<bool>().prop_map(Action::Create),
        3 => version.clone().prop_map(Action::Replace),
        2 => Just(Action::Merge),
        2 => any::<bool>().prop_map(Action::JsonTest),
        1 => Just(Action::Apply),
        3 => version.prop_map(Action::Delete),
        2 => Just(Action::Release),
        1 => Just(Action::DeleteCollection),
    ];
    (0..NAMESPACES.len(), 0..4u8, 0..3u8, prop::bool::weighted(0.1), action).prop_map(
        |(namespace, name, value, dry_run, action)| Step { namespace, name, value, dry_run, action },
    )
}

/// What the model knows of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Object {
    revision: u64,
    uid: String,
    value: u8,
    held: bool,
    deleting: bool,
}

/// By `namespace/name`.
type State = BTreeMap<String, Object>;

struct Model {
    /// State at each revision from `first`.
    states: Vec<State>,
    first: u64,
}

impl Model {
    fn now(&self) -> &State {
        self.states.last().unwrap()
    }

    fn revision(&self) -> u64 {
        self.first + self.states.len() as u64 - 1
    }

    fn at(&self, revision: u64) -> &State {
        &self.states[(revision - self.first) as usize]
    }

    fn put(&mut self, path: &str, mut object: Object) {
        let mut next = self.now().clone();
        object.revision = self.revision() + 1;
        next.insert(path.to_owned(), object);
        self.states.push(next);
    }

    fn remove(&mut self, path: &str) {
        let mut next = self.now().clone();
        next.remove(path);
        self.states.push(next);
    }

    /// Changes the value; the same value is no change.
    fn set(&mut self, path: &str, value: u8) {
        let object = self.now()[path].clone();
        if object.value != value {
            self.put(path, Object { value, ..object });
        }
    }

    fn delete(&mut self, path: &str) {
        let object = self.now()[path].clone();
        match (object.held, object.deleting) {
            (false, _) => self.remove(path),
            (true, false) => self.put(path, Object { deleting: true, ..object }),
            (true, true) => {}
        }
    }
}

/// The server and the plain map that its answers are compared with.
struct Harness {
    service: ApiService,
    model: Model,
}

fn map(path: &str, value: u8, held: bool) -> Value {
    let (namespace, name) = path.split_once('/').unwrap();
    let mut object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"v": value.to_string()}},
        "data": {"v": value.to_string()},
    });
    if held {
        object["metadata"]["finalizers"] = json!([FINALIZER]);
    }
    object
}

fn seen(object: &Value) -> (String, Object) {
    let meta = &object["metadata"];
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    assert_eq!(meta["labels"]["v"], object["data"]["v"]);
    let found = Object {
        revision: text(&meta["resourceVersion"]).parse().unwrap(),
        uid: text(&meta["uid"]),
        value: text(&object["data"]["v"]).parse().unwrap(),
        held: !meta["finalizers"].is_null(),
        deleting: !meta["deletionTimestamp"].is_null(),
    };
    (format!("{}/{}", text(&meta["namespace"]), text(&meta["name"])), found)
}

impl Harness {
    async fn new() -> Self {
        let server = Server::new(ServerConfig::default()).await.unwrap();
        let first = server.store().current_revision();
        Self { service: server.service(), model: Model { states: vec![State::new()], first } }
    }

    async fn send(&self, method: Method, path: &str, media: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.header("user-agent", "model").body(Full::new(body)).unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// Sends the request of a step, checks the answer and does the same to the model.
    #[allow(clippy::too_many_lines, reason = "one arm for each verb")]
    async fn step(&mut self, step: &Step) {
        let namespace = NAMESPACES[step.namespace];
        let path = format!("{namespace}/n{}", step.name);
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let dry = if step.dry_run { "dryRun=All" } else { "" };
        let one = format!("{collection}/n{}?{dry}", step.name);
        let current = self.model.now().get(&path).cloned();
        let before = self.model.states.len();
        let (answer, expected) = match step.action {
            Action::Create(held) => {
                let body = map(&path, step.value, held);
                let answer =
                    self.send(Method::POST, &format!("{collection}?{dry}"), "application/json", &body).await;
                if current.is_none() {
                    let uid = answer.1["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                    let value = step.value;
                    self.model.put(&path, Object { revision: 0, uid, value, held, deleting: false });
                }
                (answer, if current.is_none() { 201 } else { 409 })
            }
            Action::Replace(version) => {
                let held = current.as_ref().is_some_and(|c| c.held);
                let mut body = map(&path, step.value, held);
                match (version, &current) {
                    (Version::Right, Some(c)) => {
                        body["metadata"]["resourceVersion"] = json!(c.revision.to_string());
                    }
                    (Version::Wrong, _) => body["metadata"]["resourceVersion"] = json!("1"),
                    _ => {}
                }
                let answer = self.send(Method::PUT, &one, "application/json", &body).await;
                let expected = match (&current, version) {
                    (None, _) => 404,
                    (Some(_), Version::Wrong) => 409,
                    (Some(_), _) => {
                        self.model.set(&path, step.value);
                        200
                    }
                };
                (answer, expected)
            }
            Action::Merge => {
                let text = step.value.to_string();
                let body = json!({"metadata": {"labels": {"v": text}}, "data": {"v": text}});
                let answer = self.send(Method::PATCH, &one, "application/merge-patch+json", &body).await;
                if current.is_some() {
                    self.model.set(&path, step.value);
                }
                (answer, if current.is_some() { 200 } else { 404 })
            }
            Action::JsonTest(right) => {
                let there = current.as_ref().map_or(0, |c| c.value);
                let tested = if right { there } else { there + 1 }.to_string();
                let text = step.value.to_string();
                let body = json!([
                    {"op": "test", "path": "/data/v", "value": tested},
                    {"op": "replace", "path": "/data/v", "value": text},
                    {"op": "add", "path": "/metadata/labels/v", "value": text},
                ]);
                let answer = self.send(Method::PATCH, &one, "application/json-patch+json", &body).await;
                let expected = match (&current, right) {
                    (None, _) => 404,
                    (Some(_), false) => 422,
                    (Some(_), true) => {
                        self.model.set(&path, step.value);
                        200
                    }
                };
                (answer, expected)
            }
            Action::Apply => {
                // Only objects that aren't there: ownership has tests of its own.
                if current.is_some() {
                    return;
                }
                let body = map(&path, step.value, false);
                let one = format!("{one}&fieldManager=model&force=true");
                let answer = self.send(Method::PATCH, &one, "application/apply-patch+yaml", &body).await;
                let uid = answer.1["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
                let value = step.value;
                self.model.put(&path, Object { revision: 0, uid, value, held: false, deleting: false });
                (answer, 201)
            }
            Action::Delete(version) => {
                let uid = match (version, &current) {
                    (Version::Right, Some(c)) => json!({"uid": c.uid}),
                    (Version::Wrong, _) => json!({"uid": "00000000-0000-0000-0000-000000000000"}),
                    _ => json!({}),
                };
                // With a body the query doesn't count.
                let dry: &[&str] = if step.dry_run { &["All"] } else { &[] };
                let body = json!({
                    "kind": "DeleteOptions", "apiVersion": "v1", "preconditions": uid, "dryRun": dry,
                });
                let answer = self.send(Method::DELETE, &one, "application/json", &body).await;
                let expected = match (&current, version) {
                    (None, _) => 404,
                    (Some(_), Version::Wrong) => 409,
                    (Some(_), _) => {
                        self.model.delete(&path);
                        200
                    }
                };
                (answer, expected)
            }
            Action::Release => {
                let body = json!({"metadata": {"finalizers": null}});
                let answer = self.send(Method::PATCH, &one, "application/merge-patch+json", &body).await;
                match &current {
                    Some(c) if c.held && c.deleting => self.model.remove(&path),
                    Some(c) if c.held => self.model.put(&path, Object { held: false, ..c.clone() }),
                    _ => {}
                }
                (answer, if current.is_some() { 200 } else { 404 })
            }
            Action::DeleteCollection => {
                let query = format!("{collection}?labelSelector=v%3D{}&{dry}", step.value);
                let answer = self.send(Method::DELETE, &query, "application/json", &Value::Null).await;
                let prefix = format!("{namespace}/");
                let hit: Vec<String> = self
                    .model
                    .now()
                    .iter()
                    .filter(|(p, o)| p.starts_with(&prefix) && o.value == step.value)
                    .map(|(p, _)| p.clone())
                    .collect();
                hit.iter().for_each(|p| self.model.delete(p));
                (answer, 200)
            }
        };
        assert_eq!(answer.0, expected, "{step:?}: {}", answer.1);
        if step.dry_run {
            self.model.states.truncate(before);
        }
        let now = self.service.server().store().current_revision();
        assert_eq!(now, self.model.revision(), "{step:?}: {}", answer.1);
    }

    async fn list(&self, query: &str) -> (u64, State) {
        let mut all = State::new();
        let mut next = String::new();
        loop {
            let query = if next.is_empty() { query.to_owned() } else { format!("limit=3&continue={next}") };
            let path = format!("/api/v1/configmaps?{query}");
            let (status, list) = self.send(Method::GET, &path, "application/json", &Value::Null).await;
            assert_eq!(status, 200, "{path}: {list}");
            all.extend(list["items"].as_array().unwrap().iter().map(seen));
            next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
            if next.is_empty() {
                let revision = list["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
                return (revision, all);
            }
        }
    }

    /// Everything a watch has to say at once.
    async fn watch(&self, query: &str) -> Vec<Value> {
        let request = Request::get(format!("/api/v1/configmaps?watch=true&{query}"));
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let mut body = self.service.clone().oneshot(request).await.unwrap().into_body();
        let mut bytes = Vec::new();
        while let Some(Some(frame)) = body.frame().now_or_never() {
            bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
        }
        serde_json::Deserializer::from_slice(&bytes).into_iter().map(Result::unwrap).collect()
    }

    /// Every revision is as the model says, by every way of asking.
    async fn check(&self) {
        for revision in self.model.first..=self.model.revision() {
            let state = self.model.at(revision);
            let exact = format!("resourceVersion={revision}&resourceVersionMatch=Exact&limit=3");
            let (at, all) = self.list(&exact).await;
            assert_eq!((at, &all), (revision, state), "at {revision}");
            for (selector, value) in [("", None), ("labelSelector=v%3D1", Some(1))] {
                let chosen = |s: &State| -> State {
                    s.iter()
                        .filter(|(_, o)| value.is_none_or(|v| o.value == v))
                        .map(|(p, o)| (p.clone(), o.clone()))
                        .collect()
                };
                let mut state = chosen(state);
                let mut last = revision;
                for event in self.watch(&format!("resourceVersion={revision}&{selector}")).await {
                    let (path, object) = seen(&event["object"]);
                    assert!(object.revision > last, "{event}");
                    last = object.revision;
                    match event["type"].as_str().unwrap() {
                        "DELETED" => assert!(state.remove(&path).is_some(), "{event}"),
                        kind => assert_eq!(state.insert(path, object).is_none(), kind == "ADDED", "{event}"),
                    }
                    // At every step it is the state of that revision.
                    assert_eq!(state, chosen(self.model.at(last)), "from {revision}, at {last}");
                }
                assert_eq!(state, chosen(self.model.now()), "from {revision} {selector}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_server_and_a_plain_map_agree(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut harness = Harness::new().await;
            for step in &steps {
                harness.step(step).await;
            }
            harness.check().await;
        });
    }
}
