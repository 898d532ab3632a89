//! Runs reconciles of job integrations and carries out what they decide.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use plimsoll_client::workers::{self, Gate, SharedQueue};
use plimsoll_client::{Backoff, Clock, Supervisor, fault};
use plimsoll_engine::Event;
use plimsoll_queueing::{Event as QueueEvent, WorkloadKey};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::group::Group;
use super::{Env, Integration, Write, batch, names, orphan, pod, reconcile};
use crate::api::{
    ADMISSION_CHECKS, Api, Error, JOBS, POD_TEMPLATES, PODS, PROVISIONING_REQUESTS,
    PROVISIONING_REQUESTS_BETA, PatchKind, Resource, WORKLOADS,
};
use crate::cache::{Cache, Kind, workload_of};
use crate::driver::Inbox;
use crate::health::Health;
use crate::ingest::Synced;
use crate::lease::Claim;
use crate::metrics::jobs::JobMetrics;
use crate::notes::Recorder;
use crate::{clock, journey, json};

/// Most reconciles under way (shipped Kueue configuration: 5 per kind; ours share one pool).
const WORKERS: usize = 16;
/// Pause between two looks of a follower.
const FOLLOWER: Duration = Duration::from_millis(200);
/// Backoff of a reconcile that fails.
const BACKOFF: Backoff =
    Backoff { base: SignedDuration::from_millis(20), max: SignedDuration::from_secs(60) };

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A Job: namespace, name.
    Job(String, String),
    /// A single pod: namespace, name.
    Pod(String, String),
    /// A pod group: namespace, group.
    Group(String, String),
    /// A workload with a topology assignment, for its gated pods: namespace, name.
    Topology(String, String),
    /// A workload that is over, for how long it is kept: namespace, name.
    Retained(String, String),
    /// A workload whose owner is gone: namespace, name.
    Orphan(String, String),
    /// A workload with checks, for the requests of its nodes: namespace, name.
    Provision(String, String),
    /// An AdmissionCheck, for its finalizer and whether it can be passed.
    Check(String),
    /// A ClusterQueue, for its finalizer.
    ClusterQueue(String),
    /// A ResourceFlavor, for its finalizer.
    Flavor(String),
}

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
    pub fn add(&self, key: Key) {
        self.keys.add(&key);
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

    /// Queues what a changed object concerns.
    pub fn touched(&self, kind: Kind, object: &Value) {
        let namespace = json::namespace(object).to_owned();
        match kind {
            Kind::Job => self.add(Key::Job(namespace, json::name(object).to_owned())),
            Kind::Pod => {
                if json::annotation(object, names::SLICE).is_some()
                    && let Some(owner) = json::controller(object).filter(|o| o["kind"] == "Job")
                {
                    self.add(Key::Job(namespace.clone(), json::text(owner, &["name"]).to_owned()));
                }
                let workload = workload_of(object);
                if !workload.is_empty() {
                    self.add(Key::Topology(namespace.clone(), workload.to_owned()));
                }
                match super::group::of(object) {
                    Some(group) => self.add(Key::Group(namespace, group.to_owned())),
                    None if json::label(object, names::MANAGED) == "true" => {
                        self.add(Key::Pod(namespace, json::name(object).to_owned()));
                    }
                    None => {}
                }
            }
            Kind::Workload => {
                if super::retain::concerns(object) {
                    self.add(Key::Retained(namespace.clone(), json::name(object).to_owned()));
                }
                if orphan::concerns(object) {
                    self.add(Key::Orphan(namespace.clone(), json::name(object).to_owned()));
                }
                if super::ungate::concerns(object) {
                    self.add(Key::Topology(namespace.clone(), json::name(object).to_owned()));
                }
                if json::annotation(object, names::IS_GROUP) == Some("true") {
                    return self.add(Key::Group(namespace, json::name(object).to_owned()));
                }
                for owner in json::list(object, &["metadata", "ownerReferences"]) {
                    let name = json::text(owner, &["name"]).to_owned();
                    match json::text(owner, &["kind"]) {
                        "Job" => self.add(Key::Job(namespace.clone(), name)),
                        "Pod" => self.add(Key::Pod(namespace.clone(), name)),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
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
    /// Whether readiness of pods is supervised.
    pub supervised: bool,
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
    super::multikueue::warn(&context.cache);
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
    if let Key::Job(_, name) | Key::Pod(_, name) = key {
        fault::point("reconcile", name);
    }
    clear_doubts(key, context).await?;
    let writes = plan(key, Env { cache: &context.cache, now: clock::now(), supervised: context.supervised });
    for write in writes {
        carry_out(key, write, context).await?;
    }
    Ok(())
}

/// Looks what became of writes that were answered with an error: what the cache shows may be older than they are.
async fn clear_doubts(key: &Key, context: &Context) -> Result<(), Error> {
    let doubts = context.queue.doubts(key);
    for (resource, namespace, name) in &doubts {
        let Some(kind) = cached(*resource) else { continue };
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

/// The writes for one key (pure).
pub fn plan(key: &Key, env: Env<'_>) -> Vec<Write> {
    let cache = env.cache;
    match key {
        Key::ClusterQueue(name) => super::in_use::cluster_queue(cache, name),
        Key::Flavor(name) => super::in_use::flavor(cache, name),
        Key::Provision(ns, name) => super::provision::plan(ns, name, env),
        Key::Check(name) => {
            let writes = super::in_use::check(cache, name);
            match writes.is_empty() {
                true => {
                    [super::provision::plan_check(name, env), super::multikueue::plan(name, env)].concat()
                }
                false => writes,
            }
        }
        Key::Topology(ns, name) => super::ungate::plan(ns, name, env),
        Key::Retained(ns, name) => super::retain::plan(ns, name, env),
        Key::Orphan(ns, name) => orphan::plan(ns, name, env),
        Key::Job(ns, name) => {
            let Some(job) = cache.get(Kind::Job, ns, name).filter(|j| !json::deleting(j)) else {
                return orphan::finalize(&cache.owned_by_name(ns, "Job", name), env);
            };
            if !managed(&job, cache) {
                return Vec::new();
            }
            let writes = reconcile(&batch::Job { object: &job }, env);
            if writes.is_empty() && super::elastic::enabled(&job, env) {
                // Here and not apart, so that no pod is let go while the workload shrinks.
                return super::elastic::ungate(&job, batch::pods_count(&job), env);
            }
            writes
        }
        Key::Pod(ns, name) => {
            let Some(object) = cache.get(Kind::Pod, ns, name) else {
                return orphan::finalize(&single(cache.owned_by_name(ns, "Pod", name)), env);
            };
            if json::label(&object, names::MANAGED) != "true" || super::group::of(&object).is_some() {
                return Vec::new();
            }
            let job = pod::Pod { object: &object };
            if json::deleting(&object) && !job.is_active() {
                // Finish what is finished before letting go, so that the end is recorded.
                let own = single(cache.owned_by(json::uid(&object)));
                if pod::ended(&object)
                    && own.iter().any(|w| !json::is_true(w, "Finished") && !json::is_true(w, "Evicted"))
                {
                    return reconcile(&job, env);
                }
                let mut writes = orphan::finalize(&own, env);
                writes.extend(pod::release(&object));
                return writes;
            }
            if !cache.rules().manage_namespace(cache, ns) {
                return Vec::new();
            }
            reconcile(&job, env)
        }
        Key::Group(ns, name) => match Group::load(ns, name, env) {
            Some(group) => reconcile(&group, env),
            None => {
                let wl = cache.get(Kind::Workload, ns, name);
                let ours = wl.filter(|w| json::annotation(w, names::IS_GROUP) == Some("true"));
                orphan::finalize(&ours.into_iter().collect::<Vec<_>>(), env)
            }
        },
    }
}

fn single(mut workloads: Vec<Arc<Value>>) -> Vec<Arc<Value>> {
    workloads.retain(|w| json::annotation(w, names::IS_GROUP).is_none());
    workloads
}

/// Whether the job is Kueue's business.
fn managed(job: &Value, cache: &Cache) -> bool {
    let rules = cache.rules();
    rules.jobs && rules.manage(job) && rules.manage_namespace(cache, json::namespace(job))
}

fn cached(resource: Resource) -> Option<Kind> {
    match resource {
        JOBS => Some(Kind::Job),
        PODS => Some(Kind::Pod),
        WORKLOADS => Some(Kind::Workload),
        ADMISSION_CHECKS => Some(Kind::AdmissionCheck),
        POD_TEMPLATES => Some(Kind::PodTemplate),
        PROVISIONING_REQUESTS | PROVISIONING_REQUESTS_BETA => Some(Kind::ProvisioningRequest),
        _ => None,
    }
}

/// Whether the watch shows an object that a write was told does not exist. The write is repeated until the watch shows the
/// deletion, because a 404 may come from a proxy or from a definition that is briefly not served.
fn known(cache: &Cache, resource: Resource, namespace: &str, name: &str, uid: Option<&str>) -> bool {
    let object = cached(resource).and_then(|kind| cache.get(kind, namespace, name));
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
                if let Some(kind) = cached(resource) {
                    cache.put(kind, made);
                }
                Ok(())
            }
            Err(e) => Err(e),
        },
        Write::Patch { resource, namespace, name, sub, body } => {
            let pod = if resource == PODS { cache.get(Kind::Pod, &namespace, &name) } else { None };
            match api.patch(resource, &namespace, &name, sub, PatchKind::Merge, &body).await {
                Ok(object) => {
                    if let Some(old) = pod {
                        context.metrics.pod_changed(&old, &object, cache, clock::now());
                    }
                    if let Some(kind) = cached(resource) {
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
                Err(e) if e.is_not_found() && known(cache, resource, &namespace, &name, Some(&uid)) => Err(e),
                Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
                _ => {
                    // Until its end is seen it must not be taken for one that is still wanted.
                    if let Some(kind @ Kind::ProvisioningRequest) = cached(resource) {
                        cache.remove(kind, &namespace, &name);
                    }
                    Ok(())
                }
            }
        }
        Write::Provide(order) => provide(key, &order, context).await,
        Write::Stopped(namespace, name) => {
            inbox.send(Event::Queueing(QueueEvent::WorkloadStopped(WorkloadKey { namespace, name })));
            Ok(())
        }
        Write::Note(note) => {
            if note.reason == "Started" {
                journey::started(&note.subject.uid, &note.subject.name, cache);
            }
            recorder.record(*note);
            Ok(())
        }
        Write::Again(after) => {
            context.queue.keys.add_after(key, after);
            Ok(())
        }
    }
}

/// Creates what a check needs. One that exists without having been seen comes from a try whose answer was lost: it is
/// looked at, and nothing is said about it.
async fn provide(key: &Key, order: &super::provision::Order, context: &Context) -> Result<(), Error> {
    let Context { api, cache, .. } = context;
    let (namespace, name) = (json::namespace(&order.object), json::name(&order.object));
    let Some(kind) = cached(order.resource) else { return Ok(()) };
    let error = match api.create(order.resource, &order.object).await {
        Ok(made) => {
            cache.put(kind, made);
            return Ok(());
        }
        Err(e) => e,
    };
    if error.is_conflict() && cache.get(kind, namespace, name).is_none() {
        if let Ok(found) = api.get(order.resource, namespace, name).await {
            cache.put(kind, found);
        }
        return Err(error);
    }
    let env = Env { cache, now: clock::now(), supervised: context.supervised };
    for write in super::provision::refused(order, &error.to_string(), env) {
        Box::pin(carry_out(key, write, context)).await?;
    }
    Err(error)
}
