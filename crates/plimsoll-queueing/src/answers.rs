//! Answers to actions. A failed action is repeated with growing pauses while its cause exists.

mod write_failures;

pub(crate) use write_failures::WriteFailures;

use super::account::{AccountedState, has_failed_checks};
use super::effective::Confirmed;
use super::ids::WorkloadId;
use super::phase::Phase;
use super::{Action, WorkloadKey, cond};
use crate::Queueing;
use plimsoll_state::Answer;
use plimsoll_state::time::Time;

impl Queueing {
    /// What became of an action.
    pub(super) fn answered(&mut self, action: &Action, answer: &Answer, now: Time) {
        let failed = match answer {
            Answer::Failed(_) => true,
            Answer::Done | Answer::Superseded => false,
        };
        match action {
            Action::DeactivateWorkload { key, uid } => {
                if failed {
                    self.deactivation_failed(key, uid, now);
                }
            }
            Action::UpdateLoan(update) => self.loan_answered(update, answer, now),
            Action::FailPod { uid, .. } => self.tas.health.pod_answered(uid, failed, now),
            // Writes have answers of their own, and the latest status of a queue is written until it is.
            Action::UpdateWorkload(_)
            | Action::Record(..)
            | Action::ClusterQueueStatus(..)
            | Action::LocalQueueStatus(..)
            | Action::CohortStatus(..)
            | Action::RunWindowStatus(..) => {}
        }
    }

    /// The workload is looked at again later: while it has the condition DeactivationTarget, that asks again.
    fn deactivation_failed(&mut self, key: &WorkloadKey, uid: &str, now: Time) {
        if let Some(id) = self.workloads.find(key)
            && self.wl(id).is_some_and(|w| w.obj.uid == uid)
        {
            self.hold_off(id, now);
        }
    }

    pub(super) fn written(&mut self, key: &WorkloadKey, write: u64, version: u64, now: Time) {
        let Some(id) = self.workloads.find(key) else { return };
        let admitted = self.is_shown_admitted(id);
        let Some(wl) = self.wl_mut(id) else { return };
        let held_off = wl.failures.end();
        if wl.obj.write(write).is_none() {
            return;
        }
        let before = AccountedState::of(wl);
        let Some(Confirmed { observations, overtaken }) = wl.obj.confirm(write, version) else { return };
        if overtaken {
            self.dirty.workloads.insert(id);
        }
        self.record_observations(id, &observations);
        // A write counted as done when it was asked for: its confirmation changes what others can get only where quota was
        // kept until now.
        if overtaken || held_off || self.wl(id).is_some_and(|w| w.quota().is_some() != w.must_hold()) {
            self.transition(id, Some(&before), false, now);
        } else {
            self.dirty.workloads.insert(id);
        }
        self.settle_admission(id, admitted, now);
        self.explain_soon(id, now);
    }

    pub(super) fn write_failed(&mut self, key: &WorkloadKey, write: u64, now: Time) {
        let Some(id) = self.workloads.find(key) else { return };
        let Some(wl) = self.wl_mut(id) else { return };
        let Some(failed) = wl.obj.write(write) else { return };
        let on_nodes = failed.unhealthy_nodes.is_some();
        let reserves = matches!(failed.admission, Some(Some(_)));
        wl.failures.remember(failed, wl.obj.shown());
        let until = self.hold_off(id, now);
        self.drop_write(id, write, now);
        if let Some(lq) = self.wl(id).filter(|w| reserves && w.quota().is_none()).map(|w| w.lq()) {
            // (Kueue `scheduler.go`, `admit`: subtracts the entry penalty when the write of the admission fails.)
            self.drop_entry_penalty(id, lq);
        }
        if on_nodes {
            self.nodes_again(id, until);
        }
    }

    /// Makes no write to a workload for some time, longer after each failure; until when. It is looked at then.
    pub(super) fn hold_off(&mut self, id: WorkloadId, now: Time) -> Time {
        let Some(wl) = self.wl_mut(id) else { return now };
        let until = wl.failures.count(now);
        self.timers.workloads.insert((until, id));
        until
    }

    /// Forgets one write: the effective object is what the API showed plus the other writes.
    pub(super) fn drop_write(&mut self, id: WorkloadId, write: u64, now: Time) {
        let Some(wl) = self.wl_mut(id) else { return };
        let before = AccountedState::of(wl);
        if wl.obj.fail(write) {
            self.transition(id, Some(&before), false, now);
            self.note_checked(id);
        }
    }

    /// Releases the reservation of an evicted workload whose job has stopped, where that write failed before; whether a
    /// write was made.
    pub(super) fn release_again(&mut self, id: WorkloadId, now: Time) -> bool {
        let explicit = self.config.gates.explicit_status;
        let Some(wl) = self.wl_mut(id).filter(|w| !w.obj.is_unconfirmed()) else { return false };
        let Some(ended) = wl.failures.take_not_released(&wl.obj.status) else { return false };
        self.edit(id, now, Vec::new(), |e| {
            e.stopped(explicit, ended);
        })
    }

    /// Asks the checks of a workload anew that has lost its reservation: where the write of its eviction failed and one after
    /// it did not, and where a check answered while the write that took the reservation was on its way. What a check says of a
    /// workload that never had quota stands, as in Kueue: no quota is reserved while it failed. Whether a write was made.
    pub(super) fn reset_checks_again(&mut self, id: WorkloadId, now: Time) -> bool {
        let Some(wl) = self.wl_mut(id).filter(|w| !w.obj.is_unconfirmed()) else { return false };
        let s = &wl.obj.status;
        if Phase::of(s) != Phase::Pending {
            // The job of an evicted one has not stopped.
            return false;
        }
        let evicted = s.is_true(cond::EVICTED);
        let not_reset = evicted && wl.failures.take_checks_not_reset();
        let late = not_reset || ((evicted || wl.has_held()) && has_failed_checks(&wl.obj));
        late && self.edit(id, now, Vec::new(), |e| e.reset_checks())
    }
}
