//! Arguments of `plimsoll queue`: kueuectl's.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `plimsoll queue`.
#[derive(Debug, Args)]
pub struct Queue {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: Cluster,
    /// The subcommand.
    #[command(subcommand)]
    pub what: QueueCommand,
}

/// A cluster and a namespace in it.
#[derive(Clone, Debug, Args)]
pub struct Cluster {
    /// Kubeconfig of the cluster [default: as kubectl].
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Namespace [default: that of the context].
    #[arg(long, short, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
}

/// Subcommands of `plimsoll queue`.
#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// Create a resource.
    Create(Create),
    /// Display resources.
    List {
        /// The kind.
        #[command(subcommand)]
        what: List,
    },
    /// Stop the resource.
    Stop(Stop),
    /// Resume the resource.
    Resume(Resume),
    /// Delete a resource: a workload with its job, other kinds with kubectl.
    Delete {
        /// The kind.
        #[command(subcommand)]
        what: Delete,
    },
    /// Display a resource (kubectl get).
    Get(PassThrough),
    /// Edit a resource on the server (kubectl edit).
    Edit(PassThrough),
    /// Show details of a resource (kubectl describe).
    Describe(PassThrough),
    /// Update fields of a resource (kubectl patch).
    Patch(PassThrough),
}

/// Arguments that kubectl gets as they are.
#[derive(Clone, Debug, Args)]
pub struct PassThrough {
    /// Arguments of kubectl: kind, name, flags.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}

/// How a write is tried only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// It is made.
    #[default]
    None,
    /// The request is sent, and nothing is kept.
    Server,
    /// Only what would be sent is printed.
    Client,
}

/// Output formats of objects, as kubectl's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object.
    Json,
    /// YAML.
    Yaml,
    /// Kind and name.
    Name,
    /// A table with more columns.
    Wide,
}

/// `plimsoll queue create`.
#[derive(Debug, Args)]
pub struct Create {
    /// Dry run.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "STRATEGY")]
    pub dry_run: DryRun,
    /// Output format [default: a message].
    #[arg(long, short, global = true, value_enum)]
    pub output: Option<Format>,
    /// The kind.
    #[command(subcommand)]
    pub what: CreateKind,
}

/// Kinds that can be created.
#[derive(Debug, Subcommand)]
pub enum CreateKind {
    /// Create a ClusterQueue.
    #[command(name = "clusterqueue", alias = "cq")]
    ClusterQueue(CreateClusterQueue),
    /// Create a LocalQueue.
    #[command(name = "localqueue", alias = "lq")]
    LocalQueue(CreateLocalQueue),
    /// Create a ResourceFlavor.
    #[command(name = "resourceflavor", alias = "rf")]
    ResourceFlavor(CreateResourceFlavor),
}

/// `plimsoll queue create clusterqueue`.
#[derive(Debug, Args)]
pub struct CreateClusterQueue {
    /// Name.
    pub name: String,
    /// The cohort that this ClusterQueue belongs to.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub cohort: String,
    /// Queueing strategy: BestEffortFIFO or StrictFIFO.
    #[arg(long, value_name = "STRATEGY", default_value = "BestEffortFIFO")]
    pub queuing_strategy: String,
    /// Labels of the namespaces that may use it [default: all namespaces may].
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub namespace_selector: Vec<String>,
    /// Preemption of workloads of other ClusterQueues in the cohort: Never, LowerPriority or Any.
    #[arg(long, value_name = "POLICY", default_value = "Never")]
    pub reclaim_within_cohort: String,
    /// Preemption of workloads of this ClusterQueue: Never, LowerPriority or LowerOrNewerEqualPriority.
    #[arg(long, value_name = "POLICY", default_value = "Never")]
    pub preemption_within_cluster_queue: String,
    /// Quota by flavor: `alpha:cpu=9;memory=36Gi,beta:cpu=18;memory=72Gi`.
    #[arg(long, value_name = "FLAVOR:RESOURCE=VALUE", value_delimiter = ',')]
    pub nominal_quota: Vec<String>,
    /// Most that may be borrowed, by flavor.
    #[arg(long, value_name = "FLAVOR:RESOURCE=VALUE", value_delimiter = ',')]
    pub borrowing_limit: Vec<String>,
    /// Most that may be lent, by flavor.
    #[arg(long, value_name = "FLAVOR:RESOURCE=VALUE", value_delimiter = ',')]
    pub lending_limit: Vec<String>,
}

