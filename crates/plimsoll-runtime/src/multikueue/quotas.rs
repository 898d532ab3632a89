//! Quotas of this cluster's ClusterQueues that follow those of the workers.

use plimsoll_api::request::Error;
use plimsoll_client::workers;
use plimsoll_jobs::multikueue;
use tokio_util::sync::CancellationToken;

use super::clusters::Clusters;
use super::{ALL_QUEUES, Context};
use crate::clock;

/// Works on ClusterQueues until stopped.
pub async fn run(context: Context, clusters: Clusters, stop: CancellationToken) {
    let queue = context.inbox.queues.clone();
    queue.requeue_active();
    tokio::select! {
        () = stop.cancelled() => return,
        () = context.synced.wait() => {}
    }
    let gate = context.leading.clone();
    let work = move |name: String| {
        let (context, clusters) = (context.clone(), clusters.clone());
        async move {
            let work = work(&name, &context, &clusters);
            let outcome = context.supervisor.caught("quotas of worker clusters", work).await;
            outcome.unwrap_or_else(|why| Err(Error::Malformed(why)))
        }
    };
    workers::run(&queue, 1, &gate, &stop, work).await;
}

async fn work(name: &str, context: &Context, clusters: &Clusters) -> Result<(), Error> {
    if name == ALL_QUEUES {
        let all = context.cache.objects(multikueue::queues_with_checks);
        all.iter().for_each(|name| context.inbox.queues.add(name));
        return Ok(());
    }
    let local_queues = context.cache.objects(|objects| multikueue::local_queues_of(name, objects));
    let offered = clusters.quotas(&local_queues);
    let write = context.cache.read(clock::now(), |env| multikueue::plan_quota(name, &offered, env));
    match write {
        Some(write) => context.write(write).await,
        None => Ok(()),
    }
}
