//! Runs reconciles of job integrations and carries out what they decide.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use plimsoll_api::json;
use plimsoll_client::workers::{self, Gate, SharedQueue};
use plimsoll_client::{Backoff, Clock, Supervisor, fault};
use plimsoll_engine::Event;
use plimsoll_jobs::plan::CheckObject;
use plimsoll_jobs::{Key, Write, multikueue, provisioning, reconcile};
use plimsoll_queueing::{Event as QueueEvent, WorkloadKey};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Error, PODS, PatchKind, Resource, WORKLOADS};
use crate::cache::{Cache, Kind};
use crate::driver::Inbox;
use crate::health::Health;
use crate::ingest::Synced;
use crate::lease::Claim;
use crate::metrics::jobs::JobMetrics;
use crate::notes::Recorder;
use crate::{clock, journey};

/// Most reconciles under way (shipped Kueue configuration: 5 per kind; ours share one pool).
const WORKERS: usize = 16;
/// Pause between two looks of a follower.
const FOLLOWER: Duration = Duration::from_millis(200);
/// Backoff of a reconcile that fails.
const BACKOFF: Backoff =
    Backoff { base: SignedDuration::from_millis(20), max: SignedDuration::from_secs(60) };

/// Objects of which it isn't known whether a write to them was done: kind, namespace, name.
type Doubts = HashMap<Key, Vec<(Resource, String, String)>>;

/// The queue of keys; cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    keys: SharedQueue<Key>,
    doubts: Arc<Mutex<Doubts>>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { keys: SharedQueue::new(BACKOFF, Clock::wall()), doubts: Arc::default() }
    }
}

