//! `plimsoll bench api`: what the API server does in a second, and what it needs for it.
//!
//! Everything goes over TLS connections of the loopback interface, so client and server share the machine. Each row is
//! measured in a process of its own (this program, run again), because memory and warm caches of one would show in the
//! next. With `--server` the same load goes to the API server that a kubeconfig names, with `--kube-apiserver` to ours and
//! to a kube-apiserver in turns.

use std::io::BufRead as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::cases::{self, Case};
use super::report::{self, Row};
use crate::cli;

/// Runs the rows that were asked for.
pub async fn run(args: cli::BenchApi) -> anyhow::Result<()> {
    if let Some(name) = &args.child {
        let case = Case::all().into_iter().find(|c| c.name == *name).context("no such row")?;
        for row in cases::run(&case, &args).await? {
            report::row(&report::Row { case: case.name.into(), ..row }, cli::Output::Json);
        }
        return Ok(());
    }
    let wanted: Vec<Case> = select(&args)?;
    report::head(args.output, args.kube_apiserver.is_some());
    let mut failed = Vec::new();
    for case in wanted {
        if args.server.is_some() && !case.anywhere {
            continue;
        }
        if args.kube_apiserver.is_some() && !case.upstream {
            continue;
        }
        if let Err(e) = measure(&case, &args) {
            crate::say::error(&format!("{}: {e:#}", case.name));
            failed.push(case.name);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("not measured: {}", failed.join(", ")) }
}

fn select(args: &cli::BenchApi) -> anyhow::Result<Vec<Case>> {
    let all = Case::all();
    let unknown: Vec<&str> =
        args.rows.iter().map(String::as_str).filter(|r| all.iter().all(|c| c.name != *r)).collect();
    if !unknown.is_empty() {
        let known: Vec<&str> = all.iter().map(|c| c.name).collect();
        bail!("--rows: no row {}; there are {}", unknown.join(", "), known.join(", "));
    }
    let wanted = |c: &Case| args.rows.is_empty() || args.rows.iter().any(|r| r == c.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Measures one row and prints it; ours and then kube-apiserver's, where both are wanted.
fn measure(case: &Case, args: &cli::BenchApi) -> anyhow::Result<()> {
    let ours = in_a_child(case, args, None)?;
    let Some(assets) = &args.kube_apiserver else {
        ours.iter().for_each(|row| report::row(row, args.output));
        return Ok(());
    };
    let theirs = in_a_child(case, args, Some(assets))?;
    for (ours, theirs) in ours.iter().zip(&theirs) {
        report::pair(ours, theirs, args.output);
    }
    Ok(())
}

fn in_a_child(case: &Case, args: &cli::BenchApi, upstream: Option<&Path>) -> anyhow::Result<Vec<Row>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "api", "--child", case.name]).args(["--scale", &args.scale.to_string()]);
    command.args(["--connections", &args.connections.to_string()]);
    if let Some(server) = &args.server {
        command.arg("--server").arg(server);
    }
    if let Some(assets) = upstream {
        command.arg("--kube-apiserver").arg(assets);
    }
    if let Some(data) = &args.data {
        command.arg("--data").arg(data);
    }
    if let Some(durability) = args.durability {
        command.args(["--durability", durability.word()]);
    }
    if args.output == cli::Output::Json {
        command.arg("--quiet");
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().context("the child's output")?;
    let mut rows = Vec::new();
    for line in std::io::BufReader::new(out).lines() {
        let line = line?;
        rows.push(serde_json::from_str(&line).with_context(|| format!("unexpected: {line}"))?);
    }
    let status = child.wait()?;
    if status.success() { Ok(rows) } else { bail!("the measuring process failed: {status}") }
}
