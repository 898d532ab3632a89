//! `plimsoll bench admission`: queues of Kueue's published sizes against the engine, in virtual time.
//!
//! Everything runs in this process and on one thread: what is measured is the engine, from the event that a
//! workload exists to the action that admits it, without any API server. Virtual figures (makespan, waits) are
//! the same in every run; real ones (time in the engine) are not, and are too high on a busy machine, where
//! `processCpu` (all CPU time, the generator's too) is the better bound.

mod harness;
mod micro;
mod server;
pub mod shape;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::report::{self, Row};
use crate::cli;
use harness::{Harness, Outcome};
use server::{Kind, Price};
use shape::Shape;

/// Processors of the API server whose writes are charged what they cost.
const PROCESSORS: u32 = 2;

/// Runs what was asked for and prints rows.
pub fn run(args: &cli::BenchAdmission) -> anyhow::Result<()> {
    let mut shapes = Vec::new();
    for path in &args.files {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        shapes.push(Shape::read(&text).with_context(|| path.display().to_string())?);
    }
    if args.files.is_empty() {
        shapes = Shape::built_in()?;
    }
    let wanted = |name: &str| args.rows.is_empty() || args.rows.iter().any(|r| r == name);
    shapes.retain(|s| wanted(&s.name));
    let single = args.files.is_empty() && wanted("single");
    anyhow::ensure!(single || !shapes.is_empty(), "nothing is called {}", args.rows.join(", "));
    report::head(args.output, false);
    for mut shape in shapes {
        shape.scale(args.scale);
        let limited = [Price::Server(PROCESSORS), Price::PerSecond(args.writes)];
        for price in std::iter::once(Price::Free).chain(limited.into_iter().filter(|_| args.writes > 0)) {
            let bar = bar(args, shape.workloads(), &shape.name);
            let outcome = Harness::new(&shape, price).run(&bar).with_context(|| shape.name.clone())?;
            bar.finish_and_clear();
            for row in rows(&shape, &outcome, price) {
                report::row(&row, args.output);
            }
        }
    }
    if single {
        for mut row in micro::rows()? {
            row.case = "single".into();
            report::row(&row, args.output);
        }
    }
    Ok(())
}

fn bar(args: &cli::BenchAdmission, length: usize, what: &str) -> ProgressBar {
    if args.quiet || args.output == cli::Output::Json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length as u64).with_message(what.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{msg:12} {bar:40} {pos}/{len} {per_sec}") {
        bar.set_style(style);
    }
    bar
}

/// The figures of a run. Published ones are of a client with 50 writes per second, so only the limited run is
/// compared with them.
fn rows(shape: &Shape, o: &Outcome, price: Price) -> Vec<Row> {
    let label = match price {
        Price::Free => shape.name.clone(),
        Price::PerSecond(n) => format!("{}, {n} writes/s", shape.name),
        Price::Server(n) => format!("{}, writes as on a kube-apiserver with {n} processors", shape.name),
    };
    let floor = shape.floor();
    let published = shape.published.as_ref().filter(|_| matches!(price, Price::PerSecond(_)));
    let target = match published {
        Some(p) => p.makespan_seconds,
        None => floor * 1.1,
    };
    let target = match price {
        Price::Free => Some(target),
        Price::PerSecond(_) => published.map(|_| target),
        Price::Server(_) => None,
    };
    let per = |n: usize| n as f64 / o.admissions.max(1) as f64;
    let micros = o.engine.as_secs_f64() * 1e6 / o.admissions.max(1) as f64;
    let mut out = vec![
        Row::less(format!("{label}: makespan"), o.makespan, "s", target)
            .with("floor", floor)
            .with("admissionsPerSecond", o.admissions as f64 / o.makespan.max(1e-9)),
        Row::more(
            format!("{label}: usage of ClusterQueues"),
            o.usage * 100.0,
            "%",
            published.map(|p| p.usage_percent),
        ),
    ];
    for (class, waits) in shape.by_class(&o.waits) {
        let average = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
        let at =
            |q: f64| waits.get(((waits.len() as f64 - 1.0) * q).round() as usize).copied().unwrap_or(0.0);
        let wanted = published.and_then(|p| p.average_seconds.get(&class)).copied();
        out.push(
            Row::less(format!("{label}: time to admission, {class}"), average, "s", wanted)
                .with("p50", at(0.5))
                .with("p99", at(0.99))
                .with("max", at(1.0)),
        );
    }
    let cpu = Row::less(format!("{label}: engine per admission"), micros, "µs", shape.micros_per_admission)
        .with("writes", per(o.writes.iter().sum()))
        .with("evictions", o.evictions as f64)
        .with("steps", o.steps as f64)
        .with("longestStepMs", o.longest.as_secs_f64() * 1e3);
    let cpu = Kind::ALL.iter().zip(o.writes).fold(cpu, |row, (k, n)| row.with(k.name(), per(n)));
    let cpu = cpu.with("eventsDropped", per(o.dropped));
    let process = o.process.map(|p| p.as_secs_f64() * 1e6 / o.admissions.max(1) as f64);
    out.push(process.into_iter().fold(cpu, |row, p| row.with("processCpu", p)));
    out.iter_mut().for_each(|r| r.case.clone_from(&shape.name));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small run ends, nothing is lost, and the figures are possible ones.
    #[test]
    fn small_runs_end() {
        for mut shape in Shape::built_in().unwrap() {
            if shape.name == "large-scale" {
                continue;
            }
            shape.scale(0.02);
            for price in [Price::Free, Price::PerSecond(50), Price::Server(2)] {
                let o = Harness::new(&shape, price).run(&ProgressBar::hidden()).unwrap();
                let ended = o.admissions - o.evictions;
                assert_eq!(ended, shape.workloads(), "{}", shape.name);
                assert!(o.usage > 0.0 && o.usage <= 1.0 && o.makespan >= shape.floor(), "{o:?}");
                assert!(!rows(&shape, &o, price).is_empty());
            }
        }
    }
}
