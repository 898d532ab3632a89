//! Counting finished pods, and the end of a Job (`trackJobStatusAndRemoveFinalizers` of upstream's Job controller).

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_apimachinery::meta::Time;
use plimsoll_client::{Event, EventType};

use super::super::indexes::Indexes;
use super::super::model::Uncounted;
use super::super::plan::Action;
use super::super::policy::{self, Verdict};
use super::JobSync;
use crate::pod::Pod;

/// Finished pods that may wait to be counted at a time, so that the status stays small.
const MAX_UNCOUNTED_PODS: usize = 500;

/// What came of an [`Action`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Pods made.
    pub created: i32,
    /// Pods deleted (or found gone).
    pub deleted: i32,
    /// How many of the pods whose deletion was tried were ready.
    pub deleted_ready: i32,
}

/// What [`JobSync::track`] wants.
#[derive(Clone, Debug, Default)]
pub struct Tracking {
    /// Whether the status must be written before anything else.
    pub flush: bool,
    /// Pods whose finalizer can go then.
    pub release: Vec<Arc<Pod>>,
    /// Whether there are more pods to count than could be taken on.
    partial: bool,
}

/// What [`JobSync::finish`] wants.
#[derive(Clone, Debug, Default)]
pub struct Finish {
    /// Whether the status must be written.
    pub flush: bool,
    /// Events to record after that.
    pub events: Vec<Event>,
}

impl JobSync {
    /// The action has been taken, as far as it could be: which finished pods are counted now.
    pub fn track(&mut self, done: Done) -> Tracking {
        let pods_before = self.active;
        self.active += done.created - done.deleted;
        self.terminating += done.deleted;
        self.ready -= done.deleted_ready;
        if matches!(self.action, Action::Wait) {
            // Upstream reports no active pods while it waits for the backoff.
            self.active = 0;
        }
        if self.finished.is_some() {
            if done.deleted != pods_before {
                self.finished = None;
            }
        } else if self.is_complete() {
            let message = "Reached expected number of succeeded pods";
            self.finished = Some(self.condition("SuccessCriteriaMet", "CompletionsReached", message));
        } else if self.manages {
            self.note_suspension();
        }
        let status = &mut self.job.status;
        self.flush |= self.active != status.active
            || status.ready != Some(self.ready)
            || status.terminating != Some(self.terminating);
        status.active = self.active;
        status.ready = Some(self.ready);
        status.terminating = Some(self.terminating);
        self.take_uncounted()
    }

    fn is_complete(&self) -> bool {
        self.active == 0
            && match self.job.spec.completions {
                // A work queue: once a pod has succeeded and the rest has ended.
                None => self.succeeded > 0,
                Some(completions) => self.succeeded >= completions,
            }
    }

    fn note_suspension(&mut self) {
        let suspended = self.job.is_suspended();
        let mut condition = if suspended {
            self.condition("Suspended", "JobSuspended", "Job suspended")
        } else {
            self.condition("Suspended", "JobResumed", "Job resumed")
        };
        if !suspended {
            condition.status = "False".to_owned();
        }
        let message = condition.message.clone();
        if self.set_condition(condition) {
            self.flush = true;
            let reason = if suspended { "Suspended" } else { "Resumed" };
            self.events.push(Event::new(EventType::Normal, reason, message));
            // The deadline counts the time without interruption.
            self.job.status.start_time = (!suspended).then(|| Time::whole(self.now));
        }
    }

    fn take_uncounted(&mut self) -> Tracking {
        self.flush |= self.settle_uncounted();
        let indexed = self.job.is_indexed();
        if indexed {
            self.pods.sort_by_key(|p| p.index().unwrap_or(-1));
        }
        let mut tracking = Tracking::default();
        let mut new_indexes = BTreeSet::new();
        let mut new = Uncounted::default();
        for pod in self.pods.iter().filter(|p| p.is_tracked()) {
            let failed = pod.has_failed(&self.job);
            if !self.can_release(pod, failed) {
                continue;
            }
            tracking.release.push(Arc::clone(pod));
            let uid = &pod.metadata.uid;
            let known_failed = self.uncounted.failed.contains(uid);
            if pod.has_succeeded() && !known_failed {
                let index = pod.index_of(&self.job);
                if let Some(index) = index.filter(|i| indexed && !self.counted_indexes.has(*i)) {
                    new_indexes.insert(index);
                } else if !indexed && !self.uncounted.succeeded.contains(uid) {
                    new.succeeded.push(uid.clone());
                }
            } else if failed || self.ends_in_failure() {
                let valid = !indexed || pod.index_of(&self.job).is_some();
                if !known_failed && valid && policy::judge(&self.job, pod) != Verdict::Ignore {
                    new.failed.push(uid.clone());
                }
            }
            let waiting = self.job.status.uncounted_terminated_pods.as_ref();
            let waiting = waiting.map_or(0, |u| u.succeeded.len() + u.failed.len());
            if new_indexes.len() + new.succeeded.len() + new.failed.len() + waiting >= MAX_UNCOUNTED_PODS {
                tracking.partial = true;
                break;
            }
        }
        self.flush |= !new_indexes.is_empty() || !new.succeeded.is_empty() || !new.failed.is_empty();
        let uncounted = self.job.status.uncounted_terminated_pods.get_or_insert_default();
        uncounted.succeeded.append(&mut new.succeeded);
        uncounted.failed.append(&mut new.failed);
        if indexed {
            self.note_indexes(&new_indexes);
        }
        self.note_interim_condition();
        tracking.flush = std::mem::take(&mut self.flush);
        tracking
    }

