//! Runs every target on its seeds, on its corpus (`fuzz/corpus`: what coverage-guided runs found, and every input that ever
//! failed), and on a bounded number of mutated ones.
//!
//! `PLIMSOLL_FUZZ_ITERATIONS` (default 3000) is divided by each target's cost; `PLIMSOLL_FUZZ_SEED` chooses other
//! inputs; `PLIMSOLL_FUZZ_TARGET` runs one target; `PLIMSOLL_FUZZ_INPUT` runs one file.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_fuzz::{Mutator, TARGETS, Target};

/// No single input may take longer, even in a debug build on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Runs one input; what fails is kept under `target/fuzz-failures`.
fn one(target: &Target, input: &[u8]) -> Result<(), String> {
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let took = started.elapsed();
    if outcome.is_ok() && took <= LONGEST {
        return Ok(());
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz-failures");
    let file = dir.join(format!("{}-{:08x}", target.name, checksum(input)));
    let _ = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&file, input));
    let what = if outcome.is_err() { "panicked".to_owned() } else { format!("took {took:?}") };
    Err(format!("{} {what} on {} bytes, kept in {}", target.name, input.len(), file.display()))
}

fn checksum(input: &[u8]) -> u32 {
    input.iter().fold(2_166_136_261, |h, b| (h ^ u32::from(*b)).wrapping_mul(16_777_619))
}

/// The inputs kept under `fuzz/corpus`, in the order of their names.
fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target.name);
    let files = std::fs::read_dir(&dir).expect("every target has a corpus");
    let mut files: Vec<_> = files.map(|f| f.expect("readable directory").path()).collect();
    files.sort();
    files.iter().map(|f| std::fs::read(f).expect("readable input")).collect()
}

fn run(target: &Target) -> Vec<String> {
    let mut seeds = (target.seeds)();
    assert!(seeds.len() > 2, "{} has seeds", target.name);
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "{} has a corpus", target.name);
    seeds.extend(corpus);
    let mut failures: Vec<String> = seeds.iter().filter_map(|s| one(target, s).err()).collect();
    let mut mutator = Mutator::new(number("PLIMSOLL_FUZZ_SEED", 1));
    let iterations = number("PLIMSOLL_FUZZ_ITERATIONS", 3000) / u64::from(target.cost);
    for _ in 0..iterations {
        failures.extend(one(target, &mutator.next(&seeds)).err());
        if failures.len() >= 20 {
            break;
        }
    }
    failures
}

#[test]
fn targets_never_panic_or_run_away() {
    let only = std::env::var("PLIMSOLL_FUZZ_TARGET").unwrap_or_default();
    let input = std::env::var_os("PLIMSOLL_FUZZ_INPUT").map(|f| std::fs::read(f).expect("readable input"));
    let mut failures = Vec::new();
    for target in TARGETS.iter().filter(|t| only.is_empty() || t.name == only) {
        let started = Instant::now();
        match &input {
            Some(input) => (target.run)(input),
            None => failures.extend(run(target)),
        }
        println!("{:<18}{:>8.1} s", target.name, started.elapsed().as_secs_f64());
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_target_has_a_wrapper_for_cargo_fuzz() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("fuzz/Cargo.toml");
    for target in TARGETS {
        let wrapper = fuzz.join(format!("fuzz_targets/{}.rs", target.name));
        let text = std::fs::read_to_string(&wrapper).unwrap_or_default();
        assert!(text.contains(&format!("plimsoll_fuzz::target({:?})", target.name)), "{}", wrapper.display());
        assert!(
            manifest.contains(&format!("name = {:?}", target.name)),
            "{} in fuzz/Cargo.toml",
            target.name
        );
    }
}
