//! The audit log: one line of JSON (`audit.k8s.io/v1` Event) for each stage of each request that the policy asks for.

pub mod policy;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use jiff::Timestamp;
use plimsoll_apimachinery::ApiError;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::auth::{Attributes, User};
use crate::http::info::RequestInfo;
use crate::private;
use plimsoll_client::Clock;
use policy::{Level, Policy, Stage, Verdict};

/// Events on their way to the file; when there are more, requests wait.
const QUEUE: usize = 8192;
/// Longest audit ID that is taken from a client.
const MAX_ID: usize = 64;

/// Annotations that come about while a request is admitted.
pub type Annotations = Arc<Mutex<BTreeMap<String, String>>>;

/// An audit log that is being written.
pub struct Audit {
    policy: Policy,
    lines: mpsc::Sender<Entry>,
}

/// What the writer gets.
enum Entry {
    Line(Vec<u8>),
    /// Answered when all lines before it are in the file.
    Flush(oneshot::Sender<()>),
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

impl Audit {
    /// Opens a log for appending, and reads the policy.
    ///
    /// # Errors
    /// Which file can't be used and why.
    pub fn open(log: &Path, policy: &Path) -> Result<Arc<Self>, String> {
        let of_policy = |why: String| format!("--audit-policy-file {}: {why}", policy.display());
        let named = |path: &Path, why: String| format!("--audit-log-path {}: {why}", path.display());
        let text = std::fs::read_to_string(policy).map_err(|e| of_policy(e.to_string()))?;
        let policy = Policy::parse(&text).map_err(of_policy)?;
        let file = private::open_through(log, std::fs::OpenOptions::new().create(true).append(true));
        let file = file.map_err(|e| named(log, e.to_string()))?;
        let (lines, receiver) = mpsc::channel(QUEUE);
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || write(file, receiver))
            .map_err(|e| named(log, e.to_string()))?;
        Ok(Arc::new(Self { policy, lines }))
    }

    /// Waits until nothing writes the log any more, which happens only when its thread panics.
    pub async fn ended(&self) {
        self.lines.closed().await;
    }

    /// Waits until the events of all requests before now are in the file.
    pub async fn flush(&self) {
        let (answer, flushed) = oneshot::channel();
        if self.lines.send(Entry::Flush(answer)).await.is_ok() {
            let _ = flushed.await;
        }
    }
}

/// Writes lines; what has come is in the file as soon as nothing more is waiting.
fn write(file: std::fs::File, mut entries: mpsc::Receiver<Entry>) {
    let mut file = std::io::BufWriter::new(file);
    while let Some(first) = entries.blocking_recv() {
        plimsoll_client::fault::point("audit", "");
        let (mut done, mut flushed) = (Ok(()), Vec::new());
        let mut next = Some(first);
        while let Some(entry) = next {
            match entry {
                Entry::Line(line) => done = done.and_then(|()| file.write_all(&line)),
                Entry::Flush(answer) => flushed.push(answer),
            }
            next = entries.try_recv().ok();
        }
        if let Err(error) = done.and_then(|()| file.flush()) {
            tracing::error!(%error, "the audit log can't be written");
        }
        for answer in flushed {
            // The caller may have gone.
            let _ = answer.send(());
        }
    }
}

/// What is recorded of one request.
pub struct Record {
    audit: Arc<Audit>,
    clock: Clock,
    verdict: Verdict,
    event: Value,
    is_done: bool,
}

