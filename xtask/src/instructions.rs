//! `cargo xtask instructions`: how many instructions placement executes per pod and queueing per workload, against the
//! checked-in baseline; and what it takes to read an object of a watch, and to make a binding or an admission a request and
//! its response an event.
//!
//! Fixed runs (`crates/plimsoll-scheduler/examples/placement_work.rs`,
//! `crates/plimsoll-queueing/examples/admission_work.rs` and `crates/plimsoll-api/examples/wire_work.rs`, release build)
//! under Callgrind, from which the same run with one pod or without workloads is subtracted, so that starting up and making
//! nodes or queues don't count. What deciding about pods takes has lines of its own, its allocations among them: it is a
//! fifth of the run. Instructions and allocations, unlike times, hardly depend on the machine's load; neither do they on how
//! the heap happens to lie ([`EVEN_HEAP`]).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

use crate::example;

const BASELINE: &str = "xtask/instructions.txt";
/// Growth in percent that fails.
const MOST: f64 = 3.0;
/// Settings of glibc's allocator: freed memory is kept by size, and never gathered. Without them, whether it is gathered
/// once more depends on how long the environment is: 2 % of the instructions of mixed churn. The program has another
/// allocator (mimalloc), which keeps memory by size, too.
const EVEN_HEAP: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.mxfast=0:glibc.malloc.tcache_count=2000");
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

/// What happens to each object, and to how many.
const WIRE: [(&str, usize); 5] =
    [("pods-json", 401), ("pods-protobuf", 401), ("workloads", 401), ("bind", 401), ("admit", 401)];

/// Compares, or writes the baseline.
pub fn run(root: &Path, bless: bool) -> Result<()> {
    let quiet = |c: &mut Command| c.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if quiet(Command::new("valgrind").arg("--version")).is_err() {
        println!("instructions: skipped, there is no valgrind here");
        return Ok(());
    }
    let placement = example::build_optimized(root, "placement_work")?;
    let admission = example::build_optimized(root, "admission_work")?;
    let wire = example::build_optimized(root, "wire_work")?;
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
    for (figure, count) in figures(&placement, &admission, &wire)? {
        let _ = writeln!(text, "{figure} {count:.1}");
        let Some(was) = baseline.figures.get(&figure) else {
            println!("{figure}: {count:.1} each");
            ensure!(bless, "{BASELINE}: no line for {figure}; --bless makes it");
            continue;
        };
        let change = if count == *was { 0.0 } else { (count / was - 1.0) * 100.0 };
        println!("{figure}: {count:.1} each ({change:+.1} %)");
        if change > MOST && comparable {
            grown.push(figure);
        } else if change < -MOST {
            println!("  less than the baseline: --bless keeps it so");
        }
    }
    if bless {
        return std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()));
    }
    ensure!(
        grown.is_empty(),
        "more than {MOST} % more instructions or allocations than {BASELINE} says: {}",
        grown.join(", ")
    );
    Ok(())
}

/// All figures, per pod, workload, object or write, by name. As many runs at once as there are processors: each has a figure of
/// its own.
fn figures(placement: &Path, admission: &Path, wire: &Path) -> Result<Vec<(String, f64)>> {
    let pods = |run, within| Measure { program: placement, what: What::Pods(run, within) };
    let mut measures: Vec<Measure<'_>> = PLACEMENT.into_iter().map(|run| pods(run, None)).collect();
    measures.extend(PLACEMENT.into_iter().map(|run| pods(run, Some(DECIDE))));
    measures.extend(ADMISSION.map(|run| Measure { program: admission, what: What::Workloads(run) }));
    measures.extend(WIRE.map(|run| Measure { program: wire, what: What::Objects(run) }));
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(measure) = measures.get(at) else { return anyhow::Ok(done) };
            done.push((at, measure.figures()?));
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|w| w.join().map_err(|_| anyhow!("a measurement panicked"))?);
        ended.collect::<Result<Vec<_>>>()
    })?
    .concat();
    done.sort_by_key(|(at, _)| *at);
    Ok(done.into_iter().flat_map(|(_, figures)| figures).collect())
}

/// A program under Callgrind, and what it does there.
struct Measure<'a> {
    program: &'a Path,
    what: What,
}

