//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

use crate::describe::{Completion, Man, Version};

/// Batch and AI scheduler for Kubernetes: queueing and placement in one engine.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version = env!("PLIMSOLL_LONG_VERSION"), about)]
pub struct Cli {
    /// What to log, to standard error: a level (off, error, warn, info, debug, trace), targets with levels
    /// (plimsoll_runtime=debug), or both.
    #[arg(long, global = true, env = "PLIMSOLL_LOG", default_value = "warn", value_name = "FILTER")]
    pub log: crate::logging::Filter,
    /// Format of the log.
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
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a control plane on this machine: API server, engine, controllers and simulated nodes.
    Up(Up),
    /// Queue and place in a cluster.
    Run(Run),
    /// Print the version: of the program, and of the Kubernetes and Kueue APIs that it speaks.
    Version(Version),
    /// Print the completion script of a shell.
    Completion(Completion),
    /// Print a manual page (roff).
    Man(Man),
    /// Measure.
    Bench {
        /// What to measure.
        #[command(subcommand)]
        what: Bench,
    },
}

/// How output is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// When a write counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// When it is on disk.
    #[default]
    Durable,
    /// At once; a crash of the machine may take back the last moment.
    Relaxed,
}

impl Durability {
    /// As it is written on the command line.
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
    /// Admit by quota alone, as Kueue does, also where nodes have no room. Needed where a cluster autoscaler brings
    /// nodes only for pods that are pending.
    #[arg(long)]
    pub no_joint_admission: bool,
}

/// `plimsoll up`.
#[derive(Debug, Args)]
pub struct Up {
    /// Port of the API server; 0 takes a free one.
    #[arg(long, default_value_t = 6443)]
    pub port: u16,
    /// Address of the API server. Anything but a loopback address lets others on your network try to connect.
    #[arg(long, default_value = "127.0.0.1")]
    pub bind: IpAddr,
    /// Where to write the kubeconfig [default: kubeconfig under --data, else plimsoll.kubeconfig].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Number of simulated nodes.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub nodes: usize,
    /// Node manifests to simulate instead (YAML or JSON, several documents).
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    pub nodes_file: Option<PathBuf>,
    /// Directory that keeps everything, credentials too; without it nothing outlives the process. Closed to other users
    /// unless it holds other things.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// How many times faster than real time pods run.
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = speed)]
    pub speed: f64,
    /// When a write counts as done.
    #[arg(long, value_enum, default_value_t)]
    pub durability: Durability,
    /// No engine: only the API server with Kueue's kinds, the controllers and the simulated nodes. `plimsoll run` or
    /// any other scheduler does the rest from outside.
    #[arg(long, conflicts_with_all = ["config", "scheduler_config", "no_joint_admission"])]
    pub no_scheduler: bool,
    /// No queueing, and nothing of Kueue's: neither its kinds nor its webhooks. Kueue can be installed instead.
    #[arg(long, conflicts_with_all = ["config", "no_joint_admission", "no_scheduler"])]
    pub no_queueing: bool,
    /// No placement: pods stay pending until another scheduler places them, such as kube-scheduler.
    #[arg(long, conflicts_with_all = ["scheduler_config", "no_joint_admission", "no_scheduler"])]
    pub no_placement: bool,
    /// Where to record requests: lines of audit.k8s.io/v1 events are added to this file.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,
    /// Which requests to record and how much of them: kind Policy, audit.k8s.io/v1.
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    pub audit_policy_file: Option<PathBuf>,
    /// Requests that only read and are served at one time; priority and fairness divides these and those of
    /// --max-mutating-requests-inflight among all clients.
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_requests_inflight: u32,
    /// Requests that write and are served at one time, to be added to --max-requests-inflight.
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub max_mutating_requests_inflight: u32,
    /// Admission plugins to enable beside those that kube-apiserver enables by default, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable although kube-apiserver enables them by default, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
    /// How long events stay: 90s, 15m, 2h.
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = duration)]
    pub event_ttl: Duration,
    /// How to say that it is ready.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Where `/metrics`, `/healthz`, `/livez` and `/readyz` are served, as ADDRESS:PORT or :PORT; 0: nowhere.
    #[arg(long, default_value = "0", value_name = "ADDRESS", value_parser = bind)]
    pub metrics_bind_address: Bind,
    /// Configuration files.
    #[command(flatten)]
    pub files: Files,
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && (0.001..=1e6).contains(&x) => Ok(x),
        Ok(_) => Err("must be between 0.001 and 1000000".into()),
        Err(e) => Err(e.to_string()),
    }
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
    /// Queue workloads, as Kueue does [default: both roles].
    #[arg(long)]
    pub queueing: bool,
    /// Place pods, as kube-scheduler does [default: both roles].
    #[arg(long)]
    pub placement: bool,
    /// Who writes where several run.
    #[command(flatten)]
    pub election: Election,
    /// Admission and conversion webhooks.
    #[command(flatten)]
    pub webhooks: Webhooks,
    /// Where `/metrics`, `/healthz`, `/livez` and `/readyz` are served, as ADDRESS:PORT or :PORT; 0: nowhere.
    #[arg(long, default_value = "127.0.0.1:10251", value_name = "ADDRESS", value_parser = bind)]
    pub metrics_bind_address: Bind,
    /// How to say that it runs.
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// Configuration files.
    #[command(flatten)]
    pub files: Files,
}

