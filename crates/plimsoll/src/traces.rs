//! OpenTelemetry traces of admissions: one trace for each workload, whose ID is the workload's UID, with a span for each
//! step of its way ([`plimsoll_runtime::journey`]).
//!
//! Sent as OTLP in its JSON form over HTTP (`POST /v1/traces`, opentelemetry-proto 1.x), which every collector takes. The
//! SDK and its exporter bring some hundred crates for the same few fields.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use plimsoll_runtime::journey::TARGET;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Steps on their way; more are dropped, tracing must not hold up anything.
const QUEUE: usize = 4096;
/// Most spans of one request, and the longest pause before a smaller number is sent (the SDK's `OTEL_BSP_*` defaults
/// are 512 and 5 s; less, so that the end of a short session is seen).
const BATCH: usize = 512;
const PAUSE: Duration = Duration::from_secs(1);
/// Time for one request (`OTEL_EXPORTER_OTLP_TIMEOUT`'s default).
const TIMEOUT: Duration = Duration::from_secs(10);

/// One step of an admission.
#[derive(Clone, Debug, Default, PartialEq)]
struct Step {
    uid: String,
    workload: String,
    step: String,
    about: String,
    from: i64,
    end: i64,
}

impl Visit for Step {
    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}

    fn record_i64(&mut self, field: &Field, value: i64) {
        match field.name() {
            "from" => self.from = value,
            "end" => self.end = value,
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let to = match field.name() {
            "uid" => &mut self.uid,
            "workload" => &mut self.workload,
            "step" => &mut self.step,
            "about" => &mut self.about,
            _ => return,
        };
        value.clone_into(to);
    }
}

impl Step {
    /// The workload's UID: 16 bytes as well.
    fn trace(&self) -> String {
        self.uid.chars().filter(char::is_ascii_hexdigit).map(|c| c.to_ascii_lowercase()).collect()
    }

    /// The same for the same step, so that what is sent twice is one span.
    fn id(&self, step: &str, about: &str, from: i64) -> String {
        let mut hasher = DefaultHasher::new();
        (&self.uid, step, about, from).hash(&mut hasher);
        // All zeroes would be no ID.
        format!("{:016x}", hasher.finish().max(1))
    }

    fn span(&self) -> Option<Value> {
        let trace = self.trace();
        if trace.len() != 32 {
            return None;
        }
        let first = self.step == "job seen";
        let root = self.id("job seen", "", 0);
        let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let mut span = json!({
            "traceId": trace, "spanId": self.id(&self.step, &self.about, self.from), "parentSpanId": root,
            "name": self.step, "kind": 1, "startTimeUnixNano": self.from.to_string(),
            "endTimeUnixNano": self.end.to_string(),
            "attributes": [attribute("k8s.workload", &self.workload), attribute("plimsoll.about", &self.about)],
        });
        if first {
            span["spanId"] = json!(root);
            span["parentSpanId"] = json!("");
        }
        Some(span)
    }
}

/// Gives steps to the exporter.
pub struct Journeys(mpsc::Sender<Step>);

impl<S: Subscriber> Layer<S> for Journeys {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == TARGET {
            let mut step = Step::default();
            event.record(&mut step);
            let _ = self.0.try_send(step);
        }
    }
}

/// What sends the spans; to be run on the runtime.
pub struct Exporter {
    steps: mpsc::Receiver<Step>,
    url: http::Uri,
}

/// A layer for the subscriber, and what sends what it sees to `endpoint`.
///
/// # Errors
/// When the endpoint is not a URL that can be used.
pub fn to(endpoint: &str) -> anyhow::Result<(Journeys, Exporter)> {
    let url = url(endpoint).with_context(|| format!("--tracing-endpoint {endpoint}"))?;
    let (tx, steps) = mpsc::channel(QUEUE);
    Ok((Journeys(tx), Exporter { steps, url }))
}

