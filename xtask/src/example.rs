//! Builds examples that subcommands start.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// Packages of all examples that are built with optimization, and the binary. cargo compiles a crate anew for every other
/// selection of packages, because each has its own features: with one selection the gate compiles each crate once.
const OPTIMIZED: [&str; 11] = [
    "--release",
    "--package",
    "plimsoll",
    "--package",
    "plimsoll-api",
    "--package",
    "plimsoll-queueing",
    "--package",
    "plimsoll-scheduler",
    "--package",
    "plimsoll-sim",
];

/// Builds an example with optimization and returns its path.
///
/// # Errors
/// When it does not build.
pub fn build_optimized(root: &Path, name: &str) -> Result<PathBuf> {
    build(root, name, &OPTIMIZED)
}

/// Builds an example, `args` say of which crate and how, and returns its path.
///
/// # Errors
/// When it does not build.
pub fn build(root: &Path, name: &str, args: &[&str]) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .current_dir(root)
        .args(["build", "--quiet", "--example", name, "--message-format", "json"])
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .context("cargo build")?;
    ensure!(out.status.success(), "the example {name} does not build");
    let said = String::from_utf8_lossy(&out.stdout);
    let mut programs = said.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let ours = message["target"]["name"] == name;
        ours.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    programs.next_back().with_context(|| format!("cargo does not say where {name} is"))
}
