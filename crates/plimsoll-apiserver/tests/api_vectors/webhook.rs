//! A local webhook that answers as the recorded one did, and notes what it was asked.

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::bind::Bindings;
use crate::compare;
use crate::https::{Https, json as respond};

#[derive(Default)]
struct State {
    expected: Vec<(Value, bool)>,
    got: Vec<Got>,
}

struct Got {
    /// Which recorded call it was taken for.
    index: Option<usize>,
    path: String,
    query: String,
    review: Value,
}

/// The endpoint.
pub struct Webhook {
    state: Arc<Mutex<State>>,
    _endpoint: Https,
}

impl Webhook {
    /// Starts it; `<webhook>` and `<ca>` say where it is.
    pub async fn start(bindings: &mut Bindings) -> Self {
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = Arc::clone(&state);
        let endpoint = Https::start(&[], move |request| answer(Arc::clone(&shared), request)).await;
        bindings.set("webhook:", &endpoint.address.to_string());
        bindings.set("ca:", &endpoint.ca);
        Self { state, _endpoint: endpoint }
    }

    /// Sets the calls to come.
    pub fn expect(&self, calls: &[Value], bindings: &mut Bindings) {
        let mut state = self.state.lock().unwrap();
        let fill = |call: &Value| {
            let mut call = call.clone();
            if let Some(text) = call["response"]["text"].as_str() {
                call["response"]["text"] = Value::from(bindings.fill_new(text));
            }
            (call, false)
        };
        state.expected = calls.iter().map(fill).collect();
        state.got.clear();
    }

    /// Compares what came with what was recorded.
    pub fn check(&self, bindings: &mut Bindings, out: &mut Vec<String>) {
        let state = self.state.lock().unwrap();
        if state.got.len() != state.expected.len() {
            let paths: Vec<&str> = state.got.iter().map(|g| g.path.as_str()).collect();
            out.push(format!("{} webhook calls, want {}: {paths:?}", state.got.len(), state.expected.len()));
        }
        for (i, got) in state.got.iter().enumerate() {
            let Some(expected) = got.index.and_then(|i| state.expected.get(i)).map(|(e, _)| e) else {
                out.push(format!("unexpected webhook call {} {}", got.path, got.review));
                continue;
            };
            if expected["query"].as_str().is_some_and(|q| q != got.query) {
                out.push(format!("webhook call {i}: query {}, want {}", got.query, expected["query"]));
            }
            let path = format!("webhook call {i} {}", got.path);
            let partial = expected["partial"] == true;
            compare::json(&expected["request"], &got.review, &path, partial, bindings, out);
        }
    }
}

async fn answer(state: Arc<Mutex<State>>, request: Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or("").to_owned();
    let body = request.into_body().collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let uid = review["request"]["uid"].clone();
    let recorded = {
        let mut state = state.lock().unwrap();
        let index = state.expected.iter().position(|(c, used)| !used && c["path"] == path.as_str());
        let recorded = index.map(|i| {
            state.expected[i].1 = true;
            state.expected[i].0["response"].clone()
        });
        state.got.push(Got { index, path, query, review });
        recorded
    };
    let Some(recorded) = recorded else {
        return respond(200, review_of(&json!({"uid": uid, "allowed": true})).to_string());
    };
    if let Some(seconds) = recorded["delay_seconds"].as_f64() {
        tokio::time::sleep(std::time::Duration::from_secs_f64(seconds)).await;
    }
    let status = recorded["status"].as_u64().and_then(|s| u16::try_from(s).ok()).unwrap_or(200);
    if let Some(text) = recorded["text"].as_str() {
        return respond(status, text.to_owned());
    }
    let mut response = recorded["review_response"].clone();
    if response["uid"].as_str().is_some_and(|u| u.starts_with('<')) {
        response["uid"] = uid;
    }
    if let Some(map) = response.as_object_mut()
        && let Some(patch) = map.remove("patch_decoded")
    {
        map.insert("patch".to_owned(), json!(BASE64_STANDARD.encode(patch.to_string())));
    }
    let body = if recorded["body"].is_null() { review_of(&response) } else { recorded["body"].clone() };
    respond(status, body.to_string())
}

fn review_of(response: &Value) -> Value {
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
}
