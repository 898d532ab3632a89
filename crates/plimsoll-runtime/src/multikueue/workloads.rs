//! Carries out the plans of workloads that worker clusters run.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::request::{Error, PatchKind};
use plimsoll_client::workers;
use plimsoll_jobs::multikueue::{self, Plan, Step, WorkloadKey};
use plimsoll_jobs::{Kind, Write};
use tokio_util::sync::CancellationToken;

use super::clusters::Clusters;
use super::memories::{Memories, lock};
use super::{Context, forecasts, unexpected};
use crate::clock;

/// Most reconciles under way.
const WORKERS: usize = 16;
/// Longest wait for the writes of others to the same cluster.
const PATIENCE: Duration = Duration::from_secs(2);

/// Works on workloads until stopped.
pub async fn run(context: Context, clusters: Clusters, stop: CancellationToken) {
    let queue = context.inbox.workloads.clone();
    queue.requeue_active();
    tokio::select! {
        () = stop.cancelled() => return,
        () = context.synced.wait() => {}
    }
    let (gate, memories) = (context.leading.clone(), Memories::default());
    let work = move |key: WorkloadKey| {
        let (context, clusters, memories) = (context.clone(), clusters.clone(), Arc::clone(&memories));
        async move {
            let work = work(&key, &context, &clusters, &memories);
            let outcome = context.supervisor.caught("workloads of worker clusters", work).await;
            outcome.unwrap_or_else(|why| Err(Error::Malformed(why)))
        }
    };
    workers::run(&queue, WORKERS, &gate, &stop, work).await;
}

/// Collects the garbage on worker clusters at intervals, until stopped.
pub async fn collect(context: Context, clusters: Clusters, stop: CancellationToken) {
    let Some(interval) = context.cache.config().multikueue.gc_interval else { return };
    let interval = std_duration(interval).max(Duration::from_millis(1));
    while stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
        clusters.collect(&context);
    }
}

fn std_duration(duration: plimsoll_state::Duration) -> Duration {
    Duration::from_nanos(u64::try_from(duration.0).unwrap_or(0))
}

async fn work(
    key: &WorkloadKey,
    context: &Context,
    clusters: &Clusters,
    memories: &Memories,
) -> Result<(), Error> {
    let before = context.cache.objects(|objects| multikueue::replaced(key, objects));
    let sights = clusters.sights(key, &before);
    let memory = lock(memories).get(key).map(|known| known.memory.clone()).unwrap_or_default();
    let plan = context.cache.read(clock::now(), |env| multikueue::plan(key, &sights, &memory, env));
    let Plan { first, apart, requeue_after, round, ask, admitted_on } = plan;
    for step in first {
        match step {
            Step::Manager(write) => context.write(write).await?,
            Step::Worker(cluster, write) => on_worker(&cluster, write, context, clusters).await?,
        }
    }
    if let (Some(cluster), Some(wl)) = (admitted_on, context.workload(key)) {
        context.metrics.admitted_on(&wl, &cluster);
    }
    // A round begins with the write of its clusters.
    match (round, &ask) {
        (None, None) => drop(lock(memories).remove(key)),
        (round, _) => lock(memories).entry(key.clone()).or_default().memory.round = round,
    }
    if let Some(question) = ask {
        forecasts::ask(key, question, context, clusters, memories);
    }
    if let Some(after) = requeue_after {
        context.inbox.workloads.add_after(key, std_duration(after));
    }
    clusters.rest(key, |cluster| !apart.contains_key(cluster));
    for (cluster, writes) in apart {
        aside(key, &cluster, writes, context, clusters);
    }
    Ok(())
}

/// Begins with writes that wait for no other cluster, and for which no other cluster waits: the reconcile ends before they do.
fn aside(key: &WorkloadKey, cluster: &str, writes: Vec<Write>, context: &Context, clusters: &Clusters) {
    let Some(connection) = clusters.connection(cluster).filter(|c| c.begin(key)) else { return };
    let (key, cluster, context, clusters) =
        (key.clone(), cluster.to_owned(), context.clone(), clusters.clone());
    tokio::spawn(async move {
        let all = async {
            for write in writes {
                on_worker(&cluster, write, &context, &clusters).await?;
            }
            Ok(())
        };
        let outcome = context.supervisor.caught("writes to worker clusters", all).await;
        let outcome = outcome.unwrap_or_else(|why| Err(Error::Malformed(why)));
        let after = connection.ended(&key, outcome.is_err());
        if let Err(error) = outcome {
            tracing::debug!(cluster, ?key, %error, ?after, "writes to a worker cluster failed, requeued");
        }
        if let Some(after) = after {
            context.inbox.workloads.add_after(&key, after);
        }
    });
}

/// Writes to a worker cluster.
async fn on_worker(cluster: &str, write: Write, context: &Context, clusters: &Clusters) -> Result<(), Error> {
    let lost = || Error::Transport(format!("worker cluster {cluster} is not connected"));
    let connection = clusters.connection(cluster).ok_or_else(lost)?;
    let permit = tokio::time::timeout(PATIENCE, connection.writes.acquire()).await;
    let Ok(Ok(_permit)) = permit else {
        return Err(Error::Transport(format!("worker cluster {cluster} answers too slowly")));
    };
    match write {
        Write::Create(resource, object) => {
            let made = connection.api.create(resource, &object).await;
            let made =
                made.inspect_err(|error| tracing::warn!(cluster, %error, "creating on a worker cluster"))?;
            let kind = context.cache.kind_of(resource);
            if kind == Some(Kind::Workload)
                && let Some(wl) = context.workload(&multikueue::key_of(&made))
            {
                context.metrics.dispatched(&wl, cluster);
            }
            connection.keep(kind, made, true);
        }
        Write::Patch { resource, namespace, name, subresource, body } => {
            let api = &connection.api;
            let object = api.patch(resource, &namespace, &name, subresource, PatchKind::Merge, &body).await?;
            connection.keep(context.cache.kind_of(resource), object, false);
        }
        Write::Delete { resource, namespace, name, uid, .. } => {
            let deleted = connection.api.delete_with_dependents(resource, &namespace, &name, &uid).await;
            match deleted {
                // The watch shows its end.
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        other => return Err(unexpected(&other)),
    }
    Ok(())
}
