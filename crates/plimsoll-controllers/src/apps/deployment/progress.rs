//! The status of a Deployment, and whether it gets on.

use jiff::{SignedDuration, Timestamp};

use super::super::model::{Condition, Deployment, DeploymentStatus, ReplicaSet};
use super::plan::condition;

/// What a Deployment's status should be, and when to reconcile again.
pub fn status(
    d: &Deployment,
    new: Option<&ReplicaSet>,
    old: &[ReplicaSet],
    rollout: Option<Condition>,
    now: Timestamp,
) -> (DeploymentStatus, Option<SignedDuration>) {
    let mut status = counts(d, new, old);
    let paused = paused_condition(d, now);
    if let Some(condition) = paused.or(rollout) {
        set(&mut status.conditions, condition);
    }
    let enough = status.available_replicas >= d.replicas() - d.limits().1;
    set(
        &mut status.conditions,
        if enough {
            let message = "Deployment has minimum availability.";
            condition("Available", "True", "MinimumReplicasAvailable", message, now)
        } else {
            let message = "Deployment does not have minimum availability.";
            condition("Available", "False", "MinimumReplicasUnavailable", message, now)
        },
    );
    let again = if d.spec.paused { None } else { progress(d, new, &mut status, now) };
    let mut failures = new.into_iter().chain(old).flat_map(|s| &s.status.conditions);
    match failures.find(|c| c.kind == "ReplicaFailure" && c.status == "True") {
        Some(f) => {
            set(&mut status.conditions, condition("ReplicaFailure", "True", &f.reason, &f.message, now));
        }
        None => status.conditions.retain(|c| c.kind != "ReplicaFailure"),
    }
    (status, again)
}

fn counts(d: &Deployment, new: Option<&ReplicaSet>, old: &[ReplicaSet]) -> DeploymentStatus {
    let sum = |of: fn(&ReplicaSet) -> i32| new.into_iter().chain(old).map(of).fold(0, i32::saturating_add);
    let available = sum(|s| s.status.available_replicas);
    DeploymentStatus {
        observed_generation: d.metadata.generation,
        replicas: sum(|s| s.status.replicas),
        updated_replicas: new.map_or(0, |s| s.status.replicas),
        ready_replicas: sum(|s| s.status.ready_replicas),
        available_replicas: available,
        unavailable_replicas: sum(ReplicaSet::replicas).saturating_sub(available).max(0),
        terminating_replicas: Some(sum(|s| s.status.terminating_replicas.unwrap_or(0))),
        conditions: d.status.conditions.clone(),
        collision_count: d.status.collision_count,
    }
}

/// Pausing and resuming stop and restart the clock of the deadline.
fn paused_condition(d: &Deployment, now: Timestamp) -> Option<Condition> {
    d.spec.progress_deadline_seconds?;
    let current = d.status.conditions.iter().find(|c| c.kind == "Progressing");
    if current.is_some_and(|c| c.reason == "ProgressDeadlineExceeded") {
        return None;
    }
    let was_paused = current.is_some_and(|c| c.reason == "DeploymentPaused");
    match (d.spec.paused, was_paused) {
        (true, false) => {
            Some(condition("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now))
        }
        (false, true) => {
            Some(condition("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed", now))
        }
        _ => None,
    }
}

fn progress(
    d: &Deployment,
    new: Option<&ReplicaSet>,
    status: &mut DeploymentStatus,
    now: Timestamp,
) -> Option<SignedDuration> {
    let deadline =
        SignedDuration::from_secs(i64::from(d.spec.progress_deadline_seconds.filter(|s| *s != i32::MAX)?));
    let current = status.conditions.iter().find(|c| c.kind == "Progressing").cloned();
    let settled = current.as_ref().is_some_and(|c| c.reason == "NewReplicaSetAvailable");
    if settled && status.replicas == status.updated_replicas {
        return None;
    }
    let name = new.map_or(&d.metadata.name, |s| &s.metadata.name);
    let what = if new.is_some() { "ReplicaSet" } else { "Deployment" };
    let wanted = d.replicas();
    let complete =
        status.updated_replicas == wanted && status.replicas == wanted && status.available_replicas == wanted;
    let before = &d.status;
    let old = |s: &DeploymentStatus| s.replicas - s.updated_replicas;
    let moving = status.updated_replicas > before.updated_replicas
        || old(status) < old(before)
        || status.ready_replicas > before.ready_replicas
        || status.available_replicas > before.available_replicas;
    if complete {
        let message = format!("{what} {name:?} has successfully progressed.");
        set(
            &mut status.conditions,
            condition("Progressing", "True", "NewReplicaSetAvailable", &message, now),
        );
        return None;
    }
    if moving {
        let message = format!("{what} {name:?} is progressing.");
        let mut updated = condition("Progressing", "True", "ReplicaSetUpdated", &message, now);
        if let Some(current) = current.as_ref().filter(|c| c.status == "True") {
            updated.last_transition_time = current.last_transition_time;
        }
        // Also when nothing but its time changes: the deadline counts from the last progress.
        status.conditions.retain(|c| c.kind != "Progressing");
        status.conditions.push(updated);
        return Some(deadline);
    }
    let current = current?;
    // One that ended a rollout says nothing of the next (`DeploymentTimedOut`).
    if matches!(current.reason.as_str(), "ProgressDeadlineExceeded" | "NewReplicaSetAvailable") {
        return None;
    }
    let since = current.last_update_time.map_or(now, |t| t.0);
    let left = deadline - now.duration_since(since);
    if left > SignedDuration::ZERO {
        return Some(left);
    }
    let message = format!("{what} {name:?} has timed out progressing.");
    set(&mut status.conditions, condition("Progressing", "False", "ProgressDeadlineExceeded", &message, now));
    None
}

/// Sets a condition unless it says the same already; a new status moves the time of the transition.
fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    if let Some(old) = conditions.iter().find(|c| c.kind == new.kind) {
        if old.status == new.status && old.reason == new.reason {
            return;
        }
        if old.status == new.status {
            new.last_transition_time = old.last_transition_time;
        }
    }
    conditions.retain(|c| c.kind != new.kind);
    conditions.push(new);
}
