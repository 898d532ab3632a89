//! Compares admission by quota alone with joint admission: the same mixed loads on the same simulated nodes, in virtual time.
//!
//!     cargo run --release -p plimsoll-sim --example joint_load -- [--jobs N] [--seeds N] [--from SEED] [--overtaking N]
//!
//! Prints one table in Markdown for all seeds. Nothing in it depends on the machine.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports on the terminal")]

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread::available_parallelism;

use plimsoll_queueing::OVERTAKING;
use plimsoll_sim::measure::{BINDING, Cause, Measure, Wait};
use plimsoll_sim::run::run;
use plimsoll_sim::scenario::load::{CPUS, NODES, mixed};
use plimsoll_sim::world::Outcome;
use plimsoll_state::Duration;

/// Jobs whose waits are reported together: name, and which they are.
type Class = (&'static str, fn(&Wait) -> bool);

/// All of them.
const CLASSES: [Class; 7] = [
    ("1 pod", |w| w.pods == 1),
    ("2 to 8 pods", |w| (2..=8).contains(&w.pods)),
    ("9 to 32 pods", |w| (9..=32).contains(&w.pods)),
    ("33 to 64 pods", |w| w.pods > 32),
    ("low priority", |w| w.priority == "p1"),
    ("middle priority", |w| w.priority == "p2"),
    ("high priority", |w| w.priority == "p3"),
];

fn number(args: &[String], flag: &str, default: u64) -> Result<u64, String> {
    let Some(at) = args.iter().position(|a| a == flag) else { return Ok(default) };
    let value = args.get(at + 1).and_then(|v| v.parse().ok());
    value.ok_or_else(|| format!("{flag} needs a number"))
}

/// CPU hours.
fn hours(cpu_nanos: i128) -> f64 {
    cpu_nanos as f64 / 3.6e12
}

fn percentile(sorted: &[Duration], percent: usize) -> String {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).map_or_else(|| "-".to_owned(), |d| format!("{:.1}", d.seconds() as f64 / 60.0))
}

/// Hours from the first job to the end of the last.
fn makespan(m: &Measure) -> f64 {
    m.first.map_or(0.0, |first| m.last.since(first).0 as f64 / 3.6e12)
}

/// A row: what it is, and its value in the runs of one kind.
type Row = (String, Box<dyn Fn(&[Measure]) -> String>);

fn rows() -> Vec<Row> {
    fn row(what: &str, value: impl Fn(&[Measure]) -> String + 'static) -> Row {
        (what.to_owned(), Box::new(value))
    }
    fn sum(value: fn(&Measure) -> f64) -> impl Fn(&[Measure]) -> f64 {
        move |all| all.iter().map(value).sum()
    }
    let evicted = |reason: &'static str| {
        move |all: &[Measure]| {
            let of = |m: &Measure| m.evictions.get(reason).copied().unwrap_or(0);
            all.iter().map(of).sum::<usize>().to_string()
        }
    };
    let preempted = |cause: Cause| {
        move |all: &[Measure]| {
            let of = |m: &Measure| m.preemptions.get(&cause).copied().unwrap_or(0);
            all.iter().map(of).sum::<usize>().to_string()
        }
    };
    let (done, jobs) = (sum(|m| m.jobs().1 as f64), sum(|m| m.jobs().0 as f64));
    let (worked, span) = (sum(|m| hours(m.worked)), sum(makespan));
    let mut rows = vec![
        row("jobs done", move |all| format!("{} of {}", done(all), jobs(all))),
        row("half-placed gangs", |all| {
            all.iter().map(|m| m.half_placed(BINDING).count()).sum::<usize>().to_string()
        }),
        row("GPU hours held idle by them", |all| format!("{:.1}", sum(|m| hours(m.idle))(all))),
        row("makespan, hours on average", |all| format!("{:.2}", sum(makespan)(all) / all.len() as f64)),
        row("utilisation", move |all| {
            format!("{:.1} %", worked(all) / (NODES as f64 * CPUS as f64 * span(all)) * 100.0)
        }),
        row("preemptions", evicted("Preempted")),
        row("– for quota, within the ClusterQueue", preempted(Cause::WithinClusterQueue)),
        row("– for quota, reclaimed", preempted(Cause::Reclaim)),
        row("– for nodes besides quota", preempted(Cause::NodesBesideQuota)),
        row("– for nodes only", preempted(Cause::NodesOnly)),
        row("evictions for pods that are not ready", evicted("PodsReadyTimeout")),
        row("wasted work, GPU hours", |all| format!("{:.1}", sum(|m| hours(m.lost))(all))),
    ];
    for (name, of) in CLASSES {
        rows.push(row(&format!("wait P50, P90, P99 of {name}, minutes"), move |all| {
            let waits = all.iter().flat_map(Measure::waits).filter(of).map(|w| w.waited);
            let mut waits: Vec<Duration> = waits.collect();
            waits.sort_unstable();
            [50, 90, 99].map(|p| percentile(&waits, p)).join(", ")
        }));
    }
    rows
}

/// Runs the loads of all seeds, with quota alone and with joint admission, as many at a time as there are processors.
fn outcomes(seeds: std::ops::Range<u64>, jobs: usize, overtaking: usize) -> Vec<(u64, bool, Outcome)> {
    let all = seeds.flat_map(|seed| [(seed, false), (seed, true)]);
    let (left, done) = (Mutex::new(all.collect::<Vec<_>>()), Mutex::new(Vec::new()));
    std::thread::scope(|threads| {
        for _ in 0..available_parallelism().map_or(1, NonZero::get) {
            threads.spawn(|| {
                let next = || left.lock().ok()?.pop();
                while let Some((seed, joint)) = next() {
                    let outcome = run(&mixed(seed, jobs, joint, overtaking));
                    // A run that does not end is seen by the one that is missing.
                    let (steps, hours) = (outcome.steps, outcome.took.seconds() as f64 / 3_600.0);
                    eprintln!("seed {seed}, joint admission {joint}: {steps} steps, {hours:.1} hours");
                    if let Ok(mut done) = done.lock() {
                        done.push((seed, joint, outcome));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|(seed, joint, _)| (*seed, *joint));
    done
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers = [("--jobs", 500), ("--seeds", 1), ("--from", 1), ("--overtaking", OVERTAKING as u64)];
    let numbers = numbers.map(|(flag, default)| number(&args, flag, default));
    let [Ok(jobs), Ok(seeds), Ok(from), Ok(overtaking)] = numbers else {
        numbers.into_iter().filter_map(Result::err).for_each(|e| eprintln!("{e}"));
        return ExitCode::FAILURE;
    };
    let [jobs, overtaking] = [jobs, overtaking].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let outcomes = outcomes(from..from.saturating_add(seeds), jobs, overtaking);
    let of = |kind: bool| -> Vec<Measure> {
        outcomes
            .iter()
            .filter(|(_, joint, _)| *joint == kind)
            .filter_map(|(.., o)| o.measured.clone())
            .collect()
    };
    let columns = [of(false), of(true)];
    println!("{seeds} loads of {jobs} jobs (seeds from {from}), {NODES} nodes of {CPUS} GPUs:\n");
    println!("| | quota alone | joint admission |\n|---|---|---|");
    for (what, value) in rows() {
        println!("| {what} | {} | {} |", value(&columns[0]), value(&columns[1]));
    }
    let mut code = ExitCode::SUCCESS;
    for (seed, joint, outcome) in &outcomes {
        if let Some(violation) = &outcome.violation {
            eprintln!("seed {seed}, joint admission {joint}: {violation}");
            code = ExitCode::FAILURE;
        }
    }
    code
}
