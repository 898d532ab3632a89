//! Arguments of `plimsoll plugins`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Format;

/// Subcommands of `plimsoll plugins`.
#[derive(Debug, Subcommand)]
pub enum Plugins {
    /// Print the plugins of each profile with their extension points, and those that no profile enables.
    List(ListPlugins),
    /// Check a configuration file of kube-scheduler or Kueue, or a guest in WebAssembly.
    Check(CheckPlugins),
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
    /// kube-scheduler's feature gates, as its --feature-gates: Name=true,Other=false.
    #[arg(long, value_name = "GATES", default_value = "", hide_default_value = true)]
    pub scheduler_feature_gates: String,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Format,
}
