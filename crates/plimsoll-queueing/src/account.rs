//! Accounting: which workloads wait where, which hold what, and what follows when one changes.

mod charges;

use std::cmp::Reverse;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::conditions::Edit;
use super::cycle::victim::Reason;
use super::effective::Written;
use super::ids::{ClusterQueueId, LocalQueueId, WorkloadId};
use super::metrics::Observation;
use super::model::{
    CheckState, Condition, QueueingStrategy, ReclaimablePod, StopPolicy, Workload, WorkloadStatus,
};
use super::pending::{QueuePosition, Rank};
use super::phase::{Phase, is_on_hold};
use super::state::WorkloadInfo;
use super::update::WorkloadUpdate;
use super::{Action, KubernetesEvent, cond};
use crate::Queueing;
use plimsoll_state::time::{Duration, Time};

/// How long a release of quota by a workload of a stopped LocalQueue waits before it requeues others.
const LATE_REQUEUE: Duration = Duration::from_seconds(5);

/// The part of a workload that the accounting depends on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AccountedState {
    phase: Phase,
    active: bool,
    lq: LocalQueueId,
    priority: i64,
    reclaimable: Vec<ReclaimablePod>,
    /// Fingerprints of conditions: whether they changed is all that matters.
    evicted: Option<u64>,
    requeued: Option<u64>,
    gated: bool,
    /// Whether it waits for pods of its group.
    incomplete: bool,
    /// Whether its integration keeps it back.
    on_hold: bool,
    has_variants: bool,
}

fn fingerprint(c: &Condition) -> u64 {
    foldhash::fast::FixedState::default().hash_one(c)
}

impl AccountedState {
    pub(crate) fn of(wl: &WorkloadInfo) -> Self {
        let s = &wl.obj.status;
        Self {
            phase: Phase::of(s),
            active: wl.obj.active,
            lq: wl.lq(),
            priority: wl.obj.effective_priority(),
            reclaimable: s.reclaimable.clone(),
            evicted: s.condition(cond::EVICTED).map(fingerprint),
            requeued: s.condition(cond::REQUEUED).map(fingerprint),
            gated: wl.obj.has_closed_gate(),
            incomplete: s.is_true(cond::WAITING_FOR_REPLACEMENT_PODS),
            on_hold: is_on_hold(&wl.obj),
            has_variants: wl.obj.has_variants,
        }
    }
}

/// Whether a workload may be queued at all (Kueue `IsAdmissible`).
pub(crate) fn is_admissible(wl: &Workload) -> bool {
    wl.admission_gated_by.is_empty()
        && wl.active
        && !wl.has_variants
        && Phase::of(&wl.status) == Phase::Pending
        && !is_on_hold(wl)
        && !wl.status.is_true(cond::WAITING_FOR_REPLACEMENT_PODS)
}

impl WorkloadInfo {
    /// Whether quota has to be charged: for a reservation as soon as it is asked for, and until the API is
    /// known to have taken it back. A release that was only asked for may still fail, also one that was asked for
    /// while the reservation is on its way, and may be there already. As in Kueue, what a
    /// deactivated workload holds is free at once. A workload with variants is charged what these hold.
    pub(crate) fn must_hold(&self) -> bool {
        let holds = |s: &WorkloadStatus| Phase::of(s).holds_quota() && s.admission.is_some();
        let shown = self.obj.shown();
        let finished = Phase::of(shown) == Phase::Finished;
        self.obj.active
            && !self.obj.has_variants
            && !finished
            && (holds(&self.obj.status) || holds(shown) || self.obj.is_reserving())
    }

    /// The status that says what quota is charged for: as it is to be or, where a release is on its way, as the API shows it.
    /// A release that was asked for before another client reserved quota is written against an older version and fails.
    pub(crate) fn status_held(&self) -> Option<&WorkloadStatus> {
        [&self.obj.status, self.obj.shown()].into_iter().find(|s| s.admission.is_some())
    }
}

