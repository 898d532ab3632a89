//! Admission fair sharing: LocalQueues that used less go first (Kueue KEP-4136).
//!
//! The consumed resources of every LocalQueue decay with a half-life. An admission adds an entry penalty
//! in advance, so that a queue can't win many times before the next sample sees its usage.

use std::collections::BTreeMap;

use super::config::AdmissionFairSharing;
use super::ids::{ClusterQueueId, LocalQueueId, WorkloadId};
use super::model::QueueingStrategy;
use super::phase::Phase;
use crate::Queueing;
use plimsoll_state::collect::InsertEach as _;
use plimsoll_state::time::{SECOND, Time};

/// Amounts in billionths, by resource.
type Nanos = BTreeMap<String, i128>;

/// Billionths in one unit.
const NANO: i128 = 1_000_000_000;

/// What a LocalQueue consumed.
#[derive(Debug, Default)]
pub(crate) struct ConsumedResources {
    pub(crate) consumed: Nanos,
    /// Charges for workloads that are reserved but not admitted yet.
    pending: BTreeMap<WorkloadId, Nanos>,
    pub(crate) updated: Time,
}

/// The part of new usage that counts after `elapsed` seconds.
fn alpha(elapsed: f64, half_life: f64) -> f64 {
    if half_life == 0.0 { 0.0 } else { 1.0 - 0.5f64.powf(elapsed / half_life) }
}

