//! A client in this process: sends a recorded request, reads the answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use plimsoll_apiserver::auth::{AuthConfig, User};
use plimsoll_apiserver::{ApiService, Plugin, Plugins, Server, ServerConfig};
use plimsoll_client::{Clock, TimeSource};
use serde_json::Value;
use tower::ServiceExt;

/// The time goes on from the day the scenarios were recorded: some answers hold the age of a fixed date.
struct RecordedTime(std::time::Instant);

impl TimeSource for RecordedTime {
    fn now(&self) -> Timestamp {
        let recorded: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        recorded + self.0.elapsed()
    }
}

/// A fresh server, as the recording one was: RBAC, anonymous requests authorized like others, no admission of service
/// accounts.
pub async fn server() -> Arc<Server> {
    let auth = AuthConfig { anonymous: true, ..AuthConfig::default() };
    let clock = Clock::wall_from(Arc::new(RecordedTime(std::time::Instant::now())));
    let plugins = Plugins::default().without(Plugin::ServiceAccount);
    Server::new(ServerConfig { auth, clock, plugins, ..ServerConfig::default() }).await.unwrap()
}

/// The service for a user named in a step.
pub fn service(server: &Arc<Server>, who: Option<&str>) -> ApiService {
    let mut user = match who {
        None => User::admin(),
        Some("alice") => User::new("alice", &["team-a"]),
        Some("anonymous") => return server.authenticating_service(),
        Some(other) => panic!("unknown user {other}"),
    };
    user.extra.insert(
        "authentication.kubernetes.io/credential-id".to_owned(),
        vec![format!("X509SHA256={}", "0123456789abcdef".repeat(4))],
    );
    server.service_as(user)
}

/// An answer.
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// A request, filled in.
pub struct Call {
    pub method: String,
    pub uri: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

fn request(call: &Call) -> Request<Full<Bytes>> {
    let mut builder = Request::builder().method(call.method.as_str()).uri(call.uri.as_str());
    for (name, value) in &call.headers {
        builder = builder.header(name.as_str(), value.as_str());
    }
    builder.body(Full::new(Bytes::from(call.body.clone()))).unwrap_or_else(|e| panic!("{}: {e}", call.uri))
}

/// Sends a request and reads all of the answer.
pub async fn send(service: ApiService, call: &Call) -> Answer {
    let response = service.oneshot(request(call)).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// A watch that is read in the background.
pub struct Stream {
    pub status: u16,
    pub headers: HeaderMap,
    /// When the server will end it by itself, if the client said so.
    pub deadline: Option<tokio::time::Instant>,
    state: Arc<Mutex<State>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct State {
    pending: Vec<u8>,
    raw: Vec<u8>,
    events: Vec<Value>,
    closed: bool,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream {
    /// Opens a watch.
    pub async fn open(service: ApiService, call: &Call) -> Self {
        let opened = tokio::time::Instant::now();
        let response = service.oneshot(request(call)).await.unwrap();
        let (parts, mut body) = response.into_parts();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Some(Ok(frame)) = body.frame().await {
                if let Ok(data) = frame.into_data() {
                    shared.lock().unwrap().push(&data);
                }
            }
            shared.lock().unwrap().closed = true;
        });
        let timeout =
            call.uri.split("timeoutSeconds=").nth(1).and_then(|t| t.split('&').next()?.parse().ok());
        let deadline = timeout.map(|t| opened + Duration::from_secs(t));
        Self { status: parts.status.as_u16(), headers: parts.headers, deadline, state, task }
    }

    /// Waits until there are `count` events besides plain bookmarks (or, if `close`, until the end).
    pub async fn wait(&self, count: usize, close: bool, limit: Duration) {
        let until = tokio::time::Instant::now() + limit;
        while tokio::time::Instant::now() < until {
            {
                let state = self.state.lock().unwrap();
                let enough = state.events.iter().filter(|e| !is_plain_bookmark(e)).count() >= count;
                if state.closed || (!close && enough) {
                    break;
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if !close {
            // What should not come would come now.
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    }

    /// Takes the events that have come (without plain bookmarks); whether the stream has ended.
    pub fn take(&self) -> (Vec<Value>, bool) {
        let mut state = self.state.lock().unwrap();
        let events = std::mem::take(&mut state.events);
        (events.into_iter().filter(|e| !is_plain_bookmark(e)).collect(), state.closed)
    }

    /// All bytes, for answers that are no stream.
    pub fn raw(&self) -> Vec<u8> {
        self.state.lock().unwrap().raw.clone()
    }
}

impl State {
    fn push(&mut self, data: &[u8]) {
        self.raw.extend_from_slice(data);
        self.pending.extend_from_slice(data);
        while let Some(end) = self.pending.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            if let Ok(event) = serde_json::from_slice(&line) {
                self.events.push(event);
            }
        }
    }
}

/// Bookmarks other than the one that ends the initial events may come at any time.
pub fn is_plain_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK"
        && event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].is_null()
}