impl Queueing {
    /// Since when a workload waits, for the order of queues (Kueue `GetQueueOrderTimestamp`).
    pub(crate) fn queue_order_timestamp(&self, wl: &Workload) -> Time {
        match wl.status.condition(cond::EVICTED).filter(|c| c.status) {
            Some(c) if c.reason == "PodsReadyTimeout" && !self.config.order_by_creation => c.transition,
            Some(c) if c.reason == "AdmissionCheck" => c.transition,
            // Without an order by priority in the cohort its preemptor has to go first, or it would get its quota again.
            _ if !self.config.gates.priority_sorting_within_cohort => wl
                .status
                .condition(cond::PREEMPTED)
                .filter(|c| c.status && c.reason == Reason::WhileBorrowing.as_str())
                .map_or(wl.creation, |c| c.transition.plus(Duration::from_millis(1))),
            _ => wl.creation,
        }
    }

    pub(crate) fn rank(&self, wl: &WorkloadInfo, id: WorkloadId) -> Rank {
        let (order, score) = wl.ruled_order();
        Rank {
            order,
            priority: Reverse(wl.obj.effective_priority()),
            score,
            since: self.queue_order_timestamp(&wl.obj),
            uid: Arc::clone(wl.uid()),
            id,
        }
    }

    /// Changes the status of a workload and asks for the write; whether anything changed.
    pub(crate) fn edit(
        &mut self,
        id: WorkloadId,
        now: Time,
        events: Vec<KubernetesEvent>,
        change: impl FnOnce(&mut Edit<'_>),
    ) -> bool {
        self.edit_by(id, None, now, events, change)
    }

    /// Counts confirmed changes of a workload.
    pub(crate) fn record_observations(&mut self, id: WorkloadId, observations: &[Observation]) {
        if !observations.is_empty() {
            let place = self.place_of(id, self.cq_holding(id));
            self.metrics.record(observations, &place);
        }
    }

    /// [`Queueing::edit`] on behalf of a preemptor in the ClusterQueue `by`.
    pub(crate) fn edit_by(
        &mut self,
        id: WorkloadId,
        by: Option<String>,
        now: Time,
        events: Vec<KubernetesEvent>,
        change: impl FnOnce(&mut Edit<'_>),
    ) -> bool {
        let number = self.last_write + 1;
        let bytes = self.config.byte_counters().map(str::to_owned).collect();
        let Some(wl) = self.wl_mut(id) else { return false };
        let holds = u64::from(wl.quota().is_some());
        let before = AccountedState::of(wl);
        let write = WorkloadUpdate { id: number, events, bytes, ..WorkloadUpdate::default() };
        let Some(Written { update, observations }) = wl.obj.edit(write, by, now, change) else {
            return false;
        };
        wl.explanation.replace_by_write(&update);
        self.record_observations(id, &observations);
        self.joint.changes += holds;
        self.last_write = number;
        self.out.push(Action::UpdateWorkload(update));
        self.transition(id, Some(&before), false, now);
        true
    }

    /// Brings queues and usage in line with a workload's effective object. `before` is what it was, `None` for a
    /// new one; `reshaped` says that what it asks for may have changed.
    pub(crate) fn transition(
        &mut self,
        id: WorkloadId,
        before: Option<&AccountedState>,
        reshaped: bool,
        now: Time,
    ) {
        let Some(wl) = self.wl(id) else { return };
        let after = AccountedState::of(wl);
        let (held, evicted) = (self.reserved_in(wl), wl.obj.status.is_true(cond::EVICTED));
        self.dirty.workloads.insert(id);
        self.joint.claims.review = true;
        self.index_evicted(id);
        if !after.phase.holds_quota() || !after.active || evicted {
            self.release_nodes(id);
        }
        if before.is_some_and(|b| (b.phase == Phase::Finished) != (after.phase == Phase::Finished)) {
            // Slices after it may take the places of those before it now.
            self.recompute_replacements(id);
        }
        if let Some(b) = before.filter(|b| b.lq != after.lq) {
            self.lq_mut(b.lq).members.remove(&id);
            self.dirty.local_queues.insert(b.lq);
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
            // It no longer waits where there is no ClusterQueue either.
            self.dirty.local_queues.insert(after.lq);
            // A deactivated workload that keeps its reservation may be admitted without another one when it is active again.
            if !after.phase.holds_quota() {
                self.drop_entry_penalty(id, after.lq);
            }
            if self.still_holds(id) {
                // Its end is on the way to the API server.
                return;
            }
            if self.release(id) || (was_holding && after.phase == Phase::Pending) {
                self.requeue_associated(after.lq, held, now);
            }
            return;
        }
        if after.phase.holds_quota() {
            self.unqueue(id);
            self.release(id);
            self.hold(id);
            // While quota is held a podset can only get smaller.
            let freed =
                was_holding && (reshaped || before.is_some_and(|b| b.reclaimable != after.reclaimable));
            let other_priority = before.is_some_and(|b| b.priority != after.priority);
            if freed {
                self.requeue_associated(after.lq, held, now);
            } else if other_priority {
                self.requeue_associated_for_quota(after.lq, held, now);
            }
            return;
        }
        if self.still_holds(id) {
            // Its release is on the way to the API server.
            self.unqueue(id);
            return;
        }
        let released = self.release(id);
        if released {
            self.requeue_associated(after.lq, held, now);
        }
        let same_order = before.is_some_and(|b| {
            b.evicted == after.evicted
                && b.requeued == after.requeued
                && b.gated == after.gated
                && b.incomplete == after.incomplete
                && b.on_hold == after.on_hold
                && b.phase == Phase::Pending
        });
        if released
            || !(same_request && same_order)
            || self.wl(id).is_some_and(|w| w.total_requests().is_empty())
        {
            self.refresh_request(id);
        }
        self.enqueue(id, same_request && same_order && !released, now);
    }

    /// Whether the quota of a workload stays reserved until a write is answered. Where another client reserved it while our
    /// condition `QuotaReserved=False` was being written, its reservation is made here.
    fn still_holds(&mut self, id: WorkloadId) -> bool {
        let Some(wl) = self.wl(id).filter(|w| w.must_hold()) else { return false };
        if wl.quota().is_none() {
            self.hold(id);
        }
        true
    }

    /// Requeues inadmissible workloads around a LocalQueue's ClusterQueue. Kueue requeues none
    /// when the LocalQueue is stopped or gone; here that only takes longer.
    pub(crate) fn requeue_associated(&mut self, lq: LocalQueueId, held: Option<ClusterQueueId>, now: Time) {
        self.tas.freed |= held.is_some_and(|cq| self.has_topology(cq));
        self.requeue_associated_for_quota(lq, held, now);
    }

    /// The same where no capacity on nodes became free.
    pub(crate) fn requeue_associated_for_quota(
        &mut self,
        lq: LocalQueueId,
        held: Option<ClusterQueueId>,
        now: Time,
    ) {
        let queue = self.lq(lq);
        let usable = queue.spec.as_ref().is_some_and(|s| s.stop_policy == StopPolicy::None);
        for cq in [queue.cq, held].into_iter().flatten() {
            if usable {
                self.dirty.freed.insert(cq);
            } else {
                self.timers.requeue_inadmissible.insert((now.plus(LATE_REQUEUE), cq));
            }
            self.due.tree_of(cq);
        }
    }

    /// Whether a workload waits in the LocalQueue that it names, which may not have a ClusterQueue yet.
    pub(crate) fn may_queue(&self, wl: &WorkloadInfo) -> bool {
        self.lq(wl.lq()).spec.as_ref().is_some_and(|s| s.stop_policy == StopPolicy::None)
            && is_admissible(&wl.obj)
            && wl.devices().is_ok()
            && Self::depends_on_nothing(wl)
            && !self.outside_run_window(wl)
            && !self.is_parent_to_be(wl)
    }

    /// The ClusterQueue in which a workload may wait for quota, if it holds none.
    pub(crate) fn may_queue_in(&self, wl: &WorkloadInfo) -> Option<ClusterQueueId> {
        self.lq(wl.lq()).cq.filter(|&c| self.cq(c).spec.is_some() && self.may_queue(wl))
    }

    /// Puts a waiting workload where it belongs. `unchanged`: nothing that could make it admissible
    /// changed, so that an inadmissible one stays so.
    pub(crate) fn enqueue(&mut self, id: WorkloadId, unchanged: bool, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let Some(cq) = self.may_queue_in(wl) else {
            let lq = wl.lq();
            if self.lq(lq).cq.is_none_or(|c| self.cq(c).spec.is_none()) {
                // It counts in the status of the LocalQueue alone.
                self.dirty.local_queues.insert(lq);
            }
            self.unqueue(id);
            return;
        };
        if wl.queued().is_some_and(|old| old != cq) {
            self.unqueue(id);
        }
        let Some(wl) = self.wl(id) else { return };
        let (rank, scheduling_hash, lq) = (self.rank(wl, id), wl.scheduling_hash(), wl.lq());
        let ready = self.is_ready(id, now);
        let queue = self.cq(cq);
        let position = queue.pending.position(id);
        let stopped = queue.rules.strategy == QueueingStrategy::BestEffortFifo
            && self.config.gates.equivalence_hashing
            && queue.pending.stopped(scheduling_hash).is_some();
        let skipped = stopped && ready && !matches!(position, Some(QueuePosition::Active));
        let pending = &mut self.cq_mut(cq).pending;
        match position {
            Some(QueuePosition::Inadmissible) if unchanged => {
                pending.insert_inadmissible(rank, scheduling_hash, lq);
            }
            Some(QueuePosition::Active) => pending.activate(rank, scheduling_hash, lq),
            Some(QueuePosition::Inadmissible | QueuePosition::Delayed) | None => {
                if !ready {
                    pending.delay(id);
                } else if stopped {
                    pending.insert_inadmissible(rank, scheduling_hash, lq);
                } else {
                    pending.activate(rank, scheduling_hash, lq);
                }
            }
        }
        let in_turn = pending.position(id) == Some(QueuePosition::Active);
        if let Some(wl) = self.wl_mut(id)
            && wl.enter_queue(cq)
        {
            self.lq_mut(lq).pending += 1;
            self.touch(cq, lq);
        }
        if skipped {
            self.explain_skipped(id, now);
        }
        // No cycle looks at a workload that is not in turn.
        if in_turn {
            self.due.tree_of(cq);
        }
    }

    /// Takes a workload out of the queues.
    pub(crate) fn unqueue(&mut self, id: WorkloadId) {
        let Some(wl) = self.wl_mut(id) else { return };
        let lq = wl.lq();
        let Some(cq) = wl.leave_queue() else { return };
        self.joint.claims.review = true;
        self.lq_mut(lq).pending -= 1;
        let pending = &mut self.cq_mut(cq).pending;
        pending.remove(id);
        if pending.sticky == Some(id) {
            pending.sticky = None;
        }
        if pending.preemptor.is_some_and(|(known, _)| known == id) {
            pending.preemptor = None;
        }
        self.touch(cq, lq);
    }

    /// Whether no backoff keeps a workload from being queued; sets a timer when one does.
    pub(crate) fn is_ready(&mut self, id: WorkloadId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return false };
        let s = &wl.obj.status;
        let until = [s.requeue_state.as_ref().and_then(|r| r.requeue_at), wl.failures.hold_off()]
            .into_iter()
            .flatten()
            .max();
        let not_requeued = s.is_false(cond::REQUEUED);
        match until.filter(|&t| t > now) {
            Some(t) => {
                self.timers.workloads.insert((t, id));
                false
            }
            None => !not_requeued,
        }
    }

    /// Notes that the statuses of a ClusterQueue and a LocalQueue may have changed.
    pub(crate) fn touch(&mut self, cq: ClusterQueueId, lq: LocalQueueId) {
        self.dirty.cluster_queues.insert(cq);
        self.dirty.local_queues.insert(lq);
    }
}

/// Whether a check keeps the workload from being admitted.
pub(crate) fn has_failed_checks(wl: &Workload) -> bool {
    wl.status.admission_checks.iter().any(|c| matches!(c.state, CheckState::Retry | CheckState::Rejected))
}
