//! `plimsoll run`: the engine against a cluster.

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_runtime::api::Api;
use plimsoll_runtime::cache::Cache;
use plimsoll_runtime::lease::{self, Claim, Timing};
use plimsoll_runtime::{Roles, Runtime};
use tokio_util::sync::CancellationToken;

use crate::{cli, configure, say, up};

/// Runs until stopped by a signal.
pub async fn run(args: cli::Run) -> anyhow::Result<()> {
    let config = config(&args).await?;
    let address = config.cluster_url.to_string();
    let client = kube::Client::try_from(config).context("connecting")?;
    let version =
        client.apiserver_version().await.with_context(|| format!("asking {address} for its version"))?;
    let both = args.queueing == args.placement;
    let roles = Roles { queueing: both || args.queueing, placement: both || args.placement };
    let stop = CancellationToken::new();
    let api = Api::new(client, "plimsoll-leader-election");
    let (claim, election) = if args.no_leader_election {
        (Claim::always(), None)
    } else {
        let me = format!("{}_{}", hostname(), std::process::id());
        let (namespace, name) = (args.lease_namespace.clone(), args.lease_name.clone());
        let (claim, work) = lease::run(api.clone(), namespace, name, me, Timing::default(), stop.clone());
        (claim, Some(tokio::spawn(work)))
    };
    let settings = configure::settings(&args.files, roles)?;
    let runtime = Runtime::start(&api, &settings, Cache::default(), &claim).context("starting the engine")?;
    let what = match (roles.queueing, roles.placement) {
        (true, true) => "queueing and placement",
        (true, false) => "queueing",
        _ => "placement",
    };
    say::line(&format!("plimsoll runs against {address} (Kubernetes {}): {what}", version.git_version));
    let ended = tokio::select! {
        () = up::signal() => Ok(()),
        () = runtime.failed() => Err(anyhow::anyhow!("the engine has failed; see the log")),
    };
    runtime.stop().await;
    stop.cancel();
    if let Some(election) = election {
        let _ = election.await;
    }
    ended
}

async fn config(args: &cli::Run) -> anyhow::Result<kube::Config> {
    let options = KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    match &args.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            let config = kube::Config::from_custom_kubeconfig(file, &options).await;
            config.with_context(|| format!("reading {}", path.display()))
        }
        None if args.context.is_some() => {
            kube::Config::from_kubeconfig(&options).await.context("reading the kubeconfig")
        }
        None => kube::Config::infer().await.context("no kubeconfig and no service account found"),
    }
}

fn hostname() -> String {
    let read =
        |p: &str| std::fs::read_to_string(p).ok().map(|t| t.trim().to_owned()).filter(|t| !t.is_empty());
    let name = std::env::var("HOSTNAME").ok().or_else(|| read("/proc/sys/kernel/hostname"));
    name.unwrap_or_else(|| "plimsoll".into())
}
