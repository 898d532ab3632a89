//! Checks of values, with upstream's texts (`pkg/scheduler/apis/config/validation`).

use super::wire::Configuration;
use plimsoll_core::place::{Profile, UserPlugins};

const REMOVED: [&str; 4] = ["AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"];

pub(super) fn percentage(path: &str, value: Option<i64>, errors: &mut Vec<String>) {
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
    if let Some(l) = &c.leader_election
        && l.leader_elect.unwrap_or(true)
        && let Some(lock) = l.resource_lock.as_deref()
        && lock != "leases"
    {
        errors.push(format!(
            "leaderElection.resourceLock: Invalid value: {lock:?}: resource lock must be \"leases\""
        ));
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

pub(super) fn removed(user: &UserPlugins, path: &str, errors: &mut Vec<String>) {
    let multi = ("multiPoint".to_owned(), user.multi_point.clone());
    for (point, set) in std::iter::once(&multi).chain(&user.points) {
        for (i, p) in set.enabled.iter().enumerate() {
            if REMOVED.contains(&p.name.as_str()) {
                errors.push(format!(
                    "{path}.plugins.{point}.enabled[{i}]: Invalid value: {:?}: was removed in version \
                     \"kubescheduler.config.k8s.io/v1\" (KubeSchedulerConfiguration is version \
                     \"kubescheduler.config.k8s.io/v1\")",
                    p.name
                ));
            }
        }
    }
}

pub(super) fn profiles(list: &[Profile], errors: &mut Vec<String>) {
    for (i, p) in list.iter().enumerate() {
        if list.iter().take(i).any(|q| q.scheduler_name == p.scheduler_name) {
            errors.push(format!("profiles[{i}].schedulerName: Duplicate value: {:?}", p.scheduler_name));
        }
    }
}