/// `plimsoll queue create localqueue`.
#[derive(Debug, Args)]
pub struct CreateLocalQueue {
    /// Name.
    pub name: String,
    /// The ClusterQueue that it leads to.
    #[arg(long, short, value_name = "NAME")]
    pub clusterqueue: String,
    /// Create it also if there is no such ClusterQueue.
    #[arg(long, short)]
    pub ignore_unknown_cq: bool,
}

/// `plimsoll queue create resourceflavor`.
#[derive(Debug, Args)]
pub struct CreateResourceFlavor {
    /// Name.
    pub name: String,
    /// Labels of its nodes.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub node_labels: Vec<String>,
    /// Taints of its nodes.
    #[arg(long, value_name = "KEY[=VALUE]:EFFECT", value_delimiter = ',')]
    pub node_taints: Vec<String>,
    /// Tolerations that its pods get.
    #[arg(long, value_name = "KEY[=VALUE][:EFFECT]", value_delimiter = ',')]
    pub tolerations: Vec<String>,
}

/// Which objects are listed, and how.
#[derive(Clone, Debug, Args)]
pub struct Listed {
    /// Label selector.
    #[arg(long, short = 'l', value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    pub selector: String,
    /// Field selector.
    #[arg(long, value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    pub field_selector: String,
    /// Output format [default: a table].
    #[arg(long, short, value_enum)]
    pub output: Option<Format>,
}

/// `plimsoll queue list`.
#[derive(Debug, Subcommand)]
pub enum List {
    /// List ClusterQueues.
    #[command(name = "clusterqueue", alias = "cq")]
    ClusterQueue {
        /// Which, and how.
        #[command(flatten)]
        listed: Listed,
        /// Only those that are active, or that are not.
        #[arg(long, value_name = "BOOL", value_delimiter = ',')]
        active: Vec<bool>,
    },
    /// List LocalQueues.
    #[command(name = "localqueue", alias = "lq")]
    LocalQueue {
        /// Which, and how.
        #[command(flatten)]
        listed: Listed,
        /// Only those of this ClusterQueue.
        #[arg(long, short, value_name = "NAME")]
        clusterqueue: Option<String>,
        /// List those of all namespaces.
        #[arg(long, short = 'A')]
        all_namespaces: bool,
    },
    /// List workloads, with the position in the queue of those that wait.
    #[command(name = "workload", aliases = ["kwl", "kueueworkload", "kueueworkloads"])]
    Workload(ListWorkloads),
    /// List ResourceFlavors.
    #[command(name = "resourceflavor", alias = "rf")]
    ResourceFlavor {
        /// Which, and how.
        #[command(flatten)]
        listed: Listed,
    },
    /// List the pods of a job.
    #[command(alias = "po")]
    Pods(ListPods),
}

/// `plimsoll queue list workload`.
#[derive(Debug, Args)]
pub struct ListWorkloads {
    /// Which, and how.
    #[command(flatten)]
    pub listed: Listed,
    /// Only those that have quota in this ClusterQueue.
    #[arg(long, short, value_name = "NAME")]
    pub clusterqueue: Option<String>,
    /// Only those of this LocalQueue.
    #[arg(long, short = 'q', value_name = "NAME")]
    pub localqueue: Option<String>,
    /// Only those in this state, which may be given several times: all, pending, quotareserved, admitted, finished.
    #[arg(long, value_name = "STATUS")]
    pub status: Vec<String>,
    /// Only those of this job: `job/NAME`, `pytorchjob.kubeflow.org/NAME`.
    #[arg(long = "for", value_name = "TYPE[.GROUP]/NAME")]
    pub of: Option<String>,
    /// List those of all namespaces.
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
}

