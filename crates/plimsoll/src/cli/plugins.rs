//! Arguments of `plimsoll plugins`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Format;
use super::parse::size;

/// Subcommands of `plimsoll plugins`.
#[derive(Debug, Subcommand)]
pub enum Plugins {
    /// Print the plugins of each profile with their extension points, and those that no profile enables.
    List(ListPlugins),
    /// Check a configuration file of kube-scheduler or Kueue, or a guest in WebAssembly.
    Check(CheckPlugins),
    /// Run benchmarks of the plugins of a configuration file of kube-scheduler, or of a WebAssembly module.
    Bench(BenchPlugins),
    /// Print whether a running process has the plugins that its files ask for.
    Status(PluginStatus),
}

/// `plimsoll plugins list`.
#[derive(Debug, Args)]
pub struct ListPlugins {
    /// kube-scheduler's configuration file; without it the default profile is shown.
    #[arg(long, value_name = "FILE")]
    pub scheduler_config: Option<PathBuf>,
    /// kube-scheduler's feature gates, as its --feature-gates: Name=true,Other=false.
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true)]
    pub scheduler_feature_gates: String,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
}

/// `plimsoll plugins check`.
#[derive(Debug, Args)]
pub struct CheckPlugins {
    /// The file: kind KubeSchedulerConfiguration or Configuration (config.kueue.x-k8s.io), or a WebAssembly module.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Configuration (guestConfig) to start a WebAssembly module with.
    #[arg(long, value_name = "FILE")]
    pub guest_config: Option<PathBuf>,
    /// kube-scheduler's feature gates, as its --feature-gates: Name=true,Other=false.
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true)]
    pub scheduler_feature_gates: String,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
}

/// `plimsoll plugins status`.
#[derive(Debug, Args)]
pub struct PluginStatus {
    /// Where the process serves metrics (--metrics-bind-address), such as http://127.0.0.1:8080.
    #[arg(long, value_name = "URL")]
    pub server: String,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
}

/// `plimsoll plugins bench`.
#[derive(Debug, Args)]
pub struct BenchPlugins {
    /// The file: kind KubeSchedulerConfiguration, or a WebAssembly module.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Configuration (guestConfig) to start a WebAssembly module with.
    #[arg(long, value_name = "FILE")]
    pub guest_config: Option<PathBuf>,
    /// Numbers of nodes, comma-separated.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "100,1000,5000", value_parser = size)]
    pub nodes: Vec<usize>,
    /// Number of pods.
    #[arg(long, value_name = "NUMBER", default_value = "100", value_parser = size)]
    pub pods: usize,
    /// kube-scheduler's feature gates, as its --feature-gates: Name=true,Other=false.
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true)]
    pub scheduler_feature_gates: String,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
}
