//! `cargo xtask compare-joint`: joint admission beside Kueue and kube-scheduler (`crates/plimsoll/examples/compare_joint`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::example;

/// Runs it with the given arguments; `--help` lists them.
///
/// # Errors
/// When it does not build, or ends with an error.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    let status = Command::new(example::build_optimized(root, "compare_joint")?)
        .current_dir(root)
        .args(args)
        .status()
        .context("compare_joint")?;
    ensure!(status.success(), "compare-joint: see above");
    Ok(())
}
