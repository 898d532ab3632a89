//! Configuration files: read strictly, and refused as a whole where this build can't do what they ask for.

use std::path::Path;

use anyhow::{Context, bail};
use plimsoll_api::config;
use plimsoll_runtime::jobs::rules::Rules;
use plimsoll_runtime::{Roles, Settings};

use crate::cli::Files;

/// Kinds of jobs that are queued; others in `integrations.frameworks` have no effect, as in Kueue where their
/// definitions are not installed.
const FRAMEWORKS: [&str; 2] = ["batch/job", "pod"];

/// What Kueue does without a file.
const EMPTY: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";

/// The settings that the files ask for, defaults where there are none.
///
/// # Errors
/// When a file can't be read, is malformed, or asks for what is not there; nothing has been changed then.
pub fn settings(files: &Files, roles: Roles) -> anyhow::Result<Settings> {
    let mut settings = Settings { roles, joint: !files.no_joint_admission, ..Settings::default() };
    let gates = config::scheduler::Gates::parse(&files.scheduler_feature_gates)
        .context("--scheduler-feature-gates")?;
    settings.place = match &files.scheduler_config {
        Some(path) => config::scheduler::read_with(&text(path)?, gates)
            .with_context(|| format!("--scheduler-config {}", path.display()))?,
        None => gates.default_config(),
    };
    // Without a file plain pods are queued as well, which Kueue has to be told.
    let (text, named) = match &files.config {
        Some(path) => (text(path)?, format!("--config {}", path.display())),
        None => (EMPTY.to_owned(), "the default configuration".to_owned()),
    };
    let pods = files.config.is_none();
    (settings.queueing, settings.rules) = queueing(&text, pods).with_context(|| named)?;
    Ok(settings)
}

fn text(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

fn queueing(text: &str, pods: bool) -> anyhow::Result<(plimsoll_core::queueing::Config, Rules)> {
    let mut read = config::kueue::read(text, "kueue-system")?;
    read.queueing.watch_nodes = true;
    if let Some(name) = read.external_frameworks.first() {
        bail!("integrations.externalFrameworks: {name} is not supported: remove it");
    }
    for name in read.frameworks.iter().filter(|n| !FRAMEWORKS.contains(&n.as_str())) {
        tracing::warn!(framework = name, "jobs of this kind are not queued: there is no integration for it");
    }
    let has = |name: &str| read.frameworks.iter().any(|f| f == name);
    let rules = Rules {
        without_queue_name: read.manage_jobs_without_queue_name,
        jobs: has("batch/job"),
        pods: pods || has("pod"),
        elastic_jobs: read.queueing.gates.elastic_jobs,
        priority_boost: read.queueing.gates.priority_boost,
        namespaces: read.managed_jobs_namespaces,
        copied_labels: read.label_keys_to_copy,
        delete_finished_after: read.delete_finished_after,
        delete_deactivated_after: read.delete_deactivated_after,
        clean_up_requests: read.gates.is_on("CleanupProvisioningRequestsOnEviction"),
    };
    Ok((read.queueing, rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_refused() {
        for (rest, want) in [
            ("integrations:\n  externalFrameworks: [Foo.v1.example.com]\n", "externalFrameworks"),
            ("waitForPodReady: {}\n", "waitForPodReady"),
        ] {
            let text = format!("{EMPTY}{rest}");
            let error = queueing(&text, false).map(drop).map_err(|e| format!("{e:#}"));
            assert!(error.as_ref().is_err_and(|e| e.contains(want)), "{rest}: {error:?}");
        }
        // Kueue 0.19: a v1beta2 file supervises readiness unless it says otherwise.
        assert!(queueing(EMPTY, true).is_ok_and(|(c, _)| c.wait_for_pods_ready.is_some()));
    }
}
