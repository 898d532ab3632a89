//! `/metrics` with Kueue's and kube-scheduler's names, `/healthz`, `/livez` and `/readyz`.

mod histogram;
pub mod jobs;
pub mod observe;
pub mod plugins;
pub mod queue;
pub mod reserved;
pub mod text;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use plimsoll_client::Supervisor;
use plimsoll_client::health::Health;
use plimsoll_client::https::handler::{self as https, Limits};
use plimsoll_queueing::{MetricFamily, MetricKind, MetricSample, MetricValue};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::driver::Inbox;
use crate::reload::Reloads;
use crate::start::Monitor;

/// Longest wait for the engine, which answers between two steps.
const PATIENCE: Duration = Duration::from_secs(10);
const LIMITS: Limits = Limits { connections: 64, body: 64 << 10 };

#[derive(Debug, Default)]
struct State {
    role: Option<Role>,
    engine: Option<Monitor>,
    waits_for: Vec<(&'static str, CancellationToken)>,
    watches: Vec<(&'static str, Health)>,
    supervisors: Vec<Supervisor>,
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

/// What health endpoints and metrics report about this process; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct HealthState {
    state: Arc<Mutex<State>>,
}

impl HealthState {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the role of this process.
    pub fn set_role(&self, role: Role) {
        self.with(|s| s.role = Some(role));
    }

    /// Adds the engine that runs here.
    pub fn set_engine(&self, engine: Monitor) {
        self.with(|s| s.engine = Some(engine));
    }

    /// Adds tasks that run here, beside those of the engine.
    pub fn add_supervisor(&self, supervisor: Supervisor) {
        self.with(|s| s.supervisors.push(supervisor));
    }

    fn supervisors(&self) -> Vec<Supervisor> {
        self.with(|s| {
            s.engine.iter().map(|e| e.supervisor().clone()).chain(s.supervisors.iter().cloned()).collect()
        })
    }

    /// Adds the readiness check `what`, which fails until `token` is cancelled.
    pub fn add_check(&self, what: &'static str, token: CancellationToken) {
        self.with(|s| s.waits_for.push((what, token)));
    }

    /// Adds the readiness check `what`, which fails while one of these watches does not work.
    pub fn add_watches(&self, what: &'static str, health: Health) {
        self.with(|s| s.watches.push((what, health)));
    }

    /// What readiness depends on: a name, and why it is not so.
    fn checks(&self) -> Vec<(&'static str, Option<String>)> {
        let unfinished = |done: bool| (!done).then(|| "not finished".to_owned());
        let broken = |problems: &[String]| (!problems.is_empty()).then(|| problems.join("; "));
        let (mut checks, engine) = self.with(|s| {
            let mut checks: Vec<_> =
                s.waits_for.iter().map(|(what, t)| (*what, unfinished(t.is_cancelled()))).collect();
            checks.extend(s.watches.iter().map(|(what, health)| (*what, broken(&health.problems()))));
            checks.push(("start", unfinished(s.role.is_some())));
            (checks, (s.role, s.engine.clone()))
        });
        match engine {
            // A control plane without the two roles has no engine.
            (None, _) | (Some(Role::Follower), None) => {}
            // A replica that does not lead is to take over, and answers for the visibility API.
            (_, engine) => {
                checks.push(("informer-sync", unfinished(engine.as_ref().is_some_and(Monitor::is_synced))));
                let problems = engine.map(|e| e.problems()).unwrap_or_default();
                checks.push(("watches", broken(&problems)));
            }
        }
        let down: Vec<String> = self.supervisors().iter().flat_map(Supervisor::down).collect();
        checks.push(("tasks", (!down.is_empty()).then(|| down.join("; "))));
        checks
    }

    fn failure(&self) -> Option<String> {
        self.with(|s| s.engine.as_ref().and_then(Monitor::failure))
    }

    fn reloads(&self) -> Option<Reloads> {
        self.with(|s| s.engine.as_ref().map(Monitor::reloads))
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
        if let Some(reloads) = self.reloads() {
            text::write(&mut out, &reloads.families(), &[]);
        }
        text::write(&mut out, &own(role), &[]);
        text::write(&mut out, &[restarts(&self.supervisors())], &[]);
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
        samples: vec![MetricSample::new(labels, MetricValue::Number(value))],
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

/// How often tasks were started again.
fn restarts(supervisors: &[Supervisor]) -> MetricFamily {
    let all = supervisors.iter().flat_map(Supervisor::restarts);
    let sample =
        |(task, n): (String, u64)| MetricSample::new(vec![("task", task)], MetricValue::Number(n as f64));
    MetricFamily {
        name: "plimsoll_task_restarts_total",
        help: "Tasks that panicked and were started again",
        kind: MetricKind::Counter,
        samples: all.map(sample).collect(),
    }
}

/// Serves until stopped. `address` in the listener may be reached by every client that reaches the machine: there is no
/// authentication, as there are no secrets.
pub async fn serve(listener: TcpListener, health_state: HealthState, stop: CancellationToken) {
    https::serve(("metrics", listener), None, LIMITS, handler(health_state), stop).await;
}

/// The endpoints.
pub fn handler(health_state: HealthState) -> https::Handler {
    Arc::new(move |request| {
        let health_state = health_state.clone();
        Box::pin(async move { handle(&request, &health_state).await })
    })
}

async fn handle(request: &Request<Bytes>, health_state: &HealthState) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return https::text(StatusCode::METHOD_NOT_ALLOWED, "only GET");
    }
    let verdict = |checks: Vec<(&str, Option<String>)>| verdict(request, &checks);
    match request.uri().path() {
        "/healthz" | "/livez" => verdict(vec![("engine", health_state.failure())]),
        "/readyz" => verdict(health_state.checks()),
        "/metrics" => {
            let mut response = https::text(StatusCode::OK, &health_state.metrics().await);
            let kind = header::HeaderValue::from_static(text::CONTENT_TYPE);
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
            response
        }
        "/plugins" => match health_state.reloads() {
            Some(reloads) => https::text(StatusCode::OK, &reloads.to_json().to_string()),
            None => https::text(StatusCode::SERVICE_UNAVAILABLE, "the engine does not run yet"),
        },
        _ => https::text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

/// Like kube-apiserver's: `ok`, or all checks when one fails or `verbose` is asked for
/// (`k8s.io/apiserver/pkg/server/healthz`).
fn verdict(request: &Request<Bytes>, checks: &[(&str, Option<String>)]) -> Response<Full<Bytes>> {
    let path = request.uri().path().trim_start_matches('/');
    let failed = checks.iter().any(|(_, why)| why.is_some());
    let asked =
        request.uri().query().is_some_and(|q| q.split('&').any(|p| p.split('=').next() == Some("verbose")));
    if !failed && !asked {
        return https::text(StatusCode::OK, "ok");
    }
    let line = |(name, why): &(&str, Option<String>)| match why {
        None => format!("[+]{name} ok\n"),
        Some(why) => format!("[-]{name} failed: {why}\n"),
    };
    let lines: String = checks.iter().map(line).collect();
    match failed {
        true => https::text(StatusCode::INTERNAL_SERVER_ERROR, &format!("{lines}{path} check failed\n")),
        false => https::text(StatusCode::OK, &format!("{lines}{path} check passed\n")),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_client::health::SILENCE;

    use super::*;

    #[tokio::test]
    async fn readiness_follows_what_is_waited_for() {
        let health_state = HealthState::default();
        let get = async |path: &str| {
            let request = Request::get(path).body(Bytes::new()).unwrap();
            handle(&request, &health_state).await.status().as_u16()
        };
        assert_eq!((get("/healthz").await, get("/livez").await, get("/readyz").await), (200, 200, 500));
        let webhooks = CancellationToken::new();
        health_state.add_check("webhooks", webhooks.clone());
        health_state.set_role(Role::Follower);
        let text = async |path: &str| {
            let request = Request::get(path).body(Bytes::new()).unwrap();
            let body = http_body_util::BodyExt::collect(handle(&request, &health_state).await.into_body());
            String::from_utf8(body.await.unwrap().to_bytes().into()).unwrap()
        };
        assert_eq!(
            text("/readyz").await,
            "[-]webhooks failed: not finished\n[+]start ok\n[+]tasks ok\nreadyz check failed\n"
        );
        webhooks.cancel();
        assert_eq!((get("/readyz").await, text("/readyz").await), (200, "ok".into()));
        assert_eq!(
            text("/readyz?verbose").await,
            "[+]webhooks ok\n[+]start ok\n[+]tasks ok\nreadyz check passed\n"
        );
        let watches = Health::default();
        health_state.add_watches("webhook-watches", watches.clone());
        assert_eq!(get("/readyz").await, 200);
        tokio::time::pause();
        let _jobs = watches.track(crate::api::JOBS);
        tokio::time::advance(SILENCE).await;
        let silent = text("/readyz").await;
        assert!(silent.contains("[-]webhook-watches failed: nothing was heard of jobs.batch"), "{silent}");
        health_state.set_role(Role::Leader);
        let elected = text("/readyz").await;
        assert!(
            elected.contains("[-]informer-sync failed: not finished\n"),
            "not everything is seen: {elected}"
        );
        assert_eq!(get("/elsewhere").await, 404);
        assert!(
            health_state.metrics().await.contains("leader_election_master_status{name=\"plimsoll\"} 1\n")
        );
    }
}
