//! What to do about a Job: a function of the Job, its pods and the time (`syncJob` of upstream's Job controller).
//!
//! It has three parts, because what it says of the status depends on what could be done:
//! [`JobSync::begin`] decides which pods to make or delete; [`JobSync::track`], told what came of that, decides which
//! finished pods to count; [`JobSync::finish`], told which of those were released, ends it.

mod track;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::backoff::Record;
use super::indexes::Indexes;
use super::model::{Condition, Job, Uncounted};
use super::plan::{Action, Counted, plan};
use super::policy::{self, Verdict};
use crate::pod::Pod;
use plimsoll_apimachinery::meta::Time;
use plimsoll_client::Event;

pub use track::{Done, Finish, Tracking};

/// One reconciliation of a Job. `job.status` is what its status should be.
#[derive(Clone, Debug)]
pub struct JobSync {
    /// The Job.
    pub job: Job,
    /// What to do about pods.
    pub action: Action,
    /// When to reconcile again at the latest.
    pub again: Option<SignedDuration>,
    /// Failures, once the status has been written.
    pub backoff: Record,
    /// Events of this part of the work.
    pub events: Vec<Event>,
    pods: Vec<Arc<Pod>>,
    active_pods: Vec<Arc<Pod>>,
    now: Timestamp,
    succeeded: i32,
    terminating: i32,
    succeeded_indexes: Indexes,
    failed_indexes: Option<Indexes>,
    /// Failed pods that stay until they are replaced, because the replacement goes on with their failure count.
    kept_for_index: BTreeMap<i32, Arc<Pod>>,
    counted_indexes: Indexes,
    active: i32,
    ready: i32,
    failed: i32,
    uncounted: Uncounted,
    finished: Option<Condition>,
    manages: bool,
    flush: bool,
    tracked: HashSet<String>,
}

impl JobSync {
    /// Begins with a Job that is not finished and that this controller manages, and all its pods.
    pub fn begin(mut job: Job, pods: Vec<Arc<Pod>>, now: Timestamp, backoff: Record) -> Self {
        let uncounted = job.status.uncounted_terminated_pods.get_or_insert_default().clone();
        let active_pods: Vec<_> = pods.iter().filter(|p| p.is_active()).cloned().collect();
        let mut sync = Self {
            action: Action::None,
            again: None,
            backoff,
            events: Vec::new(),
            active: count(active_pods.iter()),
            ready: count(active_pods.iter().filter(|p| p.is_ready())),
            terminating: count(pods.iter().filter(|p| p.is_terminating())),
            tracked: pods.iter().filter(|p| p.is_tracked()).map(|p| p.metadata.uid.clone()).collect(),
            job,
            pods,
            active_pods,
            now,
            succeeded: 0,
            failed: 0,
            counted_indexes: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            kept_for_index: BTreeMap::new(),
            uncounted,
            finished: None,
            manages: false,
            flush: false,
        };
        sync.count_finished();
        if sync.job.status.start_time.is_none() && !sync.job.is_suspended() {
            sync.job.status.start_time = Some(Time::whole(now));
        }
        sync.judge();
        if sync.finished.is_some() {
            sync.action = Action::DeleteKeepingFinalizers(sync.active_pods.clone());
        } else if sync.job.metadata.deletion_timestamp.is_none() {
            sync.manages = true;
            let (action, wait) = plan(&sync.counted());
            sync.action = action;
            sync.again = sync.again.into_iter().chain(wait).min();
        }
        sync
    }

