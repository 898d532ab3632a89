//! One scenario: its steps in order, then what is known about versions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_apiserver::Server;
use serde_json::{Value, json};

use crate::bind::Bindings;
use crate::client::{self, Answer, Call, Stream, is_plain_bookmark};
use crate::webhook::Webhook;
use crate::{compare, openapi};

const USER_AGENT: &str = "recorder/1";
const POLL: Duration = Duration::from_secs(10);
/// Looks that a poll takes at least, however long that takes: on a busy machine the server may not get to run for as
/// long as this test doesn't.
const LOOKS: usize = 100;

/// State of a scenario.
pub struct Replay {
    pub server: Arc<Server>,
    pub bindings: Bindings,
    watches: HashMap<String, Stream>,
    webhook: Option<Webhook>,
}

/// Replays a scenario on a fresh server; the differences.
pub async fn scenario(row: &Value) -> Vec<String> {
    let server = client::server().await;
    if row["fields"].is_object() {
        return openapi::fields(&server, row).await;
    }
    let mut replay = Replay::new(server);
    if row.to_string().contains("<webhook>") {
        replay.webhook = Some(Webhook::start(&mut replay.bindings).await);
    }
    let mut out = Vec::new();
    for (i, step) in row["steps"].as_array().into_iter().flatten().enumerate() {
        let mut diffs = Vec::new();
        replay.step(step, &mut diffs).await;
        let request = &step["request"];
        let what = format!(
            "step {i} {} {}{}",
            request["method"].as_str().unwrap_or(""),
            request["path"].as_str().unwrap_or(""),
            step["note"].as_str().map(|n| format!(" ({n})")).unwrap_or_default()
        );
        out.extend(diffs.into_iter().map(|d| format!("{what}: {d}")));
    }
    check_order(row, &replay.bindings, &mut out);
    out
}

impl Replay {
    pub fn new(server: Arc<Server>) -> Self {
        Self { server, bindings: Bindings::default(), watches: HashMap::new(), webhook: None }
    }

    async fn step(&mut self, step: &Value, out: &mut Vec<String>) {
        if step["external"] == "compact" {
            self.server.store().compact(self.server.store().current_revision());
        }
        if let Some(path) = step["poll"].as_str() {
            self.poll(path, step["until_status"].as_u64().unwrap_or(200), out).await;
        }
        if let Some(seconds) = step["sleep"].as_f64() {
            tokio::time::sleep(Duration::from_secs_f64(seconds.min(0.05))).await;
        }
        if let Some(name) = step["close"].as_str() {
            self.watches.remove(name);
        }
        if let Some(name) = step["collect"].as_str() {
            return self.collect(name, &step["response"], out).await;
        }
        if !step["request"].is_object() {
            return;
        }
        let call = self.call(&step["request"]);
        let service = client::service(&self.server, step["as"].as_str());
        if let Some(name) = step["watch"].as_str() {
            let stream = Stream::open(service, &call).await;
            if stream.status != 200 {
                out.push(format!("watch answered {}", stream.status));
            }
            self.watches.insert(name.to_owned(), stream);
            return;
        }
        if let (Some(webhook), Some(calls)) = (&self.webhook, step["webhook_calls"].as_array()) {
            webhook.expect(calls, &mut self.bindings);
        } else if let Some(webhook) = &self.webhook {
            webhook.expect(&[], &mut self.bindings);
        }
        let response = &step["response"];
        if !response["closed"].is_null() {
            return self.short_watch(service, &call, response, out).await;
        }
        let answer = client::send(service, &call).await;
        let path = step["request"]["path"].as_str().unwrap_or("");
        if let Some(webhook) = &self.webhook {
            webhook.check(&mut self.bindings, out);
        }
        self.check(&answer, response, path, out);
    }