/// Leader election: kube-scheduler's flags, names and defaults.
#[derive(Clone, Debug, Args)]
pub struct Election {
    /// Act only while holding a Lease, so that several can run and one acts. `--leader-elect=false`: only where
    /// nothing else runs with the same roles.
    #[arg(long, default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true",
          action = ArgAction::Set, value_name = "BOOL")]
    pub leader_elect: bool,
    /// How long others wait after the last renewal before they take over.
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,
    /// Pause between tries.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = duration)]
    pub leader_elect_retry_period: Duration,
    /// Namespace of the Lease.
    #[arg(long, alias = "lease-namespace", default_value = "kube-system", value_name = "NAME")]
    pub leader_elect_resource_namespace: String,
    /// Name of the Lease. With the name of another scheduler's Lease, only one of the two acts.
    #[arg(long, alias = "lease-name", default_value = "plimsoll", value_name = "NAME")]
    pub leader_elect_resource_name: String,
}

/// Webhooks over HTTPS: without them, jobs start before they are stopped again, plain pods are not queued, and
/// Kueue's old version is not converted.
#[derive(Clone, Debug, Args)]
pub struct Webhooks {
    /// Port of the webhooks; 0 takes a free one [default: none are served].
    #[arg(long, value_name = "PORT")]
    pub webhook_port: Option<u16>,
    /// Address of the webhooks.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", requires = "webhook_port")]
    pub webhook_host: IpAddr,
    /// Service by which the API server reaches the webhooks, in --namespace.
    #[arg(long, value_name = "NAME", requires = "webhook_port")]
    pub webhook_service: Option<String>,
    /// Where the API server reaches the webhooks, without a Service [default: their address].
    #[arg(long, value_name = "URL", requires = "webhook_port", conflicts_with = "webhook_service", value_parser = base)]
    pub webhook_url: Option<String>,
    /// Namespace of this process: of the Secret with the webhooks' certificates, and of the Service.
    #[arg(long, env = "POD_NAMESPACE", default_value = plimsoll_api::webhooks::NAMESPACE, value_name = "NAME")]
    pub namespace: String,
}

/// An address to listen on, or none.
pub type Bind = Option<SocketAddr>;

/// As controller-runtime reads it: `:8080` is all addresses, `0` none.
fn bind(text: &str) -> Result<Option<SocketAddr>, String> {
    match text.strip_prefix(':') {
        _ if text == "0" => Ok(None),
        Some(port) => match port.parse() {
            Ok(port) => Ok(Some(SocketAddr::new(std::net::Ipv6Addr::UNSPECIFIED.into(), port))),
            Err(_) => Err("the port must be between 0 and 65535".into()),
        },
        None => text.parse().map(Some).map_err(|_| "must be ADDRESS:PORT, :PORT or 0".into()),
    }
}

/// A URL to append paths to.
fn base(text: &str) -> Result<String, String> {
    let uri: http::Uri = text.parse().map_err(|e: http::uri::InvalidUri| e.to_string())?;
    if uri.scheme_str() != Some("https") || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err("must be https://HOST or https://HOST:PORT, with a path or without".into());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// `plimsoll bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// The API server: writes, bindings, watches, lists, memory, start, and pods from creation to binding.
    Api(BenchApi),
    /// A control plane under load for a long time: memory, journal, and what stays behind.
    Soak(BenchSoak),
    /// Queueing: Kueue's published sizes in virtual time, and single decisions in large queues.
    Admission(BenchAdmission),
    /// Placement: pods placed per second in process, time per decision, memory.
    Placement(BenchPlacement),
}

