//! Chores of the project: `cargo xtask <chore>`.

mod schemas;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some("tidy") => tidy::run(),
        Some("schemas") => schemas::run(&root),
        _ => Err(anyhow::anyhow!(
            "usage: cargo xtask tidy       check the house rules\n       cargo xtask schemas    make the table of built-in kinds"
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}
