//! A server and a client of it: JSON in, JSON out, through the same service that connections use.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::auth::User;
use plimsoll_apiserver::{ApiService, Plugin, Server, ServerConfig};
use serde_json::Value;
use tower::ServiceExt;

/// A client.
pub struct Api {
    /// The server.
    pub server: Arc<Server>,
    service: ApiService,
    token: Option<String>,
    headers: Vec<(String, String)>,
}

impl Api {
    /// The administrator of a new server. No controller makes accounts there, so pods go without.
    pub async fn new(mut config: ServerConfig) -> Self {
        config.plugins = config.plugins.without(Plugin::ServiceAccount);
        Self::of(Server::new(config).await.unwrap())
    }

    /// The administrator of a server.
    pub fn of(server: Arc<Server>) -> Self {
        Self { service: server.service(), server, token: None, headers: Vec::new() }
    }

    /// A user who has been authenticated.
    pub fn as_user(&self, name: &str) -> Self {
        self.as_somebody(User::new(name, &[]))
    }

    /// Somebody with a bearer token.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.anonymous() }
    }

    /// A user with groups, UID and extra.
    pub fn as_somebody(&self, user: User) -> Self {
        let server = Arc::clone(&self.server);
        Self { service: server.service_as(user), server, token: None, headers: Vec::new() }
    }

    /// A client over the network without credentials.
    pub fn anonymous(&self) -> Self {
        let server = Arc::clone(&self.server);
        Self { service: server.authenticating_service(), server, token: None, headers: Vec::new() }
    }

    /// The same client with further headers in each request.
    pub fn with_headers(mut self, headers: &[(&str, &str)]) -> Self {
        self.headers.extend(headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        self
    }

    /// Sends a request; status and body.
    pub async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        self.send_text(method, path, kind, body.map(Value::to_string).unwrap_or_default()).await
    }

    /// Sends a body of some content type; status and body.
    pub async fn send_text(&self, method: &str, path: &str, kind: &str, body: String) -> (u16, Value) {
        let mut request = Request::builder().method(method).uri(path).header("content-type", kind);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    /// Begins a watch.
    pub async fn watch(&self, path: &str) -> Events {
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let response = self.service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        Events { body: response.into_body(), lines: Vec::new() }
    }
}

/// The events of a watch.
pub struct Events {
    body: plimsoll_apiserver::http::body::Body,
    lines: Vec<u8>,
}

impl Events {
    /// The next one.
    pub async fn next(&mut self) -> Value {
        self.next_if_any().await.expect("the watch is over")
    }

    /// The next one; `None`: the watch is over.
    pub async fn next_if_any(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.lines.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.lines.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = tokio::time::timeout(std::time::Duration::from_secs(20), self.body.frame()).await;
            let frame = frame.expect("no event in time")?.unwrap();
            self.lines.extend_from_slice(&frame.into_data().unwrap());
        }
    }
}