/// `plimsoll bench placement`.
#[derive(Debug, Args)]
pub struct BenchPlacement {
    /// Rows to measure, by name [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub rows: Vec<String>,
    /// So many nodes instead of the workload's; pods in proportion.
    #[arg(long, value_name = "N", value_parser = count)]
    pub nodes: Option<usize>,
    /// So many pods instead of the workload's.
    #[arg(long, value_name = "N", value_parser = count)]
    pub pods: Option<usize>,
    /// Measure at 1,000, 10,000 and 100,000 nodes, print a table and draw the time of a decision into this file (SVG).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "pods"])]
    pub curve: Option<PathBuf>,
    /// How to print the result.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// No progress bars.
    #[arg(long)]
    pub quiet: bool,
    /// Measures one row in this process.
    #[arg(long, hide = true)]
    pub child: Option<String>,
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=10_000_000).contains(&n) => Ok(n),
        Ok(_) => Err("must be between 1 and 10000000".into()),
        Err(e) => Err(e.to_string()),
    }
}

/// `plimsoll bench admission`.
#[derive(Debug, Args)]
pub struct BenchAdmission {
    /// Descriptions of what to generate, instead of those that come with the program.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// What to run, by name: baseline, large-scale, tas, single [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub rows: Vec<String>,
    /// Factor of the number of workloads per ClusterQueue: 0.1 for a quick look.
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale)]
    pub scale: f64,
    /// Writes per second of a second run with a limited client, as in Kueue's own test; 0: only without a limit.
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub writes: u32,
    /// How to print the result.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// No progress bars.
    #[arg(long)]
    pub quiet: bool,
}

/// `plimsoll bench api`.
#[derive(Debug, Args)]
pub struct BenchApi {
    /// Rows to measure, by name [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub rows: Vec<String>,
    /// Factor of all sizes: 0.1 for a quick look.
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale)]
    pub scale: f64,
    /// Connections of the rows that write from several.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: u16,
    /// Measure the API server of this kubeconfig instead of one of our own. A namespace is made there and removed.
    #[arg(long, value_name = "KUBECONFIG")]
    pub server: Option<PathBuf>,
    /// Measure kube-apiserver side by side: the programs `etcd` and `kube-apiserver` of this directory get the same load
    /// from the same client, in turns with ours. Where no write needs to be on disk, etcd runs without fsync too.
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    pub kube_apiserver: Option<PathBuf>,
    /// Directory under which stores are made and removed [default: the system's for temporary files].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// When a write counts as done [default: durable in the rows about that, relaxed in the others].
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// How to print the result.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// No progress bars.
    #[arg(long)]
    pub quiet: bool,
    /// Measures one row in this process; with --kube-apiserver, that one.
    #[arg(long, hide = true)]
    pub child: Option<String>,
}

/// `plimsoll bench soak`.
#[derive(Debug, Args)]
pub struct BenchSoak {
    /// How long: 90s, 15m, 2h.
    #[arg(long, default_value = "2h", value_name = "TIME", value_parser = duration)]
    pub duration: Duration,
    /// Jobs a second.
    #[arg(long, default_value_t = 10.0, value_name = "N", value_parser = rate)]
    pub jobs: f64,
    /// Clients that connect, watch for a moment and leave.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub watchers: usize,
    /// How long events stay; memory grows at least until the first ones go.
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = duration)]
    pub event_ttl: Duration,
    /// Directory under which the store is made and removed [default: the system's for temporary files].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// When a write counts as done.
    #[arg(long, value_enum, default_value_t)]
    pub durability: Durability,
    /// How to print the result.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// No progress bar.
    #[arg(long)]
    pub quiet: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(char::is_alphabetic);
    let millis = match text.get(digits.len()..).unwrap_or_default() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("must end in ms, s, m or h".into()),
    };
    match digits.parse::<u64>() {
        Ok(n) if (1..=1_000_000).contains(&n) => Ok(Duration::from_millis(n * millis)),
        Ok(_) => Err("must be between 1 and 1000000".into()),
        Err(e) => Err(e.to_string()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && (0.01..=1000.0).contains(&x) => Ok(x),
        Ok(_) => Err("must be between 0.01 and 1000".into()),
        Err(e) => Err(e.to_string()),
    }
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && (0.001..=100.0).contains(&x) => Ok(x),
        Ok(_) => Err("must be between 0.001 and 100".into()),
        Err(e) => Err(e.to_string()),
    }
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