enum What {
    /// Of placement, in all or within calls of a function.
    Pods((&'static str, usize, usize), Option<&'static str>),
    /// Of queueing.
    Workloads((&'static str, &'static str, usize, usize, usize)),
    /// What happens to so many objects.
    Objects((&'static str, usize)),
}

impl Measure<'_> {
    fn figures(&self) -> Result<Vec<(String, f64)>> {
        let both = |name: String, each: &Work<f64>| {
            let allocations = (format!("{name}-allocations"), each.allocations);
            vec![(name, each.instructions), allocations]
        };
        Ok(match self.what {
            What::Pods(run, None) => {
                vec![(run.0.to_owned(), per_pod(self.program, run, None)?.instructions)]
            }
            What::Pods(run, within) => {
                both(format!("{}-decide", run.0), &per_pod(self.program, run, within)?)
            }
            What::Workloads(run) => both(run.0.to_owned(), &per_workload(self.program, run)?),
            What::Objects((what, number)) => {
                let run = |number: usize| count(self.program, &[what, &number.to_string()], None);
                both(format!("wire-{what}"), &each(&run(number)?, &run(1)?, number - 1))
            }
        })
    }
}

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
) -> Result<Work<f64>> {
    let run = |pods: usize| count(program, &[workload, &nodes.to_string(), &pods.to_string()], within);
    Ok(each(&run(pods)?, &run(1)?, pods - 1))
}

fn per_workload(
    program: &Path,
    (_, how, cohorts, queues, workloads): (&str, &str, usize, usize, usize),
) -> Result<Work<f64>> {
    let run = |workloads: usize| {
        count(program, &[how, &cohorts.to_string(), &queues.to_string(), &workloads.to_string()], None)
    };
    Ok(each(&run(workloads)?, &run(0)?, cohorts * queues * workloads))
}

/// What was done.
struct Work<N> {
    instructions: N,
    /// Calls of the allocator for new or more memory.
    allocations: N,
}

#[expect(clippy::cast_precision_loss, reason = "a rate of far less than 2^52 instructions")]
fn each(all: &Work<u64>, none: &Work<u64>, number: usize) -> Work<f64> {
    let rate = |all: u64, none: u64| all.saturating_sub(none) as f64 / number as f64;
    Work {
        instructions: rate(all.instructions, none.instructions),
        allocations: rate(all.allocations, none.allocations),
    }
}

/// What one run does, in all or within calls of a function.
fn count(program: &Path, args: &[&str], within: Option<&str>) -> Result<Work<u64>> {
    static RUN: AtomicUsize = AtomicUsize::new(0);
    let run = RUN.fetch_add(1, Ordering::Relaxed);
    let file = std::env::temp_dir().join(format!("plimsoll-instructions-{}-{run}", std::process::id()));
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--callgrind-out-file={}", file.display())])
        .args(within.map(|function| format!("--toggle-collect={function}")))
        .arg(program)
        .args(args)
        .env(EVEN_HEAP.0, EVEN_HEAP.1)
        .output()
        .context("valgrind")?;
    let profile = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    let said = String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        bail!("{}: {said}", args.join(" "));
    }
    let profile = profile.with_context(|| format!("reading {}", file.display()))?;
    let total = profile.lines().find_map(|l| l.strip_prefix("totals: "));
    let instructions = total.with_context(|| format!("no totals in {}", file.display()))?.trim().parse()?;
    ensure!(instructions > 0, "{}: no call of {}", args.join(" "), within.unwrap_or("main"));
    Ok(Work { instructions, allocations: allocations(&profile) })
}

/// Calls of the allocator in a profile in Callgrind's format: a function has its name where it is first mentioned, and a
/// number from then on; a line `calls=N` follows the one that names who is called.
fn allocations(profile: &str) -> u64 {
    let mut names: BTreeMap<&str, bool> = BTreeMap::new();
    let (mut calls, mut allocates) = (0, false);
    for line in profile.lines() {
        let called = line.strip_prefix("cfn=");
        if let Some(function) = called.or_else(|| line.strip_prefix("fn=")) {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            let known = names.entry(number).or_default();
            *known |= ["__rust_alloc", "__rust_alloc_zeroed", "__rust_realloc"]
                .iter()
                .any(|allocator| name.ends_with(allocator));
            allocates = called.is_some() && *known;
        } else if let Some(rest) = line.strip_prefix("calls=").filter(|_| allocates) {
            calls += rest.split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_allocator_are_counted() {
        let profile = "fn=(1) main\n12 3\ncfn=(2) __rustc::__rust_alloc\ncalls=7 0\n12 90\n\
            cfn=(3) __rustc::__rust_dealloc\ncalls=5 0\n12 4\nfn=(2)\n3 4\nfn=(4) f\ncfn=(2)\ncalls=2 0\n1 1\n\
            cfn=(5) __rustc::__rust_realloc\ncalls=1 0\n1 1\ntotals: 98\n";
        assert_eq!(allocations(profile), 10);
    }
}
