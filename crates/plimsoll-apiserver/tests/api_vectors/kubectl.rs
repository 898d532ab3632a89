//! What kubectl sent in one session, in order; answers were recorded in short.
//!
//! Beside kubectl others wrote in the recorded session, which is not in the file. So before each request the state
//! is brought to what the recorded answer presupposes: an object that was found is made if it isn't there, one that
//! was not found goes.

use std::sync::Arc;

use plimsoll_apimachinery::Kind;
use plimsoll_apiserver::Server;
use plimsoll_apiserver::store::{Expected, Key, Write};
use serde_json::{Value, json};

use crate::bind::is_template;
use crate::client::{self, Answer, Call, Stream};
use crate::replay::Replay;

/// Replays a session; the differences of each row.
pub async fn session(rows: Vec<(String, Value)>) -> Vec<(String, Vec<String>)> {
    let mut results = Vec::new();
    if rows.is_empty() {
        return results;
    }
    let server = client::server().await;
    for (id, row) in rows {
        // Placeholders start again in each row.
        let mut replay = Replay::new(Arc::clone(&server));
        let mut out = Vec::new();
        for (i, step) in row["steps"].as_array().into_iter().flatten().enumerate() {
            let mut diffs = Vec::new();
            exchange(&mut replay, step, &mut diffs).await;
            let request = &step["request"];
            let what = format!("step {i} {} {}", request["method"], request["path"]);
            out.extend(diffs.into_iter().map(|d| format!("{what}: {d}")));
        }
        results.push((id, out));
    }
    results
}

async fn exchange(replay: &mut Replay, step: &Value, out: &mut Vec<String>) {
    let (request, response) = (&step["request"], &step["response"]);
    presuppose(replay, request, response).await;
    let mut call = replay.call(request);
    if response["status"] == 304 {
        // The header was not recorded, the answer to it was.
        let path = request["path"].as_str().unwrap_or("");
        let known = replay.bindings.etags.get(path).cloned();
        call.headers.push(("if-none-match".to_owned(), known.unwrap_or_default()));
    }
    if is_template(&call.uri) {
        return out.push(format!("nothing bound for {}", call.uri));
    }
    let service = client::service(&replay.server, None);
    if request["query"]["watch"] == "true" {
        let stream = Stream::open(service, &call).await;
        if response["status"] != stream.status {
            out.push(format!("watch answered {}, want {}", stream.status, response["status"]));
        }
        return;
    }
    let answer = client::send(service, &call).await;
    learn(replay, request, &answer);
    if response["status"] != answer.status {
        let body: String = String::from_utf8_lossy(&answer.body).chars().take(300).collect();
        out.push(format!("status {}, want {}: {body}", answer.status, response["status"]));
    }
    if let Some(wanted) = response["headers"]["Content-Type"].as_str() {
        let found = answer.headers.get("content-type").and_then(|v| v.to_str().ok()).unwrap_or("");
        if found != wanted {
            out.push(format!("content type {found}, want {wanted}"));
        }
    }
    let Some(body) = answer.json() else { return };
    if response["kind"].is_string() && response["kind"] != body["kind"] {
        out.push(format!("kind {}, want {}", body["kind"], response["kind"]));
    }
    for (field, list) in [("items", "items"), ("rows", "rows")] {
        let found = body[list].as_array().map_or(0, Vec::len) as u64;
        // Discovery lists what exists: groups of the recording server's other clients, too.
        if response[field].is_u64() && response[field] != found && request["path"] != "/apis" {
            out.push(format!("{found} {field}, want {}", response[field]));
        }
    }
    for field in ["reason", "message"] {
        if let (Some(wanted), Some(found)) = (response[field].as_str(), body[field].as_str())
            && !replay.bindings.matches(wanted, found)
        {
            out.push(format!("{field} {found:?}, want {wanted:?}"));
        }
    }
}

/// Binds what later requests take from this answer: tokens and versions, which the short form leaves out.
fn learn(replay: &mut Replay, request: &Value, answer: &Answer) {
    let path = request["path"].as_str().unwrap_or("");
    if let Some(etag) = answer.headers.get("etag").and_then(|v| v.to_str().ok()) {
        replay.bindings.etags.insert(path.to_owned(), etag.to_owned());
    }
    let Some(body) = answer.json() else { return };
    for (name, entry) in body["paths"].as_object().into_iter().flatten() {
        if let Some(hash) = entry["serverRelativeURL"].as_str().and_then(|u| u.split("hash=").nth(1)) {
            replay.bindings.hashes.insert(name.clone(), hash.to_owned());
        }
    }
    let meta = &body["metadata"];
    let list = body["items"].is_array() || body["rows"].is_array();
    let mut next = |kind: &str, value: &Value| {
        let Some(value) = value.as_str().filter(|v| !v.is_empty()) else { return };
        let free = (1..100).map(|n| format!("{kind}:{n}")).find(|n| replay.bindings.get(n).is_none());
        if let Some(name) = free {
            replay.bindings.set(&name, value);
        }
    };
    next("continue", &meta["continue"]);
    next(if list { "lrv" } else { "rv" }, &meta["resourceVersion"]);
    if list {
        // A list of one object by name is what an informer resumes from.
        next("rv", &meta["resourceVersion"]);
    }
    next("uid", &meta["uid"]);
    replay.bindings.remember(path, &body);
}

