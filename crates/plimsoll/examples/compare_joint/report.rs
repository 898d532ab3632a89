//! The figures, as tables in Markdown or as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use plimsoll_sim::measure::{Cause, Measure, Wait};
use plimsoll_sim::scenario::load::{CPUS, NODES};
use plimsoll_state::Duration;
use serde::Serialize;

use super::options::{Column, Options};
use super::play::Played;
use super::process::Usage;

/// Gangs count as half-placed after this: in scaled time binding takes time, and this is far more.
const HALF_PLACED: Duration = Duration::from_seconds(60);
/// The same while all pods of the gang exist: without what the Job controller takes to create them.
const SHORT: Duration = Duration::from_seconds(20);

/// Jobs whose waits are reported together: name, and which they are.
type Class = (&'static str, fn(&Wait) -> bool);

/// All of them.
const CLASSES: [Class; 8] = [
    ("all jobs", |_| true),
    ("1 pod", |w| w.pods == 1),
    ("2 to 8 pods", |w| (2..=8).contains(&w.pods)),
    ("9 to 32 pods", |w| (9..=32).contains(&w.pods)),
    ("33 to 64 pods", |w| w.pods > 32),
    ("low priority", |w| w.priority == "p1"),
    ("middle priority", |w| w.priority == "p2"),
    ("high priority", |w| w.priority == "p3"),
];

/// Processor time and memory of a process.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    name: &'static str,
    cpu_seconds: f64,
    peak_mib: f64,
}

/// Minutes at P50, P90 and P99.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Waits {
    class: &'static str,
    jobs: usize,
    first_start_minutes: [f64; 3],
    last_start_minutes: [f64; 3],
}

/// What one run gave. Hours and minutes are those of the load; GPUs are CPUs of the nodes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    #[serde(skip)]
    column: Column,
    #[serde(rename = "column")]
    name: String,
    seed: u64,
    speed: f64,
    jobs: usize,
    jobs_done: usize,
    undone: Vec<String>,
    half_placed_gangs: usize,
    half_placed_gangs_of_existing_pods: usize,
    idle_hours_of_half_placed_gangs: f64,
    idle_hours: f64,
    makespan_hours: f64,
    utilisation_percent: f64,
    wasted_hours: f64,
    evictions: BTreeMap<String, usize>,
    preemptions: BTreeMap<&'static str, usize>,
    waits: Vec<Waits>,
    processes: Vec<Process>,
    load_average: [f64; 3],
    #[serde(skip)]
    all_waits: Vec<Wait>,
}

/// CPU hours.
fn hours(cpu_nanos: i128) -> f64 {
    cpu_nanos as f64 / 3.6e12
}

const fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::WithinClusterQueue => "withinClusterQueue",
        Cause::Reclaim => "reclaim",
        Cause::NodesBesideQuota => "nodesBesideQuota",
        Cause::NodesOnly => "nodesOnly",
    }
}

fn percentiles(waits: impl Iterator<Item = Duration>) -> [f64; 3] {
    let mut sorted: Vec<Duration> = waits.collect();
    sorted.sort_unstable();
    [50, 90, 99].map(|p| {
        let at = (sorted.len() * p).div_ceil(100).saturating_sub(1);
        sorted.get(at).map_or(0.0, |d| d.0 as f64 / 6e10)
    })
}

