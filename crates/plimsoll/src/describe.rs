//! `plimsoll version`, `plimsoll completion` and `plimsoll man`: what the program says of itself.

use anyhow::Context;
use clap::{Command, CommandFactory};

use crate::cli::{self, Completion, Format, Man, Version};
use crate::say;

/// Commit of the build; empty when it was built outside a repository.
const COMMIT: &str = env!("PLIMSOLL_COMMIT");

/// Prints the version.
///
/// # Errors
/// When it can't be written as YAML.
pub fn version(args: &Version) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let commit = if COMMIT.is_empty() { "unknown" } else { COMMIT };
    let (kubernetes, _) = plimsoll_apiserver::GIT_VERSION.split_once('+').unwrap_or_default();
    let kueue = plimsoll_api::KUEUE_VERSION;
    let platform = platform();
    let all = serde_json::json!({
        "version": version, "commit": commit, "kubernetesVersion": kubernetes, "kueueVersion": kueue,
        "platform": platform,
    });
    match args.output {
        Format::Text => say::line(&format!(
            "plimsoll {version}\nCommit: {commit}\nKubernetes: {kubernetes}\nKueue: {kueue}\nPlatform: {platform}"
        )),
        Format::Json => say::line(&all.to_string()),
        Format::Yaml => say::line(serde_saphyr::to_string(&all)?.trim_end()),
    }
    Ok(())
}

/// As Go names it, because kubectl prints it so: `linux/amd64`.
fn platform() -> String {
    let system = match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{system}/{machine}")
}

/// Prints the completion script of a shell.
///
/// # Errors
/// None at present; a script is text.
pub fn completion(args: &Completion) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::Cli::command(), "plimsoll", &mut script);
    say::line(String::from_utf8(script)?.trim_end());
    Ok(())
}

/// Prints a manual page, or writes all of them into a directory.
///
/// # Errors
/// When there is no such subcommand, or the directory can't be written.
pub fn man(args: &Man) -> anyhow::Result<()> {
    if let Some(directory) = &args.directory {
        std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(cli::Cli::command(), directory))
            .with_context(|| format!("--directory {}", directory.display()))?;
        return Ok(());
    }
    let mut root = cli::Cli::command().disable_help_subcommand(true);
    root.build();
    let mut command: &Command = &root;
    for name in &args.command {
        command = command
            .find_subcommand(name)
            .with_context(|| format!("no command {name:?} in {:?}", command.get_name()))?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    say::line(String::from_utf8(page)?.trim_end());
    Ok(())
}

#[cfg(test)]
mod tests {
    /// The levels that the program names are those that the ledger of compatibility is about.
    #[test]
    fn levels_are_those_of_the_ledger() {
        let ledger = include_str!("../../../COMPATIBILITY.md");
        let head: String = ledger.lines().take(5).collect::<Vec<_>>().join(" ");
        let kueue = plimsoll_api::KUEUE_VERSION.trim_start_matches('v');
        assert!(head.contains(&format!("Kueue ({kueue})")), "{kueue}");
        let minor = plimsoll_apiserver::GIT_VERSION.split('.').nth(1).unwrap();
        assert!(head.contains(&format!("kube-scheduler 1.{minor}")), "{minor}");
    }
}