struct Path {
    kind: Arc<Kind>,
    namespace: String,
    name: String,
    subresource: String,
}

fn parse(server: &Server, path: &str) -> Option<Path> {
    let mut parts = path.trim_matches('/').split('/');
    let (group, version) = match parts.next()? {
        "api" => ("", parts.next()?),
        "apis" => (parts.next()?, parts.next()?),
        _ => return None,
    };
    let rest: Vec<&str> = parts.collect();
    let (namespace, rest) = match rest.as_slice() {
        ["namespaces", ns, rest @ ..] if !rest.is_empty() => (*ns, rest),
        rest => ("", rest),
    };
    let kind = server.kinds().resource(group, version, rest.first()?).cloned()?;
    let text = |i: usize| rest.get(i).map(|s| (*s).to_owned()).unwrap_or_default();
    Some(Path { kind, namespace: namespace.to_owned(), name: text(1), subresource: text(2) })
}

/// Brings the state to what the answer presupposes.
async fn presuppose(replay: &mut Replay, request: &Value, response: &Value) {
    let server = Arc::clone(&replay.server);
    let path = replay.bindings.fill(request["path"].as_str().unwrap_or(""), "");
    let status = response["status"].as_u64().unwrap_or(0);
    if status == 304 || request["headers"]["If-None-Match"].is_string() || path.starts_with("/openapi/v3") {
        let mut first = request.clone();
        if let Some(headers) = first["headers"].as_object_mut() {
            headers.remove("If-None-Match");
        }
        let index = json!({"method": "GET", "path": "/openapi/v3", "headers": {}});
        for request in [&index, &first] {
            let call = replay.call(request);
            if !is_template(&call.uri) {
                let answer = client::send(client::service(&server, None), &call).await;
                learn(replay, request, &answer);
            }
        }
        return;
    }
    let Some(target) = parse(&server, &path) else { return };
    if target.kind.namespaced && !target.namespace.is_empty() {
        make(&server, "/api/v1/namespaces", &seed_of("v1", "Namespace", "", &target.namespace)).await;
    }
    let method = request["method"].as_str().unwrap_or("");
    if target.name.is_empty() {
        match (method, status) {
            ("POST", 201) => forget(&server, &target, request["body"]["metadata"]["name"].as_str()).await,
            ("POST", 409) => {
                let call = replay.call(request);
                client::send(client::service(&server, None), &call).await;
            }
            ("GET", 200) => count(replay, &target, &path, request, response).await,
            _ => {}
        }
        return;
    }
    let there = server.store().get(&key(&target, &target.name)).is_some();
    if method == "PATCH" && status == 409 {
        take_over(replay, request, response).await;
    }
    let missing = status == 404 && target.subresource.is_empty();
    let created = method == "PATCH" && status == 201;
    if (missing || created) && there {
        forget(&server, &target, Some(&target.name)).await;
    } else if !missing && !created && !there && target.kind.custom.is_none() && status != 404 {
        let mut seed =
            seed_of(&target.kind.gvk.api_version(), &target.kind.gvk.kind, &target.namespace, &target.name);
        if method == "DELETE" && response["kind"] == target.kind.gvk.kind.as_str() {
            // Something held it.
            seed["metadata"]["finalizers"] = json!(["example.dev/hold"]);
        }
        make(&server, &collection(&target), &seed).await;
    }
}

/// The field of a recorded conflict had been taken by another manager.
async fn take_over(replay: &mut Replay, request: &Value, response: &Value) {
    let message = response["message"].as_str().unwrap_or("");
    let Some((manager, field)) =
        message.split_once("conflict with \"").and_then(|(_, rest)| rest.split_once("\": "))
    else {
        return;
    };
    let mut other = request.clone();
    other["query"] = json!({"fieldManager": manager, "force": "true"});
    let meta = request["body"]["metadata"].clone();
    other["body"] = json!({
        "apiVersion": request["body"]["apiVersion"], "kind": request["body"]["kind"], "metadata": meta,
    });
    set(&mut other["body"], &field.replace('.', "/"), "taken");
    let call = replay.call(&other);
    client::send(client::service(&replay.server, None), &call).await;
}

fn key(target: &Path, name: &str) -> Key {
    let namespace = if target.kind.namespaced { target.namespace.as_str() } else { "" };
    Key::new(target.kind.storage.as_str(), namespace, name)
}

fn collection(target: &Path) -> String {
    let gvk = &target.kind.gvk;
    let root = if gvk.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", gvk.group) };
    let namespace =
        if target.kind.namespaced { format!("/namespaces/{}", target.namespace) } else { String::new() };
    format!("{root}/{}{namespace}/{}", gvk.version, target.kind.plural)
}

