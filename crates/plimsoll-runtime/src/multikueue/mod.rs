//! MultiKueue: the connections to worker clusters, and the task that carries out what `plimsoll_jobs::multikueue` plans.
//!
//! `clusters.rs` has a connection for each MultiKueueCluster with a usable kubeconfig, and writes the condition `Active`;
//! `connection.rs` is one: a client, watches, and the store that they fill. Kubeconfigs are files or come from `secrets.rs` and
//! `profiles.rs`. `workloads.rs` plans and writes, `forecasts.rs` asks workers when they could start a workload, `quotas.rs` has
//! quotas of this cluster follow those of the workers. Only the leader connects. A worker that hangs holds few of the reconciles,
//! and one that is lost none: it counts as unreachable as soon as one of its watches is broken for a moment, and its workloads are
//! looked at again when that has ended.

mod clusters;
mod connection;
mod forecasts;
mod kubeconfig;
mod memories;
mod profiles;
mod quotas;
mod secrets;
mod workloads;

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use plimsoll_api::request::{Error, PatchKind};
use plimsoll_client::workers::SharedQueue;
use plimsoll_client::{Backoff, Clock, Supervisor};
use plimsoll_jobs::multikueue::{self, WorkloadKey};
use plimsoll_jobs::{Kind, ObjectStore, Write};
use serde_json::Value;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::clusters::Clusters;
use crate::api::Api;
use crate::cache::Cache;
use crate::event_recorder::Recorder;
use crate::leading::Leading;
use crate::metrics::jobs::JobMetrics;
use crate::shard::Shard;
use crate::synced::Synced;

/// Field manager of all writes (Kueue's, of the check's state).
const MANAGER: &str = "kueue.x-k8s.io/multikueue";
/// Backoff of a reconcile that fails.
const BACKOFF: Backoff =
    Backoff { base: SignedDuration::from_millis(20), max: SignedDuration::from_secs(60) };

/// The key that stands for all ClusterQueues. No object can have it.
const ALL_QUEUES: &str = "";
/// How long changes of what workers offer are gathered (Kueue's `eventsBatchPeriod` is a second).
const GATHER: Duration = Duration::from_millis(250);

/// What watches tell; cheap to clone.
#[derive(Clone, Debug)]
pub struct Inbox {
    workloads: SharedQueue<WorkloadKey>,
    clusters: Arc<Notify>,
    /// ClusterQueues of this cluster whose quota may follow that of the workers; [`ALL_QUEUES`]: all of them.
    queues: SharedQueue<String>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            workloads: SharedQueue::new(BACKOFF, Clock::wall()),
            clusters: Arc::default(),
            queues: SharedQueue::new(BACKOFF, Clock::wall()),
        }
    }
}

impl Inbox {
    /// A worker offers something else than before.
    fn offers_changed(&self) {
        self.queues.add_after(&ALL_QUEUES.to_owned(), GATHER);
    }

    /// An object of this cluster has changed, or was deleted.
    pub fn changed(&self, kind: Kind, object: &Value, objects: &ObjectStore) {
        if kind == Kind::MultiKueueCluster {
            self.clusters.notify_one();
        }
        multikueue::affected(kind, object, objects).iter().for_each(|key| self.workloads.add(key));
        multikueue::queues_concerned(kind, object, objects).iter().for_each(|name| self.queues.add(name));
    }
}

/// What the tasks need.
#[derive(Clone, Debug)]
pub struct Context {
    /// What watches tell.
    pub inbox: Inbox,
    /// Requests to this cluster.
    pub api: Api,
    /// Last seen objects of this cluster.
    pub cache: Cache,
    /// Events.
    pub recorder: Recorder,
    /// Whether this process decides.
    pub leading: Leading,
    /// Whether the cache is complete: a workload that was not listed yet must not be taken for missing.
    pub synced: Synced,
    /// Counts of what is done.
    pub metrics: JobMetrics,
    /// The tasks that belong to it.
    pub supervisor: Supervisor,
}

impl Context {
    /// Looks at all workloads of MultiKueue again, and at what workers offer: a worker cluster was lost or is back.
    fn look_again(&self) {
        self.inbox.queues.add(&ALL_QUEUES.to_owned());
        self.cache.objects(multikueue::all).iter().for_each(|key| self.inbox.workloads.add(key));
    }

    /// This cluster's object of a workload.
    fn workload(&self, key: &WorkloadKey) -> Option<Arc<Value>> {
        self.cache.get(Kind::Workload, &key.namespace, &key.name)
    }

    /// Writes to this cluster. The cache gets the answer, so that the next look decides with it.
    async fn write(&self, write: Write) -> Result<(), Error> {
        match write {
            Write::Patch { resource, namespace, name, subresource, body } => {
                let patch = self.api.patch(resource, &namespace, &name, subresource, PatchKind::Merge, &body);
                let object = patch.await?;
                if let Some(kind) = self.cache.kind_of(resource) {
                    self.cache.refresh(kind, object);
                }
            }
            Write::Event(event) => self.recorder.record(*event),
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }
}

fn unexpected(write: &Write) -> Error {
    debug_assert!(false, "{write:?}");
    Error::Malformed("a write that has no place in a plan of MultiKueue".to_owned())
}

/// Starts everything, where this process has the whole cluster or its default shard.
pub fn start_where_due(context: Context, shard: Option<&Shard>, stop: &CancellationToken) {
    if shard.is_none_or(Shard::is_default) {
        start(context, stop);
    }
}

fn start(context: Context, stop: &CancellationToken) {
    let clusters = Clusters::default();
    let api = context.api.writing_as(MANAGER);
    let context = Context { api, ..context };
    let supervisor = context.supervisor.clone();
    supervisor.spawn("worker clusters", {
        let (context, clusters, stop) = (context.clone(), clusters.clone(), stop.clone());
        move || clusters::run(context.clone(), clusters.clone(), stop.clone())
    });
    supervisor.spawn("workloads of worker clusters", {
        let (context, clusters, stop) = (context.clone(), clusters.clone(), stop.clone());
        move || workloads::run(context.clone(), clusters.clone(), stop.clone())
    });
    if context.cache.config().multikueue.automates_quota {
        supervisor.spawn("quotas of worker clusters", {
            let (context, clusters, stop) = (context.clone(), clusters.clone(), stop.clone());
            move || quotas::run(context.clone(), clusters.clone(), stop.clone())
        });
    }
    let stop = stop.clone();
    supervisor.spawn("garbage collection of worker clusters", move || {
        workloads::collect(context.clone(), clusters.clone(), stop.clone())
    });
}
