//! Builds examples that subcommands start.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

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