async fn forget(server: &Arc<Server>, target: &Path, name: Option<&str>) {
    if let Some(name) = name {
        let _ = server.store().commit(Write::delete(key(target, name), Expected::Present)).await;
    }
}

async fn make(server: &Arc<Server>, path: &str, object: &Value) {
    let call = Call {
        method: "POST".to_owned(),
        uri: path.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: object.to_string().into_bytes(),
    };
    client::send(client::service(server, None), &call).await;
}

/// Makes or removes objects until a list is as long as it was.
async fn count(replay: &mut Replay, target: &Path, path: &str, request: &Value, response: &Value) {
    if path.ends_with("/customresourcedefinitions") && response["items"] == 0 {
        // A definition goes when its instances are gone, which takes a moment.
        for _ in 0..100 {
            if replay.server.store().list(plimsoll_apiserver::custom::RESOURCE, None).is_empty() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    let Some(wanted) = response["items"].as_u64().or(response["rows"].as_u64()) else { return };
    let query = &request["query"];
    if query["continue"].is_string()
        || target.kind.custom.is_some()
        || path.ends_with("/customresourcedefinitions")
    {
        return;
    }
    let server = Arc::clone(&replay.server);
    let mut plain =
        json!({"method": "GET", "path": path, "headers": {"Accept": "application/json"}, "query": {}});
    for field in ["labelSelector", "fieldSelector"] {
        if query[field].is_string() {
            plain["query"][field] = query[field].clone();
        }
    }
    let limit = query["limit"].as_str().and_then(|l| l.parse::<u64>().ok()).filter(|l| *l > 0);
    let call = replay.call(&plain);
    let answer = client::send(client::service(&server, None), &call).await;
    let items = answer.json().map(|b| b["items"].clone()).unwrap_or_default();
    let items = items.as_array().cloned().unwrap_or_default();
    // One page that is full says that there is more.
    let wanted = if limit == Some(wanted) { wanted + 1 } else { wanted };
    for extra in items.iter().skip(usize::try_from(wanted).unwrap()) {
        let name = extra["metadata"]["name"].as_str();
        let namespace = extra["metadata"]["namespace"].as_str().unwrap_or("").to_owned();
        let target = Path { namespace, kind: Arc::clone(&target.kind), ..parse(&server, path).unwrap() };
        forget(&server, &target, name).await;
    }
    for n in items.len() as u64..wanted {
        let namespace = if target.namespace.is_empty() { "kc" } else { &target.namespace };
        let gvk = &target.kind.gvk;
        // The revision makes the name one that is not taken.
        let name = format!("seed-{}-{n}", server.store().current_revision());
        let mut seed = seed_of(&gvk.api_version(), &gvk.kind, namespace, &name);
        let text = |field: &str| query[field].as_str().unwrap_or("").to_owned();
        for pair in text("labelSelector").split(',').filter_map(|p| p.split_once('=')) {
            seed["metadata"]["labels"][pair.0] = json!(pair.1.trim_start_matches('='));
        }
        let fields = text("fieldSelector");
        for (path, value) in
            fields.split(',').filter_map(|p| p.split_once('=')).filter(|p| !p.0.ends_with('!'))
        {
            let pointer = format!("/{}", path.replace('.', "/"));
            set(&mut seed, &pointer, value);
        }
        let at = Path {
            kind: Arc::clone(&target.kind),
            namespace: namespace.to_owned(),
            name: String::new(),
            subresource: String::new(),
        };
        make(&server, "/api/v1/namespaces", &seed_of("v1", "Namespace", "", namespace)).await;
        make(&server, &collection(&at), &seed).await;
    }
}

fn set(object: &mut Value, pointer: &str, value: &str) {
    let mut here = object;
    for step in pointer.trim_start_matches('/').split('/') {
        if !here.is_object() {
            *here = json!({});
        }
        here = &mut here[step];
    }
    *here = json!(value);
}

/// The least body of a kind.
fn seed_of(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let container = json!([{"name": "main", "image": "x"}]);
    let labels = json!({"app": "web"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": container}});
    let job = json!({"template": {"spec": {"containers": container, "restartPolicy": "Never"}}});
    let mut seed = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() && !matches!(kind, "Namespace" | "Node") {
        seed["metadata"]["namespace"] = json!(namespace);
    }
    match kind {
        "Pod" => {
            seed["metadata"]["labels"] = labels;
            seed["spec"] = json!({"containers": container});
        }
        "Job" => seed["spec"] = job,
        "CronJob" => seed["spec"] = json!({"schedule": "0 0 * * *", "jobTemplate": {"spec": job}}),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => {
            seed["spec"] = json!({"selector": {"matchLabels": labels}, "template": template});
            if kind == "StatefulSet" {
                seed["spec"]["serviceName"] = json!("s");
            }
        }
        "Service" => seed["spec"] = json!({"selector": labels, "ports": [{"port": 80}]}),
        "Event" => {
            seed["involvedObject"] = json!({"kind": "Pod", "namespace": namespace, "name": "p1"});
        }
        _ => {}
    }
    seed
}
