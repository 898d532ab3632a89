//! The connection to one worker cluster: a client, a watch of each kind that is dispatched, and the store that they fill.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use plimsoll_api::json;
use plimsoll_client::discovery::Groups;
use plimsoll_client::health::Health;
use plimsoll_client::optional;
use plimsoll_client::reflector::{Delta, Reflector};
use plimsoll_client::rest::encode;
use plimsoll_jobs::Kind;
use plimsoll_jobs::multikueue::{self, ClusterState, Copy, Lack, Lacks, ORIGIN, WorkerStore, WorkloadKey};
use plimsoll_state::Time;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Context, Inbox, MANAGER};
use crate::api::{Api, CLUSTER_QUEUES, LOCAL_QUEUES, Resource};
use crate::{clock, connect};

/// For so long a watch may be broken before the cluster counts as unreachable.
const MOMENT: Duration = Duration::from_secs(1);
/// First and longest pause before writes that failed are tried again.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(60));
/// Most writes under way to one cluster, and most questions.
const WRITES: usize = 4;

/// What is followed of a worker for its quotas.
const QUEUES: [(Kind, &[Resource]); 2] =
    [(Kind::ClusterQueue, &[CLUSTER_QUEUES]), (Kind::LocalQueue, &[LOCAL_QUEUES])];

const fn is_queue(kind: Kind) -> bool {
    matches!(kind, Kind::ClusterQueue | Kind::LocalQueue)
}

/// A connection; ends when it is dropped.
#[derive(Debug)]
pub struct Connection {
    /// Requests.
    pub api: Api,
    /// Permits of writes.
    pub writes: Semaphore,
    /// Permits of questions.
    pub questions: Semaphore,
    name: String,
    feed: Feed,
    health: Health,
    groups: Groups,
    /// The kinds that are followed.
    kinds: Mutex<BTreeMap<Kind, Followed>>,
    /// The workloads with writes under way, and how often those of a workload have failed.
    lanes: Mutex<Lanes>,
    stop: CancellationToken,
}

/// How a kind is followed.
#[derive(Debug)]
struct Followed {
    /// In which versions.
    versions: &'static [Resource],
    /// Health of its watch. That of a kind of jobs which a CustomResourceDefinition adds is its own: without it the cluster runs
    /// all other jobs.
    health: Health,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct Lanes {
    /// Whether other writes for the workload were wanted meanwhile.
    busy: BTreeMap<WorkloadKey, bool>,
    failures: BTreeMap<WorkloadKey, u32>,
}

impl Lanes {
    fn begin(&mut self, key: &WorkloadKey) -> bool {
        if let Some(again) = self.busy.get_mut(key) {
            *again = true;
            return false;
        }
        self.busy.insert(key.clone(), false).is_none()
    }

    fn ended(&mut self, key: &WorkloadKey, failed: bool) -> Option<Duration> {
        let again = self.busy.remove(key).unwrap_or(false);
        if !failed {
            self.failures.remove(key);
            // Otherwise a watch shows what they did.
            return again.then_some(Duration::ZERO);
        }
        let failures = self.failures.entry(key.clone()).or_default();
        *failures = failures.saturating_add(1);
        Some((RETRY.0 * (1 << (*failures).min(12))).min(RETRY.1))
    }

    fn rests(&mut self, key: &WorkloadKey) {
        self.failures.remove(key);
    }
}

/// Where the watches put what they see.
#[derive(Clone, Debug)]
struct Feed {
    store: Arc<RwLock<WorkerStore>>,
    /// The kinds that have been listed.
    listed: Arc<Mutex<BTreeSet<Kind>>>,
    /// The kinds that the cluster does not serve, and since when.
    unserved: Arc<Mutex<BTreeMap<Kind, Time>>>,
    inbox: Inbox,
}

/// Whether nothing can be dispatched to a cluster without it.
const fn is_required(kind: Kind) -> bool {
    !matches!(kind, Kind::Custom(_))
}

/// The time so long ago.
fn before_now(lasting: Duration) -> Time {
    let nanos = i64::try_from(lasting.as_nanos()).unwrap_or(i64::MAX);
    Time(clock::now().0.saturating_sub(nanos))
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Begins to connect.
    ///
    /// # Errors
    /// When the settings can't be used.
    pub fn open(
        name: &str,
        settings: kube::Config,
        context: &Context,
        stop: &CancellationToken,
    ) -> Result<Self, String> {
        let claim = context.leading.claim.clone();
        let api =
            connect::api(settings, MANAGER).map_err(|e| e.to_string())?.while_leading(move || claim.held());
        let (health, stop) = (Health::default(), stop.child_token());
        let store = WorkerStore::new(context.cache.config().workload_names);
        let feed = Feed {
            store: Arc::new(RwLock::new(store)),
            listed: Arc::default(),
            unserved: Arc::default(),
            inbox: context.inbox.clone(),
        };
        context.supervisor.spawn(format!("health of worker cluster {name}"), {
            let (health, clusters, stop) = (health.clone(), context.inbox.clusters.clone(), stop.clone());
            move || {
                let (mut changes, clusters, stop) = (health.changes(), clusters.clone(), stop.clone());
                async move {
                    while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
                        clusters.notify_one();
                    }
                }
            }
        });
        let (writes, questions) = (Semaphore::new(WRITES), Semaphore::new(WRITES));
        let groups = Groups::new(api.clone());
        let (name, kinds, lanes) = (name.to_owned(), Mutex::default(), Mutex::default());
        let connection = Self { api, writes, questions, name, feed, health, groups, kinds, lanes, stop };
        connection.follow_all(context);
        Ok(connection)
    }

