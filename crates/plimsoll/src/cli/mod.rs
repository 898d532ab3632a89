//! The command line.

mod bench;
mod import;
mod install;
mod parse;
mod plugins;
mod queue;
mod uninstall;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub use bench::{Bench, BenchAdmission, BenchApi, BenchCluster, BenchPlacement, BenchSoak};
pub use import::Import;
pub use install::{FailurePolicy, Install, Manifests};
pub use plugins::{BenchPlugins, CheckPlugins, ListPlugins, PluginStatus, Plugins};
pub use queue::{
    Cluster, CreateClusterQueue, CreateKind, CreateLocalQueue, CreateResourceFlavor, Delete, DeleteWorkloads,
    DryRun, Format as QueueFormat, List, ListPods, ListWorkloads, Listed, Queue, QueueCommand, ResumeKind,
    StopKind,
};
pub use uninstall::Uninstall;

use parse::{base, bind, duration, shard, speed};

/// Batch and AI scheduler for Kubernetes: admission and scheduling in one engine.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version = env!("PLIMSOLL_LONG_VERSION"), about)]
pub struct Cli {
    /// Log filter for standard error: a level (off, error, warn, info, debug, trace), targets with levels
    /// (plimsoll_runtime=debug), or both.
    #[arg(long, global = true, env = "PLIMSOLL_LOG", default_value = "warn", value_name = "FILTER")]
    pub log: crate::log_filter::Filter,
    /// Log format.
    #[arg(
        long,
        global = true,
        env = "PLIMSOLL_LOG_FORMAT",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub log_format: Output,
    /// Send OpenTelemetry traces of admissions to this collector (OTLP over HTTP), such as http://127.0.0.1:4318.
    #[arg(long, global = true, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub tracing_endpoint: Option<String>,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a local control plane: API server, engine, controllers and simulated nodes.
    Up(Up),
    /// Run the controllers against a cluster.
    Run(Run),
    /// Print the manifests that install Plimsoll into a cluster.
    Install(Install),
    /// Remove Plimsoll from a cluster; jobs, queues and definitions stay.
    Uninstall(Uninstall),
    /// Create, list, stop and resume queues and workloads, with kueuectl's commands.
    Queue(Queue),
    /// Take running pods into the quota of queues, as Kueue's importer.
    Import(Import),
    /// Print the version of the program, and of the Kubernetes and Kueue APIs that it serves.
    Version(Version),
    /// Print the completion script of a shell.
    Completion(Completion),
    /// Print a manual page (roff).
    Man(Man),
    /// Show the scheduler's plugins, and check the files that configure them.
    Plugins {
        /// The subcommand.
        #[command(subcommand)]
        what: Plugins,
    },
    /// Run benchmarks.
    Bench {
        /// The benchmark.
        #[command(subcommand)]
        what: Bench,
    },
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// When a write is acknowledged: after fsync, or at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// After fsync.
    #[default]
    Durable,
    /// At once: a crash of the machine may lose the last writes.
    Relaxed,
}

impl Durability {
    /// The value's name on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Relaxed => "relaxed",
        }
    }
}

impl From<Durability> for plimsoll_apiserver::store::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Durable => Self::Durable,
            Durability::Relaxed => Self::Relaxed,
        }
    }
}

/// Configuration files of the engine.
#[derive(Clone, Debug, Default, Args)]
pub struct Files {
    /// Kueue's configuration file: kind Configuration, config.kueue.x-k8s.io/v1beta2 or v1beta1.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// kube-scheduler's configuration file: kind KubeSchedulerConfiguration, kubescheduler.config.k8s.io/v1.
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,
    /// kube-scheduler's feature gates, as its --feature-gates: Name=true,Other=false.
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true)]
    pub scheduler_feature_gates: String,
    /// Admit by quota alone, as Kueue does, even if no node has capacity. Required with a cluster autoscaler that adds
    /// nodes for pending pods only.
    #[arg(long)]
    pub no_joint_admission: bool,
}

