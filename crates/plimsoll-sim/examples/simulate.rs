//! Runs seeds until a number of them or a time is over: `cargo xtask simulate` builds and starts it.
//!
//! `simulate [--seeds N] [--minutes M] [--from SEED] [--threads N] [--joint] [--unwritten] [--shards] [--file FILE] [--trace] [--print] [--no-shrink]
//! [--endings DIRECTORY [--every N]]`
//!
//! With `--shards` the seeds are those of clusters of two shards. With `--joint` the seeds are those of scenarios of joint admission, which have bounds, with `--unwritten` of scenarios in which all
//! writes of one kind about pods fail for a while.
//!
//! With `--endings` the process ends after each step (or each `N`th) of each scenario of the directory, in each of the
//! ways in which it may end.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that reports on the terminal")]

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_sim::run::{ending_everywhere, run, traced};
use plimsoll_sim::scenario::joint::joint;
use plimsoll_sim::scenario::shards::sharded;
use plimsoll_sim::scenario::unwritten::unwritten;
use plimsoll_sim::scenario::{Ending, Profile, Scenario, generate};
use plimsoll_sim::shrink::shrink;

/// Runs that shrinking a failure may take.
const SHRINKING: usize = 1_500;
/// Failures that are shrunk and shown; more of them say little more.
const SHOWN: usize = 5;

#[derive(Clone, Debug)]
struct Arguments {
    seeds: u64,
    minutes: f64,
    from: u64,
    threads: usize,
    joint: bool,
    unwritten: bool,
    shards: bool,
    file: Option<String>,
    trace: bool,
    print: bool,
    shrink: bool,
    endings: Option<String>,
    every: usize,
}

impl Arguments {
    /// The scenario of a seed.
    fn scenario(&self, seed: u64) -> Scenario {
        match (self.joint, self.unwritten, self.shards) {
            (true, ..) => joint(seed),
            (_, true, _) => unwritten(seed),
            (_, _, true) => sharded(seed),
            (false, false, false) => generate(seed, Profile::default()),
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut out = Arguments {
        seeds: u64::MAX,
        minutes: 2.0,
        from: 0,
        threads,
        joint: false,
        unwritten: false,
        shards: false,
        file: None,
        trace: false,
        print: false,
        shrink: true,
        endings: None,
        every: 1,
    };
    let mut args = std::env::args().skip(1);
    let mut limited = false;
    while let Some(flag) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{flag} needs a value"));
        let wrong = |_| format!("the value of {flag} is no number");
        match flag.as_str() {
            "--seeds" => {
                out.seeds = value()?.parse().map_err(wrong)?;
                if !limited {
                    out.minutes = f64::INFINITY;
                }
            }
            "--minutes" => {
                out.minutes = value()?.parse().map_err(|_| format!("the value of {flag} is no number"))?;
                limited = true;
            }
            "--from" => out.from = value()?.parse().map_err(wrong)?,
            "--threads" => {
                out.threads = value()?.parse().map_err(|_| format!("the value of {flag} is no number"))?;
            }
            "--file" => out.file = Some(value()?),
            "--endings" => out.endings = Some(value()?),
            "--every" => {
                out.every = value()?.parse().map_err(|_| format!("the value of {flag} is no number"))?;
            }
            "--joint" => out.joint = true,
            "--unwritten" => out.unwritten = true,
            "--shards" => out.shards = true,
            "--trace" => out.trace = true,
            "--print" => out.print = true,
            "--no-shrink" => out.shrink = false,
            _ => return Err(format!("unknown argument {flag}")),
        }
    }
    Ok(out)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    // A panic is a failure of its seed, and shown with it.
    std::panic::set_hook(Box::new(|_| {}));
    if arguments.print {
        print!("{}", arguments.scenario(arguments.from).to_text());
        return ExitCode::SUCCESS;
    }
    match (&arguments.file, &arguments.endings) {
        (Some(file), _) => one(file, &arguments),
        (None, Some(directory)) => endings(directory, &arguments),
        (None, None) => many(&arguments),
    }
}

fn read(file: &std::path::Path) -> Result<Scenario, String> {
    let text = std::fs::read_to_string(file).map_err(|e| e.to_string());
    text.and_then(|t| Scenario::from_text(&t)).map_err(|e| format!("{}: {e}", file.display()))
}

/// All scenarios of a directory, in the order of their names.
fn scenarios(directory: &str) -> Result<Vec<(String, Scenario)>, String> {
    let files = std::fs::read_dir(directory).map_err(|e| format!("{directory}: {e}"))?;
    let mut files: Vec<_> = files.filter_map(Result::ok).map(|f| f.path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "jsonl"));
    files.sort();
    files.iter().map(|f| Ok((f.display().to_string(), read(f)?))).collect()
}

