//! Runs reconciles of job integrations and carries out what they decide.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::SignedDuration;
use plimsoll_api::request::Request;
use plimsoll_client::workers::{self, SharedQueue};
use plimsoll_client::{Backoff, Clock, Supervisor, fault};
use plimsoll_engine::Event;
use plimsoll_jobs::execution::{Execution, Step, UnconfirmedWrites};
use plimsoll_jobs::webhook::objects_without_effect;
use plimsoll_jobs::{Key, ObjectStore};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Error, PODS, WORKLOADS};
use crate::cache::{Cache, Kind};
use crate::driver::Inbox;
use crate::event_recorder::Recorder;
use crate::leading::Leading;
use crate::metrics::jobs::JobMetrics;
use crate::shard::Shard;
use crate::synced::Synced;
use crate::{clock, journey};

/// Most reconciles under way (shipped Kueue configuration: 5 per kind; ours share one pool).
const WORKERS: usize = 16;
/// Backoff of a reconcile that fails.
const BACKOFF: Backoff =
    Backoff { base: SignedDuration::from_millis(20), max: SignedDuration::from_secs(60) };

/// The queue of keys; cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue {
    keys: SharedQueue<Key>,
    unconfirmed: Arc<Mutex<UnconfirmedWrites>>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { keys: SharedQueue::new(BACKOFF, Clock::wall()), unconfirmed: Arc::default() }
    }
}

impl Queue {
    fn with<T>(&self, f: impl FnOnce(&mut UnconfirmedWrites) -> T) -> T {
        f(&mut self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Enqueues a key.
    pub fn add(&self, key: &Key) {
        self.keys.add(key);
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
    /// Whether this process decides.
    pub leading: Leading,
    /// Whether the cache is complete: a workload that was not listed yet must not be taken for missing.
    pub synced: Synced,
    /// Counts of what is done.
    pub metrics: JobMetrics,
    /// Counts panics of reconciles.
    pub supervisor: Supervisor,
    /// The shard of this process; `None`: it has the whole cluster.
    pub shard: Option<Shard>,
}

/// Works on the queue until stopped.
pub async fn run(context: Context, stop: CancellationToken) {
    let queue = context.queue.clone();
    queue.keys.requeue_active();
    tokio::select! {
        () = stop.cancelled() => return,
        () = context.synced.wait() => {}
    }
    let without_effect = |objects: &ObjectStore| objects_without_effect(objects, context.cache.config());
    for (object, text) in context.cache.objects(without_effect) {
        tracing::warn!(%object, "{text}");
    }
    let gate = context.leading.clone();
    let work = move |key: Key| {
        let context = context.clone();
        async move {
            let outcome = context.supervisor.caught("job controllers", work(&key, &context)).await;
            outcome.unwrap_or_else(|why| Err(Error::Malformed(why)))
        }
    };
    workers::run(&queue.keys, WORKERS, &gate, &stop, work).await;
}

async fn work(key: &Key, context: &Context) -> Result<(), Error> {
    // Another shard's process plans it, which hears of the same objects.
    if context.shard.as_ref().is_some_and(|shard| !shard.plans(key, &context.cache)) {
        return Ok(());
    }
    if let Key::Job { name, .. } = key {
        fault::point("reconcile", name);
    }
    let mut execution = context.queue.with(|unconfirmed| unconfirmed.begin(key.clone()));
    let outcome = carry_out(&mut execution, context).await;
    context.queue.with(|unconfirmed| unconfirmed.ended(execution));
    outcome
}

async fn carry_out(execution: &mut Execution, context: &Context) -> Result<(), Error> {
    loop {
        match context.cache.read(clock::now(), |env| execution.next(env)) {
            Step::Send(request) => {
                let response = send(&request, context).await;
                context.cache.answered(execution, response, clock::now())?;
            }
            Step::WorkloadStopped(event) => {
                context.inbox.send(Event::Queueing(*event));
            }
            Step::Record(event) => {
                if event.reason == "Started" {
                    journey::started(&event.regarding.uid, &event.regarding.name, &context.cache);
                }
                context.recorder.record(*event);
            }
            Step::RequeueAfter(after) => context.queue.keys.add_after(execution.key(), after),
            Step::Done(outcome) => return outcome,
        }
    }
}

/// Sends a request, and counts what it has made or changed.
async fn send(request: &Request, context: &Context) -> Result<Value, Error> {
    let Context { api, cache, metrics, .. } = context;
    let writing = journey::begin();
    let pod = match request {
        Request::Patch { resource: PODS, namespace, name, .. } => cache.get(Kind::Pod, namespace, name),
        _ => None,
    };
    let response = api.send(request).await?;
    if matches!(request, Request::Create { resource: WORKLOADS, .. }) {
        metrics.workload_made(&response, cache);
        journey::created(&response, cache, writing);
    }
    if let Some(old) = pod {
        metrics.pod_changed(&old, &response, cache, clock::now());
    }
    Ok(response)
}
