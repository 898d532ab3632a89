//! `cargo xtask chaos`: `plimsoll run` against an API server that misbehaves (`crates/plimsoll/examples/chaos`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::example;

const USAGE: &str = "usage: cargo xtask chaos [--duration 10m] [--seed N] [--binary target/release/plimsoll]";

struct Options {
    seconds: u64,
    seed: Option<u64>,
    binary: PathBuf,
}

/// Packages and features as `.ci/run` selects them for the tests: another selection would be compiled anew.
const SELECTED: [&str; 3] = ["--workspace", "--features", "plimsoll/wasm"];

/// Runs it with the given arguments.
pub fn run(root: &Path, args: &[String]) -> Result<()> {
    let options = parse(args)?;
    let binary = match options.binary.is_absolute() {
        true => options.binary,
        false => root.join(options.binary),
    };
    let shown = binary.display().to_string();
    ensure!(binary.exists(), "--binary: there is no {shown}; cargo build --release makes it");
    // With the features of the whole workspace, as its tests have built it already.
    let mut chaos = Command::new(example::build(root, "chaos", &SELECTED)?);
    chaos
        .current_dir(root)
        .env("PLIMSOLL_BINARY", binary)
        .env("PLIMSOLL_CHAOS_SECONDS", options.seconds.to_string());
    if let Some(seed) = options.seed {
        chaos.env("PLIMSOLL_CHAOS_SEED", seed.to_string());
    }
    let status = chaos.status().context("chaos")?;
    ensure!(status.success(), "chaos: something was wrong; see above");
    Ok(())
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { seconds: 600, seed: None, binary: PathBuf::from("target/release/plimsoll") };
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let value = args.next().with_context(|| format!("{flag}: a value is missing\n{USAGE}"))?;
        match flag.as_str() {
            "--duration" => {
                options.seconds = seconds(value).with_context(|| format!("--duration {value}"))?
            }
            "--seed" => options.seed = Some(value.parse().with_context(|| format!("--seed {value}"))?),
            "--binary" => options.binary = PathBuf::from(value),
            _ => bail!("{USAGE}"),
        }
    }
    Ok(options)
}

/// `90s`, `10m` or `1h`.
fn seconds(text: &str) -> Result<u64> {
    let unit = match text.bytes().last() {
        Some(b's') => 1,
        Some(b'm') => 60,
        Some(b'h') => 3600,
        _ => bail!("expected a number with s, m or h"),
    };
    let number: u64 = text.get(..text.len() - 1).unwrap_or_default().parse()?;
    Ok(number * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        let all = ["90s", "10m", "1h"].map(|t| seconds(t).unwrap());
        assert_eq!(all, [90, 600, 3600]);
        assert!(seconds("10").is_err() && seconds("m").is_err());
    }
}
