//! `cargo xtask simulate`: seeds of the simulator (`crates/plimsoll-sim/examples/simulate.rs`), built with optimisation.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::example;

/// Runs it with the given arguments. `--checked` builds with debug assertions: the engine then compares its derived state
/// with a rebuild after every step, which takes many times as long.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    if args.first().is_some_and(|a| a == "--mutations") {
        return crate::mutations::run(root, args.get(1..).unwrap_or_default());
    }
    let checked = args.iter().any(|a| a == "--checked");
    let program = if checked {
        example::build(root, "simulate", &["--package", "plimsoll-sim", "--profile", "checked"])?
    } else {
        example::build_optimized(root, "simulate")?
    };
    let args = args.iter().filter(|a| *a != "--checked");
    let status = Command::new(program).current_dir(root).args(args).status().context("simulate")?;
    ensure!(status.success(), "simulate: a rule was broken; see above");
    Ok(())
}
