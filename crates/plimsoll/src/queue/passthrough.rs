//! Commands that go to kubectl (upstream's `passthrough.go`).

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cli::Cluster;

/// Kinds with the names that kueuectl knows them by.
const KINDS: [&[&str]; 4] = [
    &["workload", "workloads", "kwl", "kueueworkload", "kueueworkloads"],
    &["clusterqueue", "clusterqueues", "cq"],
    &["localqueue", "localqueues", "lq"],
    &["resourceflavor", "resourceflavors", "rf"],
];

/// Runs kubectl with a verb and arguments, in place of this process where that can be.
///
/// # Errors
/// kubectl can't be run, or the kind is none of Kueue's.
pub fn kubectl(verb: &str, cluster: &Cluster, arguments: &[OsString]) -> anyhow::Result<()> {
    let kind = arguments.first().and_then(|a| a.to_str()).unwrap_or("");
    let name = kind.split('/').next().unwrap_or("");
    if !KINDS.iter().any(|names| names.contains(&name)) {
        let kinds: Vec<&str> = KINDS.iter().filter_map(|names| names.first().copied()).collect();
        bail!("unknown kind {kind:?}; must be one of {}", kinds.join(", "));
    }
    let mut command = Command::new("kubectl");
    command.arg(verb).args(arguments);
    for (flag, value) in [
        ("--kubeconfig", cluster.kubeconfig.as_ref().map(|p| p.as_os_str().to_owned())),
        ("--context", cluster.context.clone().map(Into::into)),
        ("--namespace", cluster.namespace.clone().map(Into::into)),
    ] {
        if let Some(value) = value {
            command.arg(flag).arg(value);
        }
    }
    run(&mut command)
}

#[cfg(unix)]
fn run(command: &mut Command) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt as _;
    // It returns only when it fails.
    Err(command.exec()).context("pass-through command are not available: kubectl can't be run")
}

#[cfg(not(unix))]
fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().context("pass-through command are not available: kubectl can't be run")?;
    std::process::exit(status.code().unwrap_or(1))
}
