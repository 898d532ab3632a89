//! Statuses of queues: the latest wins. At most one write per object is under way; what changes meanwhile is written
//! once, after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_client::supervise::caught;
use plimsoll_queueing::{Action, QueueStatus, RunWindowStatus};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, CLUSTER_QUEUES, COHORTS, Error, LOCAL_QUEUES, PatchKind, RUN_WINDOWS, Resource};
use crate::cache::{Cache, Kind};
use crate::health::Health;
use crate::lease::Claim;
use crate::{clock, json};

/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// Pause between two writes of one status; changes in between go into one write.
const DEBOUNCE: Duration = Duration::from_millis(20);

type Key = (Kind, String, String);

#[derive(Clone, Debug)]
enum Wanted {
    Queue(Arc<QueueStatus>),
    Share(i64),
    Window(Box<RunWindowStatus>),
}

#[derive(Default)]
struct State {
    wanted: HashMap<Key, Wanted>,
    busy: std::collections::HashSet<Key>,
}

/// The statuses that should be written; cheap to clone.
#[derive(Clone, Default)]
pub struct Statuses {
    state: Arc<Mutex<State>>,
    wake: Arc<Notify>,
}

impl std::fmt::Debug for Statuses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statuses").finish_non_exhaustive()
    }
}

fn resource(kind: Kind) -> Resource {
    match kind {
        Kind::LocalQueue => LOCAL_QUEUES,
        Kind::Cohort => COHORTS,
        Kind::RunWindow => RUN_WINDOWS,
        _ => CLUSTER_QUEUES,
    }
}

impl Statuses {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the status out of an action; other actions are ignored.
    pub fn put(&self, action: &Action) {
        let (key, wanted) = match action {
            Action::ClusterQueueStatus(name, status) => {
                ((Kind::ClusterQueue, String::new(), name.clone()), Wanted::Queue(Arc::clone(status)))
            }
            Action::LocalQueueStatus(namespace, name, status) => {
                ((Kind::LocalQueue, namespace.clone(), name.clone()), Wanted::Queue(Arc::clone(status)))
            }
            Action::CohortStatus(name, share) => {
                ((Kind::Cohort, String::new(), name.clone()), Wanted::Share(*share))
            }
            Action::RunWindowStatus(name, status) => {
                ((Kind::RunWindow, String::new(), name.clone()), Wanted::Window(status.clone()))
            }
            _ => return,
        };
        self.with(|s| s.wanted.insert(key, wanted));
        self.wake.notify_one();
    }

    fn take(&self) -> Option<(Key, Wanted)> {
        self.with(|s| {
            let key = s.wanted.keys().find(|k| !s.busy.contains(*k))?.clone();
            let wanted = s.wanted.remove(&key)?;
            s.busy.insert(key.clone());
            Some((key, wanted))
        })
    }

    fn done(&self, key: &Key, again: Option<Wanted>) {
        self.with(|s| {
            s.busy.remove(key);
            if let Some(wanted) = again {
                s.wanted.entry(key.clone()).or_insert(wanted);
            }
        });
        self.wake.notify_one();
    }

    /// Writes until stopped.
    pub async fn run(self, api: Api, cache: Cache, claim: Claim, health: Health, stop: CancellationToken) {
        loop {
            while let Some((key, wanted)) = self.take() {
                let (statuses, api, cache) = (self.clone(), api.clone(), cache.clone());
                let (claim, health) = (claim.clone(), health.clone());
                tokio::spawn(async move {
                    claim.wait().await;
                    health.resumed().await;
                    let again = match caught("writing a status", write(&api, &cache, &key, &wanted)).await {
                        // One that panics waits for the next status.
                        Ok(Ok(())) | Err(_) => None,
                        Ok(Err(e)) if e.is_not_found() => None,
                        Ok(Err(e)) => {
                            tracing::debug!(?key, error = %e, "a status is written again");
                            tokio::time::sleep(RETRY).await;
                            Some(wanted)
                        }
                    };
                    tokio::time::sleep(DEBOUNCE).await;
                    statuses.done(&key, again);
                });
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
            }
        }
    }
}

async fn write(api: &Api, cache: &Cache, key: &Key, wanted: &Wanted) -> Result<(), Error> {
    let (kind, namespace, name) = key;
    let Some(object) = cache.get(*kind, namespace, name) else { return Ok(()) };
    let status = match wanted {
        Wanted::Share(share) => json!({"fairSharing": {"weightedShare": share}}),
        Wanted::Queue(status) => queue_status(*kind, &object, status),
        Wanted::Window(status) => window_status(&object, status),
    };
    // A write that changes nothing would only wake everybody who watches.
    let unchanged = status.as_object().into_iter().flatten().all(|(k, v)| object["status"][k] == *v);
    if unchanged {
        return Ok(());
    }
    let patch = json!({"metadata": {"uid": json::uid(&object)}, "status": status});
    let written = api.patch(resource(*kind), namespace, name, "status", PatchKind::Merge, &patch).await?;
    cache.refresh(*kind, written);
    Ok(())
}

fn queue_status(kind: Kind, object: &Value, status: &QueueStatus) -> Value {
    let mut out = if kind == Kind::LocalQueue {
        plimsoll_api::kueue::local_queue_status(status)
    } else {
        plimsoll_api::kueue::cluster_queue_status(status)
    };
    if let Some((active, reason, message)) = &status.active {
        out["conditions"] = conditions(object, "Active", *active, reason, message);
    }
    out
}

fn window_status(object: &Value, status: &RunWindowStatus) -> Value {
    let mut out = plimsoll_api::windows::run_window_status(status);
    let (valid, reason, message) = plimsoll_api::windows::run_window_valid(status);
    out["conditions"] = conditions(object, "Valid", valid, reason, &message);
    out
}

/// The conditions of an object with one of them set.
fn conditions(object: &Value, kind: &str, status: bool, reason: &str, message: &str) -> Value {
    let new = crate::jobs::workload::with_condition(object, kind, status, reason, message, clock::now());
    new.map_or_else(|| json::at(object, &["status", "conditions"]).clone(), Value::Array)
}
