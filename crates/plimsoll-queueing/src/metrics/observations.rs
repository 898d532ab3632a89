//! Observations for metrics that a change of a workload's status makes.

use super::Metrics;
use crate::cond;
use crate::cycle::victim::CONFIGURED;
use crate::model::{Condition, Workload, WorkloadStatus};
use plimsoll_state::time::Time;

/// What to count once a write is confirmed. Empty for most writes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Observation {
    /// Quota was reserved after this many seconds.
    Reserved(f64),
    /// Admitted: seconds since it was queued, and since the reservation, unless it has no checks to wait for.
    Admitted(f64, Option<f64>),
    /// Evicted: reason, cause, whether for the first time, seconds since its pods were ready.
    Evicted(String, String, bool, Option<f64>),
    /// Preempted by a workload of this ClusterQueue for this reason.
    Preempted(String, String),
    /// The reservation went this many seconds after the eviction for this reason.
    Released(String, f64),
    /// Another slice of its job took its place; it was admitted for this many seconds.
    Replaced(Option<f64>),
}

fn seconds(from: Time, to: Time) -> f64 {
    to.since(from).0 as f64 / 1e9
}

/// When it was last queued.
fn queued_at(wl: &Workload) -> Time {
    wl.status.condition(cond::REQUEUED).map_or(wl.creation, |c| c.transition)
}

/// For how many seconds a finished workload was admitted, all its admissions together (Kueue `TotalExecutionTime`).
fn execution_time(status: &WorkloadStatus) -> Option<f64> {
    let admitted = status.condition(cond::ADMITTED).filter(|c| c.status)?;
    let finished = status.condition(cond::FINISHED).filter(|c| c.status)?;
    let past = f64::from(status.past_execution_seconds.unwrap_or(0));
    Some((past + seconds(admitted.transition, finished.transition)).max(0.0))
}

/// The eviction after which a workload lost its quota in this change.
fn released<'a>(old: &WorkloadStatus, new: &'a WorkloadStatus) -> Option<&'a Condition> {
    let released = old.is_true(cond::QUOTA_RESERVED) && !new.is_true(cond::QUOTA_RESERVED);
    new.condition(cond::EVICTED).filter(|c| released && c.status)
}

/// What the change from `old` to the workload's present status counts as. `by` is the preemptor's ClusterQueue.
pub(crate) fn observations_of(
    old: &WorkloadStatus,
    wl: &Workload,
    by: Option<String>,
    now: Time,
) -> Vec<Observation> {
    let new = &wl.status;
    let became = |kind: &str| !old.is_true(kind) && new.is_true(kind);
    let mut out = Vec::new();
    if became(cond::QUOTA_RESERVED) {
        out.push(Observation::Reserved(seconds(queued_at(wl), now)));
    }
    if became(cond::ADMITTED) {
        let reserved = new.condition(cond::QUOTA_RESERVED).map_or(now, |c| c.transition);
        let since = if old.is_true(cond::QUOTA_RESERVED) {
            Some(seconds(reserved, now))
        } else {
            (!new.admission_checks.is_empty()).then_some(0.0)
        };
        out.push(Observation::Admitted(seconds(queued_at(wl), now), since));
    }
    // One that has no quota loses none: it is counted in its status alone (Kueue `Evict`).
    for e in new.evictions.iter().filter(|_| old.admission.is_some()) {
        // The cause names the preemptor and is replaced by the next one: neither a part of the key nor of a metric.
        let ruled = e.reason == CONFIGURED;
        let before = old.evictions.iter().find(|o| o.reason == e.reason && (ruled || o.cause == e.cause));
        let (reason, cause) = if ruled { ("Preempted", "") } else { (&*e.reason, &*e.cause) };
        if before.map_or(0, |b| b.count) < e.count {
            let ready = new.condition(cond::PODS_READY).filter(|c| c.status);
            let since = ready.map(|c| seconds(c.transition, now));
            out.push(Observation::Evicted(reason.into(), cause.into(), e.count == 1, since));
        }
    }
    if became(cond::PREEMPTED)
        && let (Some(by), Some(c)) = (by, new.condition(cond::PREEMPTED))
    {
        out.push(Observation::Preempted(by, c.reason.clone()));
    }
    if became(cond::FINISHED) && new.was_replaced() {
        out.push(Observation::Replaced(execution_time(new)));
    }
    if let Some(c) = released(old, new) {
        out.push(Observation::Released(c.reason.clone(), seconds(c.transition, now)));
    }
    out
}

/// Where a workload is counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) cluster_queue: String,
    /// Cohorts above it, nearest first.
    pub(crate) cohorts: Vec<String>,
    /// Namespace and name.
    pub(crate) local_queue: (String, String),
    pub(crate) class: String,
    /// Its values of custom labels.
    pub(crate) custom: Vec<String>,
}

