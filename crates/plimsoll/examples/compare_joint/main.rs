//! Joint admission beside real peers: the same mixed load of the simulator, in real time that is scaled, for
//!
//! - Kueue's manager and kube-scheduler,
//! - the same with Kueue's topology aware scheduling,
//! - Plimsoll where quota alone decides,
//! - Plimsoll with joint admission.
//!
//! API server, Job controller and nodes are those of `plimsoll up` for all of them, so what differs is who admits and who places.
//! `cargo xtask compare-joint` builds and starts it; `docs/joint-comparison.md` says what was found.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports on the terminal")]

#[allow(dead_code, reason = "the benchmarks start other controllers, too")]
#[path = "../../src/bench/process.rs"]
mod process;

mod cluster;
mod kueue;
mod objects;
mod play;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Parser, ValueEnum};
use futures::future::try_join_all;
use plimsoll_sim::scenario::load::mixed;

use report::Figures;

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
    const fn title(self) -> &'static str {
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
enum Output {
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
    peers: Option<PathBuf>,
    /// Kueue's manifests: manifests.yaml of its release, or what `kustomize build config/default` prints.
    #[arg(long)]
    kueue_manifests: Option<PathBuf>,
    /// The program plimsoll.
    #[arg(long, env = "PLIMSOLL_BINARY", default_value = "target/release/plimsoll")]
    binary: PathBuf,
    /// Columns, in this order.
    #[arg(long, value_delimiter = ',', default_values = ["kueue", "kueue-topology", "quota", "joint"])]
    columns: Vec<Column>,
    /// Seed of the first load.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Number of loads, one after the other.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Jobs of a load.
    #[arg(long, default_value_t = 500)]
    jobs: usize,
    /// How many times as fast as in the load time is.
    #[arg(long, default_value_t = 10.0)]
    speed: f64,
    /// Seconds after which a run ends whether all jobs are done or not.
    #[arg(long, default_value_t = 3600)]
    limit: u64,
    /// Run the columns one after the other instead of side by side, where all have the same load of the machine.
    #[arg(long)]
    one_by_one: bool,
    /// Where logs and kubeconfigs go; they stay there.
    #[arg(long, default_value = "target/compare-joint")]
    dir: PathBuf,
    /// How the figures are printed.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

impl Options {
    /// Leaves out what can't run here, and says so.
    fn columns(&self) -> Vec<Column> {
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

    /// Runs one column with the load of a seed.
    async fn run(&self, column: Column, seed: u64) -> anyhow::Result<Figures> {
        let name = column.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
        let dir = self.dir.join(format!("{name}-{seed}"));
        let scenario = mixed(seed, self.jobs, column == Column::Joint, 0);
        let mut cluster = cluster::Cluster::start(self, column, &scenario, &dir)
            .await
            .with_context(|| format!("{}, logs in {}", column.title(), dir.display()))?;
        let before = cluster.usages();
        let played = play::play(self, column, &scenario, &mut cluster).await;
        let used = cluster.usages();
        cluster.stop().await;
        let played = played.with_context(|| format!("{}, logs in {}", column.title(), dir.display()))?;
        Ok(Figures::new(self, (column, name, seed), &played, &before, &used))
    }
}

async fn compare(options: &Options) -> anyhow::Result<()> {
    ensure!(options.binary.exists(), "--binary: there is no {}", options.binary.display());
    ensure!(options.speed > 0.0, "--speed: more than 0");
    let columns = options.columns();
    ensure!(!columns.is_empty(), "no column is left");
    let mut figures = Vec::new();
    for seed in options.from..options.from.saturating_add(options.seeds) {
        if options.one_by_one {
            for column in &columns {
                figures.push(options.run(*column, seed).await?);
            }
        } else {
            figures.extend(try_join_all(columns.iter().map(|column| options.run(*column, seed))).await?);
        }
    }
    match options.output {
        Output::Text => println!("{}", report::tables(options, &columns, &figures)),
        Output::Json => println!("{}", serde_json::to_string_pretty(&figures)?),
    }
    Ok(())
}

/// SIGINT or SIGTERM: the processes of all columns end with the runs that are dropped.
async fn stopped() -> anyhow::Result<()> {
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminated.recv() => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    anyhow::bail!("stopped")
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let done = tokio::select! {
        done = compare(&options) => done,
        stopped = stopped() => stopped,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
