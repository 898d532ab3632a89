//! What the Job controller asks of a pod.

use jiff::{SignedDuration, Timestamp};

use super::model::{
    COMPLETION_INDEX, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT, Job, TRACKING_FINALIZER,
};
use crate::pod::{ContainerStatus, Pod};

impl Pod {
    /// Whether it has yet to be counted.
    pub fn is_tracked(&self) -> bool {
        self.metadata.has_finalizer(TRACKING_FINALIZER)
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