fn endings(directory: &str, arguments: &Arguments) -> ExitCode {
    let scenarios = match scenarios(directory) {
        Ok(scenarios) => scenarios,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let all = [Ending::Crash, Ending::HandOver, Ending::LoseLease];
    let tasks: Vec<_> = scenarios.iter().flat_map(|s| all.map(|ending| (s, ending))).collect();
    let (next, steps, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                let task = || tasks.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).ok()?);
                while let Some(((name, scenario), ending)) = task() {
                    match ending_everywhere(scenario, *ending, arguments.every.max(1)) {
                        Ok(count) => drop(steps.fetch_add(count, Ordering::Relaxed)),
                        Err(broken) => {
                            failed.fetch_add(1, Ordering::Relaxed);
                            println!("{name}: {}\n{}", broken.1, broken.0.to_text());
                        }
                    }
                }
            });
        }
    });
    let (steps, seconds) = (steps.into_inner(), began.elapsed().as_secs_f64());
    println!(
        "{} scenarios, {} ends after each step: {steps} steps in {seconds:.0} s",
        scenarios.len(),
        all.len()
    );
    if failed.into_inner() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(file: &str, arguments: &Arguments) -> ExitCode {
    let scenario = match read(file.as_ref()) {
        Ok(scenario) => scenario,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    };
    let (outcome, trace) = traced(&scenario, arguments.trace);
    trace.iter().for_each(|line| println!("{line}"));
    println!(
        "{} steps, {} virtual seconds, digest {:016x}",
        outcome.steps,
        outcome.took.seconds(),
        outcome.digest
    );
    match outcome.violation {
        Some(violation) => {
            println!("{violation}");
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

fn many(arguments: &Arguments) -> ExitCode {
    let (next, steps, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let (virtual_seconds, explanations) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures: Mutex<Vec<u64>> = Mutex::default();
    let began = Instant::now();
    println!("seeds from {}", arguments.from);
    let limit = Duration::try_from_secs_f64(arguments.minutes * 60.0).unwrap_or(Duration::MAX);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                while began.elapsed() < limit {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= arguments.seeds {
                        break;
                    }
                    let seed = arguments.from + i;
                    let scenario = arguments.scenario(seed);
                    let outcome = run(&scenario);
                    steps.fetch_add(outcome.steps, Ordering::Relaxed);
                    let seconds = u64::try_from(outcome.took.seconds()).unwrap_or(0);
                    virtual_seconds.fetch_add(seconds, Ordering::Relaxed);
                    explanations.fetch_add(outcome.explanations as u64, Ordering::Relaxed);
                    let count = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if let Some(violation) = outcome.violation {
                        let number = {
                            let mut all = failures.lock().unwrap_or_else(PoisonError::into_inner);
                            all.push(seed);
                            all.len()
                        };
                        report(seed, &scenario, &violation, arguments.shrink && number <= SHOWN);
                    }
                    if count.is_multiple_of(1000) {
                        progress(count, &steps, began);
                    }
                }
            });
        }
    });
    progress(done.load(Ordering::Relaxed), &steps, began);
    println!("{} virtual hours", virtual_seconds.load(Ordering::Relaxed) / 3600);
    println!("{} explanations compared", explanations.load(Ordering::Relaxed));
    let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("{} seeds failed: {failures:?}", failures.len());
    println!("again: cargo xtask simulate --from SEED --seeds 1");
    ExitCode::FAILURE
}

fn progress(seeds: u64, steps: &AtomicU64, began: Instant) {
    let (steps, seconds) = (steps.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
    let rate = steps as f64 / seconds * 60.0;
    println!("{seeds} seeds, {steps} steps in {seconds:.0} s: {rate:.0} steps per minute");
    let _ = std::io::stdout().flush();
}

fn report(seed: u64, scenario: &Scenario, violation: &plimsoll_sim::check::Violation, shrinks: bool) {
    println!("seed {seed}: {violation}");
    if !shrinks {
        return;
    }
    let short = shrink(scenario, violation.rule, SHRINKING);
    let last = run(&short).violation;
    println!("seed {seed} as short as it gets, {} operations:\n{}", short.operations.len(), short.to_text());
    if let Some(last) = last {
        println!("seed {seed} then: {last}");
    }
}
