//! Answers to actions. A failed action is repeated with growing pauses while its cause exists.

use super::account::{AccountedState, has_failed_checks};
use super::ids::WorkloadId;
use super::phase::Phase;
use super::state::Write;
use super::{Action, WorkloadKey, cond};
use crate::Queueing;
use plimsoll_state::Answer;
use plimsoll_state::time::{Duration, SECOND, Time};

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
        let Some(wl) = self.wl_mut(id) else { return };
        wl.failures = 0;
        let held_off = wl.hold_off.take().is_some();
        let Some(at) = wl.writes.iter().position(|p| p.update.id == write) else { return };
        let before = AccountedState::of(wl);
        // Those before it were carried out before it, and it says again what they said.
        let done: Vec<Write> = wl.writes.drain(..=at).collect();
        // What the watch showed since has this write in it already, and what others changed after it.
        let overtaken = version != 0 && version <= wl.obj.version;
        // What the watch still brings of older versions is older than this write.
        wl.obj.version = wl.obj.version.max(version);
        if let Some(mut base) = wl.base.take() {
            if overtaken {
                wl.obj.status.clone_from(&base);
                wl.writes.iter().for_each(|w| w.update.apply(&mut wl.obj.status));
            } else {
                done.iter().for_each(|w| w.update.apply(&mut base));
            }
            wl.base = (!wl.writes.is_empty()).then_some(base);
        }
        if overtaken {
            self.dirty.workloads.insert(id);
        }
        done.iter().for_each(|w| self.record_observations(id, &w.observations));
        // A write counted as done when it was asked for: its confirmation changes what others can get only where quota was
        // kept until now.
        if overtaken || held_off || self.wl(id).is_some_and(|w| w.quota.is_some() != w.must_hold()) {
            self.transition(id, Some(&before), false, now);
        } else {
            self.dirty.workloads.insert(id);
        }
        self.explain_soon(id, now);
    }

    pub(super) fn write_failed(&mut self, key: &WorkloadKey, write: u64, now: Time) {
        let Some(id) = self.workloads.find(key) else { return };
        let Some(wl) = self.wl_mut(id) else { return };
        let Some(failed) = wl.writes.iter().find(|p| p.update.id == write) else { return };
        let on_nodes = failed.update.unhealthy_nodes.is_some();
        wl.checks_not_reset |= failed.update.admission_checks.is_some();
        // The stop of the job is not reported again.
        wl.not_released |= failed.update.admission == Some(None);
        let until = self.hold_off(id, now);
        self.drop_write(id, write, now);
        if on_nodes {
            self.nodes_again(id, until);
        }
    }

    /// Makes no write to a workload for some time, longer after each failure; until when. It is looked at then.
    pub(super) fn hold_off(&mut self, id: WorkloadId, now: Time) -> Time {
        let Some(wl) = self.wl_mut(id) else { return now };
        wl.failures = wl.failures.saturating_add(1);
        let wait = SECOND.saturating_mul(1 << (wl.failures - 1).min(6));
        let until = now.plus(Duration(wait));
        wl.hold_off = Some(until);
        self.timers.workloads.insert((until, id));
        until
    }

    /// Forgets one write: the effective object is what the API showed plus the other writes.
    pub(super) fn drop_write(&mut self, id: WorkloadId, write: u64, now: Time) {
        let Some(wl) = self.wl_mut(id) else { return };
        let before = AccountedState::of(wl);
        wl.writes.retain(|p| p.update.id != write);
        let Some(mut status) = wl.base.as_deref().cloned() else { return };
        wl.writes.iter().for_each(|p| p.update.apply(&mut status));
        wl.obj.status = status;
        if wl.writes.is_empty() {
            wl.base = None;
        }
        self.transition(id, Some(&before), false, now);
    }

    /// Releases the reservation of an evicted workload whose job has stopped, where that write failed before; whether a
    /// write was made.
    pub(super) fn release_again(&mut self, id: WorkloadId, now: Time) -> bool {
        let explicit = self.config.gates.explicit_status;
        let Some(wl) = self.wl_mut(id).filter(|w| w.not_released && w.writes.is_empty()) else {
            return false;
        };
        wl.not_released = false;
        self.edit(id, now, Vec::new(), |e| {
            e.stopped(explicit, false);
        })
    }

    /// Asks the checks of a workload anew that has lost its reservation: where the write of its eviction failed and one after
    /// it did not, and where a check answered while the write that took the reservation was on its way. Whether a write was
    /// made.
    pub(super) fn reset_checks_again(&mut self, id: WorkloadId, now: Time) -> bool {
        let Some(wl) = self.wl_mut(id).filter(|w| w.writes.is_empty()) else { return false };
        let s = &wl.obj.status;
        let not_reset = s.is_true(cond::EVICTED) && std::mem::take(&mut wl.checks_not_reset);
        let late = not_reset || has_failed_checks(&wl.obj);
        late && Phase::of(s) == Phase::Pending && self.edit(id, now, Vec::new(), |e| e.reset_checks())
    }
}
