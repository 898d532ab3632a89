//! Arguments of `plimsoll import`: those of Kueue's importer.

use std::path::PathBuf;

use clap::{ArgAction, Args};

/// `plimsoll import`.
#[derive(Debug, Args)]
#[command(after_help = "\
Import the pods of a namespace into the queue that a label of theirs names, while no queue manager manages pods:
  plimsoll import -n team --queuelabel project --queuemapping alpha=gpu-queue,beta=cpu-queue
  plimsoll import -n team --queuelabel project --queuemapping alpha=gpu-queue,beta=cpu-queue --dry-run=false

A mapping file is a YAML list of rules; the first that matches decides:
  - match: {priorityClassName: low, labels: {project: alpha}}
    toLocalQueue: low-queue
  - match: {labels: {project: infra}}
    skip: true")]
pub struct Import {
    /// Kubeconfig of the cluster [default: as kubectl].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long)]
    pub context: Option<String>,
    /// Namespace of pods to import; may be repeated.
    #[arg(long, short, required = true, value_delimiter = ',', value_name = "NAME")]
    pub namespace: Vec<String>,
    /// Label whose value identifies the LocalQueue of a pod.
    #[arg(
        long = "queuelabel",
        value_name = "KEY",
        requires = "queuemapping",
        required_unless_present = "queuemapping_file",
        conflicts_with = "queuemapping_file"
    )]
    pub queuelabel: Option<String>,
    /// LocalQueues by the value of that label.
    #[arg(
        long = "queuemapping",
        value_name = "VALUE=LOCALQUEUE",
        requires = "queuelabel",
        value_delimiter = ','
    )]
    pub queuemapping: Vec<String>,
    /// File with rules from labels and priority classes to LocalQueues.
    #[arg(long = "queuemapping-file", value_name = "FILE")]
    pub queuemapping_file: Option<PathBuf>,
    /// More labels for the pods and their workloads.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub add_labels: Vec<String>,
    /// Prefixes of resources without quota, as in `resources.excludeResourcePrefixes`.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',')]
    pub exclude_resource_prefixes: Vec<String>,
    /// Number of pods that are imported at a time.
    #[arg(long, short, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub concurrent_workers: u16,
    /// Check only; false: import after the check.
    #[arg(
        long,
        value_name = "true|false",
        action = ArgAction::Set,
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true
    )]
    pub dry_run: bool,
}