impl Record {
    /// A request has come. `path`: with its query.
    pub fn new(
        audit: Arc<Audit>,
        clock: Clock,
        headers: &HeaderMap,
        uri: &http::Uri,
        info: &RequestInfo,
        peer: Option<std::net::IpAddr>,
    ) -> Self {
        let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("");
        let given = header("audit-id");
        let id = if given.is_empty() || given.len() > MAX_ID {
            uuid::Uuid::new_v4().to_string()
        } else {
            given.to_owned()
        };
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "auditID": id,
            "requestURI": uri.path_and_query().map_or("", |p| p.as_str()), "verb": info.verb, "user": {},
            "requestReceivedTimestamp": micros(clock.now()),
        });
        if let Some(peer) = peer {
            event["sourceIPs"] = json!([peer.to_string()]);
        }
        if !header("user-agent").is_empty() {
            event["userAgent"] = json!(header("user-agent").chars().take(1024).collect::<String>());
        }
        if info.is_resource {
            let fields = [
                ("resource", &info.resource),
                ("namespace", &info.namespace),
                ("name", &info.name),
                ("apiGroup", &info.group),
                ("apiVersion", &info.version),
                ("subresource", &info.subresource),
            ];
            let there = fields.iter().filter(|(_, v)| !v.is_empty());
            event["objectRef"] = Value::Object(there.map(|(k, v)| ((*k).to_owned(), json!(v))).collect());
        }
        Self { audit, clock, verdict: Verdict::default(), event, is_done: false }
    }

    /// The ID, as the answer's header `Audit-Id` has it.
    pub fn id(&self) -> &str {
        self.event["auditID"].as_str().unwrap_or("")
    }

    /// A client without valid credentials.
    pub async fn unauthenticated(mut self, info: &RequestInfo, headers: &HeaderMap) {
        self.verdict = self.audit.policy.evaluate(&User::default(), &Attributes::of(info));
        let tried =
            if headers.contains_key(http::header::AUTHORIZATION) { ", attempted: bearer" } else { "" };
        self.event["responseStatus"] = json!({
            "metadata": {}, "status": "Failure", "message": format!("Authentication failed{tried}"), "code": 401,
        });
        self.stage(Stage::ResponseStarted).await;
        self.is_done = true;
    }

    /// The user is known: the policy decides.
    pub async fn begin(&mut self, user: &User, info: &RequestInfo) {
        self.verdict = self.audit.policy.evaluate(user, &Attributes::of(info));
        self.event["user"] = user.to_value();
        self.stage(Stage::RequestReceived).await;
    }

    /// The user that is impersonated. `constraint`: the verb of constrained impersonation, or empty.
    pub fn impersonated(&mut self, user: &User, constraint: &str) {
        self.event["impersonatedUser"] = user.to_value();
        if !constraint.is_empty() {
            self.event["authenticationMetadata"] = json!({"impersonationConstraint": constraint});
        }
    }

    /// What the authorizer said.
    pub fn authorized(&mut self, allowed: bool, reason: &str) {
        self.event["annotations"] = json!({
            "authorization.k8s.io/decision": if allowed { "allow" } else { "forbid" },
            "authorization.k8s.io/reason": reason,
        });
    }

    /// Annotations of admission.
    pub fn annotate(&mut self, annotations: &Annotations) {
        let annotations = annotations.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in annotations.iter() {
            self.event["annotations"][key.as_str()] = json!(value);
        }
    }

    /// Whether the body of the request is recorded.
    pub fn wants_request(&self) -> bool {
        self.verdict.level >= Level::Request
    }

    /// Whether the body of the answer is recorded.
    pub fn wants_response(&self) -> bool {
        self.verdict.level >= Level::RequestResponse
    }

    /// The body of the request.
    pub fn request(&mut self, object: Value) {
        self.event["requestObject"] = self.tidy(object);
    }

    /// The body of the answer.
    pub fn response(&mut self, object: Value) {
        self.event["responseObject"] = self.tidy(object);
    }

    fn tidy(&self, mut object: Value) -> Value {
        if self.verdict.omit_managed_fields {
            let drop = |o: &mut Value| {
                if let Some(meta) = o.get_mut("metadata").and_then(Value::as_object_mut) {
                    meta.remove("managedFields");
                }
            };
            drop(&mut object);
            let items = object.get_mut("items").and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(drop);
        }
        object
    }

    /// An answer that is an error.
    pub fn failed(&mut self, error: &ApiError) {
        let mut status = error.to_status();
        if self.wants_response() {
            self.event["responseObject"] = status.clone();
        }
        if let Some(map) = status.as_object_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        self.event["responseStatus"] = status;
    }

    /// The answer's code, unless it failed.
    pub fn answered(&mut self, code: u16) {
        if self.event["responseStatus"].is_null() {
            self.event["responseStatus"] = json!({"metadata": {}, "code": code});
        }
    }

    /// The head of a long answer has been sent; the end comes when this is dropped.
    pub async fn started(&mut self) {
        self.stage(Stage::ResponseStarted).await;
    }

    /// The answer is complete.
    pub async fn complete(mut self) {
        self.is_done = true;
        self.stage(Stage::ResponseComplete).await;
    }

    async fn stage(&mut self, stage: Stage) {
        if let Some(line) = self.line(stage) {
            // The writer lives as long as the process.
            let _ = self.audit.lines.send(Entry::Line(line)).await;
        }
    }

    fn line(&mut self, stage: Stage) -> Option<Vec<u8>> {
        if self.verdict.level == Level::None || self.verdict.omitted.contains(&stage) {
            return None;
        }
        self.event["level"] = json!(self.verdict.level);
        self.event["stage"] = json!(stage);
        self.event["stageTimestamp"] = json!(micros(self.clock.now()));
        let mut line = serde_json::to_vec(&self.event).ok()?;
        line.push(b'\n');
        Some(line)
    }
}

/// A long answer that ends, or a request that was given up.
impl Drop for Record {
    fn drop(&mut self) {
        if !self.is_done
            && let Some(line) = self.line(Stage::ResponseComplete)
            && self.audit.lines.try_send(Entry::Line(line)).is_err()
        {
            tracing::warn!("an audit event was dropped");
        }
    }
}

fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