    /// Whether every pod that hasn't succeeded counts as failed, because the Job ends.
    fn ends_in_failure(&self) -> bool {
        self.finished.as_ref().is_some_and(|c| c.kind != "SuccessCriteriaMet")
    }

    fn can_release(&self, pod: &Pod, failed: bool) -> bool {
        if self.job.metadata.deletion_timestamp.is_some() || self.finished.is_some() || pod.has_succeeded() {
            return true;
        }
        let kept = pod.index().and_then(|i| self.kept_for_index.get(&i));
        failed && kept.is_none_or(|kept| kept.metadata.uid != pod.metadata.uid)
    }

    fn note_indexes(&mut self, new: &BTreeSet<i32>) {
        self.succeeded_indexes = self.succeeded_indexes.with(new);
        let completed = self.succeeded_indexes.to_string();
        let failed = self.failed_indexes.as_ref().map(Indexes::to_string);
        let status = &mut self.job.status;
        self.flush |= completed != status.completed_indexes || failed != status.failed_indexes;
        status.succeeded = self.succeeded_indexes.total();
        status.completed_indexes = completed;
        status.failed_indexes = failed;
    }

    /// What the end will be is in the status before the first pod is released, so that it can't change any more.
    fn note_interim_condition(&mut self) {
        let Some(interim) = self.finished.take() else { return };
        let last = match interim.kind.as_str() {
            "FailureTarget" => "Failed",
            "SuccessCriteriaMet" => "Complete",
            _ => {
                self.finished = Some(interim);
                return;
            }
        };
        self.finished = Some(self.condition(last, &interim.reason, &interim.message));
        if self.job.condition(&interim.kind).is_none() {
            self.job.status.conditions.push(interim);
            self.flush = true;
        }
    }

    /// Moves pods that have lost their finalizer from the uncounted to the counters; whether there were any.
    fn settle_uncounted(&mut self) -> bool {
        let status = &mut self.job.status;
        let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
        let before = (uncounted.succeeded.len(), uncounted.failed.len());
        uncounted.succeeded.retain(|uid| self.tracked.contains(uid));
        uncounted.failed.retain(|uid| self.tracked.contains(uid));
        let settled = |before: usize, after: usize| i32::try_from(before - after).unwrap_or(i32::MAX);
        let (succeeded, failed) =
            (settled(before.0, uncounted.succeeded.len()), settled(before.1, uncounted.failed.len()));
        status.succeeded = status.succeeded.saturating_add(succeeded);
        status.failed = status.failed.saturating_add(failed);
        succeeded + failed > 0
    }

    /// These pods have lost their finalizer; whether the status must be written for it.
    pub fn released<'a>(&mut self, uids: impl IntoIterator<Item = &'a str>) -> bool {
        for uid in uids {
            self.tracked.remove(uid);
        }
        self.flush |= self.settle_uncounted();
        self.flush
    }

    /// Ends the Job if all its pods are counted and gone.
    pub fn finish(&mut self, tracking: &Tracking) -> Finish {
        let uncounted = self.job.status.uncounted_terminated_pods.as_ref();
        let waiting = uncounted.is_some_and(|u| !u.succeeded.is_empty() || !u.failed.is_empty());
        let end = match self.finished.clone() {
            Some(end) if !tracking.partial && !waiting && self.terminating <= 0 => end,
            _ => return Finish { flush: self.flush, events: Vec::new() },
        };
        let mut events = Vec::new();
        if end.kind == "Complete" {
            self.job.status.completion_time = end.last_transition_time;
            let wanted = self.job.spec.completions;
            if wanted.is_some_and(|wanted| self.job.status.succeeded > wanted) {
                let message = "Too many succeeded pods running after completion count reached";
                events.push(Event::new(EventType::Warning, "TooManySucceededPods", message));
            }
            events.push(Event::new(EventType::Normal, "Completed", "Job completed"));
        } else {
            events.push(Event::new(EventType::Warning, &end.reason, &end.message));
        }
        self.set_condition(end);
        Finish { flush: true, events }
    }
}
