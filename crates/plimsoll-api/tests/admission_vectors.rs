//! Runs recorded verdicts of the real Kueue (`vectors/admission`) against the engine.
//!
//! `PLIMSOLL_VECTORS` chooses another directory, `PLIMSOLL_ONLY=id` shows the differences of some rows,
//! `PLIMSOLL_BLESS=1` shortens the list of rows that don't pass yet.
//!
//! Scenarios run once more with both halves of the engine and joint admission: on nodes that have capacity for everything,
//! nodes decide nothing, so the verdicts are Kueue's as well. Those with nodes of their own (topologies) keep these beside the
//! others. Joint admission decides some of these differently, because it knows of nodes what Kueue doesn't; each such row is on a
//! list of its own, with the reason.

#![allow(clippy::print_stdout, clippy::panic)]

mod common;
#[path = "admission/compare.rs"]
mod compare;
#[path = "admission/harness.rs"]
mod harness;
#[path = "admission/reviewed.rs"]
mod reviewed;
#[path = "admission/rows.rs"]
mod rows;
#[path = "admission/unlimited.rs"]
mod unlimited;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use serde_json::Value;

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let mut tally = common::Tally::new("admission");
    let mut joint = common::Tally::new("joint_admission");
    let mut topology = reviewed::Reviewed::new("joint_topology");
    for (n, (file, row)) in common::rows(&common::vector_root("admission")).iter().enumerate() {
        let stem = file.file_name().map_or(String::new(), |f| f.to_string_lossy().into_owned());
        let stem = stem.split('.').next().unwrap_or_default().to_owned();
        let family = row["family"].as_str().unwrap_or(&stem).to_owned();
        let id = row["id"].as_str().map_or_else(|| format!("{stem}-{n}"), str::to_owned);
        if tally.wants(&id) {
            tally.note(&family, &id, caught(|| run(row)));
            let nodes = || row["objects"].as_array().is_some_and(|o| o.iter().any(|o| o["kind"] == "Node"));
            if row.get("cycles").is_some() {
                let verdict = caught(|| rows::scenario(row, true));
                match nodes() {
                    true => topology.note(&id, verdict),
                    false => joint.note(&family, &id, verdict),
                }
            }
        }
    }
    let whole = tally.wants("");
    let all = [tally.finish(), joint.finish(), topology.finish(whole)];
    if all == [ExitCode::SUCCESS; 3] { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The verdict, or the panic that ended the search for it.
fn caught(verdict: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(verdict))
        .unwrap_or_else(|e| Err(format!("panicked: {}", panic_text(e.as_ref()))))
}

fn panic_text(e: &(dyn std::any::Any + Send)) -> String {
    let text = e.downcast_ref::<String>().cloned();
    text.or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}

fn run(row: &Value) -> Result<(), String> {
    if row.get("cycles").is_some() {
        rows::scenario(row, false)
    } else if row.get("podSpec").is_some() {
        rows::role_hash(row)
    } else if row.get("uid").is_some() {
        rows::workload_name(row)
    } else if row.get("objects").is_some() {
        rows::quota(row)
    } else {
        Err("a row of an unknown kind".into())
    }
}
