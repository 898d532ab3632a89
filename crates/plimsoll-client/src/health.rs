//! What keeps this process from its work: resources that are not served or not heard of.
//!
//! A resource that was served and is answered with 404 is *unserved*: its objects are unknown, not deleted. The last
//! state is kept, and while there is such a resource nothing is decided and nothing is written. A resource of which
//! nothing was heard for [`SILENCE`] makes this process not ready, and a leader gives up its Lease.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_api::request::Error;
use plimsoll_api::resource::Resource;
use tokio::sync::watch;
use tokio::time::Instant;

/// After this time without a word from the API server a watch is of no use. Watches last 40 s and begin with an answer,
/// so that healthy ones are heard more often.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Health of all watches; cheap to clone.
#[derive(Clone, Debug)]
pub struct Health {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    began: Instant,
    /// What follows from a resource that is unserved, for messages.
    effect: &'static str,
    resources: Mutex<Vec<Arc<State>>>,
    /// Whether any resource is unserved.
    paused: watch::Sender<bool>,
    /// Sends when a watch breaks or is opened.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    name: String,
    /// Milliseconds from the beginning until the API server was heard last.
    heard: AtomicU64,
    trouble: Mutex<Trouble>,
}

#[derive(Debug, Default)]
struct Trouble {
    /// Since when the resource has been answered with 404.
    unserved: Option<Instant>,
    /// Since when no watch could be opened.
    failing: Option<Instant>,
    /// The last error.
    error: String,
}

impl Default for Health {
    fn default() -> Self {
        Self::with_effect("decisions and writes wait")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of a resource in messages.
fn name_of(resource: Resource) -> String {
    let group = resource.group();
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}", resource.plural)
}

impl Health {
    /// Watches of which an unserved resource has this effect, for messages.
    pub fn with_effect(effect: &'static str) -> Self {
        let inner = Inner {
            began: Instant::now(),
            effect,
            resources: Mutex::default(),
            paused: watch::Sender::new(false),
            changed: watch::Sender::new(()),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A part for the watch of one resource.
    pub fn track(&self, resource: Resource) -> Tracker {
        let name = name_of(resource);
        let mut all = lock(&self.inner.resources);
        let state = match all.iter().find(|s| s.name == name) {
            Some(state) => Arc::clone(state),
            None => {
                let state = Arc::new(State { name, heard: AtomicU64::new(0), trouble: Mutex::default() });
                all.push(Arc::clone(&state));
                state
            }
        };
        drop(all);
        let tracker = Tracker { health: self.clone(), state };
        tracker.heard();
        tracker
    }

    /// Drops the part of a resource that is not watched any more.
    pub fn forget(&self, resource: Resource) {
        let name = name_of(resource);
        lock(&self.inner.resources).retain(|state| state.name != name);
        // Decisions may have waited for it.
        self.update();
    }

    /// Whether decisions and writes have to wait.
    pub fn paused(&self) -> bool {
        *self.inner.paused.borrow()
    }

    /// Notifies when decisions and writes have to pause, and when they may resume.
    pub fn pauses(&self) -> watch::Receiver<bool> {
        self.inner.paused.subscribe()
    }

    /// Waits until decisions and writes need not wait.
    pub async fn resumed(&self) {
        // The sender is in `self`.
        let _ = self.pauses().wait_for(|paused| !paused).await;
    }

    /// Notifies when a watch breaks or is opened.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.inner.changed.subscribe()
    }

    /// For how long the first of the watches that are broken has been, and the last error; `None`: all are open, or not tried
    /// yet.
    pub fn broken(&self) -> Option<(Duration, String)> {
        let all = lock(&self.inner.resources).clone();
        let broken = all.iter().filter_map(|state| {
            let trouble = lock(&state.trouble);
            let since = [trouble.failing, trouble.unserved].into_iter().flatten().min()?;
            Some((since.elapsed(), trouble.error.clone()))
        });
        broken.max_by_key(|(lasting, _)| *lasting)
    }

    /// What is wrong, one reason for each resource; empty when all is well.
    pub fn problems(&self) -> Vec<String> {
        let now = Instant::now();
        let all = lock(&self.inner.resources).clone();
        all.iter().filter_map(|s| self.problem(s, now)).collect()
    }

    fn problem(&self, state: &State, now: Instant) -> Option<String> {
        let trouble = lock(&state.trouble);
        if let Some(since) = trouble.unserved {
            let seconds = now.saturating_duration_since(since).as_secs();
            return Some(format!(
                "{} is not served since {seconds} s ({}): the last state is kept, {}",
                state.name, trouble.error, self.inner.effect
            ));
        }
        let error = if trouble.error.is_empty() { "no answer" } else { &trouble.error };
        let silent = self.silent(state, now);
        if silent >= SILENCE {
            return Some(format!("nothing was heard of {} for {} s ({error})", state.name, silent.as_secs()));
        }
        let failing = now.saturating_duration_since(trouble.failing?);
        let text = || format!("{} can't be watched for {} s ({error})", state.name, failing.as_secs());
        (failing >= SILENCE).then(text)
    }

    fn silent(&self, state: &State, now: Instant) -> Duration {
        let heard = self.inner.began + Duration::from_millis(state.heard.load(Ordering::Relaxed));
        now.saturating_duration_since(heard)
    }

    /// The first resource of which nothing was heard for too long.
    pub fn silence(&self) -> Option<String> {
        let now = Instant::now();
        let all = lock(&self.inner.resources).clone();
        all.iter().find(|s| self.silent(s, now) >= SILENCE).and_then(|s| self.problem(s, now))
    }

    fn update(&self) {
        let unserved = lock(&self.inner.resources).iter().any(|s| lock(&s.trouble).unserved.is_some());
        self.inner.paused.send_if_modified(|paused| std::mem::replace(paused, unserved) != unserved);
    }
}

/// What the watch of one resource tells about itself.
#[derive(Clone, Debug)]
pub struct Tracker {
    health: Health,
    state: Arc<State>,
}

impl Tracker {
    /// A part that no probe asks.
    pub fn unseen(resource: Resource) -> Self {
        Health::default().track(resource)
    }