impl Metrics {
    /// Counts confirmed changes of a workload.
    pub(crate) fn record(&mut self, observations: &[Observation], p: &Place) {
        let (cq, class) = (p.cluster_queue.as_str(), p.class.as_str());
        let (ns, lq) = (p.local_queue.0.as_str(), p.local_queue.1.as_str());
        for t in observations {
            match t {
                Observation::Reserved(wait) => {
                    self.count("kueue_quota_reserved_workloads_total", &[cq, class], 1);
                    self.count("kueue_local_queue_quota_reserved_workloads_total", &[lq, ns, class], 1);
                    self.observe("kueue_quota_reserved_wait_time_seconds", &[cq, class], *wait);
                    self.observe(
                        "kueue_local_queue_quota_reserved_wait_time_seconds",
                        &[lq, ns, class],
                        *wait,
                    );
                }
                Observation::Admitted(wait, checks) => {
                    self.count("kueue_admitted_workloads_total", &[cq, class], 1);
                    let name = "kueue_local_queue_admitted_workloads_total";
                    self.count_for(name, &[lq, ns, class], &p.custom, 1);
                    self.observe("kueue_admission_wait_time_seconds", &[cq, class], *wait);
                    let name = "kueue_local_queue_admission_wait_time_seconds";
                    self.observe_for(name, &[lq, ns, class], &p.custom, *wait);
                    if let Some(checks) = checks {
                        self.observe("kueue_admission_checks_wait_time_seconds", &[cq, class], *checks);
                        let name = "kueue_local_queue_admission_checks_wait_time_seconds";
                        self.observe(name, &[lq, ns, class], *checks);
                    }
                    for c in &p.cohorts {
                        self.count("kueue_cohort_subtree_admitted_workloads_total", &[c, class], 1);
                    }
                }
                Observation::Evicted(reason, cause, first, ready) => {
                    self.count("kueue_evicted_workloads_total", &[cq, reason, cause, class], 1);
                    self.count(
                        "kueue_local_queue_evicted_workloads_total",
                        &[lq, ns, reason, cause, class],
                        1,
                    );
                    if *first {
                        self.count("kueue_evicted_workloads_once_total", &[cq, reason, cause, class], 1);
                    }
                    if let Some(s) = ready {
                        self.observe("kueue_pods_ready_to_evicted_time_seconds", &[cq, reason, cause], *s);
                    }
                }
                Observation::Preempted(by, reason) => {
                    self.count("kueue_preempted_workloads_total", &[by, reason], 1);
                }
                Observation::Replaced(ran) => {
                    self.count("kueue_replaced_workload_slices_total", &[cq], 1);
                    self.finished(*ran, p);
                }
                Observation::Released(reason, wait) => {
                    self.observe("kueue_workload_eviction_latency_seconds", &[cq, reason], *wait);
                }
            }
        }
    }

    /// Counts a finished workload, which was admitted for `ran` seconds.
    fn finished(&mut self, ran: Option<f64>, p: &Place) {
        let (cq, class) = (p.cluster_queue.as_str(), p.class.as_str());
        let (ns, lq) = (p.local_queue.0.as_str(), p.local_queue.1.as_str());
        self.count("kueue_finished_workloads_total", &[cq, class], 1);
        self.count("kueue_local_queue_finished_workloads_total", &[lq, ns, class], 1);
        if let Some(ran) = ran {
            self.observe("kueue_execution_time_seconds", &[cq, class], ran);
            self.observe("kueue_local_queue_execution_time_seconds", &[lq, ns, class], ran);
        }
    }
}

/// Counts what others did to a workload and the watch showed: its pods got ready, it finished.
pub(crate) fn seen(metrics: &mut Metrics, old: &WorkloadStatus, wl: &Workload, p: &Place) {
    let new = &wl.status;
    let (cq, class) = (p.cluster_queue.as_str(), p.class.as_str());
    let (ns, lq) = (p.local_queue.0.as_str(), p.local_queue.1.as_str());
    let became = |kind: &str| new.condition(kind).filter(|c| c.status && !old.is_true(kind));
    let admitted = new.condition(cond::ADMITTED).filter(|c| c.status);
    // Not when they have recovered.
    if let Some(c) = became(cond::PODS_READY).filter(|c| c.reason == "Started") {
        let wait = seconds(queued_at(wl), c.transition);
        metrics.observe("kueue_ready_wait_time_seconds", &[cq, class], wait);
        metrics.observe("kueue_local_queue_ready_wait_time_seconds", &[lq, ns, class], wait);
        if let Some(a) = admitted {
            let wait = seconds(a.transition, c.transition);
            metrics.observe("kueue_admitted_until_ready_wait_time_seconds", &[cq, class], wait);
            let name = "kueue_local_queue_admitted_until_ready_wait_time_seconds";
            metrics.observe(name, &[lq, ns, class], wait);
        }
    }
    // A user or another controller may release the quota of an evicted workload.
    if let Some(released) = released(old, new) {
        let wait = seconds(
            released.transition,
            new.condition(cond::QUOTA_RESERVED).map_or(released.transition, |c| c.transition),
        );
        metrics.observe("kueue_workload_eviction_latency_seconds", &[cq, &released.reason], wait);
    }
    if became(cond::FINISHED).is_some() {
        metrics.finished(execution_time(new), p);
    }
}
