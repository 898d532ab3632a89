//! Statuses of queues: the latest wins. Of each object at most one is written in a [`PERIOD`]; what changes meanwhile is
//! written once, after it. While the API server is busy they wait, up to [`PATIENCE`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_api::execution::status::{Status, StatusKey, status_of, status_request};
use plimsoll_client::health::Health;
use plimsoll_client::leader_election::Claim;
use plimsoll_client::supervise::caught;
use plimsoll_queueing::Action;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Error};
use crate::cache::{Cache, Kind};
use crate::clock;
use crate::throttle::{Permit, Throttle};

/// From the end of one write of a status to the next, also after a failure; changes in between go into that one.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest wait for a permit.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most writes at a time of those that have waited so long.
const LATE: usize = 4;

#[derive(Default)]
struct State {
    wanted: HashMap<StatusKey, Status>,
    /// Objects with a wanted status that nothing is done about yet, each once.
    waiting: VecDeque<(Instant, StatusKey)>,
    busy: HashSet<StatusKey>,
    /// Of these, those that were written in this period: UID, and what ends the period.
    paused: HashMap<StatusKey, (String, Arc<Notify>)>,
    /// Objects of which the last write failed.
    unsure: HashSet<StatusKey>,
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

    /// Takes the status out of an action; other actions are ignored. The first status of an object does not wait for the period of
    /// one that had its name before.
    pub fn put(&self, action: &Action, cache: &Cache) {
        let Some((key, wanted)) = status_of(action) else { return };
        let uid = uid_of(cache, &key);
        self.with(|s| {
            if let Some((_, over)) = s.paused.get(&key).filter(|(written, _)| *written != uid) {
                over.notify_one();
            }
            if s.wanted.insert(key.clone(), wanted).is_none() && !s.busy.contains(&key) {
                s.waiting.push_back((Instant::now(), key));
            }
        });
        self.wake.notify_one();
    }

    /// The object whose status has waited longest, and since when. The status may change until [`Statuses::wanted`]
    /// asks for it.
    fn take(&self) -> Option<(Instant, StatusKey)> {
        self.with(|s| {
            let (since, key) = s.waiting.pop_front()?;
            s.busy.insert(key.clone());
            Some((since, key))
        })
    }

    /// The status to write, and whether the last write to its object failed.
    fn wanted(&self, key: &StatusKey) -> Option<(Status, bool)> {
        self.with(|s| Some((s.wanted.remove(key)?, s.unsure.remove(key))))
    }

    /// Waits for the end of the period of the object with this UID, or until another object has its name.
    async fn pause(&self, key: &StatusKey, uid: String, cache: &Cache) {
        let over = Arc::new(Notify::new());
        self.with(|s| s.paused.insert(key.clone(), (uid.clone(), Arc::clone(&over))));
        if uid_of(cache, key) == uid {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = over.notified() => {}
            }
        }
        self.with(|s| s.paused.remove(key));
    }

    fn done(&self, key: &StatusKey, again: Option<Status>) {
        self.with(|s| {
            s.busy.remove(key);
            if let Some(wanted) = again {
                s.unsure.insert(key.clone());
                s.wanted.entry(key.clone()).or_insert(wanted);
            }
            if s.wanted.contains_key(key) {
                s.waiting.push_back((Instant::now(), key.clone()));
            }
        });
        self.wake.notify_one();
    }

    /// Writes until stopped.
    pub async fn run(
        self,
        api: Api,
        cache: Cache,
        (claim, health, throttle): (Claim, Health, Throttle),
        stop: CancellationToken,
    ) {
        let late = Arc::new(Semaphore::new(LATE));
        let work = async {
            loop {
                while let Some((since, key)) = self.take() {
                    if !claim.wait().await {
                        return;
                    }
                    health.resumed().await;
                    let permits = acquire(&throttle, &late, since).await;
                    tokio::spawn(self.clone().write(api.clone(), cache.clone(), key, permits));
                }
                self.wake.notified().await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = work => {}
        }
    }

    async fn write(
        self,
        api: Api,
        cache: Cache,
        key: StatusKey,
        permits: (Permit, Option<OwnedSemaphorePermit>),
    ) {
        // What it is now, after the wait.
        let Some((wanted, unsure)) = self.wanted(&key) else { return self.done(&key, None) };
        let uid = uid_of(&cache, &key);
        let written = caught("writing a status", write(&api, &cache, &key, &wanted, unsure)).await;
        let (permit, late) = permits;
        // What a limit of this client held up says nothing about the server.
        if !api.is_limited() {
            permit.done(matches!(&written, Ok(Err(e)) if e.is_too_many()));
        }
        drop(late);
        let again = match written {
            // One that panics waits for the next status.
            Ok(Ok(())) | Err(_) => None,
            // After a 404, too: it may come from a proxy, and an object that is gone leaves the cache.
            Ok(Err(e)) => {
                tracing::debug!(?key, error = %e, "a status is written again");
                Some(wanted)
            }
        };
        self.pause(&key, uid, &cache).await;
        self.done(&key, again);
    }
}

