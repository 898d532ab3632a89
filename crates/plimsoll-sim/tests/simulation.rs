//! The simulator itself: seeds run to their end, equal scenarios give equal runs, and shrunk failures stay fixed.

use plimsoll_sim::run::{run, traced};
use plimsoll_sim::scenario::{Profile, Scenario, generate};

/// Every file of `tests/regressions` is a failure that was found once; its first lines say which.
#[test]
fn failures_that_were_found_stay_fixed() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions");
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "jsonl")) {
        let scenario = Scenario::from_text(&std::fs::read_to_string(file).unwrap());
        let scenario = scenario.unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let violation = run(&scenario).violation;
        assert!(violation.is_none(), "{}: {}", file.display(), violation.unwrap());
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
