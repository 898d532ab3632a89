//! `plimsoll bench placement`: how many pods the engine places in a second, in process and on one core.
//!
//! A figure counts full decisions: taking from the queue, filtering all nodes, scoring, choosing, assuming and
//! accounting. `perCpuSecond` is the same for the time in which the process had a processor: on a machine that others
//! use too it is the steadier figure. Each row is measured in a process of its own (this program, run again), so that memory and warm caches
//! of one don't show in the next.

mod curve;
mod drive;
mod template;
pub mod workload;

use std::io::BufRead as _;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use self::workload::Workload;
use super::load;
use super::report::{self, Row};
use crate::cli;

const MIB: f64 = 1_048_576.0;
/// Processor times below this many seconds are too coarse to divide by.
const SHORTEST: f64 = 0.05;

/// Runs the rows that were asked for.
pub fn run(args: &cli::BenchPlacement) -> anyhow::Result<()> {
    if let Some(name) = &args.child {
        let mut w = Workload::all()?.into_iter().find(|w| w.name == *name).context("no such row")?;
        resize(&mut w, args.nodes, args.pods);
        for row in measure(&w, args)? {
            report::row(&row, cli::Output::Json);
        }
        return Ok(());
    }
    let wanted = select(args)?;
    if let Some(path) = &args.curve {
        return curve::run(&wanted, args, path);
    }
    report::head(args.output, false);
    let mut failed = Vec::new();
    for w in wanted {
        match in_a_child(&w.name, args, (args.nodes, args.pods)) {
            Ok(rows) => rows.iter().for_each(|row| report::row(row, args.output)),
            Err(e) => {
                crate::say::error(&format!("{}: {e:#}", w.name));
                failed.push(w.name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("not measured: {}", failed.join(", ")) }
}

fn select(args: &cli::BenchPlacement) -> anyhow::Result<Vec<Workload>> {
    let all: Vec<Workload> = Workload::all()?.into_iter().filter(Workload::in_process).collect();
    let unknown: Vec<&str> =
        args.rows.iter().map(String::as_str).filter(|r| all.iter().all(|w| w.name != *r)).collect();
    if !unknown.is_empty() {
        let known: Vec<&str> = all.iter().map(|w| w.name.as_str()).collect();
        bail!("--rows: no row {}; there are {}", unknown.join(", "), known.join(", "));
    }
    let wanted = |w: &Workload| args.rows.is_empty() || args.rows.contains(&w.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Other numbers of nodes and pods; first pods stay in proportion to nodes, and pods too unless they are given.
pub(super) fn resize(w: &mut Workload, nodes: Option<usize>, pods: Option<usize>) {
    let before = w.nodes.count.max(1);
    if let Some(nodes) = nodes {
        w.nodes.count = nodes;
        for pods in w.init.iter_mut().chain([&mut w.pods]) {
            pods.count = (pods.count * nodes / before).max(1);
        }
        w.target = None;
    }
    if let Some(pods) = pods {
        w.pods.count = pods;
        w.target = None;
    }
}

fn measure(w: &Workload, args: &cli::BenchPlacement) -> anyhow::Result<Vec<Row>> {
    let bar = load::bar(args.quiet, w.pods.count, &w.name);
    let done = drive::run(w, &bar)?;
    let decided = done.decided(done.victims > 0);
    let what = format!("{}: {} nodes, {} pods", w.name, w.nodes.count, w.pods.count);
    let memory = done.memory.map_or(0.0, |b| b as f64 / MIB);
    let case = w.upstream.clone().unwrap_or_else(|| w.name.clone());
    let rate = decided as f64 / done.seconds.max(1e-9);
    let row = Row { case: case.clone(), ..Row::more(what.clone(), rate, "pods/s", w.target) };
    let cpu = done.cpu_seconds.filter(|s| *s >= SHORTEST);
    let row = match cpu {
        Some(cpu) => row.with("perCpuSecond", decided as f64 / cpu),
        None => row,
    };
    let row = row
        .with("p50us", done.quantile_us(0.5))
        .with("p99us", done.quantile_us(0.99))
        .with("meanUs", done.seconds * 1e6 / decided.max(1) as f64)
        .with("bound", done.bound as f64)
        .with("rejected", done.rejected as f64)
        .with("victims", done.victims as f64)
        .with("handleSeconds", done.handling)
        .with("handleNodesSeconds", done.nodes)
        .with("longestStepMs", done.longest_step * 1e3)
        .with("memoryMiB", memory);
    let per = |bytes: Option<u64>, of: usize| bytes.map(|b| b as f64 / of.max(1) as f64);
    let [nodes, waiting, decided] = done.growth;
    let sizes = [
        ("bytesPerNode", per(nodes, w.nodes.count)),
        ("bytesPerWaitingPod", per(waiting, w.pods.count)),
        ("bytesPerBoundPod", per(waiting.zip(decided).map(|(a, b)| a + b), w.pods.count)),
    ];
    let row =
        sizes.into_iter().fold(row, |row, (key, size)| size.into_iter().fold(row, |r, s| r.with(key, s)));
    let mut rows = vec![row];
    if let Some(most) = w.memory.filter(|_| w.target.is_some()) {
        let what = format!("{what}: memory");
        rows.push(Row { case, ..Row::less(what, memory, "MiB", Some(most)) });
    }
    Ok(rows)
}

/// Measures one row in a process of its own.
fn in_a_child(
    name: &str,
    args: &cli::BenchPlacement,
    (nodes, pods): (Option<usize>, Option<usize>),
) -> anyhow::Result<Vec<Row>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "placement", "--child", name]);
    for (flag, number) in [("--nodes", nodes), ("--pods", pods)] {
        if let Some(n) = number {
            command.args([flag, &n.to_string()]);
        }
    }
    if args.quiet || args.output == cli::Output::Json {
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
