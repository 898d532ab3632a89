//! `plimsoll run`: the engine against a cluster.

mod elect;
mod shard;
mod thread;
mod visibility;
mod webhooks;

pub mod metrics;

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::future::BoxFuture;
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_client::Supervisor;
use plimsoll_client::leader_election::{Claim, Timing};
use plimsoll_runtime::api::{Api, DEADLINE};
use plimsoll_runtime::cache::Cache;
use plimsoll_runtime::coalesce::Coalescing;
use plimsoll_runtime::metrics::{HealthState, Role};
use plimsoll_runtime::visibility::Visibility;
use plimsoll_runtime::{Roles, Runtime, connect};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::up::stop::{self, Signals};
use crate::{cli, configure, say};

/// Longest pause between tries to reach a server that is not there yet.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Runs until stopped by a signal.
pub async fn run(args: cli::Run, coalescing: Coalescing) -> anyhow::Result<()> {
    let began = Instant::now();
    crate::logging::started("run");
    let timing = timing(&args.election)?;
    let both = args.queueing == args.placement;
    let roles = Roles { queueing: both || args.queueing, placement: both || args.placement };
    if args.shard.is_some() && !roles.queueing {
        bail!("--shard: shards are made of queues, too; leave out --placement, or give --queueing as well");
    }
    let settings = plimsoll_runtime::Settings {
        shard: args.shard.clone(),
        shard_leases: args.election.leader_elect.then(|| elect::leases(&args.election)),
        coalescing,
        ..configure::settings(&args.files, roles)?
    };
    let config = config(&args).await?;
    let address = config.cluster_url.to_string();
    let client = connect::client(config.clone()).context("connecting")?;
    // Caught once, from here to the end: a signal that comes between two waits is not lost.
    let mut signals = Signals::catch().context("catching signals")?;
    let version = tokio::select! {
        () = signals.next() => return Ok(()),
        version = reached(&client, &address) => version?,
    };
    let stop = CancellationToken::new();
    // The connections of a thread with a runtime of its own live there.
    let own = || connect::api(config.clone(), "plimsoll-leader-election").context("connecting");
    let api = own()?;
    let health_state = HealthState::default();
    let supervisor = Supervisor::new(stop.clone());
    health_state.add_supervisor(supervisor.clone());
    let metrics = metrics::start(args.metrics_bind_address, &health_state, &supervisor, &stop).await?;
    let secure_metrics = metrics::start_secure(&args, (&api, &health_state), &supervisor, &stop).await?;
    let webhooks = tokio::select! {
        () = signals.next() => return Ok(()),
        webhooks = webhooks::start(&args, &settings, own, &health_state, &supervisor, &stop) => webhooks?,
    };
    let pending = Visibility::default();
    let visibility =
        visibility::start(&args, (roles, &pending), (&api, &health_state), &supervisor, &stop).await?;
    let (claim, alone) = elect::elect(&args, (&api, own()?), timing, &supervisor, &stop)?;
    let process = Process {
        server: format!("{address} (Kubernetes {version})"),
        webhooks,
        metrics,
        secure_metrics,
        visibility,
        pending,
        health_state,
        began,
    };
    let ended = tokio::select! {
        ended = lead(&args, &api, &settings, (&claim, alone), &process, &mut signals) => ended,
        why = supervisor.fatal().wait() => {
            // The engine is dropped with its writes under way.
            claim.let_expire();
            Err(anyhow::anyhow!(why))
        }
    };
    stop::end_at_next_signal();
    stop.cancel();
    stop::waiting("webhooks, metrics and the lease to be released", supervisor.wait()).await;
    ended
}

/// What is said about this process.
struct Process {
    server: String,
    webhooks: Option<String>,
    metrics: Option<String>,
    secure_metrics: Option<String>,
    visibility: Option<String>,
    /// The visibility API, which waits for the engine.
    pending: Visibility,
    health_state: HealthState,
    began: Instant,
}

