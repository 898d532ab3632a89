//! `plimsoll version`.

use crate::{cli, say};

/// Prints the version.
#[allow(clippy::unnecessary_wraps)]
pub fn version(args: &cli::Version) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    match args.output {
        cli::Output::Text => say::line(&format!("plimsoll {version}")),
        cli::Output::Json => {
            let os = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
            say::line(&serde_json::json!({"version": version, "platform": os}).to_string());
        }
    }
    Ok(())
}