/// Waits for a permit, or until a status has waited long enough; then a few are written at a time.
async fn acquire(
    throttle: &Throttle,
    late: &Arc<Semaphore>,
    since: Instant,
) -> (Permit, Option<OwnedSemaphorePermit>) {
    match tokio::time::timeout(PATIENCE.saturating_sub(since.elapsed()), throttle.acquire()).await {
        Ok(permit) => (permit, None),
        Err(_) => {
            let permit = Arc::clone(late).acquire_owned().await.ok();
            (throttle.acquire_now(), permit)
        }
    }
}

/// The UID of an object, or empty.
fn uid_of(cache: &Cache, (resource, namespace, name): &StatusKey) -> String {
    let uid = |kind| cache.objects(|objects| objects.uid(kind, namespace, name).map(str::to_owned));
    Kind::of(*resource).and_then(uid).unwrap_or_default()
}

async fn write(
    api: &Api,
    cache: &Cache,
    key: &StatusKey,
    wanted: &Status,
    unsure: bool,
) -> Result<(), Error> {
    let (resource, namespace, name) = key;
    let Some(kind) = Kind::of(*resource) else { return Ok(()) };
    let Some(object) = cache.get(kind, namespace, name) else { return Ok(()) };
    let Some(request) = status_request(key, wanted, &object, unsure, clock::now()) else { return Ok(()) };
    let written = api.send(&request).await?;
    cache.refresh(kind, written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::future::BoxFuture;
    use futures::stream::{self, BoxStream, StreamExt};
    use http::{Request, StatusCode};
    use serde_json::{Value, json};

    use super::*;

    /// A server of one Cohort that remembers when its status was written, and the last one.
    #[derive(Default)]
    struct Server(Mutex<(Vec<Instant>, Value)>);

    impl crate::api::Direct for Server {
        fn call(
            &self,
            request: Request<Vec<u8>>,
        ) -> BoxFuture<'static, (StatusCode, BoxStream<'static, Bytes>)> {
            let mut state = self.0.lock().unwrap();
            let body: Value = serde_json::from_slice(request.body()).unwrap();
            state.0.push(Instant::now());
            state.1 = body["status"].clone();
            let answer = json!({"metadata": {"name": "c", "uid": "u"}, "status": state.1}).to_string();
            Box::pin(async move { (StatusCode::OK, stream::once(async { Bytes::from(answer) }).boxed()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_written_once_a_second_at_most_and_the_last_one_always() {
        let server = Arc::new(Server::default());
        let cache = Cache::new(plimsoll_jobs::Config::default());
        cache.put(Kind::Cohort, json!({"metadata": {"name": "c", "uid": "u"}}));
        let (statuses, stop) = (Statuses::default(), CancellationToken::new());
        let api = Api::direct(Arc::<Server>::clone(&server), "test");
        let world = (Claim::always(), Health::default(), Throttle::default());
        let work = tokio::spawn(statuses.clone().run(api, cache.clone(), world, stop.clone()));
        let began = Instant::now();
        for share in 1..=100 {
            statuses.put(&Action::CohortStatus("c".into(), share), &cache);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        stop.cancel();
        work.await.unwrap();
        let state = server.0.lock().unwrap();
        let times = &state.0;
        assert!(times[0] - began < Duration::from_millis(50), "the first is written at once");
        assert!(times.windows(2).all(|w| w[1] - w[0] >= PERIOD), "{times:?}");
        assert!((5..=7).contains(&times.len()), "{} writes in five seconds", times.len());
        assert_eq!(state.1["fairSharing"]["weightedShare"], 100);
    }
    /// "Should ignore a permanently failed index removed by a scale-down" of Kueue's integration suite of Jobs, which makes a
    /// ClusterQueue of the same name for each spec.
    #[tokio::test(start_paused = true)]
    async fn an_object_that_replaces_another_gets_its_status_at_once() {
        let server = Arc::new(Server::default());
        let cache = Cache::new(plimsoll_jobs::Config::default());
        let (statuses, stop) = (Statuses::default(), CancellationToken::new());
        let api = Api::direct(Arc::<Server>::clone(&server), "test");
        let world = (Claim::always(), Health::default(), Throttle::default());
        let work = tokio::spawn(statuses.clone().run(api, cache.clone(), world, stop.clone()));
        let began = Instant::now();
        for (share, uid) in [(1, "u"), (2, "u"), (3, "v"), (4, "v")] {
            cache.put(Kind::Cohort, json!({"metadata": {"name": "c", "uid": uid}}));
            statuses.put(&Action::CohortStatus("c".into(), share), &cache);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        stop.cancel();
        work.await.unwrap();
        let state = server.0.lock().unwrap();
        let times: Vec<u128> = state.0.iter().map(|t| (*t - began).as_millis() / 50 * 50).collect();
        assert_eq!(times, [0, 200, 1200]);
        assert_eq!(state.1["fairSharing"]["weightedShare"], 4);
    }
}
