//! The simulator itself: seeds run to their end, equal scenarios give equal runs, and shrunk failures stay fixed.

#![allow(clippy::unwrap_used, clippy::panic)]

use plimsoll_sim::run::{ending_everywhere, run, traced};
use plimsoll_sim::scenario::{Ending, Profile, Scenario, generate};

/// The scenarios of a directory beside this file, with their names.
fn scenarios(directory: &str) -> Vec<(String, Scenario)> {
    let dir = format!("{}/tests/{directory}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "jsonl"));
    files.sort();
    let read = |file: &std::path::PathBuf| {
        let scenario = Scenario::from_text(&std::fs::read_to_string(file).unwrap());
        let name = file.display().to_string();
        (name.clone(), scenario.unwrap_or_else(|e| panic!("{name}: {e}")))
    };
    files.iter().map(read).collect()
}

/// Every file of `tests/regressions` is a failure that was found once; its first lines say which.
#[test]
fn failures_that_were_found_stay_fixed() {
    for (name, scenario) in scenarios("regressions") {
        let violation = run(&scenario).violation;
        assert!(violation.is_none(), "{name}: {}", violation.unwrap());
    }
}

/// Some of the steps; `cargo xtask simulate --endings crates/plimsoll-sim/tests/endings` takes them all.
#[test]
fn the_process_may_end_after_any_step() {
    for (i, (name, scenario)) in scenarios("endings").iter().enumerate() {
        let ending = [Ending::Crash, Ending::HandOver, Ending::LoseLease][i % 3];
        if let Err(broken) = ending_everywhere(scenario, ending, 101) {
            panic!("{name}, {ending:?}: {}\n{}", broken.1, broken.0.to_text());
        }
    }
}

#[test]
fn some_seeds_run_to_their_end() {
    for seed in 0..10 {
        let violation = run(&generate(seed, Profile::default())).violation;
        assert!(violation.is_none(), "seed {seed}: {}", violation.unwrap());
    }
}

#[test]
fn equal_scenarios_give_equal_runs() {
    for seed in [3, 11] {
        let scenario = generate(seed, Profile::default());
        assert_eq!(traced(&scenario, true), traced(&scenario, true), "seed {seed}");
    }
}
