//! Which pods to make and which to delete (`manageJob` of upstream's Job controller).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::backoff::Record;
use super::backoff::remaining_of_index;
use super::indexes::Indexes;
use super::model::Job;
use super::policy::{self, Verdict};
use crate::pod::{Pod, removal_order};

/// Pods made or deleted in one go, at most.
pub const MAX_PODS_PER_SYNC: usize = 500;

/// What to do about pods.
#[derive(Clone, Debug, Default)]
pub enum Action {
    /// Nothing.
    #[default]
    None,
    /// Nothing until the backoff is over.
    Wait,
    /// Delete them; they have to be counted, so their finalizers stay.
    DeleteKeepingFinalizers(Vec<Arc<Pod>>),
    /// Take their finalizers and delete them; they don't count.
    Delete(Vec<Arc<Pod>>),
    /// Make pods.
    Create(Vec<NewPod>),
}

/// A pod to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewPod {
    /// Its index, in an indexed Job.
    pub index: Option<i32>,
    /// Failures of the index before it, and those that were ignored, in a Job with a backoff limit per index.
    pub failures: Option<(i32, i32)>,
}

/// A Job and its pods, as far as they have been counted.
pub(super) struct Counted<'a> {
    pub job: &'a Job,
    pub pods: &'a [Arc<Pod>],
    pub active_pods: &'a [Arc<Pod>],
    pub now: Timestamp,
    pub backoff: &'a Record,
    pub succeeded: i32,
    pub terminating: i32,
    pub succeeded_indexes: &'a Indexes,
    pub failed_indexes: Option<&'a Indexes>,
    /// Failed pods that stay until they are replaced, by index.
    pub kept_for_index: &'a BTreeMap<i32, Arc<Pod>>,
}

/// What to do, and when to reconcile again.
pub(super) fn plan(counted: &Counted<'_>) -> (Action, Option<SignedDuration>) {
    let job = counted.job;
    let active = counted.active_pods.len();
    if job.is_suspended() {
        return (Action::Delete(for_removal(job, counted.active_pods, active)), None);
    }
    let wanted = wanted(counted, active);
    let mut remove = for_removal(job, counted.active_pods, active.saturating_sub(wanted));
    if !remove.is_empty() {
        remove.truncate(MAX_PODS_PER_SYNC);
        return (Action::Delete(remove), None);
    }
    let leaving =
        if job.replaces_failed_only() { usize::try_from(counted.terminating).unwrap_or(0) } else { 0 };
    let missing = wanted.saturating_sub(active).saturating_sub(leaving).min(MAX_PODS_PER_SYNC);
    if missing == 0 {
        return (Action::None, None);
    }
    if job.backoff_limit_per_index().is_none() {
        let wait = counted.backoff.remaining(counted.now);
        if wait > SignedDuration::ZERO {
            return (Action::Wait, Some(wait));
        }
    }
    if !job.is_indexed() {
        return (Action::Create(vec![NewPod::default(); missing]), None);
    }
    indexed(counted, missing)
}

/// How many pods should be active.
fn wanted(counted: &Counted<'_>, active: usize) -> usize {
    let parallelism = counted.job.parallelism();
    let wanted = match counted.job.spec.completions {
        // A work queue: nothing new once one has succeeded.
        None if counted.succeeded > 0 => return active,
        None => parallelism,
        Some(completions) => completions.saturating_sub(counted.succeeded).min(parallelism),
    };
    usize::try_from(wanted).unwrap_or(0)
}

fn indexed(counted: &Counted<'_>, missing: usize) -> (Action, Option<SignedDuration>) {
    let job = counted.job;
    let of = |pods: &mut dyn Iterator<Item = &Arc<Pod>>| -> BTreeSet<i32> {
        pods.filter_map(|p| p.index()).collect()
    };
    let mut taken = counted.succeeded_indexes.with(&of(&mut counted.active_pods.iter()));
    if job.replaces_failed_only() {
        taken = taken.with(&of(&mut counted.pods.iter().filter(|p| p.is_terminating())));
    }
    if let Some(failed) = counted.failed_indexes {
        taken = taken.union(failed);
    }
    let indexes = taken.first_missing(missing, job.indexes());
    if job.backoff_limit_per_index().is_none() {
        let pods = indexes.into_iter().map(|i| NewPod { index: Some(i), failures: None });
        return (Action::Create(pods.collect()), None);
    }
    let mut now = Vec::new();
    let mut wait: Option<SignedDuration> = None;
    for index in indexes {
        let replaced = counted.kept_for_index.get(&index).map(Arc::as_ref);
        let left = remaining_of_index(replaced, counted.now);
        if left > SignedDuration::ZERO {
            wait = Some(wait.map_or(left, |w| w.min(left)));
        } else {
            now.push(NewPod { index: Some(index), failures: Some(failures(job, replaced)) });
        }
    }
    match (now.is_empty(), wait) {
        (true, Some(_)) => (Action::Wait, wait),
        _ => (Action::Create(now), wait),
    }
}

fn failures(job: &Job, replaced: Option<&Pod>) -> (i32, i32) {
    let Some(pod) = replaced else { return (0, 0) };
    let (counted, ignored) = (pod.index_failures(), pod.ignored_index_failures());
    if policy::judge(job, pod) == Verdict::Ignore { (counted, ignored + 1) } else { (counted + 1, ignored) }
}

/// At least so many active pods to be removed: those that have got least far; in an indexed Job also pods without a valid
/// index, and all but the furthest of several with the same one.
fn for_removal(job: &Job, pods: &[Arc<Pod>], at_least: usize) -> Vec<Arc<Pod>> {
    let mut remove = Vec::new();
    let mut left: Vec<Arc<Pod>> = Vec::new();
    if job.is_indexed() {
        let mut by_index: BTreeMap<i32, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in pods {
            match pod.index_of(job) {
                Some(index) => by_index.entry(index).or_default().push(Arc::clone(pod)),
                None => remove.push(Arc::clone(pod)),
            }
        }
        for mut same in by_index.into_values() {
            same.sort_by(removal_order);
            left.extend(same.pop());
            remove.append(&mut same);
        }
    } else {
        left.extend(pods.iter().cloned());
    }
    let more = at_least.saturating_sub(remove.len());
    left.sort_by(removal_order);
    remove.extend(left.into_iter().take(more));
    remove
}