/// As `OTEL_EXPORTER_OTLP_ENDPOINT` is read: `/v1/traces` is appended, unless it is there.
fn url(endpoint: &str) -> anyhow::Result<http::Uri> {
    let base: http::Uri = endpoint.parse()?;
    match base.scheme_str() {
        Some("http") if base.authority().is_some() => {}
        Some("https") => bail!("https is not supported: send to a collector on this machine, which forwards"),
        _ => bail!("must be http://HOST:PORT, such as http://127.0.0.1:4318"),
    }
    let mut text = endpoint.trim_end_matches('/').to_owned();
    if !text.ends_with("/v1/traces") {
        let _ = write!(text, "/v1/traces");
    }
    Ok(text.parse()?)
}

impl Exporter {
    /// Sends until stopped, and what is there then.
    pub async fn run(mut self, stop: CancellationToken) {
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let mut steps = Vec::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => {}
                _ = self.steps.recv_many(&mut steps, BATCH) => {
                    // Steps come in bursts: one request for all of them.
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = tokio::time::sleep(PAUSE), if steps.len() < BATCH => {}
                    }
                }
            }
            while steps.len() < BATCH
                && let Ok(step) = self.steps.try_recv()
            {
                steps.push(step);
            }
            let spans: Vec<Value> = steps.drain(..).filter_map(|s| s.span()).collect();
            if spans.is_empty() {
                match stop.is_cancelled() {
                    true => return,
                    false => continue,
                }
            }
            if let Err(e) = self.send(&client, &spans).await {
                tracing::warn!(err = format!("{e:#}"), spans = spans.len(), "Failed to export traces");
            }
        }
    }

    async fn send<C>(&self, client: &Client<C, Full<Bytes>>, spans: &[Value]) -> anyhow::Result<()>
    where
        C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
    {
        let service = json!([
            {"key": "service.name", "value": {"stringValue": "plimsoll"}},
            {"key": "service.version", "value": {"stringValue": env!("CARGO_PKG_VERSION")}},
        ]);
        let body = json!({"resourceSpans": [{"resource": {"attributes": service}, "scopeSpans": [{
            "scope": {"name": TARGET}, "spans": spans,
        }]}]});
        let request = http::Request::post(self.url.clone())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        let answer =
            tokio::time::timeout(TIMEOUT, client.request(request)).await.context("no answer in time")??;
        match answer.status().is_success() {
            true => Ok(()),
            false => bail!("{} answered {}", self.url, answer.status()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_the_sdk_reads_them() {
        let text = |e: &str| url(e).map(|u| u.to_string()).map_err(|e| e.to_string());
        assert_eq!(text("http://127.0.0.1:4318").unwrap(), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(text("http://c/otlp/").unwrap(), "http://c/otlp/v1/traces");
        assert_eq!(text("http://c/v1/traces").unwrap(), "http://c/v1/traces");
        assert!(text("https://c").unwrap_err().contains("https is not supported"));
        assert!(text("127.0.0.1:4318").unwrap_err().contains("must be http://HOST:PORT"));
    }

    #[test]
    fn steps_of_a_workload_are_one_trace() {
        let step = |name: &str, about: &str| Step {
            uid: "0f8fad5b-d9cb-469f-a165-70867728950e".into(),
            workload: "ns/w".into(),
            step: name.into(),
            about: about.into(),
            from: 1,
            end: 2,
        };
        let (root, bind) =
            (step("job seen", "j").span().unwrap(), step("bind pod", "p to n").span().unwrap());
        assert_eq!(root["traceId"], "0f8fad5bd9cb469fa16570867728950e");
        assert_eq!((&root["traceId"], &root["spanId"]), (&bind["traceId"], &bind["parentSpanId"]));
        assert_eq!((&root["parentSpanId"], &bind["startTimeUnixNano"]), (&json!(""), &json!("1")));
        assert_ne!(bind["spanId"], step("bind pod", "q to n").span().unwrap()["spanId"]);
        assert_eq!(Step { uid: "x".into(), ..Step::default() }.span(), None);
    }
}
