//! A server with its controllers in fast time, a kubelet that runs whatever is there, and a client over HTTP.

#![allow(dead_code, clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use plimsoll_apiserver::inprocess::ServerClient;
use plimsoll_apiserver::{ApiService, Server, ServerConfig};
use plimsoll_client::Client;
use plimsoll_client::Clock;
use plimsoll_controllers::{Controllers, Options};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Real time after which something that doesn't happen won't.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of a server: JSON in, JSON out, through the service that connections use.
pub struct Api(ApiService);

impl Api {
    /// The administrator of a server.
    pub fn of(server: &Arc<Server>) -> Self {
        Self(server.service())
    }

    /// Sends a request; status and body.
    pub async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        let response = self.0.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

/// The server, its controllers, the clock that they share, and the client.
pub struct Harness {
    pub api: Api,
    pub clock: Clock,
    controllers: Controllers,
    kubelet: tokio::task::JoinHandle<()>,
}

impl Harness {
    /// A harness whose clock runs so many times as fast as the wall clock's.
    pub async fn new(speed: f64) -> Self {
        let clock = Clock::scaled(speed);
        let config = ServerConfig { clock: clock.clone(), ..ServerConfig::default() };
        let server = Server::new(config).await.unwrap();
        let client: Arc<dyn Client> = Arc::new(ServerClient::new(Arc::clone(&server)));
        let mut options = Options { nodes: true, ..Options::default() };
        options.namespaces.service_account = true;
        let controllers = Controllers::start(&client, &clock, options);
        let kubelet = tokio::spawn(kubelet(Api::of(&server), clock.clone()));
        Self { api: Api::of(&server), clock, controllers, kubelet }
    }

    pub async fn stop(self) {
        self.controllers.stop().await;
        self.kubelet.abort();
    }

    /// Now, as objects have it.
    pub fn now(&self) -> String {
        text(&self.clock)
    }

    pub async fn create(&self, path: &str, object: &Value) -> Value {
        let (code, answer) = self.api.send("POST", path, Some(object)).await;
        assert_eq!(code, 201, "{path}: {answer}");
        answer
    }

    pub async fn patch(&self, path: &str, patch: &Value) -> Value {
        let (code, answer) = self.api.send("PATCH", path, Some(patch)).await;
        assert_eq!(code, 200, "{path}: {answer}");
        answer
    }

    pub async fn get(&self, path: &str) -> Value {
        self.api.send("GET", path, None).await.1
    }

    pub async fn delete(&self, path: &str) {
        let (code, answer) = self.api.send("DELETE", path, None).await;
        assert!(code < 300, "{path}: {answer}");
    }

    /// Waits until the object is as it should be.
    pub async fn until(&self, what: &str, path: &str, is: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let object = self.get(path).await;
            if is(&object) {
                return object;
            }
            assert!(Instant::now() < deadline, "{what} didn't happen: {object:#}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn text(clock: &Clock) -> String {
    clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The names in a list.
pub fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().into_iter().flatten().filter_map(|o| o["metadata"]["name"].as_str()).collect()
}

/// Status of a condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

/// Runs pods wherever they are, unless they are annotated with `hold`; those that are deleted go.
async fn kubelet(api: Api, clock: Clock) {
    loop {
        let (_, list) = api.send("GET", "/api/v1/pods", None).await;
        for pod in list["items"].as_array().into_iter().flatten() {
            let meta = &pod["metadata"];
            let text_of = |f: &str| meta[f].as_str().unwrap();
            let path = format!("/api/v1/namespaces/{}/pods/{}", text_of("namespace"), text_of("name"));
            if !meta["deletionTimestamp"].is_null() {
                let _ = api.send("DELETE", &format!("{path}?gracePeriodSeconds=0"), None).await;
            } else if pod["status"]["phase"] == "Pending" && meta["annotations"]["hold"].is_null() {
                let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": text(&clock)});
                let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
                let _ = api.send("PATCH", &format!("{path}/status"), Some(&status)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