impl Queue {
    fn with<T>(&self, f: impl FnOnce(&mut Doubts) -> T) -> T {
        f(&mut self.doubts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Enqueues a key.
    pub fn add(&self, key: &Key) {
        self.keys.add(key);
    }

    fn doubt(&self, key: &Key, resource: Resource, namespace: &str, name: &str) {
        let object = (resource, namespace.to_owned(), name.to_owned());
        self.with(|doubts| doubts.entry(key.clone()).or_default().push(object));
    }

    fn doubts(&self, key: &Key) -> Vec<(Resource, String, String)> {
        self.with(|doubts| doubts.get(key).cloned().unwrap_or_default())
    }

    fn no_doubts(&self, key: &Key) {
        self.with(|doubts| doubts.remove(key));
    }
}

/// What the workers need.
#[derive(Clone, Debug)]
pub struct Context {
    /// The queue.
    pub queue: Queue,
    /// Requests.
    pub api: Api,
    /// Last seen objects.
    pub cache: Cache,
    /// The engine.
    pub inbox: Inbox,
    /// Events.
    pub recorder: Recorder,
    /// Whether this process may write.
    pub claim: Claim,
    /// Whether the cache is complete: a workload that was not listed yet must not be taken for missing.
    pub synced: Synced,
    /// Whether everything is served; nothing is decided while it is not.
    pub health: Health,
    /// Counts of what is done.
    pub metrics: JobMetrics,
    /// Counts panics of reconciles.
    pub supervisor: Supervisor,
}

/// Works on the queue until stopped.
pub async fn run(context: Context, stop: CancellationToken) {
    let queue = context.queue.clone();
    queue.keys.requeue_active();
    tokio::select! {
        () = stop.cancelled() => return,
        () = context.synced.wait() => {}
    }
    for (object, text) in context.cache.objects(multikueue::objects_without_effect) {
        tracing::warn!(%object, "{text}");
    }
    let gate = context.clone();
    let work = move |key: Key| {
        let context = context.clone();
        async move {
            let outcome = context.supervisor.caught("job controllers", work(&key, &context)).await;
            outcome.unwrap_or_else(|why| Err(Error::Malformed(why)))
        }
    };
    workers::run(&queue.keys, WORKERS, &gate, &stop, work).await;
}

/// Nothing is decided by a follower, nor while something is not served.
impl Gate for Context {
    fn is_open(&self) -> bool {
        self.claim.held() && !self.health.paused()
    }

    async fn opened(&self) {
        if self.health.paused() {
            self.health.resumed().await;
        } else {
            // A follower looks again, in case it has become the leader.
            tokio::time::sleep(FOLLOWER).await;
        }
    }
}

async fn work(key: &Key, context: &Context) -> Result<(), Error> {
    if let Key::Job { name, .. } = key {
        fault::point("reconcile", name);
    }
    clear_doubts(key, context).await?;
    let plan = context.cache.read(clock::now(), |env| reconcile(key, env));
    for write in plan {
        carry_out(key, write, context).await?;
    }
    Ok(())
}

/// Looks what became of writes that were answered with an error: what the cache shows may be older than they are.
async fn clear_doubts(key: &Key, context: &Context) -> Result<(), Error> {
    let doubts = context.queue.doubts(key);
    for (resource, namespace, name) in &doubts {
        let Some(kind) = Kind::of(*resource) else { continue };
        match context.api.get(*resource, namespace, name).await {
            Ok(object) => context.cache.refresh(kind, object),
            // The watch says so as well.
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    if !doubts.is_empty() {
        context.queue.no_doubts(key);
    }
    Ok(())
}

/// Whether the watch shows an object that a write was told does not exist. The write is repeated until the watch shows the
/// deletion, because a 404 may come from a proxy or from a definition that is briefly not served.
fn known(cache: &Cache, resource: Resource, namespace: &str, name: &str, uid: Option<&str>) -> bool {
    let object = Kind::of(resource).and_then(|kind| cache.get(kind, namespace, name));
    object.is_some_and(|o| uid.is_none_or(|uid| json::uid(&o) == uid))
}

async fn carry_out(key: &Key, write: Write, context: &Context) -> Result<(), Error> {
    let Context { api, cache, inbox, recorder, .. } = context;
    let writing = journey::begin();
    match write {
        Write::Create(resource, object) => match api.create(resource, &object).await {
            Ok(made) => {
                if resource == WORKLOADS {
                    context.metrics.workload_made(&made, cache);
                    journey::created(&made, cache, writing);
                }
                if let Some(kind) = Kind::of(resource) {
                    cache.put_created(kind, made);
                }
                Ok(())
            }
            Err(e) => Err(e),
        },
        Write::Patch { resource, namespace, name, subresource, body } => {
            let pod = if resource == PODS { cache.get(Kind::Pod, &namespace, &name) } else { None };
            match api.patch(resource, &namespace, &name, subresource, PatchKind::Merge, &body).await {
                Ok(object) => {
                    if let Some(old) = pod {
                        context.metrics.pod_changed(&old, &object, cache, clock::now());
                    }
                    if let Some(kind) = Kind::of(resource) {
                        cache.refresh(kind, object);
                    }
                    Ok(())
                }
                Err(e) if e.is_not_found() && !known(cache, resource, &namespace, &name, None) => Ok(()),
                Err(e) => {
                    context.queue.doubt(key, resource, &namespace, &name);
                    Err(e)
                }
            }
        }
        Write::Delete { resource, namespace, name, uid } => {
            match api.delete(resource, &namespace, &name, &uid, None).await {
                // Neither 404 nor a conflict, which says that the UID is another one, is believed before the watch says so.
                Err(e)
                    if !(e.is_not_found() || e.is_conflict())
                        || known(cache, resource, &namespace, &name, Some(&uid)) =>
                {
                    Err(e)
                }
                _ => {
                    // Until its end is seen it must not be taken for one that is still wanted.
                    if let Some(kind @ Kind::ProvisioningRequest) = Kind::of(resource) {
                        cache.remove(kind, &namespace, &name, &uid);
                    }
                    Ok(())
                }
            }
        }
        Write::IfGone { resource, namespace, name, uid } => {
            let Some(found) = api.find(resource, &namespace, &name).await? else { return Ok(()) };
            if json::uid(&found) != uid {
                return Ok(());
            }
            if let Some(kind) = Kind::of(resource) {
                cache.put_created(kind, found);
            }
            Err(Error::Malformed(format!("{} {name} is there, and no watch has shown it yet", resource.kind)))
        }
        Write::CreateForCheck(order) => provide(key, &order, context).await,
        Write::WorkloadStopped { namespace, name } => {
            inbox.send(Event::Queueing(QueueEvent::WorkloadStopped(WorkloadKey { namespace, name })));
            Ok(())
        }
        Write::Event(event) => {
            if event.reason == "Started" {
                journey::started(&event.regarding.uid, &event.regarding.name, cache);
            }
            recorder.record(*event);
            Ok(())
        }
        Write::RequeueAfter(after) => {
            context.queue.keys.add_after(key, after);
            Ok(())
        }
    }
}

/// Creates what a check needs. One that exists without having been seen comes from a try whose answer was lost: it is
/// looked at, and nothing is said about it.
async fn provide(key: &Key, order: &CheckObject, context: &Context) -> Result<(), Error> {
    let Context { api, cache, .. } = context;
    let (namespace, name) = (json::namespace(&order.object), json::name(&order.object));
    let Some(kind) = Kind::of(order.resource) else { return Ok(()) };
    let error = match api.create(order.resource, &order.object).await {
        Ok(made) => {
            cache.put_created(kind, made);
            return Ok(());
        }
        Err(e) => e,
    };
    if error.is_conflict() && cache.get(kind, namespace, name).is_none() {
        if let Ok(found) = api.get(order.resource, namespace, name).await {
            cache.put_created(kind, found);
        }
        return Err(error);
    }
    let message = error.to_string();
    let plan = cache.read(clock::now(), |env| provisioning::creation_failed(order, &message, env));
    for write in plan {
        Box::pin(carry_out(key, write, context)).await?;
    }
    Err(error)
}
