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
mod options;
mod play;
mod report;
mod starting;

use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Parser as _, ValueEnum as _};
use futures::future::try_join_all;
use plimsoll_sim::scenario::load::mixed;

use options::{Column, Options, Output};
use report::Figures;

/// Runs one column with the load of a seed.
async fn run(options: &Options, column: Column, seed: u64) -> anyhow::Result<Figures> {
    let name = column.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
    let dir = options.dir.join(format!("{name}-{seed}"));
    let scenario = mixed(seed, options.jobs, column == Column::Joint, 0);
    let mut cluster = cluster::Cluster::start(options, column, &scenario, &dir)
        .await
        .with_context(|| format!("{}, logs in {}", column.title(), dir.display()))?;
    let before = cluster.usages();
    let played = play::play(options, column, &scenario, &mut cluster).await;
    let used = cluster.usages();
    cluster.stop().await;
    let played = played.with_context(|| format!("{}, logs in {}", column.title(), dir.display()))?;
    Ok(Figures::new(options, (column, name, seed), &played, &before, &used))
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
                figures.push(run(options, *column, seed).await?);
            }
        } else {
            figures.extend(try_join_all(columns.iter().map(|column| run(options, *column, seed))).await?);
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