/// Follows the cluster, acts from when the claim is held until stopped. A process that has lost the claim ends, as
/// kube-scheduler and Kueue do: another one leads, and writes may have been made that this one has not seen.
async fn lead(
    args: &cli::Run,
    api: &Api,
    settings: &plimsoll_runtime::Settings,
    (claim, alone): (&Claim, BoxFuture<'static, String>),
    process: &Process,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let follows = !claim.held();
    let leads = if args.election.leader_elect { Role::Leader } else { Role::Standalone };
    announce(args, settings.roles, process, !follows);
    let runtime = Runtime::start(api, settings, Cache::new(settings.jobs.clone()), claim)
        .context("starting the engine")?;
    process.health_state.set_engine(runtime.monitor());
    // After the engine: what it still has to list keeps the process from being ready.
    process.health_state.set_role(if follows { Role::Follower } else { leads });
    process.pending.set_engine(runtime.monitor().inbox(), runtime.cache.clone());
    let leading = async {
        if follows && claim.wait().await {
            process.health_state.set_role(leads);
            announce(args, settings.roles, process, true);
        }
        tokio::select! {
            () = claim.lost() => anyhow::anyhow!("leaderelection lost"),
            why = runtime.stalled(), if args.election.leader_elect => {
                anyhow::anyhow!("gives up the lease because it makes no progress: {why}")
            }
        }
    };
    let ended = tokio::select! {
        () = signals.next() => {
            tracing::info!("Stopping: asked to by a signal");
            Ok(())
        }
        why = runtime.failed() => Err(anyhow::anyhow!(why)),
        why = alone => Err(anyhow::anyhow!(why)),
        why = leading => Err(why),
    };
    stop::end_at_next_signal();
    stop::waiting("the engine", runtime.stop()).await;
    ended
}

fn announce(args: &cli::Run, roles: Roles, process: &Process, leads: bool) {
    let server = &process.server;
    tracing::info!(server, leader = leads, queueing = roles.queueing, placement = roles.placement, "Ready");
    if args.output == cli::Output::Json {
        let seconds = process.began.elapsed().as_secs_f64();
        let mut line = json!({"leader": leads, "server": server, "queueing": roles.queueing, "placement": roles.placement,
                          "webhooks": process.webhooks, "metrics": process.metrics,
                          "secureMetrics": process.secure_metrics, "visibility": process.visibility,
                          "seconds": seconds, "pid": std::process::id()});
        if let Some(shard) = &args.shard {
            line["shard"] = shard.as_str().into();
        }
        return say::line(&line.to_string());
    }
    let what = match (roles.queueing, roles.placement) {
        (true, true) => "queueing and placement",
        (true, false) => "queueing",
        _ => "placement",
    };
    let shard = args.shard.as_ref().map_or(String::new(), |name| format!(" of shard {name}"));
    let webhooks = process.webhooks.as_ref().map_or(String::new(), |url| format!(", webhooks at {url}"));
    say::line(&match leads {
        true => format!("plimsoll runs against {server}: {what}{shard}{webhooks}"),
        false => format!("plimsoll waits to lead at {server}: {what}{shard}"),
    });
}

fn timing(election: &cli::Election) -> anyhow::Result<Timing> {
    let timing = Timing {
        lease: election.leader_elect_lease_duration,
        renew_deadline: election.leader_elect_renew_deadline,
        retry: election.leader_elect_retry_period,
    };
    match timing.problem() {
        Some(problem) if election.leader_elect => bail!("{problem}"),
        _ => Ok(timing),
    }
}

/// The server's version, once it answers. What it refuses is not tried again.
async fn reached(client: &kube::Client, address: &str) -> anyhow::Result<String> {
    let mut pause = Duration::from_millis(100);
    let mut said = false;
    loop {
        let answer = tokio::time::timeout(DEADLINE, client.apiserver_version()).await;
        let error = match answer.unwrap_or_else(|late| Err(kube::Error::Service(late.into()))) {
            Ok(version) => return Ok(version.git_version),
            Err(e) => e,
        };
        if matches!(&error, kube::Error::Api(status) if matches!(status.code, 401 | 403)) {
            return Err(error).with_context(|| format!("asking {address} for its version"));
        }
        if !std::mem::replace(&mut said, true) {
            say::error(&format!("waiting for {address}: {error}"));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn config(args: &cli::Run) -> anyhow::Result<kube::Config> {
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    match &args.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            let config = connect::from_kubeconfig(file, &options).await;
            config.with_context(|| format!("reading {}", path.display()))
        }
        None if args.context.is_some() => {
            let file = Kubeconfig::read().context("reading the kubeconfig")?;
            connect::from_kubeconfig(file, &options).await.context("reading the kubeconfig")
        }
        None => connect::infer(&options).await.context("no kubeconfig and no service account found"),
    }
}
