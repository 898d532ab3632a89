//! Runs recorded verdicts of the real Kueue (`vectors/admission`) against the engine.
//!
//! `PLIMSOLL_VECTORS` chooses another directory, `PLIMSOLL_ONLY=id` shows the differences of some rows,
//! `PLIMSOLL_BLESS=1` shortens the list of rows that don't pass yet.

#![allow(clippy::print_stdout, clippy::panic)]

mod common;
#[path = "admission/compare.rs"]
mod compare;
#[path = "admission/harness.rs"]
mod harness;
#[path = "admission/rows.rs"]
mod rows;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use serde_json::Value;

fn main() -> ExitCode {
    if std::env::args().any(|a| a == "--list") {
        return ExitCode::SUCCESS;
    }
    let mut tally = common::Tally::new("admission");
    for (n, (file, row)) in common::rows(&common::vector_root("admission")).iter().enumerate() {
        let stem = file.file_name().map_or(String::new(), |f| f.to_string_lossy().into_owned());
        let stem = stem.split('.').next().unwrap_or_default().to_owned();
        let family = row["family"].as_str().unwrap_or(&stem).to_owned();
        let id = row["id"].as_str().map_or_else(|| format!("{stem}-{n}"), str::to_owned);
        if tally.wants(&id) {
            let verdict = catch_unwind(AssertUnwindSafe(|| run(row)))
                .unwrap_or_else(|e| Err(format!("panicked: {}", panic_text(e.as_ref()))));
            tally.note(&family, &id, verdict);
        }
    }
    tally.finish()
}

fn panic_text(e: &(dyn std::any::Any + Send)) -> String {
    let text = e.downcast_ref::<String>().cloned();
    text.or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
}

fn run(row: &Value) -> Result<(), String> {
    if row.get("cycles").is_some() {
        rows::scenario(row)
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
