//! The election, on a thread of its own: the Lease is renewed in time however busy the threads are that read and write.

use futures::FutureExt;
use futures::future::BoxFuture;
use plimsoll_client::leader_election::{self, Claim, Timing};
use plimsoll_client::supervise::Supervisor;
use plimsoll_runtime::ShardLeases;
use plimsoll_runtime::api::Api;
use tokio_util::sync::CancellationToken;

use super::shard::WholeCluster;
use super::thread;
use crate::cli;

/// Takes part in the election. The future ends when a process without `--shard` leads beside the leader of a shard.
///
/// `own` makes connections that nothing else uses: they live on the election's thread.
///
/// # Errors
/// When the system gives no thread.
pub fn elect(
    args: &cli::Run,
    (api, own): (&Api, Api),
    timing: Timing,
    supervisor: &Supervisor,
    stop: &CancellationToken,
) -> anyhow::Result<(Claim, BoxFuture<'static, String>)> {
    let undisturbed = || std::future::pending().boxed();
    if !args.election.leader_elect {
        return Ok((Claim::always(), undisturbed()));
    }
    let me = identity();
    let namespace = args.election.leader_elect_resource_namespace.clone();
    let whole = args.election.leader_elect_resource_name.clone();
    let Some(shard) = &args.shard else {
        let (claim, work) = leader_election::run(own, namespace, whole, me, timing, stop.clone());
        thread::run("leader election", work, supervisor)?;
        return Ok((claim, undisturbed()));
    };
    let name = leases(&args.election).name_of(shard);
    let (claim, work) = leader_election::run(own.clone(), namespace.clone(), name, me, timing, stop.clone());
    let (retry, lease) = (timing.retry, timing.lease);
    let before = WholeCluster { api: own, namespace, name: whole, retry, lease };
    let whole = WholeCluster { api: api.clone(), ..before.clone() };
    let (free, is_free) = tokio::sync::oneshot::channel();
    let stopping = stop.clone();
    let work = async move {
        if let Some(version) = stopping.run_until_cancelled(before.ended()).await {
            // Nobody listens at a stop.
            let _ = free.send(version);
            work.await;
        }
    };
    thread::run("leader election", work, supervisor)?;
    let alone = async move {
        match is_free.await {
            Ok(version) => whole.begun(&version).await,
            Err(_) => std::future::pending().await,
        }
    };
    Ok((claim, alone.boxed()))
}

/// Where leaders of shards have their Leases.
pub fn leases(election: &cli::Election) -> ShardLeases {
    let namespace = election.leader_elect_resource_namespace.clone();
    ShardLeases { namespace, whole: election.leader_elect_resource_name.clone() }
}

/// Identity of this process in an election. In a container every process has the same id: the host's name tells pods
/// apart there, and the time of the start tells it from the container before it.
fn identity() -> String {
    let read =
        |p: &str| std::fs::read_to_string(p).ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
    let name = std::env::var("HOSTNAME").ok().or_else(|| read("/proc/sys/kernel/hostname"));
    let name = name.unwrap_or_else(|| "plimsoll".into());
    format!("{name}_{}_{:x}", std::process::id(), plimsoll_runtime::clock::now().0)
}
