//! Keeping the books: who waits where, who holds what, and what follows when a workload changes.

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::amount::{Amount, Exact};
use super::conditions::Edit;
use super::ids::Fr;
use super::metrics::{Tally, tally_of};
use super::model::{
    CheckState, Condition, PodSet, QueueingStrategy, ReclaimablePod, StopPolicy, Workload, WorkloadStatus,
};
use super::pending::{LqId, Rank, Spot, WlId};
use super::requests;
use super::state::{CqId, Lq, Queueing, Shape, Total, Wl, Write, shape_of};
use super::update::difference;
use super::{Action, Note, cond};
use plimsoll_state::model::{StringMap, requests::PodResourcesOptions, requests::pod_requests};
use plimsoll_state::time::{Duration, Time};

/// How many writes of one workload may be unconfirmed; beyond that the oldest is taken as done.
const MAX_UNCONFIRMED: usize = 32;

/// How long a release of quota by a workload of a stopped LocalQueue waits before it wakes others.
const LATE_WAKE: Duration = Duration::from_seconds(5);

/// Where a workload stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Reserved,
    Admitted,
    Finished,
}

impl Phase {
    pub(crate) fn of(status: &WorkloadStatus) -> Self {
        if status.is_true(cond::FINISHED) {
            Self::Finished
        } else if status.is_true(cond::ADMITTED) {
            Self::Admitted
        } else if status.is_true(cond::QUOTA_RESERVED) {
            Self::Reserved
        } else {
            Self::Pending
        }
    }

    pub(crate) fn holds_quota(self) -> bool {
        matches!(self, Self::Reserved | Self::Admitted)
    }
}

/// What of a workload decides which books change.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Before {
    phase: Phase,
    active: bool,
    lq: LqId,
    priority: i64,
    reclaimable: Vec<ReclaimablePod>,
    /// Fingerprints of conditions: whether they changed is all that matters.
    evicted: Option<u64>,
    requeued: Option<u64>,
    gated: bool,
}

fn fingerprint(c: &Condition) -> u64 {
    foldhash::fast::FixedState::default().hash_one(c)
}

impl Before {
    pub(crate) fn of(wl: &Wl) -> Self {
        let s = &wl.obj.status;
        Self {
            phase: Phase::of(s),
            active: wl.obj.active,
            lq: wl.lq,
            priority: wl.obj.effective_priority(),
            reclaimable: s.reclaimable.clone(),
            evicted: s.condition(cond::EVICTED).map(fingerprint),
            requeued: s.condition(cond::REQUEUED).map(fingerprint),
            gated: wl.obj.has_closed_gate(),
        }
    }
}

/// Whether a workload may be queued at all (Kueue `IsAdmissible`).
pub(crate) fn is_admissible(wl: &Workload) -> bool {
    wl.admission_gated_by.is_empty()
        && wl.active
        && Phase::of(&wl.status) == Phase::Pending
        && !is_on_hold(wl)
        && !wl.status.is_true(cond::WAITING_FOR_REPLACEMENT_PODS)
}

/// Whether its integration keeps it back.
pub(crate) fn is_on_hold(wl: &Workload) -> bool {
    wl.status.condition(cond::QUOTA_RESERVED).is_some_and(|c| !c.status && c.reason == "OnHold")
}

impl Wl {
    /// Whether quota has to be charged: for a reservation as soon as it is asked for, and until the API is
    /// known to have taken it back. A release that was only asked for may still fail, also one that was asked for
    /// while the reservation is on its way, and may be there already. As in Kueue, what a
    /// deactivated workload holds is free at once.
    pub(crate) fn must_hold(&self) -> bool {
        let holds = |s: &WorkloadStatus| Phase::of(s).holds_quota() && s.admission.is_some();
        let shown = self.base.as_deref().unwrap_or(&self.obj.status);
        let finished = Phase::of(shown) == Phase::Finished;
        let on_its_way = || self.writes.iter().any(|w| matches!(w.update.admission, Some(Some(_))));
        self.obj.active
            && !finished
            && (holds(&self.obj.status) || self.base.as_deref().is_some_and(holds) || on_its_way())
    }
}

