//! Checks of values, with upstream's texts (`pkg/scheduler/apis/config/validation`).

use super::wire::{Configuration, LeaderElection};
use plimsoll_scheduler::framework::Args;
use plimsoll_scheduler::{ExtensionPoint, PluginSet, Profile, Registry, UserPlugins};
use plimsoll_state::Duration;
use serde_json::{Map, Value};

const REMOVED: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

pub(super) fn percentage(path: &str, value: Option<i32>, errors: &mut Vec<String>) {
    if let Some(v) = value
        && !(0..=100).contains(&v)
    {
        errors.push(format!("{path}: Invalid value: {v}: not in valid range [0-100]"));
    }
}

pub(super) fn top(c: &Configuration, errors: &mut Vec<String>) {
    if let Some(v) = c.parallelism
        && v <= 0
    {
        errors.push(format!("parallelism: Invalid value: {v}: should be an integer value greater than zero"));
    }
    if let Some(burst) = c.client_connection.as_ref().and_then(|c| c.burst)
        && burst < 0
    {
        errors.push(format!("clientConnection.burst: Invalid value: {burst}: must be non-negative"));
    }
    if let Some(l) = c.leader_election.as_ref().filter(|l| l.leader_elect.unwrap_or(true)) {
        leader_election(l, errors);
    }
    percentage("percentageOfNodesToScore", c.percentage_of_nodes_to_score, errors);
    let initial = c.pod_initial_backoff_seconds.unwrap_or(1);
    if initial <= 0 {
        errors.push(format!("podInitialBackoffSeconds: Invalid value: {initial}: must be greater than 0"));
    }
    let max = c.pod_max_backoff_seconds.unwrap_or(10);
    if max < initial {
        errors.push(format!(
            "podMaxBackoffSeconds: Invalid value: {max}: must be greater than or equal to PodInitialBackoffSeconds"
        ));
    }
    if c.profiles.as_ref().is_some_and(Vec::is_empty) {
        errors.push("profiles: Required value".to_owned());
    }
    super::extenders::validate(c.extenders.as_deref().unwrap_or_default(), errors);
}

/// component-base's `ValidateLeaderElectionConfiguration`, with kube-scheduler's defaults of 15, 10 and 2 seconds.
fn leader_election(raw: &LeaderElection, errors: &mut Vec<String>) {
    if let Some(lock) = raw.resource_lock.as_deref().filter(|l| *l != "leases") {
        errors.push(format!(
            "leaderElection.resourceLock: Invalid value: {lock:?}: resourceLock value must be \"leases\""
        ));
    }
    let mut read = |field: &str, text: Option<&String>, default: i64| {
        let Some(text) = text else { return default * 1_000_000_000 };
        let found = Duration::parse(text).map(|d| d.0);
        let why = match found {
            None => "must be a duration such as 90s, 5m or 1h30m",
            Some(..=0) => "must be greater than zero",
            Some(_) => return found.unwrap_or_default(),
        };
        errors.push(format!("leaderElection.{field}: Invalid value: {text:?}: {why}"));
        i64::MAX
    };
    let lease = read("leaseDuration", raw.lease_duration.as_ref(), 15);
    let deadline = read("renewDeadline", raw.renew_deadline.as_ref(), 10);
    read("retryPeriod", raw.retry_period.as_ref(), 2);
    if lease <= deadline && deadline < i64::MAX {
        let text = raw.lease_duration.as_deref().unwrap_or("15s");
        errors.push(format!(
            "leaderElection.leaseDuration: Invalid value: {text:?}: must be greater than `RenewDeadline`"
        ));
    }
}

/// Names and weights of enabled plugins; `false` where a name stands for no plugin.
pub(super) fn plugins(user: &UserPlugins, registry: &Registry, path: &str, errors: &mut Vec<String>) -> bool {
    let mut known = true;
    let multi = ("multiPoint".to_owned(), user.multi_point.clone());
    for (point, set) in std::iter::once(&multi).chain(&user.points) {
        for (i, p) in set.enabled.iter().enumerate() {
            let at = format!("{path}.plugins.{point}.enabled[{i}]");
            if REMOVED.contains(&p.name.as_str()) {
                known = false;
                errors.push(format!("{at}: {}", removed(&p.name)));
            } else if registry.get(&p.name).is_none() {
                known = false;
                errors.push(format!("{at}.name: {}", super::no_plugin(&p.name, registry)));
            }
            // Upstream accepts a negative weight, which ranks the worst node first.
            if p.weight < 0 {
                errors.push(format!("{at}.weight: Invalid value: {}: {}", p.weight, crate::NEGATIVE));
            }
        }
    }
    known
}

/// Plugins that need arguments and have no entry in `pluginConfig` (`configured`: the names there). Arguments that are there
/// and wrong, such as a guest that can't be loaded, have errors of their own.
pub(super) fn missing_arguments(
    (plugins, configured): (&PluginSet, &[String]),
    registry: &Registry,
    path: &str,
    errors: &mut Vec<String>,
) {
    for name in plugins.names().filter(|name| !configured.iter().any(|c| c == name)) {
        let Some(plugin) = registry.get(name) else { continue };
        if let Some(Err(_)) = crate::decode::fields::decode_args(
            &plugin,
            &Value::Object(Map::new()),
            path,
            &mut Args::default(),
        ) {
            errors.push(format!("{path}.pluginConfig: Required value: plugin {name:?} needs arguments"));
        }
    }
}

/// Plugins whose arguments don't have what the plugin needs at a point where it is enabled by name.
pub(super) fn points_of_arguments(
    user: &UserPlugins,
    args: &Args,
    registry: &Registry,
    path: &str,
    errors: &mut Vec<String>,
) {
    for (point, field) in ExtensionPoint::ALL {
        let Some((_, set)) = user.points.iter().find(|(name, _)| name == field) else { continue };
        for (i, p) in set.enabled.iter().enumerate() {
            let plugin = registry.get(&p.name).filter(|plugin| plugin.points().contains(&point));
            if plugin.is_some_and(|plugin| args.of(&p.name).is_some() && !plugin.runs_at(point, args)) {
                errors.push(format!(
                    "{path}.plugins.{field}.enabled[{i}].name: Invalid value: {:?}: its arguments have nothing for this \
                     extension point",
                    p.name
                ));
            }
        }
    }
}

/// Why a plugin is not there any more.
pub(super) fn removed(name: &str) -> String {
    format!(
        "Invalid value: {name:?}: was removed in version \"kubescheduler.config.k8s.io/v1\" \
         (KubeSchedulerConfiguration is version \"kubescheduler.config.k8s.io/v1\")"
    )
}

/// Whether a plugin is not there any more.
pub(super) fn is_removed(name: &str) -> bool {
    REMOVED.contains(&name)
}

pub(super) fn profiles(list: &[Profile], errors: &mut Vec<String>) {
    for (i, p) in list.iter().enumerate() {
        if list.iter().take(i).any(|q| q.scheduler_name == p.scheduler_name) {
            errors.push(format!("profiles[{i}].schedulerName: Duplicate value: {:?}", p.scheduler_name));
        }
    }
}
