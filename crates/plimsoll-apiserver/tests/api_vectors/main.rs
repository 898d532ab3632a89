//! Replays the recorded transcripts of a real kube-apiserver (`vectors/api`) against this server, in process.
//!
//! `PLIMSOLL_VECTORS` names another directory, `PLIMSOLL_ONLY` a part of the ids to run (with the differences
//! printed), `PLIMSOLL_BLESS=1` rewrites the list of scenarios that don't pass yet (`tests/api_vectors.pending`).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr, reason = "a test")]

mod bind;
mod client;
mod compare;
#[path = "../integration/support/https.rs"]
mod https;
mod kubectl;
mod openapi;
mod replay;
mod webhook;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;

/// Scenarios replayed at one time; most of their time is waiting for watches to end.
const PARALLEL: usize = 8;

struct Scenario {
    family: String,
    id: String,
    row: Value,
}

fn main() -> ExitCode {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/api");
    let other = std::env::var_os("PLIMSOLL_VECTORS").map(PathBuf::from);
    let only = std::env::var("PLIMSOLL_ONLY").unwrap_or_default();
    let dir = match &other {
        Some(dir) if dir.join("api").is_dir() => dir.join("api"),
        Some(dir) => dir.clone(),
        None => default,
    };
    let scenarios = load(&dir, &only);
    if scenarios.is_empty() {
        eprintln!("no scenarios under {}", dir.display());
        return ExitCode::FAILURE;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let results = runtime.block_on(run(scenarios));
    report(&results, &only);
    let failed = results.values().filter(|r| r.diffs.is_some()).count();
    let verdict = judge(&results, other.is_none() && only.is_empty());
    println!("api: {} passed, {failed} failed", results.len() - failed);
    if verdict { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn load(dir: &Path, only: &str) -> Vec<Scenario> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .map(|entries| entries.filter_map(Result::ok).map(|e| e.path()).collect())
        .unwrap_or_default();
    files.sort();
    let mut scenarios = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = if name.ends_with(".jsonl") {
            std::fs::read_to_string(&path).unwrap()
        } else if name.ends_with(".jsonl.zst") {
            let file = std::fs::File::open(&path).unwrap();
            let mut text = String::new();
            ruzstd::decoding::StreamingDecoder::new(file).unwrap().read_to_string(&mut text).unwrap();
            text
        } else {
            continue;
        };
        let family = name.split('.').next().unwrap().to_owned();
        for line in text.lines().filter(|l| !l.trim().is_empty()) {
            let row: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{name}: {e}"));
            let id = format!("{family}:{}", row["id"].as_str().unwrap());
            // Rows of one kubectl session need those before them.
            if id.contains(only) || family == "kubectl" {
                scenarios.push(Scenario { family: family.clone(), id, row });
            }
        }
    }
    if !only.is_empty() && !scenarios.iter().any(|s| s.family == "kubectl" && s.id.contains(only)) {
        scenarios.retain(|s| s.family != "kubectl");
    }
    scenarios
}

struct Outcome {
    family: String,
    /// Differences; `None`: it passed.
    diffs: Option<Vec<String>>,
}

async fn run(scenarios: Vec<Scenario>) -> BTreeMap<String, Outcome> {
    let slots = Arc::new(Semaphore::new(PARALLEL));
    let mut tasks = tokio::task::JoinSet::new();
    let (kubectl, others): (Vec<_>, Vec<_>) = scenarios.into_iter().partition(|s| s.family == "kubectl");
    for scenario in others {
        let slots = Arc::clone(&slots);
        tasks.spawn(async move {
            let _slot = slots.acquire_owned().await.unwrap();
            let Scenario { family, id, row } = scenario;
            let limit = std::time::Duration::from_secs(120);
            let work = tokio::spawn(async move { replay::scenario(&row).await });
            let diffs = match tokio::time::timeout(limit, work).await {
                Ok(Ok(diffs)) => diffs,
                Ok(Err(e)) => vec![format!("panicked: {e}")],
                Err(_) => vec!["did not end within two minutes".to_owned()],
            };
            vec![(id, Outcome { family, diffs: (!diffs.is_empty()).then_some(diffs) })]
        });
    }
    tasks.spawn(async move {
        let rows: Vec<(String, Value)> = kubectl.into_iter().map(|s| (s.id, s.row)).collect();
        let results = kubectl::session(rows).await;
        results
            .into_iter()
            .map(|(id, diffs)| {
                let diffs = (!diffs.is_empty()).then_some(diffs);
                (id, Outcome { family: "kubectl".to_owned(), diffs })
            })
            .collect()
    });
    tasks.join_all().await.into_iter().flatten().collect()
}

fn report(results: &BTreeMap<String, Outcome>, only: &str) {
    let mut families: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for outcome in results.values() {
        let (passed, all) = families.entry(&outcome.family).or_default();
        *all += 1;
        *passed += usize::from(outcome.diffs.is_none());
    }
    for (id, outcome) in results {
        let Some(diffs) = &outcome.diffs else { continue };
        if only.is_empty() {
            let first: String = diffs[0].chars().take(300).collect();
            println!("FAIL {id}: {}", first.replace('\n', " "));
        } else if id.contains(only) {
            println!("FAIL {id}");
            for diff in diffs.iter().take(40) {
                println!("    {diff}");
            }
        }
    }
    for (family, (passed, all)) in families {
        println!("{family:18} {passed:4} of {all:4}");
    }
}

fn pending_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api_vectors.pending")
}

/// Scenarios on the list may fail; with the recorded directory those that pass must be off it.
fn judge(results: &BTreeMap<String, Outcome>, complete: bool) -> bool {
    let listed: BTreeSet<String> = std::fs::read_to_string(pending_path())
        .unwrap_or_default()
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .map(str::to_owned)
        .collect();
    let failing: BTreeSet<String> =
        results.iter().filter(|(_, o)| o.diffs.is_some()).map(|(id, _)| id.clone()).collect();
    if complete && std::env::var_os("PLIMSOLL_BLESS").is_some() {
        let mut text = String::from(
            "# Scenarios of vectors/api that this server does not pass yet. The list only shrinks: the test fails when\n\
             # one that is not here fails, and when one that is here passes.\n",
        );
        for id in &failing {
            text.push_str(id);
            text.push('\n');
        }
        std::fs::write(pending_path(), text).unwrap();
        return true;
    }
    let mut good = true;
    for id in failing.difference(&listed) {
        println!("not on the list of pending scenarios: {id}");
        good = false;
    }
    if complete {
        for id in listed.difference(&failing) {
            println!("passes now, take it off the list of pending scenarios: {id}");
            good = false;
        }
    }
    good
}