/// `plimsoll up`.
#[derive(Debug, Args)]
pub struct Up {
    /// Port of the API server; 0: a free one.
    #[arg(long, default_value_t = 6443)]
    pub port: u16,
    /// Address of the API server. An address other than loopback exposes the server to your network.
    #[arg(long, default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// File to write the kubeconfig to [default: kubeconfig under --data, else plimsoll.kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Number of simulated nodes.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub nodes: usize,
    /// Manifests of the nodes to simulate (YAML or JSON, several documents).
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    pub nodes_file: Option<PathBuf>,
    /// Directory of the store and of the credentials; without it all state ends with the process. Closed to other users
    /// unless it has other contents.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Speed of simulated pods as a multiple of real time.
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = speed)]
    pub speed: f64,
    /// Kinds of jobs to serve with simulated operators, comma-separated.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = ["all", "appwrapper", "jobset", "kubeflow", "lws", "mpi", "ray", "spark", "trainer"])]
    pub with: Vec<String>,
    /// When a write is acknowledged: after fsync, or at once.
    #[arg(long, value_enum, default_value_t)]
    pub durability: Durability,
    /// Start without the engine: API server with Kueue's kinds, controllers and simulated nodes only, for `plimsoll run`
    /// or any other scheduler.
    #[arg(long, conflicts_with_all = ["config", "scheduler_config", "no_joint_admission"])]
    pub no_scheduler: bool,
    /// Start without queueing and without Kueue's kinds and webhooks, so that Kueue can be installed.
    #[arg(long, conflicts_with_all = ["config", "no_joint_admission", "no_scheduler"])]
    pub no_queueing: bool,
    /// Start without the scheduler: pods stay pending until another one, such as kube-scheduler, binds them.
    #[arg(long, conflicts_with_all = ["scheduler_config", "no_joint_admission", "no_scheduler"])]
    pub no_placement: bool,
    /// File to append audit events to, one audit.k8s.io/v1 object per line.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,
    /// Audit policy file: kind Policy, audit.k8s.io/v1.
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    pub audit_policy_file: Option<PathBuf>,
    /// Maximum number of read requests in flight; priority and fairness divides the sum of this and
    /// --max-mutating-requests-inflight among all clients.
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_requests_inflight: u32,
    /// Maximum number of write requests in flight, added to --max-requests-inflight.
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub max_mutating_requests_inflight: u32,
    /// Admission plugins to enable in addition to kube-apiserver's defaults, comma-separated.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins of kube-apiserver's defaults to disable, comma-separated.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// Time to live of events: 90s, 15m, 2h.
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = duration)]
    pub event_ttl: Duration,
    /// Format of the message that the control plane is ready.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Address of `/metrics`, `/healthz`, `/livez` and `/readyz`, as ADDRESS:PORT or :PORT; 0 disables them.
    #[arg(long, default_value = "0", value_name = "ADDRESS", value_parser = bind)]
    pub metrics_bind_address: Bind,
    /// Configuration files.
    #[command(flatten)]
    pub files: Files,
}

/// `plimsoll run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Kubeconfig of the cluster [default: as kubectl, or the pod's service account].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long)]
    pub context: Option<String>,
    /// Run Kueue's role only: admit workloads [default: both roles].
    #[arg(long)]
    pub queueing: bool,
    /// Run kube-scheduler's role only: bind pods to nodes [default: both roles].
    #[arg(long)]
    pub placement: bool,
    /// Decide about one shard of the cluster only: nodes with the label `plimsoll.dev/shard: NAME`, and trees of cohorts of which a
    /// Cohort or ClusterQueue has it. The Lease is --leader-elect-resource-name with `-NAME`. The shard `default` has what has
    /// no label [default: the whole cluster].
    #[arg(long, value_name = "NAME", value_parser = shard, conflicts_with = "visibility_service")]
    pub shard: Option<String>,
    /// Leader election.
    #[command(flatten)]
    pub election: Election,
    /// Admission and conversion webhooks.
    #[command(flatten)]
    pub webhooks: Webhooks,
    /// Visibility API.
    #[command(flatten)]
    pub visibility: VisibilityServer,
    /// Address of `/metrics`, `/healthz`, `/livez` and `/readyz`, as ADDRESS:PORT or :PORT; 0 disables them.
    #[arg(long, default_value = "127.0.0.1:10251", value_name = "ADDRESS", value_parser = bind)]
    pub metrics_bind_address: Bind,
    /// Metrics with authentication.
    #[command(flatten)]
    pub metrics: MetricsServer,
    /// Format of the message that the controllers run.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Configuration files.
    #[command(flatten)]
    pub files: Files,
}

/// Leader election: kube-scheduler's flags, names and defaults.
#[derive(Clone, Debug, Args)]
pub struct Election {
    /// Act while holding a Lease only, so that one of several replicas acts. Set `--leader-elect=false` only if no other
    /// process has the same roles.
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          action = ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// Time that other replicas wait after the last renewal before they acquire the Lease.
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// Time that the leader retries a renewal before it ends.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Time between attempts to acquire or renew the Lease.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    /// Namespace of the Lease.
    #[arg(long, alias = "lease-namespace", default_value = "kube-system", value_name = "NAME")]
    pub leader_elect_resource_namespace: String,
    /// Name of the Lease. If another scheduler has the same Lease, only one of the two acts.
    #[arg(long, alias = "lease-name", default_value = "plimsoll", value_name = "NAME")]
    pub leader_elect_resource_name: String,
}