impl Figures {
    /// The figures of a run; `before` and `used`: what the processes had used at its beginning and at its end.
    pub fn new(
        options: &Options,
        (column, name, seed): (Column, String, u64),
        played: &Played,
        before: &[(&'static str, Usage)],
        used: &[(&'static str, Usage)],
    ) -> Self {
        let m: &Measure = &played.measure;
        let span = m.first.map_or(0.0, |first| m.last.since(first).0 as f64 / 3.6e12);
        let (jobs, jobs_done) = m.jobs();
        let all_waits = m.waits();
        let waits = CLASSES.map(|(class, of)| Waits {
            class,
            jobs: all_waits.iter().filter(|w| of(w)).count(),
            first_start_minutes: percentiles(all_waits.iter().filter(|w| of(w)).map(|w| w.first)),
            last_start_minutes: percentiles(all_waits.iter().filter(|w| of(w)).map(|w| w.waited)),
        });
        let process = |((name, before), (_, used)): (&(&'static str, Usage), &(&'static str, Usage))| {
            Process { name, cpu_seconds: used.cpu - before.cpu, peak_mib: used.memory }
        };
        Self {
            column,
            name,
            seed,
            speed: options.speed,
            jobs,
            jobs_done,
            undone: m.undone().map(str::to_owned).collect(),
            half_placed_gangs: m.half_placed(HALF_PLACED).count(),
            half_placed_gangs_of_existing_pods: m.short(SHORT),
            idle_hours_of_half_placed_gangs: hours(m.half_placed(HALF_PLACED).map(|h| h.idle).sum()),
            idle_hours: hours(m.idle),
            makespan_hours: span,
            utilisation_percent: match span > 0.0 {
                true => hours(m.worked) / (NODES as f64 * CPUS as f64 * span) * 100.0,
                false => 0.0,
            },
            wasted_hours: hours(m.lost),
            evictions: m.evictions.clone(),
            preemptions: m.preemptions.iter().map(|(c, n)| (cause(*c), *n)).collect(),
            waits: waits.into(),
            processes: before.iter().zip(used).map(process).collect(),
            load_average: played.load_average,
            all_waits,
        }
    }

    fn evicted(&self, reason: &str) -> String {
        self.evictions.get(reason).copied().unwrap_or(0).to_string()
    }

    fn preempted(&self, cause: &str) -> String {
        self.preemptions.get(cause).copied().unwrap_or(0).to_string()
    }

    /// Processor time and most memory of the server, or of the others.
    fn used(&self, server: bool) -> String {
        let which = self.processes.iter().filter(|p| (p.name == "plimsoll up") == server);
        let used = which.map(|p| {
            let name = if server { String::new() } else { format!("`{}` ", p.name) };
            format!("{name}{:.0} s, {:.0} MiB", p.cpu_seconds, p.peak_mib)
        });
        used.collect::<Vec<_>>().join("; ")
    }
}

/// A start of a job's pods: which one, and how long the job waited for it.
type Start = (&'static str, fn(&Wait) -> Duration);

/// Starts of a job's pods that it waits for.
const STARTS: [Start; 2] = [("first", |w| w.first), ("last", |w| w.waited)];

/// A row: what it is, and its value in a run.
type Row = (&'static str, fn(&Figures) -> String);

/// Rows of the first table.
const ROWS: [Row; 16] = [
    ("jobs done", |f| format!("{} of {}", f.jobs_done, f.jobs)),
    ("half-placed gangs (> 60 s)", |f| f.half_placed_gangs.to_string()),
    ("the same, > 20 s, while all of their pods exist", |f| f.half_placed_gangs_of_existing_pods.to_string()),
    ("GPU hours held idle by half-placed gangs (> 60 s)", |f| {
        format!("{:.1}", f.idle_hours_of_half_placed_gangs)
    }),
    ("GPU hours held idle in all, binding included", |f| format!("{:.1}", f.idle_hours)),
    ("makespan, hours", |f| format!("{:.2}", f.makespan_hours)),
    ("utilisation", |f| format!("{:.1} %", f.utilisation_percent)),
    ("preemptions", |f| f.evicted("Preempted")),
    ("– for quota", |f| {
        let quota = ["withinClusterQueue", "reclaim"].map(|c| f.preempted(c));
        format!("{} within the ClusterQueue, {} reclaimed", quota[0], quota[1])
    }),
    ("– for nodes", |f| {
        let nodes = ["nodesOnly", "nodesBesideQuota"].map(|c| f.preempted(c));
        format!("{} only, {} besides quota", nodes[0], nodes[1])
    }),
    ("evictions for pods that are not ready", |f| f.evicted("PodsReadyTimeout")),
    ("evictions for failed nodes", |f| f.evicted("NodeFailures")),
    ("wasted work, GPU hours", |f| format!("{:.1}", f.wasted_hours)),
    ("processor time and most memory: admission and placement", |f| f.used(false)),
    ("the same of API server, Job controller and nodes", |f| f.used(true)),
    ("load of the machine at the end", |f| format!("{:.1}", f.load_average[2])),
];

fn row(out: &mut String, first: &str, cells: impl Iterator<Item = String>) {
    // Writing to a string can't fail.
    let _ = writeln!(out, "| {first} | {} |", cells.collect::<Vec<_>>().join(" | "));
}

/// Both tables: figures of several seeds beside each other, waits over all of them.
pub fn tables(options: &Options, columns: &[Column], all: &[Figures]) -> String {
    let of = |column: Column| all.iter().filter(move |f| f.column == column);
    let mut out = String::new();
    let last = options.from.saturating_add(options.seeds).saturating_sub(1);
    let _ = writeln!(
        out,
        "Seeds {} to {last}, {} jobs each, {NODES} nodes of {CPUS} GPUs, {} times as fast as the load:\n",
        options.from, options.jobs, options.speed
    );
    let titles = || columns.iter().map(|c| c.title().to_owned());
    row(&mut out, "", titles());
    let _ = writeln!(out, "|---|{}", "---|".repeat(columns.len()));
    for (what, value) in ROWS {
        row(&mut out, what, columns.iter().map(|c| of(*c).map(value).collect::<Vec<_>>().join(" / ")));
    }
    out.push('\n');
    row(&mut out, "P50, P90, P99 in minutes, all loads", titles());
    let _ = writeln!(out, "|---|{}", "---|".repeat(columns.len()));
    for (kind, wait) in STARTS {
        row(
            &mut out,
            &format!("*to the {kind} start (number of jobs)*"),
            columns.iter().map(|_| String::new()),
        );
        for (class, is) in CLASSES {
            let waits = |c: &Column| of(*c).flat_map(|f| &f.all_waits).filter(|w| is(w)).map(wait);
            let cells = columns.iter().map(|c| match waits(c).count() {
                0 => "-".to_owned(),
                jobs => {
                    let [p50, p90, p99] = percentiles(waits(c)).map(|m| format!("{m:.1}"));
                    format!("{p50}, {p90}, {p99} ({jobs})")
                }
            });
            row(&mut out, class, cells);
        }
    }
    out
}
