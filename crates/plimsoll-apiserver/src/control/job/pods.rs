//! What the controller asks of a pod.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::model::{
    COMPLETION_INDEX, ContainerStatus, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT, Job, Pod,
    TRACKING_FINALIZER,
};

impl Pod {
    /// Whether it has yet to be counted.
    pub fn is_tracked(&self) -> bool {
        self.metadata.has_finalizer(TRACKING_FINALIZER)
    }

    /// Whether its phase is final.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// Neither ended nor on its way out.
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && self.metadata.deletion_timestamp.is_none()
    }

    /// On its way out, not ended yet.
    pub fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.metadata.deletion_timestamp.is_some()
    }

    /// Whether its phase is `Succeeded`.
    pub fn has_succeeded(&self) -> bool {
        self.status.phase == "Succeeded"
    }

    /// Whether it counts as failed for a Job: a deleted pod does, because it may never get as far as `Failed`, unless the
    /// Job wants to wait for that.
    pub fn has_failed(&self, job: &Job) -> bool {
        match self.status.phase.as_str() {
            "Failed" => true,
            "Succeeded" => false,
            _ => !job.replaces_failed_only() && self.metadata.deletion_timestamp.is_some(),
        }
    }

    /// Whether its condition `Ready` is true.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True")
    }

    /// Its completion index.
    pub fn index(&self) -> Option<i32> {
        self.metadata.annotations.get(COMPLETION_INDEX)?.parse().ok().filter(|i| *i >= 0)
    }

    /// Its completion index, if the Job has it.
    pub fn index_of(&self, job: &Job) -> Option<i32> {
        self.index().filter(|i| *i < job.indexes())
    }

    /// Failures of its index before it.
    pub fn index_failures(&self) -> i32 {
        self.count(INDEX_FAILURE_COUNT)
    }

    /// The same of those that the failure policy ignored.
    pub fn ignored_index_failures(&self) -> i32 {
        self.count(INDEX_IGNORED_FAILURE_COUNT)
    }

    /// Both.
    pub fn all_index_failures(&self) -> i32 {
        self.index_failures().saturating_add(self.ignored_index_failures())
    }

    fn count(&self, annotation: &str) -> i32 {
        let number = self.metadata.annotations.get(annotation).and_then(|v| v.parse().ok());
        number.filter(|n: &i32| *n >= 0).unwrap_or(0)
    }

    /// Restarts of all its containers.
    pub fn restarts(&self) -> i32 {
        self.statuses().map(|s| s.restart_count).fold(0, i32::saturating_add)
    }

    fn statuses(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.status.init_container_statuses.iter().chain(&self.status.container_statuses)
    }

    /// When it ended: when its last container did; or when it ceased to be ready; or when its deletion was asked for; or
    /// when it was made.
    pub fn finished_at(&self) -> Timestamp {
        let not_ready = || {
            let ready = self.status.conditions.iter().find(|c| c.kind == "Ready" && c.status == "False");
            ready.and_then(|c| c.last_transition_time).map(|t| t.0)
        };
        let deleted = || {
            let grace = SignedDuration::from_secs(self.metadata.deletion_grace_period_seconds.unwrap_or(0));
            self.metadata.deletion_timestamp.and_then(|t| t.0.checked_sub(grace).ok())
        };
        let created = || self.metadata.creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |t| t.0);
        self.containers_finished_at().or_else(not_ready).or_else(deleted).unwrap_or_else(created)
    }

    /// When the last container or sidecar ended; `None` if one hasn't.
    fn containers_finished_at(&self) -> Option<Timestamp> {
        let sidecar = |s: &&ContainerStatus| {
            let mut init = self.spec.init_containers.iter();
            init.any(|c| c.name == s.name && c.restart_policy.as_deref() == Some("Always"))
        };
        let sidecars = self.status.init_container_statuses.iter().filter(sidecar);
        let mut latest = None;
        for status in self.status.container_statuses.iter().chain(sidecars) {
            let finished = status.state.terminated.as_ref()?.finished_at?.0;
            latest = latest.max(Some(finished));
        }
        latest
    }
}

/// Order in which active pods are given up: those that have got least far first (`controller.ActivePods`).
pub fn removal_order(a: &Arc<Pod>, b: &Arc<Pod>) -> Ordering {
    let phase = |p: &Pod| match p.status.phase.as_str() {
        "Pending" => 0,
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    };
    let ready_since = |p: &Pod| {
        let ready = p.status.conditions.iter().find(|c| c.kind == "Ready" && c.status == "True");
        ready.and_then(|c| c.last_transition_time).map(|t| t.0)
    };
    let restarts = |p: &Pod| p.statuses().map(|s| s.restart_count).max().unwrap_or(0);
    let assigned = |p: &Pod| !p.spec.node_name.is_empty();
    assigned(a)
        .cmp(&assigned(b))
        .then_with(|| phase(a).cmp(&phase(b)))
        .then_with(|| a.is_ready().cmp(&b.is_ready()))
        .then_with(|| youngest_first(ready_since(a), ready_since(b)))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| {
            let created = |p: &Pod| p.metadata.creation_timestamp.map(|t| t.0);
            youngest_first(created(a), created(b))
        })
}

/// No time first, then from late to early.
fn youngest_first(a: Option<Timestamp>, b: Option<Timestamp>) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Less,
        (Some(_), None) => Ordering::Greater,
        (Some(a), Some(b)) => b.cmp(&a),
    }
}