    fn counted(&self) -> Counted<'_> {
        Counted {
            job: &self.job,
            pods: &self.pods,
            active_pods: &self.active_pods,
            now: self.now,
            backoff: &self.backoff,
            succeeded: self.succeeded,
            terminating: self.terminating,
            succeeded_indexes: &self.succeeded_indexes,
            failed_indexes: self.failed_indexes.as_ref(),
            kept_for_index: &self.kept_for_index,
        }
    }

    /// Pods that have ended and are not in the counters yet.
    fn new_finished(&self, uncounted: &[String], ended: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
        let valid = |p: &&Arc<Pod>| {
            p.is_tracked()
                && !uncounted.contains(&p.metadata.uid)
                && (!self.job.is_indexed() || p.index_of(&self.job).is_some())
        };
        self.pods.iter().filter(valid).filter(|p| ended(p)).cloned().collect()
    }

    fn count_finished(&mut self) {
        let succeeded = self.new_finished(&self.uncounted.succeeded, Pod::has_succeeded);
        let failed = self.new_finished(&self.uncounted.failed, |p| p.has_failed(&self.job));
        let status = &self.job.status;
        self.succeeded = status.succeeded + count(succeeded.iter()) + count(self.uncounted.succeeded.iter());
        let counting = failed.iter().filter(|p| policy::judge(&self.job, p) != Verdict::Ignore);
        self.failed = status.failed + count(counting) + count(self.uncounted.failed.iter());
        self.backoff = self.backoff.after(&succeeded, &failed);
    }

    /// Whether and how the Job ends. The order matters, because several causes may apply at once.
    fn judge(&mut self) {
        let met = self.job.condition("SuccessCriteriaMet").filter(|c| c.is_true());
        self.finished = met.cloned().or_else(|| self.failure());
        if self.job.is_indexed() {
            self.judge_indexes();
        }
    }

    fn failure(&mut self) -> Option<Condition> {
        let job = &self.job;
        if let Some(target) = job.condition("FailureTarget").filter(|c| c.is_true()) {
            return Some(self.condition("Failed", &target.reason, &target.message));
        }
        let failing =
            self.pods.iter().filter(|p| p.has_failed(job)).find_map(|p| match policy::judge(job, p) {
                Verdict::FailJob(message) => Some(message),
                _ => None,
            });
        if let Some(message) = failing {
            return Some(self.condition("FailureTarget", "PodFailurePolicy", &message));
        }
        if self.failed > job.backoff_limit() || self.restarted_too_often() {
            let message = "Job has reached the specified backoff limit";
            return Some(self.condition("FailureTarget", "BackoffLimitExceeded", message));
        }
        let left = self.deadline()?;
        if left > SignedDuration::ZERO {
            self.again = Some(left);
            return None;
        }
        let message = "Job was active longer than specified deadline";
        Some(self.condition("FailureTarget", "DeadlineExceeded", message))
    }

    /// Time until `activeDeadlineSeconds` is over.
    fn deadline(&self) -> Option<SignedDuration> {
        let allowed = SignedDuration::from_secs(self.job.spec.active_deadline_seconds?);
        let start = self.job.status.start_time.filter(|_| !self.job.is_suspended())?;
        Some(allowed - self.now.duration_since(start.0))
    }

    /// With `restartPolicy: OnFailure` restarts count as failures.
    fn restarted_too_often(&self) -> bool {
        if self.job.spec.template["spec"]["restartPolicy"] != "OnFailure" {
            return false;
        }
        let running = |p: &&Arc<Pod>| matches!(p.status.phase.as_str(), "Running" | "Pending");
        let restarts = self.pods.iter().filter(running).map(|p| p.restarts()).fold(0, i32::saturating_add);
        let limit = self.job.backoff_limit();
        if limit == 0 { restarts > 0 } else { restarts >= limit }
    }

    fn judge_indexes(&mut self) {
        let job = &self.job;
        let completions = job.indexes();
        let tracked = || self.pods.iter().filter(|p| p.is_tracked());
        self.counted_indexes = Indexes::parse(&job.status.completed_indexes, completions);
        let succeeded = tracked().filter(|p| p.has_succeeded()).filter_map(|p| p.index_of(job)).collect();
        self.succeeded_indexes = self.counted_indexes.with(&succeeded);
        self.succeeded = self.succeeded_indexes.total();
        if let Some(limit) = job.backoff_limit_per_index() {
            let before = job.status.failed_indexes.as_deref().unwrap_or_default();
            let failed = tracked().filter(|p| index_failed(job, p, limit)).filter_map(|p| p.index_of(job));
            let failed = Indexes::parse(before, completions).with(&failed.collect());
            let total = failed.total();
            if self.finished.is_none() {
                let all = total.saturating_add(self.succeeded) >= completions;
                if job.spec.max_failed_indexes.is_some_and(|max| total > max) {
                    let message = "Job has exceeded the specified maximal number of failed indexes";
                    self.finished =
                        Some(self.condition("FailureTarget", "MaxFailedIndexesExceeded", message));
                } else if total > 0 && all {
                    self.finished =
                        Some(self.condition("FailureTarget", "FailedIndexes", "Job has failed indexes"));
                }
            }
            self.failed_indexes = Some(failed);
            self.kept_for_index = self.keep_for_indexes();
        }
        if self.finished.is_none()
            && let Some(policy) = &self.job.spec.success_policy
            && let Some(message) = policy::success(policy, completions, &self.succeeded_indexes)
        {
            self.finished = Some(self.condition("SuccessCriteriaMet", "SuccessPolicy", &message));
        }
    }

    fn keep_for_indexes(&self) -> BTreeMap<i32, Arc<Pod>> {
        let active: BTreeSet<i32> = self.active_pods.iter().filter_map(|p| p.index()).collect();
        let open = |i: &i32| {
            !self.succeeded_indexes.has(*i)
                && !self.failed_indexes.as_ref().is_some_and(|f| f.has(*i))
                && !active.contains(i)
        };
        let mut kept: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
        for pod in self.new_finished(&[], |p| p.has_failed(&self.job)) {
            let Some(index) = pod.index_of(&self.job).filter(open) else { continue };
            let later = kept.get(&index).is_none_or(|last| {
                last.all_index_failures() <= pod.all_index_failures()
                    && pod.finished_at() >= last.finished_at()
            });
            if later {
                kept.insert(index, pod);
            }
        }
        kept
    }

    fn condition(&self, kind: &str, reason: &str, message: &str) -> Condition {
        let now = Some(Time::whole(self.now));
        Condition {
            kind: kind.to_owned(),
            status: "True".to_owned(),
            last_probe_time: now,
            last_transition_time: now,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }

    /// Sets a condition; whether that changed anything. A condition that is false isn't added.
    fn set_condition(&mut self, new: Condition) -> bool {
        let conditions = &mut self.job.status.conditions;
        match conditions.iter_mut().find(|c| c.kind == new.kind) {
            Some(old) => {
                let same = old.status == new.status && old.reason == new.reason && old.message == new.message;
                if !same {
                    *old = new;
                }
                !same
            }
            None if new.status == "False" => false,
            None => {
                conditions.push(new);
                true
            }
        }
    }
}

/// Whether a failed pod makes its index fail for good.
fn index_failed(job: &Job, pod: &Pod, limit: i32) -> bool {
    pod.has_failed(job)
        && match policy::judge(job, pod) {
            Verdict::FailIndex => true,
            Verdict::Ignore => false,
            Verdict::Count | Verdict::FailJob(_) => pod.index_failures() >= limit,
        }
}

fn count<T>(items: impl Iterator<Item = T>) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}