    /// The API server has answered or sent something.
    pub fn heard(&self) {
        let at = Instant::now().saturating_duration_since(self.health.inner.began);
        self.state.heard.store(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// A request failed.
    pub(crate) fn failed(&self, error: &Error) {
        let mut trouble = lock(&self.state.trouble);
        trouble.error = error.to_string();
        trouble.failing.get_or_insert_with(Instant::now);
        drop(trouble);
        self.health.inner.changed.send_replace(());
        // An answer is a sign of life.
        if error.code() != 0 {
            self.heard();
        }
    }

    /// A watch has been opened.
    pub(crate) fn opened(&self) {
        let mut trouble = lock(&self.state.trouble);
        trouble.failing = None;
        trouble.error.clear();
        drop(trouble);
        self.health.inner.changed.send_replace(());
        self.heard();
    }

    /// The resource was served and is answered with 404.
    pub(crate) fn unserved(&self, error: &Error) {
        let mut trouble = lock(&self.state.trouble);
        trouble.error = error.to_string();
        if trouble.unserved.is_none() {
            trouble.unserved = Some(Instant::now());
            let resource = &self.state.name;
            let effect = self.health.inner.effect;
            tracing::warn!(resource, error = %error, "not served any more: the last state is kept, {effect}");
        }
        drop(trouble);
        self.heard();
        self.health.update();
    }

    /// The resource has been listed, or there is certainly none of it.
    pub(crate) fn well(&self) {
        let since = lock(&self.state.trouble).unserved.take();
        self.heard();
        if let Some(since) = since {
            let (resource, seconds) = (&self.state.name, since.elapsed().as_secs());
            tracing::warn!(resource, seconds, "served again and listed");
            self.health.update();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::resource::{PODS, WORKLOADS};

    /// The kind of a JobKind that was changed, for example.
    #[test]
    fn a_resource_that_is_not_watched_any_more_pauses_nothing() {
        let health = Health::default();
        for resource in [WORKLOADS, PODS] {
            health.track(resource).unserved(&Error::Transport("404".into()));
            assert!(health.paused());
            health.forget(resource);
            assert!(!health.paused(), "{}", resource.plural);
        }
    }

    #[test]
    fn a_reason_says_what_follows_from_it() {
        let health = Health::with_effect("webhooks answer by it");
        health.track(PODS).unserved(&Error::Transport("404".into()));
        assert_eq!(
            health.problems(),
            ["pods is not served since 0 s (404): the last state is kept, webhooks answer by it"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_404_have_reasons() {
        let health = Health::default();
        let (pods, workloads) = (health.track(PODS), health.track(WORKLOADS));
        tokio::time::advance(SILENCE - Duration::from_secs(1)).await;
        pods.heard();
        assert_eq!((health.problems(), health.silence()), (Vec::new(), None));
        tokio::time::advance(Duration::from_secs(1)).await;
        let silent = "nothing was heard of workloads.kueue.x-k8s.io for 60 s (no answer)";
        assert_eq!((health.problems(), health.silence()), (vec![silent.to_owned()], Some(silent.to_owned())));
        assert!(!health.paused(), "what is known stays true for a while");
        workloads.unserved(&Error::Transport("404".into()));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(health.paused());
        assert_eq!(health.silence(), None, "404 is an answer");
        assert_eq!(
            health.problems(),
            [
                "workloads.kueue.x-k8s.io is not served since 5 s (404): the last state is kept, decisions and writes wait"
            ]
        );
        let mut pauses = health.pauses();
        workloads.well();
        assert!(pauses.changed().await.is_ok());
        assert!(!health.paused() && health.problems().is_empty());
        health.resumed().await;
        tokio::time::advance(SILENCE).await;
        let forbidden =
            Error::Status { code: 403, reason: String::new(), message: "no".into(), retry_after: 0 };
        pods.heard();
        workloads.failed(&forbidden);
        assert!(health.problems().is_empty(), "once is nothing");
        tokio::time::advance(SILENCE).await;
        pods.heard();
        workloads.failed(&forbidden);
        assert_eq!(health.problems(), ["workloads.kueue.x-k8s.io can't be watched for 60 s (no)"]);
        assert_eq!(health.silence(), None);
        workloads.opened();
        assert!(health.problems().is_empty());
    }
}
