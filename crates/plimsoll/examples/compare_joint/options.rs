//! What is compared, and how.

#![allow(clippy::print_stderr, reason = "a program that reports on the terminal")]

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Who admits and who places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Column {
    /// Kueue's manager and kube-scheduler.
    Kueue,
    /// The same; flavors have a topology of one level, and pods ask for places in it.
    KueueTopology,
    /// Plimsoll without joint admission.
    Quota,
    /// Plimsoll with joint admission.
    Joint,
}

impl Column {
    /// Whether Kueue's manager admits.
    pub const fn is_kueue(self) -> bool {
        matches!(self, Self::Kueue | Self::KueueTopology)
    }

    /// As the table calls it.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Kueue => "Kueue",
            Self::KueueTopology => "Kueue, topology aware",
            Self::Quota => "Plimsoll, quota alone",
            Self::Joint => "Plimsoll, joint admission",
        }
    }
}

/// How the table is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables in Markdown.
    Text,
    /// All figures of all runs.
    Json,
}

/// Compare joint admission with quota alone, Kueue and kube-scheduler, on the same load and the same simulated nodes.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask compare-joint")]
pub struct Options {
    /// Directory of kueue-manager and kube-scheduler. Columns whose programs are not there are left out.
    #[arg(long, env = "KUBEBUILDER_ASSETS")]
    pub peers: Option<PathBuf>,
    /// Kueue's manifests: manifests.yaml of its release, or what `kustomize build config/default` prints.
    #[arg(long)]
    pub kueue_manifests: Option<PathBuf>,
    /// The program plimsoll.
    #[arg(long, env = "PLIMSOLL_BINARY", default_value = "target/release/plimsoll")]
    pub binary: PathBuf,
    /// Columns, in this order.
    #[arg(long, value_delimiter = ',', default_values = ["kueue", "kueue-topology", "quota", "joint"])]
    pub columns: Vec<Column>,
    /// Seed of the first load.
    #[arg(long, default_value_t = 1)]
    pub from: u64,
    /// Number of loads, one after the other.
    #[arg(long, default_value_t = 1)]
    pub seeds: u64,
    /// Jobs of a load.
    #[arg(long, default_value_t = 500)]
    pub jobs: usize,
    /// How many times as fast as in the load time is.
    #[arg(long, default_value_t = 10.0)]
    pub speed: f64,
    /// Seconds after which a run ends whether all jobs are done or not.
    #[arg(long, default_value_t = 3600)]
    pub limit: u64,
    /// Run the columns one after the other instead of side by side, where all have the same load of the machine.
    #[arg(long)]
    pub one_by_one: bool,
    /// Where logs and kubeconfigs go; they stay there.
    #[arg(long, default_value = "target/compare-joint")]
    pub dir: PathBuf,
    /// How the figures are printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

impl Options {
    /// Leaves out what can't run here, and says so.
    pub fn columns(&self) -> Vec<Column> {
        let kept = |c: &Column| match self.missing(*c) {
            Some(why) => {
                eprintln!("{} is left out: {why}", c.title());
                false
            }
            None => true,
        };
        self.columns.iter().copied().filter(kept).collect()
    }

    fn missing(&self, column: Column) -> Option<String> {
        if !column.is_kueue() {
            return None;
        }
        let Some(peers) = &self.peers else { return Some("no --peers and no $KUBEBUILDER_ASSETS".into()) };
        let programs = ["kueue-manager", "kube-scheduler"].map(|p| peers.join(p));
        if let Some(missing) = programs.iter().find(|p| !p.exists()) {
            return Some(format!("there is no {}", missing.display()));
        }
        match &self.kueue_manifests {
            Some(file) if file.exists() => None,
            Some(file) => Some(format!("there is no {}", file.display())),
            None => Some("--kueue-manifests names no file".into()),
        }
    }
}