    /// Follows all kinds that are dispatched: some are declared while it stands.
    pub fn follow_all(&self, context: &Context) {
        let config = context.cache.config();
        let mut followed = context.cache.objects(|objects| multikueue::followed(config, objects));
        if config.multikueue.automates_quota {
            followed.extend(QUEUES);
        }
        for (kind, versions) in followed {
            let Some(resource) = versions.first().copied() else { continue };
            let Some((health, stop)) = self.begin_to_follow(kind, versions) else { continue };
            let selector = if is_queue(kind) {
                String::new()
            } else {
                format!("&labelSelector={}%3D{}", encode(ORIGIN), encode(&config.multikueue.origin))
            };
            let reflector = Reflector {
                selector: selector.into(),
                tracker: health.track(resource),
                required: is_required(kind),
                ..Reflector::new(self.api.clone(), resource)
            };
            let task = format!("watch of {} of worker cluster {}", resource.plural, self.name);
            let (feed, groups) = (self.feed.clone(), self.groups.clone());
            context.supervisor.spawn(task, move || {
                let (feed, reflector) = (feed.clone(), reflector.clone());
                follow(kind, versions, reflector, groups.clone(), stop.clone(), feed)
            });
        }
    }

    /// Health and end of the watch of a kind; `None`: it is followed in these versions already.
    fn begin_to_follow(
        &self,
        kind: Kind,
        versions: &'static [Resource],
    ) -> Option<(Health, CancellationToken)> {
        let mut kinds = lock(&self.kinds);
        match kinds.get(&kind) {
            Some(before) if before.versions == versions => return None,
            Some(before) => {
                before.stop.cancel();
                lock(&self.feed.listed).remove(&kind);
                self.feed.change(|store| store.forget(kind));
            }
            None => {}
        }
        let health = if is_required(kind) { self.health.clone() } else { Health::default() };
        let stop = self.stop.child_token();
        kinds.insert(kind, Followed { versions, health: health.clone(), stop: stop.clone() });
        Some((health, stop))
    }

    /// Begins with writes for a workload; `false`: others for it are under way, after which it is looked at again.
    pub fn begin(&self, key: &WorkloadKey) -> bool {
        lock(&self.lanes).begin(key)
    }

    /// Writes for a workload have ended; returns after which time it is to be looked at again, if it is.
    pub fn ended(&self, key: &WorkloadKey, failed: bool) -> Option<Duration> {
        lock(&self.lanes).ended(key, failed)
    }

    /// Nothing is to be written for a workload, which may be gone: failures before do not count any more.
    pub fn rests(&self, key: &WorkloadKey) {
        lock(&self.lanes).rests(key);
    }

    /// Whether it is connected; `None`: not known yet, or a watch has just broken.
    pub fn state(&self) -> Option<ClusterState> {
        const REASON: &str = "ClientConnectionFailed";
        match self.health.broken() {
            Some((lasting, message)) if lasting >= MOMENT => {
                return Some(ClusterState::Disconnected { reason: REASON, message });
            }
            Some(_) => return None,
            None => {}
        }
        let (kinds, listed, unserved) =
            (lock(&self.kinds), lock(&self.feed.listed), lock(&self.feed.unserved));
        let missing = unserved.keys().find(|kind| is_required(**kind));
        if let Some(resource) = missing.and_then(|kind| kinds.get(kind)?.versions.first()) {
            let message = multikueue::no_match(*resource);
            return Some(ClusterState::Disconnected { reason: REASON, message });
        }
        let mut lacks = Lacks::new();
        for (kind, followed) in kinds.iter() {
            if let Some(since) = unserved.get(kind) {
                lacks.insert(*kind, Lack { since: *since, why: String::new() });
            } else if let Some((lasting, why)) = followed.health.broken().filter(|(l, _)| *l >= MOMENT) {
                lacks.insert(*kind, Lack { since: before_now(lasting), why });
            } else if !listed.contains(kind) {
                return None;
            }
        }
        Some(ClusterState::Connected { lacks })
    }