/// Every amount times `factor`, rounded towards zero to billionths, as exact decimal arithmetic gives it.
fn times(list: &Nanos, factor: f64) -> Nanos {
    let text = format!("{factor}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits: u128 = format!("{whole}{fraction}").parse().unwrap_or(0);
    list.iter().map(|(name, v)| (name.clone(), scale(*v, digits, fraction.len()))).insert_each()
}

/// `v * digits / 10^places`, rounded towards zero, without needing more than 128 bits for what occurs.
fn scale(v: i128, digits: u128, places: usize) -> i128 {
    let (negative, v) = (v < 0, v.unsigned_abs());
    let ten = |n: usize| u32::try_from(n).ok().and_then(|n| 10u128.checked_pow(n));
    let result = if places < 9 {
        v.saturating_mul(digits) / ten(places).unwrap_or(u128::MAX)
    } else {
        const PART: u128 = 1_000_000_000;
        let (high, low) = (digits / PART, digits % PART);
        let sum = v.saturating_mul(high).saturating_add(v.saturating_mul(low) / PART);
        ten(places - 9).map_or(0, |d| sum / d)
    };
    let result = i128::try_from(result).unwrap_or(i128::MAX);
    if negative { -result } else { result }
}

fn add(to: &mut Nanos, more: Nanos) {
    for (name, v) in more {
        let e = to.entry(name).or_insert(0);
        *e = e.saturating_add(v);
    }
}

fn seconds(d: plimsoll_state::time::Duration) -> f64 {
    d.0 as f64 / SECOND as f64
}

fn nanos(resource: &str, amount: i64) -> i128 {
    i128::from(amount) * if resource == "cpu" { NANO / 1000 } else { NANO }
}

impl Queueing {
    /// What a LocalQueue used, weighted: lower goes first.
    pub(crate) fn local_usage(&self, lq: LocalQueueId) -> f64 {
        let Some(config) = &self.config.admission_fair_sharing else { return 0.0 };
        let queue = self.lq(lq);
        let weight = queue.spec.as_ref().map_or(1.0, |s| s.fair_weight_nano as f64 / 1e9);
        let mut all = queue.consumed_resources.consumed.clone();
        for charge in queue.consumed_resources.pending.values() {
            add(&mut all, charge.clone());
        }
        let factor = |name: &str| config.weights.get(name).copied().unwrap_or(1.0);
        // Not `sum`: that of nothing is -0.0, which would come before 0.0.
        let usage = all.iter().fold(0.0, |sum, (name, v)| sum + factor(name) * (*v as f64 / 1e9));
        if weight <= 0.0 { f64::INFINITY } else { usage / weight }
    }

    /// Starts the consumed resources of a LocalQueue from its status, once.
    pub(crate) fn track_consumed_resources(&mut self, lq: LocalQueueId, now: Time) {
        let Some(config) = &self.config.admission_fair_sharing else { return };
        let forget = config.half_life.0 == 0;
        let next = now.plus(config.sampling);
        let queue = self.lq_mut(lq);
        if queue.tracks_consumed {
            return;
        }
        queue.tracks_consumed = true;
        let seed = queue.spec.as_ref().and_then(|s| s.consumed.clone()).map(|(list, _)| list);
        if !forget {
            add(&mut queue.consumed_resources.consumed, seed.into_iter().flatten().insert_each());
        }
        queue.consumed_resources.updated = now;
        self.timers.samples.insert((next, lq));
    }

    /// Samples the usage of the LocalQueues whose time has come.
    pub(crate) fn sample_usage(&mut self, now: Time) {
        let Some(config) = self.config.admission_fair_sharing.clone() else { return };
        while let Some(&(at, lq)) = self.timers.samples.first().filter(|(t, _)| *t <= now) {
            self.timers.samples.remove(&(at, lq));
            let due = self.lq(lq).consumed_resources.updated.plus(config.sampling);
            if due > now {
                self.timers.samples.insert((due, lq));
                continue;
            }
            self.decay(lq, &config, now);
            if config.half_life.0 == 0 {
                self.lq_mut(lq).consumed_resources.consumed.clear();
            }
            self.timers.samples.insert((now.plus(config.sampling).max(Time(now.0.saturating_add(1))), lq));
            self.dirty.local_queues.insert(lq);
            self.look_at_other_head(lq);
        }
    }

    /// A strict queue tries its first workload only, which is another one once usage has changed. The cycle admits no more
    /// workloads by that, but the new first workload gets the reason why it waits. Kueue tries it all the time.
    fn look_at_other_head(&mut self, lq: LocalQueueId) {
        let Some(cq) = self.lq(lq).cq else { return };
        let queue = self.cq(cq);
        let strict = queue.rules.strategy == QueueingStrategy::StrictFifo;
        if strict && queue.rules.fair_admission && queue.pending.has_head() {
            self.due.tree_of(cq);
        }
    }

    fn decay(&mut self, lq: LocalQueueId, config: &AdmissionFairSharing, now: Time) {
        let mut usage = Nanos::new();
        // As in Kueue, resources that are not used are listed with 0.
        for (_, resource, _) in self.lq(lq).cq.into_iter().flat_map(|cq| self.columns_of(cq)) {
            usage.entry(resource.to_string()).or_insert(0);
        }
        for (&fr, a) in &self.lq(lq).admitted_usage {
            let name = self.ids.resource_name(self.ids.parts(fr).1);
            let e = usage.entry(name.to_owned()).or_insert(0);
            *e = e.saturating_add(nanos(name, a.amount().0));
        }
        let consumed_resources = &mut self.lq_mut(lq).consumed_resources;
        let elapsed = seconds(now.since(consumed_resources.updated)).max(0.0);
        let a = alpha(elapsed, seconds(config.half_life));
        consumed_resources.consumed = times(&consumed_resources.consumed, 1.0 - a);
        add(&mut consumed_resources.consumed, times(&usage, a));
        consumed_resources.updated = consumed_resources.updated.max(now);
    }

    /// Charges a LocalQueue in advance for a workload that gets its reservation.
    pub(crate) fn add_entry_penalty(&mut self, id: WorkloadId, cq: ClusterQueueId) {
        let Some(config) = self.config.admission_fair_sharing.clone() else { return };
        let rules = std::sync::Arc::clone(&self.cq(cq).rules);
        let Some(wl) = self.wl(id).filter(|_| rules.fair_admission) else { return };
        let mut asked = Nanos::new();
        for &(res, amount) in wl.total_requests().iter().flat_map(|t| &t.requests) {
            if self.config.ignore_undeclared && rules.group_of(res).is_none() {
                continue;
            }
            let name = self.ids.resource_name(res);
            let e = asked.entry(name.to_owned()).or_insert(0);
            *e = e.saturating_add(nanos(name, amount));
        }
        let lq = wl.lq();
        let charge = times(&asked, alpha(seconds(config.sampling), seconds(config.half_life)));
        self.lq_mut(lq).consumed_resources.pending.insert(id, charge);
    }

    /// Whether the API has shown that a workload is admitted.
    pub(crate) fn is_shown_admitted(&self, id: WorkloadId) -> bool {
        self.wl(id).is_some_and(|w| Phase::of(w.obj.shown()) == Phase::Admitted)
    }

    /// Settles the entry penalty of a workload that is admitted; `before`: whether it was shown so before. An admission whose write is on its
    /// way settles nothing, as the write may fail (Kueue `workload_controller.go`, `reconcileAfsPenaltiesOnUpdate`).
    pub(crate) fn settle_admission(&mut self, id: WorkloadId, before: bool, now: Time) {
        if !self.is_shown_admitted(id) {
            return;
        }
        let Some(wl) = self.wl(id).filter(|w| w.obj.active) else { return };
        if !before || self.lq(wl.lq()).consumed_resources.pending.contains_key(&id) {
            self.settle_entry_penalty(id, now);
        }
    }

    /// Adds the entry penalty of an admitted workload to the consumed resources of its LocalQueue.
    fn settle_entry_penalty(&mut self, id: WorkloadId, now: Time) {
        let Some(config) = self.config.admission_fair_sharing.clone() else { return };
        let Some((lq, Some(cq))) = self.wl(id).map(|w| (w.lq(), self.reserved_in(w))) else { return };
        if !self.cq(cq).rules.fair_admission {
            return;
        }
        self.decay(lq, &config, now);
        let consumed_resources = &mut self.lq_mut(lq).consumed_resources;
        if let Some(charge) = consumed_resources.pending.remove(&id) {
            add(&mut consumed_resources.consumed, charge);
        }
        self.dirty.local_queues.insert(lq);
    }

    /// Drops the charge of a workload that will not be admitted.
    pub(crate) fn drop_entry_penalty(&mut self, id: WorkloadId, lq: LocalQueueId) {
        self.lq_mut(lq).consumed_resources.pending.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_exact_and_rounded_down() {
        let list: Nanos = [("cpu".to_owned(), 7 * NANO)].into();
        assert_eq!(times(&list, 0.5)["cpu"], 3_500_000_000);
        assert_eq!(times(&list, 0.0)["cpu"], 0);
        assert_eq!(times(&list, 1.0)["cpu"], 7 * NANO);
        let third = 1.0 / 3.0;
        assert_eq!(times(&list, third)["cpu"], 2_333_333_333);
        let big: Nanos = [("memory".to_owned(), (1i128 << 47) * NANO)].into();
        assert_eq!(times(&big, 0.25)["memory"], (1i128 << 45) * NANO);
        assert!(times(&big, 1e-30)["memory"] == 0);
    }

    #[test]
    fn half_of_the_past_counts_after_a_half_life() {
        assert!((alpha(60.0, 60.0) - 0.5).abs() < 1e-12);
        assert!(alpha(5.0, 0.0).abs() < 1e-12);
    }
}