/// `plimsoll queue list pods`.
#[derive(Debug, Args)]
pub struct ListPods {
    /// Which, and how.
    #[command(flatten)]
    pub listed: Listed,
    /// The job, or a pod of a group: `job/NAME`, `pod/NAME`.
    #[arg(long = "for", value_name = "TYPE[.GROUP]/NAME")]
    pub of: String,
    /// Look for it in all namespaces.
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
}

/// `plimsoll queue stop`.
#[derive(Debug, Args)]
pub struct Stop {
    /// Dry run.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "STRATEGY")]
    pub dry_run: DryRun,
    /// Output format [default: a message].
    #[arg(long, short, global = true, value_enum)]
    pub output: Option<Format>,
    /// The kind.
    #[command(subcommand)]
    pub what: StopKind,
}

/// What can be stopped.
#[derive(Debug, Subcommand)]
pub enum StopKind {
    /// Put a ClusterQueue on hold, and evict what runs.
    #[command(name = "clusterqueue", alias = "cq")]
    ClusterQueue(StopQueue),
    /// Put a LocalQueue on hold, and evict what runs.
    #[command(name = "localqueue", alias = "lq")]
    LocalQueue(StopQueue),
    /// Put a workload on hold: it is not admitted, and is evicted if it runs.
    #[command(name = "workload", aliases = ["kwl", "kueueworkload", "kueueworkloads"])]
    Workload(Named),
}

/// A queue to stop.
#[derive(Debug, Args)]
pub struct StopQueue {
    /// Name.
    pub name: String,
    /// Let workloads that run go on.
    #[arg(long)]
    pub keep_already_running: bool,
}

/// An object by its name.
#[derive(Debug, Args)]
pub struct Named {
    /// Name.
    pub name: String,
}

/// `plimsoll queue resume`.
#[derive(Debug, Args)]
pub struct Resume {
    /// Dry run.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "STRATEGY")]
    pub dry_run: DryRun,
    /// Output format [default: a message].
    #[arg(long, short, global = true, value_enum)]
    pub output: Option<Format>,
    /// The kind.
    #[command(subcommand)]
    pub what: ResumeKind,
}

/// What can be resumed.
#[derive(Debug, Subcommand)]
pub enum ResumeKind {
    /// Resume a ClusterQueue.
    #[command(name = "clusterqueue", alias = "cq")]
    ClusterQueue(Named),
    /// Resume a LocalQueue.
    #[command(name = "localqueue", alias = "lq")]
    LocalQueue(Named),
    /// Resume a workload.
    #[command(name = "workload", aliases = ["kwl", "kueueworkload", "kueueworkloads"])]
    Workload(Named),
}

/// `plimsoll queue delete`.
#[derive(Debug, Subcommand)]
pub enum Delete {
    /// Delete workloads and their jobs.
    #[command(name = "workload", aliases = ["kwl", "kueueworkload", "kueueworkloads"])]
    Workload(DeleteWorkloads),
    /// Delete something else with kubectl.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// `plimsoll queue delete workload`.
#[derive(Debug, Args)]
pub struct DeleteWorkloads {
    /// Names.
    pub names: Vec<String>,
    /// Delete without asking.
    #[arg(long, short)]
    pub yes: bool,
    /// Delete all workloads of the namespace.
    #[arg(long)]
    pub all: bool,
    /// With --all, delete those of all namespaces.
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    /// Dry run.
    #[arg(long, value_enum, default_value_t, value_name = "STRATEGY")]
    pub dry_run: DryRun,
}
