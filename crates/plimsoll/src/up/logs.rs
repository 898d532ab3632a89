//! `kubectl logs` of simulated pods.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use plimsoll_api::timestamp;
use plimsoll_apimachinery::ApiError;
use plimsoll_apiserver::http::body::Body;
use plimsoll_apiserver::store::Key;
use plimsoll_apiserver::{LogRequest, LogSource, Server};
use plimsoll_kubelet::SECOND;
use plimsoll_kubelet::logs::{Error, Line, lines};
use plimsoll_state::Time;
use serde_json::Value;

/// How often a followed log is looked at.
const POLL: Duration = Duration::from_millis(200);

/// Makes lines from the pods of a server.
pub struct Logs {
    /// The server, not kept alive by its own log source.
    pub server: Weak<Server>,
    /// Factor of simulated time.
    pub speed: f64,
}

struct Follow {
    server: Weak<Server>,
    speed: f64,
    key: Key,
    uid: String,
    container: String,
    timestamps: bool,
    sent: usize,
    done: bool,
}

fn text(line: &Line, timestamps: bool) -> String {
    if timestamps {
        format!("{} {}\n", timestamp::micro_text(Time(line.at)), line.text)
    } else {
        format!("{}\n", line.text)
    }
}

fn now() -> i64 {
    plimsoll_runtime::clock::now().0
}

impl LogSource for Logs {
    fn logs(&self, request: &LogRequest<'_>) -> Result<Body, ApiError> {
        let all = lines(request.pod, request.container, request.previous, self.speed, now());
        let (all, ended) = match all {
            Ok(found) => found,
            // A follower waits for the start.
            Err(Error::Waiting(..)) if request.follow => (Vec::new(), false),
            Err(e) => return Err(ApiError::bad_request(e.to_string())),
        };
        let since = request
            .since_seconds
            .map(|s| now().saturating_sub(i64::try_from(s).unwrap_or(i64::MAX).saturating_mul(SECOND)));
        let wanted: Vec<&Line> = all.iter().filter(|l| since.is_none_or(|s| l.at >= s)).collect();
        let tail = request.tail_lines.map_or(wanted.len(), |n| usize::try_from(n).unwrap_or(usize::MAX));
        let skip = wanted.len().saturating_sub(tail);
        let mut out: String = wanted.iter().skip(skip).map(|l| text(l, request.timestamps)).collect();
        if let Some(limit) = request.limit_bytes {
            let mut end = out.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
            while !out.is_char_boundary(end) {
                end -= 1;
            }
            out.truncate(end);
        }
        if !request.follow || ended || request.previous {
            return Ok(Body::full(out));
        }
        let text = |key: &str| request.pod["metadata"][key].as_str().unwrap_or_default();
        let follow = Follow {
            server: self.server.clone(),
            speed: self.speed,
            key: Key::new("/pods", text("namespace"), text("name")),
            uid: text("uid").to_owned(),
            container: request.container.to_owned(),
            timestamps: request.timestamps,
            sent: all.len(),
            done: false,
        };
        let rest = futures::stream::unfold(follow, Follow::next);
        let first = futures::stream::iter(Some(Bytes::from(out)).filter(|b| !b.is_empty()));
        Ok(Body::stream(futures::StreamExt::chain(first, rest)))
    }
}

impl Follow {
    /// Waits for more lines; ends with the container or the pod.
    async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            if self.done {
                return None;
            }
            tokio::time::sleep(POLL).await;
            let pod = self.pod()?;
            let Ok((all, ended)) = lines(&pod, &self.container, false, self.speed, now()) else { continue };
            self.done = ended;
            // A restarted container begins anew.
            let from = if self.sent > all.len() { 0 } else { self.sent };
            self.sent = all.len();
            let more: String = all.iter().skip(from).map(|l| text(l, self.timestamps)).collect();
            if !more.is_empty() {
                return Some((more.into(), self));
            }
        }
    }

    fn pod(&self) -> Option<Value> {
        let server: Arc<Server> = self.server.upgrade()?;
        let pod = server.store().get(&self.key)?.value().ok()?;
        (pod["metadata"]["uid"] == self.uid.as_str()).then_some(pod)
    }
}