impl Queueing {
    /// Since when a workload waits, for the order of queues (spec section 2.2).
    pub(crate) fn waiting_since(&self, wl: &Workload) -> Time {
        match wl.status.condition(cond::EVICTED).filter(|c| c.status) {
            Some(c) if c.reason == "PodsReadyTimeout" && !self.config.order_by_creation => c.transition,
            Some(c) if c.reason == "AdmissionCheck" => c.transition,
            _ => wl.creation,
        }
    }

    pub(crate) fn rank(&self, wl: &Wl, id: WlId) -> Rank {
        Rank {
            priority: Reverse(wl.obj.effective_priority()),
            since: self.waiting_since(&wl.obj),
            uid: Arc::clone(&wl.uid),
            id,
        }
    }

    /// Changes the status of a workload and asks for the write; whether anything changed.
    pub(crate) fn edit(
        &mut self,
        id: WlId,
        now: Time,
        notes: Vec<Note>,
        change: impl FnOnce(&mut Edit<'_>),
    ) -> bool {
        self.edit_by(id, None, now, notes, change)
    }

    /// Counts confirmed changes of a workload.
    pub(crate) fn book_tallies(&mut self, id: WlId, tallies: &[Tally]) {
        if !tallies.is_empty() {
            let place = self.place_of(id, self.wl(id).and_then(|w| w.held));
            self.metrics.book(tallies, &place);
        }
    }

    /// [`Queueing::edit`] on behalf of a preemptor in the ClusterQueue `by`.
    pub(crate) fn edit_by(
        &mut self,
        id: WlId,
        by: Option<String>,
        now: Time,
        notes: Vec<Note>,
        change: impl FnOnce(&mut Edit<'_>),
    ) -> bool {
        let number = self.last_write + 1;
        let Some(wl) = self.wl_mut(id) else { return false };
        wl.unsaid = None;
        let before = Before::of(wl);
        let old = wl.obj.status.clone();
        let generation = wl.obj.generation;
        change(&mut Edit { status: &mut wl.obj.status, generation, now });
        let Some(mut update) = difference(&old, &wl.obj) else { return false };
        update.id = number;
        update.notes = notes;
        wl.writes.iter().for_each(|w| update.complete(&w.update, &wl.obj.status));
        let update = Box::new(update);
        let tallies = tally_of(&old, &wl.obj, by, now);
        let base = wl.base.get_or_insert_with(|| Box::new(old));
        let mut confirmed = Vec::new();
        if wl.writes.len() >= MAX_UNCONFIRMED {
            let oldest = wl.writes.remove(0);
            oldest.update.apply(base);
            confirmed = oldest.tallies;
        }
        wl.writes.push(Write { update: update.clone(), tallies });
        self.book_tallies(id, &confirmed);
        self.last_write = number;
        self.out.push(Action::UpdateWorkload(update));
        self.transition(id, Some(&before), false, now);
        true
    }

    /// Brings the books in line with a workload's effective object. `before` is what it was, `None` for a
    /// new one; `reshaped` says that what it asks for may have changed.
    pub(crate) fn transition(&mut self, id: WlId, before: Option<&Before>, reshaped: bool, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let after = Before::of(wl);
        let held = wl.held;
        self.dirty.insert(id);
        if !after.phase.holds_quota() || !after.active {
            self.unpromise(id);
        }
        if before.is_some_and(|b| (b.phase == Phase::Finished) != (after.phase == Phase::Finished)) {
            // Slices after it may take the places of those before it now.
            self.recharge_heirs(id);
        }
        if let Some(b) = before.filter(|b| b.lq != after.lq) {
            self.lq_mut(b.lq).members.remove(&id);
            self.unqueue(id);
        }
        self.lq_mut(after.lq).members.insert(id);
        let same_request = !reshaped
            && before.is_some_and(|b| {
                b.reclaimable == after.reclaimable && b.priority == after.priority && b.lq == after.lq
            });
        let was_holding = before.is_some_and(|b| b.phase.holds_quota());
        if after.phase == Phase::Finished || !after.active {
            self.unqueue(id);
            self.drop_entry(id, after.lq);
            if self.wl(id).is_some_and(|w| w.held.is_some() && w.must_hold()) {
                // Its end is on the way to the API server.
                return;
            }
            if self.release(id) || (was_holding && after.phase == Phase::Pending) {
                self.wake_around(after.lq, held, now);
            }
            return;
        }
        if after.phase.holds_quota() {
            self.unqueue(id);
            self.release(id);
            self.hold(id);
            let newly = before.is_none_or(|b| b.phase != Phase::Admitted);
            if newly && before.is_some() && after.phase == Phase::Admitted {
                self.settle_entry(id, now);
            }
            // While quota is held a podset can only get smaller.
            let freed =
                was_holding && (reshaped || before.is_some_and(|b| b.reclaimable != after.reclaimable));
            let other_priority = before.is_some_and(|b| b.priority != after.priority);
            if freed {
                self.wake_around(after.lq, held, now);
            } else if other_priority {
                self.wake_queues(after.lq, held, now);
            }
            return;
        }
        if self.wl(id).is_some_and(|w| w.held.is_some() && w.must_hold()) {
            // Its release is on the way to the API server.
            self.unqueue(id);
            return;
        }
        let released = self.release(id);
        if released {
            self.wake_around(after.lq, held, now);
        }
        let same_order = before.is_some_and(|b| {
            b.evicted == after.evicted
                && b.requeued == after.requeued
                && b.gated == after.gated
                && b.phase == Phase::Pending
        });
        if released || !(same_request && same_order) || self.wl(id).is_some_and(|w| w.totals.is_empty()) {
            self.refresh_request(id);
        }
        self.enqueue(id, same_request && same_order && !released, now);
    }

    /// Asks that parked workloads around a LocalQueue's ClusterQueue get another chance. Kueue wakes nobody
    /// when the LocalQueue is stopped or gone; here that only takes longer.
    pub(crate) fn wake_around(&mut self, lq: LqId, held: Option<CqId>, now: Time) {
        self.tas.freed |= held.is_some_and(|cq| self.has_topology(cq));
        self.wake_queues(lq, held, now);
    }

    /// The same where nobody gave places on nodes back.
    pub(crate) fn wake_queues(&mut self, lq: LqId, held: Option<CqId>, now: Time) {
        let queue = self.lq(lq);
        let usable = queue.spec.as_ref().is_some_and(|s| s.stop_policy == StopPolicy::None);
        for cq in [queue.cq, held].into_iter().flatten() {
            if usable {
                self.to_wake.insert(cq);
            } else {
                self.wake_later.insert((now.plus(LATE_WAKE), cq));
            }
        }
        self.cycle_due = true;
    }

    /// Puts a waiting workload where it belongs. `unchanged`: nothing that could make it admissible
    /// changed, so that a parked one stays parked.
    pub(crate) fn enqueue(&mut self, id: WlId, unchanged: bool, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let lq = self.lq(wl.lq);
        let usable = lq.spec.as_ref().is_some_and(|s| s.stop_policy == StopPolicy::None);
        let target = lq.cq.filter(|&c| {
            usable
                && self.cq(c).spec.is_some()
                && is_admissible(&wl.obj)
                && wl.devices.is_ok()
                && Self::depends_on_nothing(wl)
                && !self.kept_out(wl)
        });
        let Some(cq) = target else {
            self.unqueue(id);
            return;
        };
        if wl.queued.is_some_and(|old| old != cq) {
            self.unqueue(id);
        }
        let Some(wl) = self.wl(id) else { return };
        let (rank, shape, lq) = (self.rank(wl, id), wl.shape, wl.lq);
        let ready = self.is_ready(id, now);
        let queue = self.cq(cq);
        let spot = queue.pending.spot(id);
        let stopped = queue.rules.strategy == QueueingStrategy::BestEffortFifo
            && self.config.gates.equivalence_hashing
            && queue.pending.stopped(shape).is_some();
        let skipped = stopped && ready && !matches!(spot, Some(Spot::Active));
        let pending = &mut self.cq_mut(cq).pending;
        match spot {
            Some(Spot::Parked) if unchanged => pending.park(rank, shape, lq),
            Some(Spot::Active) => pending.activate(rank, shape, lq),
            _ if !ready => pending.delay(id),
            _ if stopped => pending.park(rank, shape, lq),
            _ => pending.activate(rank, shape, lq),
        }
        if let Some(wl) = self.wl_mut(id)
            && wl.queued.replace(cq).is_none()
        {
            self.lq_mut(lq).waiting += 1;
        }
        if skipped {
            self.explain_skipped(id, now);
        }
        self.cycle_due = true;
        self.touch(cq, lq);
    }

    /// Takes a workload out of the queues.
    pub(crate) fn unqueue(&mut self, id: WlId) {
        let Some(wl) = self.wl_mut(id) else { return };
        let lq = wl.lq;
        let Some(cq) = wl.queued.take() else { return };
        self.lq_mut(lq).waiting -= 1;
        let pending = &mut self.cq_mut(cq).pending;
        pending.remove(id);
        if pending.sticky == Some(id) {
            pending.sticky = None;
        }
        self.touch(cq, lq);
    }

    /// Whether no backoff keeps a workload from being queued; sets a timer when one does.
    pub(crate) fn is_ready(&mut self, id: WlId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return false };
        let s = &wl.obj.status;
        let until =
            [s.requeue_state.as_ref().and_then(|r| r.requeue_at), wl.hold_off].into_iter().flatten().max();
        let waiting = s.is_false(cond::REQUEUED);
        match until.filter(|&t| t > now) {
            Some(t) => {
                self.timers.insert((t, id));
                false
            }
            None => !waiting,
        }
    }

    /// Notes that the statuses of a ClusterQueue and a LocalQueue may have changed.
    pub(crate) fn touch(&mut self, cq: CqId, lq: LqId) {
        self.dirty_cqs.insert(cq);
        self.dirty_lqs.insert(lq);
    }

    /// Charges the workload's admission, if it has one.
    pub(crate) fn hold(&mut self, id: WlId) {
        let Some(admission) = self.wl(id).and_then(|w| w.obj.status.admission.clone()) else { return };
        let cq = self.cq_slot(&admission.cluster_queue);
        let totals = self.totals_held(id);
        let usage = self.usage_of(&totals);
        let usage = self.uncharged(id, cq, usage);
        if self.ids.columns() > self.tree.columns() {
            self.tree_dirty = true;
        }
        let Some(wl) = self.wl_mut(id) else { return };
        let admitted = wl.obj.status.is_true(cond::ADMITTED);
        let lq = wl.lq;
        wl.totals = totals;
        wl.usage.clone_from(&usage);
        wl.held = Some(cq);
        wl.counted_admitted = admitted;
        self.cq_mut(cq).holders.insert(id);
        self.tas_charge(id, true);
        self.tas.commit();
        self.book(cq, lq, &usage, admitted, true);
        self.recharge_heirs(id);
    }

    /// Takes back what a workload holds; whether it held anything.
    pub(crate) fn release(&mut self, id: WlId) -> bool {
        if self.wl(id).is_none_or(|w| w.held.is_none()) {
            return false;
        }
        self.tas_charge(id, false);
        self.tas.commit();
        let Some(wl) = self.wl_mut(id) else { return false };
        let Some(cq) = wl.held.take() else { return false };
        let (lq, usage, admitted) = (wl.lq, std::mem::take(&mut wl.usage), wl.counted_admitted);
        wl.counted_admitted = false;
        self.cq_mut(cq).holders.remove(&id);
        self.cq_mut(cq).generation += 1;
        self.book(cq, lq, &usage, admitted, false);
        self.recharge_heirs(id);
        true
    }

    pub(crate) fn book(&mut self, cq: CqId, lq: LqId, usage: &[(Fr, Amount)], admitted: bool, add: bool) {
        let one = if add { 1 } else { -1 };
        if let Some(node) = self.cq(cq).node.filter(|_| !self.tree_dirty) {
            for &(fr, a) in usage {
                if add { self.tree.add(node, fr, a) } else { self.tree.remove(node, fr, a) }
            }
            self.tree.commit();
        }
        if self.lq(lq).cq == Some(cq) {
            self.lq_mut(lq).book(usage, admitted, add);
        }
        if admitted {
            let c = self.cq_mut(cq);
            c.admitted += one;
            charge(&mut c.admitted_usage, usage, add);
        }
        self.cycle_due = true;
        self.touch(cq, lq);
    }

    /// Sums requests per column, for podsets with flavors.
    pub(crate) fn usage_of(&mut self, totals: &[Total]) -> Vec<(Fr, Amount)> {
        let mut usage: Vec<(Fr, Amount)> = Vec::new();
        for t in totals {
            for &(res, amount) in &t.requests {
                let Some((_, flavor)) = t.flavors.iter().find(|(r, _)| *r == res) else { continue };
                let fr = self.ids.pair(*flavor, res);
                add_usage(&mut usage, fr, Amount(amount));
            }
        }
        usage
    }

    /// What the admission of a workload says it holds, less what reclaimable pods gave back.
    fn totals_held(&mut self, id: WlId) -> Vec<Total> {
        let Some(Some(wl)) = self.wls.get(id as usize) else { return Vec::new() };
        let Some(admission) = &wl.obj.status.admission else { return Vec::new() };
        let limits = requests::limits_of(&self.limit_ranges, &wl.obj.key.namespace);
        let ids = &mut self.ids;
        let mut totals = Vec::with_capacity(admission.assignments.len());
        for psa in &admission.assignments {
            let mut requests: Vec<_> =
                psa.resource_usage.iter().map(|(n, v)| (ids.resource(n), *v)).collect();
            requests.sort_by(|a, b| ids.walk_key(a.0).cmp(&ids.walk_key(b.0)));
            let flavors = psa.flavors.iter().map(|(r, f)| (ids.resource(r), ids.flavor(f))).collect();
            let places = psa.topology.as_ref().map(|t| t.domains.clone()).unwrap_or_default();
            let spec = wl.obj.pod_sets.iter().find(|p| p.name == psa.name).map(|p| &p.spec);
            let one = spec.filter(|_| !places.is_empty() || psa.delayed.is_some()).map(|s| {
                let mut s = s.clone();
                requests::adjust(&mut s, &limits, &self.runtime_classes);
                super::tas::amounts(ids, &pod_requests(&s, &PodResourcesOptions::default()))
            });
            let one = one.unwrap_or_default();
            let total = Total { count: psa.count, requests, flavors, one, places };
            let left = count_left(&wl.obj, &psa.name, self.config.gates.reclaimable_pods);
            totals.push(if left < total.count { total.scaled_to(left) } else { total });
        }
        totals
    }

    /// Computes anew what a waiting workload asks for.
    pub(crate) fn refresh_request(&mut self, id: WlId) {
        let (limits, adjusted) = self.adjusted_specs(id);
        let devices = self.device_charge(id, &adjusted);
        let Some(Some(wl)) = self.wls.get(id as usize) else { return };
        let obj = &wl.obj;
        let mut totals = Vec::with_capacity(obj.pod_sets.len());
        let mut shape = Shape {
            priority: obj.effective_priority(),
            replaces: obj.replaces.clone(),
            pod_sets: Vec::new(),
        };
        let mut specs = Vec::with_capacity(obj.pod_sets.len());
        for (i, (ps, spec)) in obj.pod_sets.iter().zip(adjusted).enumerate() {
            let pod = pod_requests(&spec, &PodResourcesOptions::default());
            let mut effective = requests::effective(
                &pod,
                &self.config.exclude_resource_prefixes,
                &self.config.transformations,
            );
            super::dra::apply(&devices, i, &mut effective);
            let count = count_left(obj, &ps.name, self.config.gates.reclaimable_pods);
            let ids = &mut self.ids;
            let mut list: Vec<_> = effective
                .iter()
                .map(|(n, v)| (ids.resource(n), v.saturating_mul(i64::from(count))))
                .collect();
            list.sort_by(|a, b| ids.walk_key(a.0).cmp(&ids.walk_key(b.0)));
            let like = PodSet {
                name: ps.name.clone(),
                count,
                min_count: ps.min_count,
                spec: shape_of(&spec),
                labels: StringMap::new(),
                topology: ps.topology.clone(),
            };
            let one = super::tas::amounts(ids, &pod);
            let total = Total { count, requests: list, flavors: Vec::new(), one, places: Vec::new() };
            shape.pod_sets.push((like, total.clone()));
            totals.push(total);
            specs.push(spec);
        }
        let invalid = requests::validate(specs.iter(), &limits);
        let invalid_as_written = requests::validate(obj.pod_sets.iter().map(|p| &p.spec), &limits);
        let shape = self.shapes.take(shape);
        if let Some(old) = self.wl(id).map(|w| w.shape) {
            self.shapes.give_back(old);
        }
        if let Some(wl) = self.wl_mut(id) {
            if wl.shape != shape {
                wl.last = None;
            }
            (wl.totals, wl.shape) = (totals, shape);
            (wl.invalid, wl.invalid_as_written) = (invalid, invalid_as_written);
            wl.devices = devices;
        }
    }
}

impl Lq {
    /// Counts what one workload holds, or takes it off.
    pub(crate) fn book(&mut self, usage: &[(Fr, Amount)], admitted: bool, add: bool) {
        let one = if add { 1 } else { -1 };
        self.reserving += one;
        charge(&mut self.reserved_usage, usage, add);
        if admitted {
            self.admitted += one;
            charge(&mut self.admitted_usage, usage, add);
        }
    }
}

/// Pods of a podset that still need quota.
fn count_left(wl: &Workload, pod_set: &str, reclaim: bool) -> i32 {
    let count = wl.pod_sets.iter().find(|p| p.name == pod_set).map_or(0, |p| p.count);
    let done = wl.status.reclaimable.iter().find(|r| r.name == pod_set && reclaim).map_or(0, |r| r.count);
    count.saturating_sub(done.min(count))
}

/// Adds to one column of a usage list.
pub(crate) fn add_usage(usage: &mut Vec<(Fr, Amount)>, fr: Fr, amount: Amount) {
    match usage.iter_mut().find(|(f, _)| *f == fr) {
        Some((_, sum)) => *sum = sum.add(amount),
        None => usage.push((fr, amount)),
    }
}

fn charge(books: &mut std::collections::BTreeMap<Fr, Exact>, usage: &[(Fr, Amount)], add: bool) {
    for &(fr, a) in usage {
        let e = books.entry(fr).or_default();
        *e = if add { e.add(Exact::of(a)) } else { e.sub(Exact::of(a)) };
    }
}

/// Whether a check keeps the workload from being admitted.
pub(crate) fn has_failed_checks(wl: &Workload) -> bool {
    wl.status.admission_checks.iter().any(|c| matches!(c.state, CheckState::Retry | CheckState::Rejected))
}