    /// What the cluster has of a workload ([`WorkerStore::copy`]).
    pub fn copy(&self, key: &WorkloadKey, before: &[WorkloadKey]) -> Copy {
        self.store(|store| store.copy(key, before))
    }

    /// Looks at the store.
    pub fn store<T>(&self, f: impl FnOnce(&WorkerStore) -> T) -> T {
        f(&self.feed.store.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps the response to a write.
    pub fn keep(&self, kind: Option<Kind>, object: Value, created: bool) {
        let Some(kind) = kind else { return };
        self.feed.change(|store| store.answered(kind, object, created));
    }
}

async fn follow(
    kind: Kind,
    versions: &'static [Resource],
    reflector: Reflector,
    groups: Groups,
    stop: CancellationToken,
    feed: Feed,
) {
    if matches!(kind, Kind::Custom(_)) {
        return optional::run(reflector, versions, groups, stop, Optional { kind, feed }).await;
    }
    let resource = reflector.resource;
    reflector.run(stop, |delta| feed.delta(kind, resource, delta)).await;
}

struct Optional {
    kind: Kind,
    feed: Feed,
}

impl optional::Sink for Optional {
    fn served(&mut self, served: Option<Resource>) {
        self.feed.served(self.kind, served.is_some());
    }

    fn delta(&mut self, resource: Resource, delta: Delta<'_>) {
        self.feed.delta(self.kind, resource, delta);
    }
}

impl Feed {
    fn change<T>(&self, f: impl FnOnce(&mut WorkerStore) -> T) -> T {
        f(&mut self.store.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn delta(&self, kind: Kind, resource: Resource, delta: Delta<'_>) {
        match delta {
            Delta::Upsert { meta, bytes } => {
                let mut object = match plimsoll_api::object::parse(bytes) {
                    Ok(object) => object,
                    Err(e) => {
                        let (namespace, name) = (&*meta.namespace, &*meta.name);
                        tracing::warn!(kind = resource.kind, namespace, name, error = %e, "skipping malformed object");
                        return;
                    }
                };
                // Items of lists come without kind and version.
                json::set(&mut object, &["apiVersion"], resource.api_version.into());
                json::set(&mut object, &["kind"], resource.kind.into());
                if is_queue(kind) && self.change(|store| store.offers_anew(kind, &object)) {
                    self.queues_changed(kind);
                }
                self.changed(self.change(|store| store.put(kind, object)));
            }
            Delta::Delete { namespace, name, uid } => {
                self.queues_changed(kind);
                self.changed(self.change(|store| store.remove(kind, namespace, name, uid)));
            }
            Delta::Synced { version } => {
                // That of an absent resource has no version.
                if is_required(kind) && !version.is_empty() {
                    self.served(kind, true);
                }
                self.queues_changed(kind);
                self.changed(self.change(|store| store.listed(kind, version)));
                lock(&self.listed).insert(kind);
                self.inbox.clusters.notify_one();
            }
            Delta::Absent => self.served(kind, false),
        }
    }

    /// Whether the cluster serves a kind.
    fn served(&self, kind: Kind, is_served: bool) {
        let mut unserved = lock(&self.unserved);
        let changed = match is_served {
            true => unserved.remove(&kind).is_some(),
            false if unserved.contains_key(&kind) => false,
            false => unserved.insert(kind, clock::now()).is_none(),
        };
        drop(unserved);
        if changed {
            self.inbox.clusters.notify_one();
        }
    }

    /// Has quotas of this cluster computed again if it is a queue that has changed. Their task waits a moment for more.
    fn queues_changed(&self, kind: Kind) {
        if is_queue(kind) {
            self.inbox.offers_changed();
        }
    }

    fn changed(&self, workloads: impl IntoIterator<Item = WorkloadKey>) {
        workloads.into_iter().for_each(|key| self.inbox.workloads.add(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workload that is gone leaves nothing behind.
    #[test]
    fn failures_count_until_nothing_is_to_be_written() {
        let (mut lanes, key) = (Lanes::default(), WorkloadKey { namespace: "n".into(), name: "w".into() });
        let mut fails = || {
            assert!(lanes.begin(&key) && !lanes.begin(&key));
            lanes.ended(&key, true)
        };
        let pauses = [fails(), fails()];
        assert!(pauses[0] < pauses[1], "{pauses:?}");
        lanes.rests(&key);
        assert!(lanes.busy.is_empty() && lanes.failures.is_empty());
    }
}
