//! `/metrics` with Kueue's and kube-scheduler's names, `/healthz`, `/livez` and `/readyz`.

pub mod jobs;
pub mod observe;
pub mod text;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use plimsoll_core::queueing::{MetricFamily, MetricKind, MetricSample, MetricValue};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::driver::Inbox;
use crate::http_server::{self, Limits};
use crate::start::Monitor;

/// Longest wait for the engine, which answers between two steps.
const PATIENCE: Duration = Duration::from_secs(10);
const LIMITS: Limits = Limits { connections: 64, body: 64 << 10 };

#[derive(Debug, Default)]
struct State {
    role: Option<Role>,
    engine: Option<Monitor>,
    waits_for: Vec<(&'static str, CancellationToken)>,
}

/// What this process is among its replicas (Kueue's label `replica_role`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It runs alone, without an election.
    Standalone,
    /// It was elected.
    Leader,
    /// It waits to be.
    Follower,
}

impl Role {
    const fn word(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Leader => "leader",
            Self::Follower => "follower",
        }
    }
}

/// What is told about this process; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Board {
    state: Arc<Mutex<State>>,
}

impl Board {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Says what this process is.
    pub fn is(&self, role: Role) {
        self.with(|s| s.role = Some(role));
    }

    /// Says that an engine runs here.
    pub fn runs(&self, engine: Monitor) {
        self.with(|s| s.engine = Some(engine));
    }

    /// Is not ready before `token` is cancelled; `what` says so until then.
    pub fn waits_for(&self, what: &'static str, token: CancellationToken) {
        self.with(|s| s.waits_for.push((what, token)));
    }

    /// What it is not ready for yet; empty when it is.
    fn unready(&self) -> Vec<&'static str> {
        self.with(|s| {
            let mut missing: Vec<&'static str> =
                s.waits_for.iter().filter(|(_, t)| !t.is_cancelled()).map(|(w, _)| *w).collect();
            match (&s.role, &s.engine) {
                (None, _) => missing.push("start"),
                (Some(Role::Follower), _) => {}
                (_, Some(engine)) if engine.is_synced() => {}
                _ => missing.push("informer-sync"),
            }
            missing
        })
    }

    fn failed(&self) -> bool {
        self.with(|s| s.engine.as_ref().is_some_and(Monitor::has_failed))
    }

    async fn metrics(&self) -> String {
        let (role, inbox) = self.with(|s| (s.role, s.engine.as_ref().map(Monitor::inbox)));
        let jobs = self.with(|s| s.engine.as_ref().map(Monitor::job_metrics));
        let role = role.unwrap_or(Role::Follower);
        let mut out = String::new();
        if let Some((kueue, scheduler)) = asked(inbox).await {
            text::write(&mut out, &kueue, &[("replica_role", role.word())]);
            let jobs = jobs.map(|j| j.families()).unwrap_or_default();
            text::write(&mut out, &jobs, &[("replica_role", role.word())]);
            text::write(&mut out, &scheduler, &[]);
        }
        text::write(&mut out, &own(role), &[]);
        out
    }
}

async fn asked(inbox: Option<Inbox>) -> Option<(Vec<MetricFamily>, Vec<MetricFamily>)> {
    let answer = inbox?.metrics();
    tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
}

/// What is known without the engine.
fn own(role: Role) -> Vec<MetricFamily> {
    let gauge = |name, help, labels, value| MetricFamily {
        name,
        help,
        kind: MetricKind::Gauge,
        samples: vec![MetricSample { labels, value: MetricValue::Number(value) }],
    };
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    let leads = if role == Role::Follower { 0.0 } else { 1.0 };
    vec![
        gauge(
            "leader_election_master_status",
            "Whether this process leads",
            vec![("name", "plimsoll".to_owned())],
            leads,
        ),
        gauge("plimsoll_build_info", "Version of this program", version, 1.0),
    ]
}

/// Serves until stopped. `address` in the listener may be reached by anybody who reaches the machine: there is no
/// authentication, as there are no secrets.
pub async fn serve(listener: TcpListener, board: Board, stop: CancellationToken) {
    let handler: http_server::Handler = Arc::new(move |request| {
        let board = board.clone();
        Box::pin(async move { handle(&request, &board).await })
    });
    http_server::serve(listener, None, LIMITS, handler, stop).await;
}

async fn handle(request: &Request<Bytes>, board: &Board) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return http_server::text(StatusCode::METHOD_NOT_ALLOWED, "only GET");
    }
    let verdict = |failed: Vec<&str>| match failed.as_slice() {
        [] => http_server::text(StatusCode::OK, "ok"),
        some => {
            let lines: Vec<String> = some.iter().map(|w| format!("[-]{w} failed: not finished\n")).collect();
            http_server::text(StatusCode::INTERNAL_SERVER_ERROR, &lines.concat())
        }
    };
    match request.uri().path() {
        "/healthz" | "/livez" => verdict(if board.failed() { vec!["engine"] } else { Vec::new() }),
        "/readyz" => verdict(board.unready()),
        "/metrics" => {
            let mut response = http_server::text(StatusCode::OK, &board.metrics().await);
            let kind = header::HeaderValue::from_static(text::CONTENT_TYPE);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        _ => http_server::text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn readiness_follows_what_is_waited_for() {
        let board = Board::default();
        let get = async |path: &str| {
            let request = Request::get(path).body(Bytes::new()).unwrap();
            handle(&request, &board).await.status().as_u16()
        };
        assert_eq!((get("/healthz").await, get("/livez").await, get("/readyz").await), (200, 200, 500));
        let webhooks = CancellationToken::new();
        board.waits_for("webhooks", webhooks.clone());
        board.is(Role::Follower);
        assert_eq!(board.unready(), ["webhooks"]);
        webhooks.cancel();
        assert_eq!(get("/readyz").await, 200);
        board.is(Role::Leader);
        assert_eq!(board.unready(), ["informer-sync"], "elected, but the engine has not seen everything");
        assert_eq!(get("/elsewhere").await, 404);
        assert!(board.metrics().await.contains("leader_election_master_status{name=\"plimsoll\"} 1\n"));
    }
}
