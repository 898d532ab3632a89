//! House rules that a compiler doesn't check, as a test of the whole tree.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Files longer than this are more than one subject.
const MAX_LINES: usize = 700;

/// Words that may not appear in the code of a crate, with the reason.
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    (
        "crates/plimsoll-core/src",
        &[
            "tokio",
            "async fn",
            "std::time",
            "Instant::now",
            "SystemTime::now",
            "std::fs",
            "TcpStream",
            "TcpListener",
            "UdpSocket",
            "std::thread",
            "std::process",
            "std::env",
            "serde_json",
            "collections::HashMap",
            "thread_rng",
            "println!",
            "kube::",
            "k8s_openapi",
        ],
        "the core is pure",
    ),
    ("crates/plimsoll-api/src", PURE, "wire types and conversions are pure"),
    ("crates/plimsoll-apimachinery/src", PURE, "API machinery is pure"),
    ("crates/plimsoll-kubelet/src", PURE, "simulated kubelets get their time as an argument"),
    ("crates", &["serde_yaml", "k8s_pb::"], "use serde-saphyr; protobuf goes through the generated table"),
];

const PURE: &[&str] = &[
    "tokio",
    "async fn",
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "std::thread",
    "thread_rng",
    "rand::rng",
];

/// Words that may not appear in any Rust file, tests included.
const NOWHERE: &[&str] = &["todo!(", "unimplemented!(", "FIXME", "XXX:", "#[ignore"];

/// Runs every check and reports all violations at once.
pub fn run() -> Result<()> {
    let files = tracked_files()?;
    let mut problems = Vec::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        check_source(file, &text, &mut problems);
    }
    check_dependencies(&mut problems)?;
    check_ledger(&files, &mut problems)?;
    if problems.is_empty() {
        return Ok(());
    }
    let mut report = String::new();
    for p in &problems {
        let _ = writeln!(report, "  {p}");
    }
    bail!("{} house rules broken:\n{report}", problems.len());
}

fn tracked_files() -> Result<Vec<PathBuf>> {
    let out = Command::new("git").args(["ls-files", "-z"]).output().context("git ls-files")?;
    let list = String::from_utf8(out.stdout)?;
    Ok(list.split('\0').filter(|p| !p.is_empty()).map(PathBuf::from).filter(|p| p.exists()).collect())
}

fn check_source(file: &Path, text: &str, problems: &mut Vec<String>) {
    let name = file.display().to_string();
    if name.starts_with("xtask/") {
        return;
    }
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let is_test = stem.starts_with("test") || name.contains("/tests/");
    if !is_test && !text.starts_with("//!") && !text.starts_with("#!") {
        problems.push(format!("{name}: the file doesn't say in its head (//!) what it is about"));
    }
    let lines = text.lines().count();
    if lines > MAX_LINES && !is_test {
        problems.push(format!("{name}: {lines} lines, more than {MAX_LINES}; is it one subject?"));
    }
    for word in NOWHERE {
        if let Some(line) = text.lines().position(|l| l.contains(word)) {
            problems.push(format!("{name}:{}: `{word}`", line + 1));
        }
    }
    // Unit tests may read files and print; the rules are about the code that ships.
    if is_test {
        return;
    }
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    for (prefix, words, why) in FORBIDDEN {
        if !name.starts_with(prefix) {
            continue;
        }
        for word in *words {
            let found = code.lines().position(|l| !l.trim_start().starts_with("//") && l.contains(word));
            if let Some(line) = found {
                problems.push(format!("{name}:{}: `{word}` ({why})", line + 1));
            }
        }
    }
}

/// Every dependency says in the workspace manifest what it is there for.
fn check_dependencies(problems: &mut Vec<String>) -> Result<()> {
    let manifest = std::fs::read_to_string("Cargo.toml")?;
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    for line in section.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if !line.contains("path = ") && !line.contains('#') {
            problems.push(format!("Cargo.toml: no reason given for `{line}`"));
        }
    }
    Ok(())
}

/// Evidence in COMPATIBILITY.md must exist: names in backquotes in the third column are tests or files.
fn check_ledger(files: &[PathBuf], problems: &mut Vec<String>) -> Result<()> {
    let ledger = std::fs::read_to_string("COMPATIBILITY.md")?;
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "rs")) {
        let text = std::fs::read_to_string(file)?;
        for line in text.lines() {
            if let Some(rest) =
                line.trim_start().trim_start_matches("pub ").trim_start_matches("async ").strip_prefix("fn ")
            {
                names.insert(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
            }
        }
        names.extend(file.file_stem().map(|s| s.to_string_lossy().into_owned()));
        // A test target in a directory of its own.
        names.extend(file.parent().and_then(Path::file_name).map(|s| s.to_string_lossy().into_owned()));
    }
    for (number, line) in ledger.lines().enumerate().filter(|(_, l)| l.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, feature, status, evidence, ..] = cells.as_slice() else { continue };
        if *feature == "feature" || feature.starts_with("---") {
            continue;
        }
        let at = format!("COMPATIBILITY.md:{}", number + 1);
        // A word, possibly with an explanation: `partial: no slices`.
        let status = &status.split([':', ';', ' ']).next().unwrap_or_default();
        if !["supported", "partial", "refused", "absent", "different", "differs"].contains(status) {
            problems.push(format!("{at}: unknown status `{status}`"));
        }
        let quoted: Vec<&str> = evidence.split('`').skip(1).step_by(2).collect();
        if quoted.is_empty() && ["supported", "partial"].contains(status) {
            problems.push(format!("{at}: no test named as evidence for `{feature}`"));
        }
        for name in quoted {
            let base = name.rsplit("::").next().unwrap_or(name);
            let is_file = files.iter().any(|f| f.ends_with(name));
            if !is_file && !names.contains(base) {
                problems.push(format!("{at}: there is no test `{name}`"));
            }
        }
    }
    Ok(())
}
