//! The history of figures: one line of JSON for each row, with what one has to know to compare it with others.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::Context;
use plimsoll_runtime::clock;
use serde::Serialize;

/// Where the rows of this process go, besides the output.
static KEPT: OnceLock<(Mutex<File>, String)> = OnceLock::new();

/// A row and the circumstances.
#[derive(Serialize)]
struct Entry<'a, R> {
    /// When it was measured (RFC 3339).
    time: String,
    commit: &'static str,
    machine: String,
    /// Load average of the last minute when the row was known, the benchmark's own included.
    load: f64,
    /// What was asked for.
    command: &'a str,
    #[serde(flatten)]
    row: &'a R,
}

/// Appends all rows of this process to a file from now on; `command` is what it was asked for.
///
/// # Errors
/// When the file can't be opened.
pub fn keep(path: &Path, command: String) -> anyhow::Result<()> {
    let file = File::options().append(true).create(true).open(path);
    let file = file.with_context(|| format!("--history {}", path.display()))?;
    // The first file stays: a process measures once.
    let _ = KEPT.set((Mutex::new(file), command));
    Ok(())
}

/// Appends a row, if they are kept.
pub fn add(row: &impl Serialize) {
    let Some((file, command)) = KEPT.get() else { return };
    let line = line(row, command);
    let written = writeln!(file.lock().unwrap_or_else(PoisonError::into_inner), "{line}");
    if let Err(e) = written {
        crate::say::error(&format!("--history: {e}"));
    }
}

fn line(row: &impl Serialize, command: &str) -> String {
    let entry = Entry {
        time: clock::text(clock::now()),
        commit: env!("PLIMSOLL_COMMIT"),
        machine: machine(),
        load: load().unwrap_or_default(),
        command,
        row,
    };
    serde_json::to_string(&entry).unwrap_or_default()
}

/// Number and name of the processors, where the system tells (Linux).
fn machine() -> String {
    let count = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|l| l.strip_prefix("model name")?.split_once(':'));
    match name {
        Some((_, name)) => format!("{count} × {}", name.trim()),
        None => format!("{count} processors"),
    }
}

/// Load average of the last minute, where the system tells (Linux).
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_row_with_its_circumstances() {
        let row = serde_json::json!({"case": "pods", "value": 2.0, "more": {"cpu": 1.5}});
        let entry: serde_json::Value = serde_json::from_str(&line(&row, "bench cluster")).unwrap();
        assert_eq!(
            (&entry["case"], &entry["value"], &entry["more"]),
            (&row["case"], &row["value"], &row["more"])
        );
        assert_eq!(entry["command"], "bench cluster");
        assert!(entry["time"].as_str().is_some_and(|t| t.ends_with('Z')), "{entry}");
        assert!(entry["machine"].as_str().is_some_and(|m| !m.is_empty()) && entry["load"].is_number());
    }
}
