//! Gives nodes to other shards: only the shard that a node belongs to changes its label, after it has stopped deciding with the
//! node and no binding to it is under way.

use std::time::Duration;

use plimsoll_api::request::Error;
use plimsoll_client::Supervisor;
use plimsoll_client::workers::Gate as _;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::leading::Leading;
use crate::shard::{Leaving, Shard};

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// Gives nodes away until stopped, where there are shards.
pub fn start(
    api: &Api,
    shard: Option<&Shard>,
    leading: &Leading,
    (supervisor, stop): (&Supervisor, &CancellationToken),
) {
    let Some(shard) = shard.cloned() else { return };
    let (api, leading, stop) = (api.clone(), leading.clone(), stop.clone());
    supervisor.spawn("moves of nodes", move || {
        let (work, stop) = (run(api.clone(), shard.clone(), leading.clone()), stop.clone());
        async move { stop.run_until_cancelled(work).await.unwrap_or_default() }
    });
}

async fn run(api: Api, shard: Shard, leading: Leading) {
    loop {
        tokio::time::sleep(LOOK).await;
        if !leading.is_open() {
            continue;
        }
        for (node, leaving) in shard.given_away() {
            match api.send(&leaving.request(&node)).await {
                Ok(_) => tracing::info!(node, from = shard.name(), to = leaving.to, "Node moved"),
                // The watch shows the newer version, or that the node is gone.
                Err(e) if e.is_conflict() || e.is_not_found() => {}
                Err(error) => refused(&node, &leaving, &error).await,
            }
        }
    }
}

async fn refused(node: &str, leaving: &Leaving, error: &Error) {
    tracing::warn!(node, to = leaving.to, %error, "no shard decides with a node that could not be moved");
    tokio::time::sleep(RETRY).await;
}
