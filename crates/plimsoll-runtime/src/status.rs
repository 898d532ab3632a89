//! Statuses of queues: the latest wins. At most one write per object is under way; what changes meanwhile is written
//! once, after it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_api::execution::status::{Status, StatusKey, status_of, status_request};
use plimsoll_client::supervise::caught;
use plimsoll_queueing::Action;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Error};
use crate::cache::{Cache, Kind};
use crate::clock;
use crate::health::Health;
use crate::lease::Claim;

/// Pause after a failed write.
const RETRY: Duration = Duration::from_millis(500);
/// Pause between two writes of one status; changes in between go into one write.
const DEBOUNCE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct State {
    wanted: HashMap<StatusKey, Status>,
    busy: std::collections::HashSet<StatusKey>,
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

impl Statuses {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the status out of an action; other actions are ignored.
    pub fn put(&self, action: &Action) {
        let Some((key, wanted)) = status_of(action) else { return };
        self.with(|s| s.wanted.insert(key, wanted));
        self.wake.notify_one();
    }

    fn take(&self) -> Option<(StatusKey, Status)> {
        self.with(|s| {
            let key = s.wanted.keys().find(|k| !s.busy.contains(*k))?.clone();
            let wanted = s.wanted.remove(&key)?;
            s.busy.insert(key.clone());
            Some((key, wanted))
        })
    }

    fn done(&self, key: &StatusKey, again: Option<Status>) {
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
                        // After a 404, too: it may come from a proxy, and an object that is gone leaves the cache.
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

async fn write(api: &Api, cache: &Cache, key: &StatusKey, wanted: &Status) -> Result<(), Error> {
    let (resource, namespace, name) = key;
    let Some(kind) = Kind::of(*resource) else { return Ok(()) };
    let Some(object) = cache.get(kind, namespace, name) else { return Ok(()) };
    let Some(request) = status_request(key, wanted, &object, clock::now()) else { return Ok(()) };
    let written = api.send(&request).await?;
    cache.refresh(kind, written);
    Ok(())
}
