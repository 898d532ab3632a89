//! `cargo xtask instructions`: how many instructions placement executes per pod and queueing per workload, against the
//! checked-in baseline.
//!
//! Fixed runs (`crates/plimsoll-scheduler/examples/placement_work.rs` and
//! `crates/plimsoll-queueing/examples/admission_work.rs`, release build) under Callgrind, from which the same run with one
//! pod or without workloads is subtracted, so that starting up and making nodes or queues don't count. What deciding about
//! pods takes has a line of its own: it is a fifth of the run. Instructions, unlike times, hardly depend on the machine's
//! load.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::example;

const BASELINE: &str = "xtask/instructions.txt";
/// Growth in percent that fails.
const MOST: f64 = 3.0;
/// Deciding about pods, as Callgrind matches functions.
const DECIDE: &str = "plimsoll_scheduler::decide::*::decide";
/// Workload, nodes, pods.
const PLACEMENT: [(&str, usize, usize); 8] = [
    ("basic", 300, 1500),
    ("shapes", 300, 1500),
    ("anti-affinity", 400, 400),
    ("affinity", 300, 1500),
    ("spread", 300, 1500),
    ("default-spread", 300, 1500),
    ("preemption", 800, 800),
    ("churn", 300, 1500),
];
/// Line of the baseline, how writes are confirmed, cohorts, ClusterQueues in each, workloads in each of those.
const ADMISSION: [(&str, &str, usize, usize, usize); 2] =
    [("admission-paced", "paced", 3, 10, 50), ("admission-at-once", "at-once", 3, 10, 50)];

/// Compares, or writes the baseline.
pub fn run(root: &Path, bless: bool) -> Result<()> {
    let quiet = |c: &mut Command| c.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if quiet(Command::new("valgrind").arg("--version")).is_err() {
        println!("instructions: skipped, there is no valgrind here");
        return Ok(());
    }
    let placement = example::build(root, "placement_work", &["--release", "-p", "plimsoll-scheduler"])?;
    let admission = example::build(root, "admission_work", &["--release", "-p", "plimsoll-queueing"])?;
    let compiler = compiler()?;
    let path = root.join(BASELINE);
    let baseline = if bless { Baseline::default() } else { Baseline::read(&path)? };
    let comparable = baseline.compiler == compiler;
    if !bless && !comparable {
        println!("the baseline is of {:?}, this is {compiler:?}: figures only", baseline.compiler);
    }
    let mut text = format!(
        "# Instructions per pod or workload: `cargo xtask instructions --bless`\ncompiler {compiler}\n"
    );
    let mut grown = Vec::new();
    let in_all = PLACEMENT.iter().map(|&run| (run.0.to_owned(), per_pod(&placement, run, None)));
    let deciding =
        PLACEMENT.iter().map(|&run| (format!("{}-decide", run.0), per_pod(&placement, run, Some(DECIDE))));
    let admission = ADMISSION.iter().map(|&run| (run.0.to_owned(), per_workload(&admission, run)));
    for (workload, count) in in_all.chain(deciding).chain(admission) {
        let (workload, count) = (workload.as_str(), count?);
        let _ = writeln!(text, "{workload} {count:.0}");
        let Some(was) = baseline.figures.get(workload) else {
            println!("{workload}: {count:.0} instructions each");
            ensure!(bless, "{BASELINE}: no line for {workload}; --bless makes it");
            continue;
        };
        let change = (count / was - 1.0) * 100.0;
        println!("{workload}: {count:.0} instructions each ({change:+.1} %)");
        if change > MOST && comparable {
            grown.push(workload.to_owned());
        } else if change < -MOST {
            println!("  less than the baseline: --bless keeps it so");
        }
    }
    if bless {
        return std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()));
    }
    ensure!(
        grown.is_empty(),
        "more than {MOST} % more instructions than {BASELINE} says: {}",
        grown.join(", ")
    );
    Ok(())
}

/// Builds the run and says where it is.
/// Version and target: counts of others can't be compared.
fn compiler() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(rustc).arg("-vV").output().context("rustc -vV")?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let field = |name: &str| said.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim();
    Ok(format!("{} {}", field("release:"), field("host:")))
}

#[derive(Default)]
struct Baseline {
    compiler: String,
    figures: BTreeMap<String, f64>,
}

impl Baseline {
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let mut out = Self::default();
        for line in text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()) {
            let (name, value) = line.split_once(' ').with_context(|| format!("{line:?}: no value"))?;
            if name == "compiler" {
                value.trim().clone_into(&mut out.compiler);
            } else {
                out.figures.insert(name.to_owned(), value.trim().parse().with_context(|| line.to_owned())?);
            }
        }
        Ok(out)
    }
}

fn per_pod(
    program: &Path,
    (workload, nodes, pods): (&str, usize, usize),
    within: Option<&str>,
) -> Result<f64> {
    let run = |pods: usize| count(program, &[workload, &nodes.to_string(), &pods.to_string()], within);
    Ok(each(run(pods)?, run(1)?, pods - 1))
}

fn per_workload(
    program: &Path,
    (_, how, cohorts, queues, workloads): (&str, &str, usize, usize, usize),
) -> Result<f64> {
    let run = |workloads: usize| {
        count(program, &[how, &cohorts.to_string(), &queues.to_string(), &workloads.to_string()], None)
    };
    Ok(each(run(workloads)?, run(0)?, cohorts * queues * workloads))
}

#[expect(clippy::cast_precision_loss, reason = "a rate of far less than 2^52 instructions")]
fn each(all: u64, none: u64, number: usize) -> f64 {
    all.saturating_sub(none) as f64 / number as f64
}

/// Instructions of one run, in all or within calls of a function.
fn count(program: &Path, args: &[&str], within: Option<&str>) -> Result<u64> {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(within.map(|function| format!("--toggle-collect={function}")))
        .arg(program)
        .args(args)
        .output()
        .context("valgrind")?;
    let said = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        bail!("{}: {said}", args.join(" "));
    }
    let line = said.lines().find_map(|l| l.split_once("Collected :"));
    let (_, number) = line.with_context(|| format!("no count in {said:?}"))?;
    let count = number.trim().parse()?;
    ensure!(count > 0, "{}: no call of {}", args.join(" "), within.unwrap_or("main"));
    Ok(count)
}
