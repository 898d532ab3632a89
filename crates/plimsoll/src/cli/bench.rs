//! Flags of `plimsoll bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::parse::{count, duration, rate, scale};
use super::{Durability, Output};

/// `plimsoll bench`.
#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Benchmark the API server: writes, bindings, watches, lists, memory, start, and pods from creation to binding.
    Api(BenchApi),
    /// Run a control plane under load for a long time: memory, journal, leaked objects.
    Soak(BenchSoak),
    /// Benchmark admission: Kueue's published sizes in virtual time, and single decisions in large queues.
    Admission(BenchAdmission),
    /// Benchmark scheduling: pods per second in process, time per decision, memory.
    Placement(BenchPlacement),
    /// Benchmark `plimsoll run`, and other controllers in turns, on a real kube-apiserver.
    Cluster(BenchCluster),
}

/// `plimsoll bench cluster`.
#[derive(Debug, Args)]
pub struct BenchCluster {
    /// Rows to run, by name: those of `bench placement`, pods, idle, mixed-churn, gates, volumes, devices, baseline,
    /// large-scale, tas; test cases of scheduler_perf by theirs, too [default: all with up to 10,000 nodes].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub rows: Vec<String>,
    /// Factor of the number of nodes and pods, and of workloads per ClusterQueue: 0.1 for a quick run.
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale)]
    pub scale: f64,
    /// Directory of `etcd` and `kube-apiserver`. A `kube-scheduler` and a `minimalkueue` there are
    /// measured, too.
    #[arg(long, value_name = "DIR", env = "KUBEBUILDER_ASSETS")]
    pub assets: Option<PathBuf>,
    /// Another controller to measure in turns: its name and its command, in which {kubeconfig} stands for a file, such as
    /// 'kueue=./minimalkueue --kubeconfig {kubeconfig}'. May be given several times.
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    pub peers: Vec<String>,
    /// Another scheduler to measure in turns in the rows about pods, as --peer.
    #[arg(long = "scheduler", value_name = "NAME=COMMAND")]
    pub schedulers: Vec<String>,
    /// Requests a second that `plimsoll run` may make with each client, with twice as many at once, as in Kueue's own test
    /// (50) [default: no limit]. Peers have limits of their own.
    #[arg(long, value_name = "N")]
    pub qps: Option<u32>,
    /// Append each row to this file as a line of JSON, with time, commit, machine, load and command.
    #[arg(long, value_name = "FILE")]
    pub history: Option<PathBuf>,
    /// Number of turns of each controller.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: u32,
    /// Longest time of a turn.
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = duration)]
    pub timeout: Duration,
    /// Directory for temporary files [default: the system's].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// Hide progress bars.
    #[arg(long)]
    pub quiet: bool,
}

/// `plimsoll bench placement`.
#[derive(Debug, Args)]
pub struct BenchPlacement {
    /// Rows to run, by name [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub rows: Vec<String>,
    /// Number of nodes instead of the workload's; pods in proportion.
    #[arg(long, value_name = "N", value_parser = count)]
    pub nodes: Option<usize>,
    /// Number of pods instead of the workload's.
    #[arg(long, value_name = "N", value_parser = count)]
    pub pods: Option<usize>,
    /// Run at 1,000, 10,000 and 100,000 nodes and up to 1,000,000 pods, print tables and draw the time of a decision into
    /// this file (SVG).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "pods"])]
    pub curve: Option<PathBuf>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// Hide progress bars.
    #[arg(long)]
    pub quiet: bool,
    /// Run one row in this process.
    #[arg(long, hide = true)]
    pub child: Option<String>,
}

/// `plimsoll bench admission`.
#[derive(Debug, Args)]
pub struct BenchAdmission {
    /// Generator configurations, instead of the built-in ones.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Rows to run, by name: baseline, large-scale, tas, single [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub rows: Vec<String>,
    /// Factor of the number of workloads per ClusterQueue: 0.1 for a quick run.
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale)]
    pub scale: f64,
    /// Writes per second of a throttled client, as in Kueue's own test; 0: only the run in which writes cost nothing.
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub writes: u32,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// Hide progress bars.
    #[arg(long)]
    pub quiet: bool,
}

/// `plimsoll bench api`.
#[derive(Debug, Args)]
pub struct BenchApi {
    /// Rows to run, by name [default: all].
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub rows: Vec<String>,
    /// Factor of all sizes: 0.1 for a quick run.
    #[arg(long, default_value_t = 1.0, value_name = "X", value_parser = scale)]
    pub scale: f64,
    /// Number of connections of the rows that write over several.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: u16,
    /// Kubeconfig of an API server to benchmark instead of the embedded one. A namespace is created there and deleted.
    #[arg(long, value_name = "KUBECONFIG")]
    pub server: Option<PathBuf>,
    /// Directory of `etcd` and `kube-apiserver`, to benchmark in turns with the embedded API server: same load, same
    /// client. etcd runs without fsync where the embedded server does.
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    pub kube_apiserver: Option<PathBuf>,
    /// Directory for temporary stores [default: the system's for temporary files].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// When a write is acknowledged [default: durable in the rows that measure it, relaxed in the others].
    #[arg(long, value_enum)]
    pub durability: Option<Durability>,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// Hide progress bars.
    #[arg(long)]
    pub quiet: bool,
    /// Run one row in this process; with --kube-apiserver, on that server.
    #[arg(long, hide = true)]
    pub child: Option<String>,
}

/// `plimsoll bench soak`.
#[derive(Debug, Args)]
pub struct BenchSoak {
    /// Duration of the run: 90s, 15m, 2h.
    #[arg(long, default_value = "2h", value_name = "TIME", value_parser = duration)]
    pub duration: Duration,
    /// Jobs created per second.
    #[arg(long, default_value_t = 10.0, value_name = "N", value_parser = rate)]
    pub jobs: f64,
    /// Directory of `etcd` and `kube-apiserver`: `plimsoll run` under load on these, killed now and then, instead of the
    /// embedded control plane.
    #[arg(long, value_name = "DIR")]
    pub kube_apiserver: Option<PathBuf>,
    /// With --kube-apiserver: time from one kill of `plimsoll run` to the next.
    #[arg(long, default_value = "15m", value_name = "TIME", value_parser = duration)]
    pub kill_every: Duration,
    /// Number of clients that connect, watch for a moment and disconnect.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub watchers: usize,
    /// Time to live of events; memory grows at least until the first ones expire.
    #[arg(long, default_value = "1h", value_name = "TIME", value_parser = duration)]
    pub event_ttl: Duration,
    /// Directory for the temporary store [default: the system's for temporary files].
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// When a write is acknowledged: after fsync, or at once.
    #[arg(long, value_enum, default_value_t)]
    pub durability: Durability,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// Hide the progress bar.
    #[arg(long)]
    pub quiet: bool,
}