/// Webhooks over HTTPS. Without them jobs start before they are suspended, plain pods are not queued, and Kueue's
/// v1beta1 is not converted.
#[derive(Clone, Debug, Args)]
pub struct Webhooks {
    /// Port of the webhooks; 0: a free one [default: no webhooks].
    #[arg(long, value_name = "PORT")]
    pub webhook_port: Option<u16>,
    /// Address of the webhooks.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", requires = "webhook_port")]
    pub webhook_host: IpAddr,
    /// Service of the webhooks, in --namespace.
    #[arg(long, value_name = "NAME", requires = "webhook_port")]
    pub webhook_service: Option<String>,
    /// Service of the conversion webhook, in --namespace, which leads to replicas that are not ready, too [default: that of
    /// --webhook-service].
    #[arg(long, value_name = "NAME", requires = "webhook_service")]
    pub conversion_service: Option<String>,
    /// URL of the webhooks for the API server, without a Service [default: their address].
    #[arg(long, value_name = "URL", requires = "webhook_port", conflicts_with = "webhook_service", value_parser = base)]
    pub webhook_url: Option<String>,
    /// Namespace of the Secret with the webhooks' certificates, and of the Service.
    #[arg(long, env = "POD_NAMESPACE", default_value = plimsoll_api::webhooks::NAMESPACE, value_name = "NAME")]
    pub namespace: String,
}

/// Kueue's visibility API over HTTPS, behind the API server's aggregation layer: `kubectl get --raw
/// /apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/NAME/pendingworkloads`.
#[derive(Clone, Debug, Args)]
pub struct VisibilityServer {
    /// Port of the visibility API; 0: a free one [default: none; Kueue: 8082].
    #[arg(long, value_name = "PORT")]
    pub visibility_port: Option<u16>,
    /// Address of the visibility API.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", requires = "visibility_port")]
    pub visibility_host: IpAddr,
    /// Service of the visibility API, in --namespace, to be registered with APIServices [default: not registered].
    #[arg(long, value_name = "NAME", requires = "visibility_port")]
    pub visibility_service: Option<String>,
}

/// The same endpoints over HTTPS, for users with the right to `get` the path, such as those with ClusterRole kueue-metrics-reader.
#[derive(Clone, Debug, Args)]
pub struct MetricsServer {
    /// Port of metrics over HTTPS with authentication; 0: a free one [default: none; Kueue: 8443].
    #[arg(long, value_name = "PORT")]
    pub metrics_secure_port: Option<u16>,
    /// Address of metrics over HTTPS.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", requires = "metrics_secure_port")]
    pub metrics_secure_host: IpAddr,
    /// Service of metrics over HTTPS, in --namespace, that the certificate is for.
    #[arg(long, value_name = "NAME", requires = "metrics_secure_port")]
    pub metrics_service: Option<String>,
}

/// An address to listen on, or none.
pub type Bind = Option<SocketAddr>;

/// `plimsoll version`.
#[derive(Debug, Args)]
pub struct Version {
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
}

/// Output format of the version: kubectl's, and text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text.
    #[default]
    Text,
    /// One JSON object.
    Json,
    /// YAML.
    Yaml,
}

/// `plimsoll completion`.
#[derive(Debug, Args)]
#[command(after_help = LOADING)]
pub struct Completion {
    /// The shell.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

const LOADING: &str = "\
Load the completions:
  bash (with the package bash-completion), in this shell or in every new one:
    source <(plimsoll completion bash)
    plimsoll completion bash > ~/.local/share/bash-completion/completions/plimsoll

  zsh (after `autoload -Uz compinit && compinit`), in this shell or in every new one:
    source <(plimsoll completion zsh)
    plimsoll completion zsh > \"${fpath[1]}/_plimsoll\"

  fish, in this shell or in every new one:
    plimsoll completion fish | source
    plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish

  PowerShell, in this shell or in every new one:
    plimsoll completion powershell | Out-String | Invoke-Expression
    plimsoll completion powershell >> $PROFILE";

/// `plimsoll man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Subcommand, such as `up` or `bench api` [default: the program itself].
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of all commands into this directory instead, one file each.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub directory: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["plimsoll", "up", "--speed", "0"]).is_err());
        assert!(Cli::try_parse_from(["plimsoll", "bench", "soak", "--duration", "2h"]).is_ok());
        for wrong in ["", "2", "h", "2d", "-1s", "9999999h", "2ä"] {
            assert!(Cli::try_parse_from(["plimsoll", "bench", "soak", "--duration", wrong]).is_err());
        }
        assert!(Cli::try_parse_from(["plimsoll", "up", "--nodes", "3", "--nodes-file", "f"]).is_err());
        assert!(Cli::try_parse_from(["plimsoll", "up", "--no-scheduler", "--config", "f"]).is_err());
        assert!(Cli::try_parse_from(["plimsoll", "up", "--no-scheduler", "--no-queueing"]).is_err());
        assert!(Cli::try_parse_from(["plimsoll", "up", "--no-queueing", "--no-placement"]).is_ok());
        assert!(Cli::try_parse_from(["plimsoll", "up", "--no-queueing", "--scheduler-config", "f"]).is_ok());
        for (flag, want) in
            [("--leader-elect", true), ("--leader-elect=true", true), ("--leader-elect=false", false)]
        {
            let Command::Run(run) = Cli::try_parse_from(["plimsoll", "run", flag]).unwrap().command else {
                panic!("{flag}")
            };
            assert_eq!(run.election.leader_elect, want, "{flag}");
        }
    }
}