    /// The request with placeholders filled in.
    pub fn call(&self, request: &Value) -> Call {
        let template = request["path"].as_str().unwrap_or("/");
        let path = self.bindings.fill(template, template);
        let mut uri = escape(&path, "/");
        for (i, (name, value)) in request["query"].as_object().into_iter().flatten().enumerate() {
            uri.push(if i == 0 { '?' } else { '&' });
            let values = match value {
                Value::Array(a) => a.clone(),
                v => vec![v.clone()],
            };
            let pairs: Vec<String> = values
                .iter()
                .map(|v| {
                    let text = v.as_str().map_or_else(|| v.to_string(), str::to_owned);
                    format!("{}={}", escape(name, ""), escape(&self.bindings.fill(&text, template), ""))
                })
                .collect();
            uri.push_str(&pairs.join("&"));
        }
        let agent = request["agent"].as_str().map_or(USER_AGENT.to_owned(), |a| format!("{a}/1"));
        let mut headers = vec![("user-agent".to_owned(), agent)];
        for (name, value) in request["headers"].as_object().into_iter().flatten() {
            let mut text = self.bindings.fill(value.as_str().unwrap_or(""), template);
            if name.eq_ignore_ascii_case("if-none-match") && !text.starts_with('"') {
                text = format!("\"{text}\"");
            }
            // a recorded agent stands in place of the recorder's
            headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
            headers.push((name.clone(), text));
        }
        let body = if let Some(encoded) = request["protobuf_base64"].as_str() {
            use base64::Engine;
            base64::prelude::BASE64_STANDARD.decode(encoded).unwrap()
        } else if let Some(text) = request["text"].as_str() {
            self.bindings.fill(text, template).into_bytes()
        } else if request["body"].is_null() {
            Vec::new()
        } else {
            self.bindings.fill_body(&request["body"], &path).to_string().into_bytes()
        };
        Call { method: request["method"].as_str().unwrap_or("GET").to_owned(), uri, headers, body }
    }

    fn check(&mut self, answer: &Answer, response: &Value, path: &str, out: &mut Vec<String>) {
        self.learn(answer, path);
        let mut diffs = Vec::new();
        if response["status"] != answer.status {
            let body: String = String::from_utf8_lossy(&answer.body).chars().take(400).collect();
            diffs.push(format!("status {}, want {}: {body}", answer.status, response["status"]));
        }
        headers(answer, &response["headers"], &mut self.bindings, &mut diffs);
        let partial = response["partial"] == true;
        if let Some(text) = response["text"].as_str() {
            compare::text(
                text,
                &String::from_utf8_lossy(&answer.body),
                partial,
                &mut self.bindings,
                &mut diffs,
            );
        } else if !response["body"].is_null() {
            match answer.json() {
                Some(actual) if response["body"]["reduced"].is_string() => {
                    openapi::reduced_counts(&response["body"], &actual, &mut diffs);
                }
                Some(actual) => {
                    let mut expected = response["body"].clone();
                    if path == "/openapi/v3"
                        && let Some(paths) = expected.get_mut("paths").and_then(Value::as_object_mut)
                    {
                        // Definitions of other scenarios were there at the recording.
                        paths.retain(|name, _| !name.contains("example.dev"));
                    }
                    compare::json(&expected, &actual, "", partial, &mut self.bindings, &mut diffs);
                }
                None => diffs.push(format!("no JSON: {:?}", String::from_utf8_lossy(&answer.body))),
            }
        } else if !response["reduced"].is_null() {
            match answer.json() {
                Some(actual) => openapi::reduced(&response["reduced"], &actual, &mut diffs),
                None => diffs.push("no JSON".to_owned()),
            }
        }
        out.append(&mut diffs);
    }

    fn learn(&mut self, answer: &Answer, path: &str) {
        if let Some(etag) = answer.headers.get("etag").and_then(|v| v.to_str().ok()) {
            self.bindings.etags.insert(path.to_owned(), etag.to_owned());
        }
        let Some(body) = answer.json() else { return };
        if path == "/openapi/v3" {
            for (name, entry) in body["paths"].as_object().into_iter().flatten() {
                let url = entry["serverRelativeURL"].as_str().unwrap_or("");
                let hash = url.split("hash=").nth(1).unwrap_or("");
                self.bindings.hashes.insert(name.clone(), hash.to_owned());
            }
        }
        if answer.status < 300 {
            self.bindings.remember(path, &body);
        }
    }

