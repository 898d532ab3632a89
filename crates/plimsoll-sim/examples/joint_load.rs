//! Compares admission by quota alone with joint admission: the same mixed load on the same simulated nodes, in virtual time.
//!
//!     cargo run --release -p plimsoll-sim --example joint_load -- [--jobs N] [--seeds N] [--from SEED]
//!
//! Prints a table in Markdown for each seed. Nothing in it depends on the machine.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports on the terminal")]

use std::process::ExitCode;

use plimsoll_sim::measure::CLASSES;
use plimsoll_sim::run::run;
use plimsoll_sim::scenario::load::{CPUS, NODES, mixed};
use plimsoll_sim::world::Outcome;
use plimsoll_state::Duration;

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

/// A row: what it is, and its value in an outcome.
type Row = (String, Box<dyn Fn(&Outcome) -> String>);

fn rows() -> Vec<Row> {
    fn row(what: &str, value: impl Fn(&Outcome) -> String + 'static) -> Row {
        (what.to_owned(), Box::new(value))
    }
    let span = |o: &Outcome| {
        let m = o.measured.as_ref();
        m.map_or(0, |m| m.first.map_or(0, |first| m.last.since(first).0))
    };
    let measured = |value: fn(&plimsoll_sim::measure::Measure) -> String| {
        move |o: &Outcome| o.measured.as_ref().map(value).unwrap_or_default()
    };
    let mut rows = vec![
        row("jobs done", measured(|m| format!("{} of {}", m.jobs().1, m.jobs().0))),
        row("half-placed gangs", measured(|m| m.half_placed.to_string())),
        row("GPU hours held idle by them", measured(|m| format!("{:.1}", hours(m.idle)))),
        row("makespan, hours", move |o| format!("{:.2}", span(o) as f64 / 3.6e12)),
        row("utilisation", move |o| {
            let all = NODES as f64 * CPUS as f64 * span(o) as f64;
            o.measured
                .as_ref()
                .map_or_else(String::new, |m| format!("{:.1} %", m.worked as f64 / all * 100.0))
        }),
        row("preemptions", measured(|m| m.evictions.get("Preempted").copied().unwrap_or(0).to_string())),
        row(
            "evictions for pods that are not ready",
            measured(|m| m.evictions.get("PodsReadyTimeout").copied().unwrap_or(0).to_string()),
        ),
        row("wasted work, GPU hours", measured(|m| format!("{:.1}", hours(m.lost)))),
    ];
    let mut least = 1;
    for (class, most) in CLASSES.into_iter().enumerate() {
        let name = if least == most { format!("{most} pod") } else { format!("{least} to {most} pods") };
        rows.push(row(&format!("wait P50, P99 of {name}, minutes"), move |o| {
            let waits = o.measured.as_ref().map(|m| m.waits()).unwrap_or_default();
            waits
                .get(class)
                .map_or_else(String::new, |w| format!("{}, {}", percentile(w, 50), percentile(w, 99)))
        }));
        least = most + 1;
    }
    rows
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers = [number(&args, "--jobs", 500), number(&args, "--seeds", 1), number(&args, "--from", 1)];
    let [Ok(jobs), Ok(seeds), Ok(from)] = numbers else {
        numbers.into_iter().filter_map(Result::err).for_each(|e| eprintln!("{e}"));
        return ExitCode::FAILURE;
    };
    let jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
    let mut code = ExitCode::SUCCESS;
    for seed in from..from.saturating_add(seeds) {
        let outcomes = [false, true].map(|joint| run(&mixed(seed, jobs, joint)));
        println!("Seed {seed}, {jobs} jobs, {NODES} nodes of {CPUS} GPUs:\n");
        println!("| | quota alone | joint admission |\n|---|---|---|");
        for (what, value) in rows() {
            println!("| {what} | {} | {} |", value(&outcomes[0]), value(&outcomes[1]));
        }
        println!();
        for violation in outcomes.iter().filter_map(|o| o.violation.as_ref()) {
            eprintln!("seed {seed}: {violation}");
            code = ExitCode::FAILURE;
        }
    }
    code
}
