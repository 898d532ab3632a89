//! Arguments of `plimsoll install`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::parse::shard;

/// `plimsoll install`.
#[derive(Debug, Args)]
#[command(after_help = "\
Install, and wait until it runs:
  plimsoll install --image registry.example.com/plimsoll:1.0 | kubectl apply --server-side -f -
  kubectl -n plimsoll-system rollout status deployment/plimsoll

Without another scheduler in the cluster, on named nodes:
  plimsoll install --node cp-1 --node cp-2 | kubectl apply --server-side -f -

Several leaders, each for its own nodes and queues:
  plimsoll install --shards default,research | kubectl apply --server-side -f -")]
pub struct Install {
    /// Namespace to install into.
    #[arg(long, default_value = plimsoll_api::webhooks::NAMESPACE, value_name = "NAME")]
    pub namespace: String,
    /// Image with plimsoll in its PATH.
    #[arg(long, default_value = "plimsoll:latest", value_name = "IMAGE")]
    pub image: String,
    /// Number of replicas, of which one leads.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=99))]
    pub replicas: u16,
    /// Node to run a replica on; may be repeated. Its pod needs no scheduler, so it starts again when no replica is left to
    /// place it. Use it where Plimsoll is the only scheduler.
    #[arg(long, value_name = "NAME", conflicts_with = "replicas")]
    pub node: Vec<String>,
    /// Names of shards, comma-separated: a Deployment for each, whose processes run with --shard. One of them is `default`, which
    /// has what has no label plimsoll.dev/shard. The visibility API is left out: it would know the queues of one shard.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = shard)]
    pub shards: Vec<String>,
    /// Run Kueue's role only: admit workloads [default: both roles].
    #[arg(long)]
    pub queueing: bool,
    /// Run kube-scheduler's role only: bind pods to nodes [default: both roles]. Kueue's definitions and the webhooks are
    /// left out.
    #[arg(long)]
    pub placement: bool,
    /// What the API server does with jobs and pods while no replica answers its webhooks: refuse them, or let them start
    /// without being queued.
    #[arg(long, value_enum, default_value_t, value_name = "POLICY")]
    pub failure_policy: FailurePolicy,
    /// Kinds of jobs to queue, comma-separated: integrations.frameworks of Kueue's configuration file.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "config")]
    pub frameworks: Vec<String>,
    /// Kueue's configuration file, to install as a ConfigMap.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// kube-scheduler's configuration file, to install as a ConfigMap.
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Manifests,
}

/// Failure policy of the webhooks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum FailurePolicy {
    /// Requests are refused.
    #[default]
    Fail,
    /// Requests pass as they are.
    Ignore,
}

/// Output format of manifests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Manifests {
    /// YAML documents.
    #[default]
    Yaml,
    /// One List.
    Json,
}