    async fn poll(&mut self, path: &str, status: u64, out: &mut Vec<String>) {
        let request = json!({"method": "GET", "path": path, "headers": {"Accept": "application/json"}});
        let until = tokio::time::Instant::now() + POLL;
        for look in 0.. {
            let call = self.call(&request);
            let answer = client::send(client::service(&self.server, None), &call).await;
            self.learn(&answer, path);
            if u64::from(answer.status) == status {
                return;
            }
            if look >= LOOKS && tokio::time::Instant::now() > until {
                out.push(format!("poll of {path} never answered {status} but {}", answer.status));
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn short_watch(
        &mut self,
        service: plimsoll_apiserver::ApiService,
        call: &Call,
        response: &Value,
        out: &mut Vec<String>,
    ) {
        let stream = Stream::open(service, call).await;
        let count = recorded(response).len();
        let close = response["closed"] == true;
        stream.wait(count, close, Duration::from_secs(20)).await;
        let answer = Answer { status: stream.status, headers: stream.headers.clone(), body: stream.raw() };
        if response["status"] != 200 {
            return self.check(&answer, response, "", out);
        }
        if stream.status != 200 {
            out.push(format!("status {}: {:?}", stream.status, String::from_utf8_lossy(&answer.body)));
            return;
        }
        headers(&answer, &response["headers"], &mut self.bindings, out);
        self.events(&stream, response, out);
    }

    async fn collect(&mut self, name: &str, response: &Value, out: &mut Vec<String>) {
        let Some(stream) = self.watches.remove(name) else {
            out.push(format!("no watch {name}"));
            return;
        };
        let close = response["closed"] == true;
        stream.wait(recorded(response).len(), close, Duration::from_secs(15)).await;
        self.events(&stream, response, out);
        self.watches.insert(name.to_owned(), stream);
    }

    fn events(&mut self, stream: &Stream, response: &Value, out: &mut Vec<String>) {
        let (actual, closed) = stream.take();
        let expected = recorded(response);
        if actual.len() != expected.len() {
            let shown: Vec<String> =
                actual.iter().map(|e| format!("{} {}", e["type"], e["object"]["metadata"]["name"])).collect();
            out.push(format!("{} events, want {}: {shown:?}", actual.len(), expected.len()));
        }
        for (i, (e, a)) in expected.iter().zip(&actual).enumerate() {
            let path = format!("event {i}");
            compare::json(e, a, &path, false, &mut self.bindings, out);
            self.bindings.remember("", &a["object"]);
        }
        if response["closed"] == true && !closed {
            out.push("the stream did not end".to_owned());
        }
        // On a slow machine the steps may have taken longer than the watch was to last.
        let late = stream.deadline.is_some_and(|d| tokio::time::Instant::now() >= d);
        if response["closed"] == false && closed && !late {
            out.push("the stream ended".to_owned());
        }
    }
}

fn recorded(response: &Value) -> Vec<Value> {
    let events = response["events"].as_array().cloned().unwrap_or_default();
    events.into_iter().filter(|e| !is_plain_bookmark(e)).collect()
}

/// Headers that matter are compared both ways, others only when recorded.
fn headers(answer: &Answer, expected: &Value, bindings: &mut Bindings, out: &mut Vec<String>) {
    const BOTH_WAYS: [&str; 4] = ["warning", "retry-after", "allow", "location"];
    let actual = |name: &str| -> Vec<String> {
        let all = answer.headers.get_all(name);
        all.iter().map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned()).collect()
    };
    let mut seen = Vec::new();
    for (name, value) in expected.as_object().into_iter().flatten() {
        let wanted: Vec<String> = match value {
            Value::Array(a) => a.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            v => vec![v.as_str().unwrap_or("").to_owned()],
        };
        let mut found = actual(name);
        seen.push(name.to_ascii_lowercase());
        let mut wanted = wanted;
        if name.eq_ignore_ascii_case("warning") {
            // Warnings follow the order of fields in the body, which reading the transcript loses.
            wanted.sort();
            found.sort();
        }
        let same =
            wanted.len() == found.len() && wanted.iter().zip(&found).all(|(w, f)| bindings.matches(w, f));
        if !same {
            out.push(format!("header {name}: {found:?}, want {wanted:?}"));
        }
    }
    for name in BOTH_WAYS {
        let found = actual(name);
        if !found.is_empty() && !seen.iter().any(|s| s == name) {
            out.push(format!("header {name}: unexpected {found:?}"));
        }
    }
}

/// `rv:1 < rv:2`, where both are known.
fn check_order(row: &Value, bindings: &Bindings, out: &mut Vec<String>) {
    for rule in row["order"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let mut parts = rule.split(' ');
        let (Some(a), Some(op), Some(b)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let number = |name: &str| bindings.get(name).and_then(|v| v.parse::<u64>().ok());
        let (Some(x), Some(y)) = (number(a), number(b)) else { continue };
        let good = if op == "<" { x < y } else { x <= y };
        if !good {
            out.push(format!("order: {rule}, but {x} and {y}"));
        }
    }
}

fn escape(text: &str, keep: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(b).to_string(),
            b if keep.as_bytes().contains(&b) => char::from(b).to_string(),
            b => format!("%{b:02X}"),
        })
        .collect()
}
