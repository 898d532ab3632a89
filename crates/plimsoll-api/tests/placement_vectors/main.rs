//! Replays the recorded verdicts of kube-scheduler under `PLIMSOLL_VECTORS` (default: the repository's
//! `vectors/placement`, and `own` beside this file: scenarios of ours with its verdicts) and compares.
//!
//! `PLIMSOLL_ONLY=<id>` shows one scenario's differences; `PLIMSOLL_BLESS=1` rewrites the list of scenarios
//! that are known to fail. That list only shrinks: a scenario in it that passes is an error too.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test target reports on the terminal")]

mod backoff;
mod compare;
mod files;
mod hints;
mod scenario;
mod sequence;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Differences of one scenario; none: it passes.
type Differences = Vec<String>;

const PENDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/placement_vectors.pending");

fn run(family: &str, vector: &Value) -> Differences {
    match family {
        "backoff" => backoff::run(vector),
        "hints" => hints::run(vector),
        "sequences" => sequence::run(vector),
        _ => scenario::run(vector),
    }
}

/// Name of a scenario: its id, or its content for those without.
fn name(family: &str, vector: &Value) -> String {
    match vector.get("id").and_then(Value::as_str) {
        Some(id) => id.to_owned(),
        None => format!("{family}:{}", backoff::name(vector)),
    }
}

fn main() -> ExitCode {
    let own = || {
        vec![
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/placement").into(),
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/placement_vectors/own").into(),
        ]
    };
    let roots: Vec<std::path::PathBuf> =
        std::env::var("PLIMSOLL_VECTORS").map_or_else(|_| own(), |dir| vec![dir.into()]);
    let only = std::env::var("PLIMSOLL_ONLY").ok();
    let bless = std::env::var("PLIMSOLL_BLESS").is_ok();
    let pending: BTreeSet<String> =
        std::fs::read_to_string(PENDING).unwrap_or_default().lines().map(str::to_owned).collect();
    let mut families: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let mut failed: BTreeSet<String> = BTreeSet::new();
    let mut surprises = Vec::new();
    for (family, vector) in roots.iter().flat_map(|root| files::read_all(root)) {
        let name = name(&family, &vector);
        if only.as_ref().is_some_and(|o| *o != name) {
            continue;
        }
        let differences = run(&family, &vector);
        let counts = families.entry(family).or_default();
        if differences.is_empty() {
            counts.0 += 1;
            if pending.contains(&name) {
                surprises.push(format!("{name} passes but is listed as pending"));
            }
            continue;
        }
        counts.1 += 1;
        if !pending.contains(&name) {
            surprises.push(format!("{name}: {}", differences[0]));
        }
        if only.is_some() {
            println!("{name}");
            for d in &differences {
                println!("  {d}");
            }
        }
        failed.insert(name);
    }
    println!("{:<20} {:>7} {:>7}", "family", "passed", "failed");
    for (family, (passed, bad)) in &families {
        println!("{family:<20} {passed:>7} {bad:>7}");
    }
    if bless && only.is_none() {
        let text: String = failed.iter().map(|n| format!("{n}\n")).collect();
        if let Err(e) = std::fs::write(PENDING, text) {
            eprintln!("cannot write {PENDING}: {e}");
            return ExitCode::FAILURE;
        }
        surprises.clear();
    }
    for s in surprises.iter().take(40) {
        eprintln!("{s}");
    }
    let passed: usize = families.values().map(|c| c.0).sum();
    println!("placement: {passed} passed, {} failed", failed.len());
    if passed + failed.len() == 0 {
        eprintln!("no vectors found under {roots:?}");
        return ExitCode::FAILURE;
    }
    if surprises.is_empty() || only.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
