//! Events of workloads.

use crate::Queueing;
use crate::account::AccountedState;
use crate::bounded::Again;
use crate::cond;
use crate::effective::Shown;
use crate::ids::WorkloadId;
use crate::metrics::{Observation, seen};
use crate::model::{Workload, WorkloadKey, WorkloadStatus};
use crate::state::WorkloadInfo;
use plimsoll_state::time::Time;

impl Queueing {
    /// Recomputes the requests of pending workloads.
    pub(crate) fn refresh_requests_where(&mut self, which: impl Fn(&Workload) -> bool) {
        let pending = self.workloads.iter().filter(|(_, w)| w.quota().is_none() && which(&w.obj));
        pending.for_each(|(id, _)| self.dirty.requeue(id, Again::Refreshed));
    }

    /// A workload was seen or changed.
    pub(super) fn workload(&mut self, mut w: Workload, now: Time) {
        self.drop_disabled_fields(&mut w);
        let key = w.key.clone();
        self.count_holder_change(&key);
        self.workload_seen(w, now);
        self.count_holder_change(&key);
        if let Some(id) = self.workloads.find(&key) {
            self.explain_soon(id, now);
        }
    }

    /// A workload changes: if it holds quota, it may be another victim than before.
    fn count_holder_change(&mut self, key: &WorkloadKey) {
        let wl = self.workloads.find(key).and_then(|id| self.wl(id));
        self.joint.changes += u64::from(wl.is_some_and(|w| w.quota().is_some()));
    }

    /// The job of an evicted workload has stopped, or its one pod has `ended`.
    pub(super) fn workload_stopped(&mut self, key: &WorkloadKey, ended: bool, now: Time) {
        let explicit = self.config.gates.explicit_status;
        let ended = ended && self.config.gates.skip_reassignment_for_pods;
        // The job says it again when it sees the end of the slice before.
        if let Some(id) = self.workloads.find(key).filter(|&id| !self.ends_after_replaced(id)) {
            self.edit(id, now, Vec::new(), |e| {
                e.stopped(explicit, ended);
            });
        }
    }

    fn workload_seen(&mut self, w: Workload, now: Time) {
        match self.workloads.find(&w.key) {
            Some(id) if self.wl(id).is_some_and(|old| old.obj.uid == w.uid) => {
                let admitted = self.is_shown_admitted(id);
                self.workload_changed(id, w, now);
                self.settle_admission(id, admitted, now);
            }
            Some(_) => {
                let key = w.key.clone();
                self.workload_gone(&key, now);
                self.workload_new(w, now);
            }
            None => self.workload_new(w, now),
        }
    }

    fn workload_new(&mut self, w: Workload, now: Time) {
        let lq = self.lq_slot(&w.key.namespace, &w.queue);
        let id = self.workloads.insert(WorkloadInfo::new(w, lq));
        self.slice_register(id);
        if let Some(name) = self.wl(id).map(|w| w.obj.run_window.clone()) {
            self.window_named(id, "", &name);
        }
        self.register_dependencies(id, true, now);
        self.transition(id, None, true, now);
        self.note_recorded_nodes(id);
        self.note_checked(id);
        self.recompute_replacements(id);
    }

    fn workload_changed(&mut self, id: WorkloadId, mut w: Workload, now: Time) {
        let same = self.wl(id).filter(|old| old.obj.queue == w.queue).map(|old| old.lq());
        let lq = same.unwrap_or_else(|| self.lq_slot(&w.key.namespace, &w.queue));
        if self.wl(id).is_none_or(|old| w.version != 0 && w.version < old.obj.version) {
            return;
        }
        let renamed = self.wl(id).is_some_and(|old| {
            old.obj.depends_on != w.depends_on
                || old.obj.depends_invalid != w.depends_invalid
                || old.obj.answers_to != w.answers_to
        });
        if renamed {
            self.forget_dependencies(id, now);
        }
        let named = self.wl(id).map(|o| o.obj.run_window.clone()).filter(|o| *o != w.run_window);
        if let Some(old) = &named {
            self.window_named(id, old, &w.run_window);
        }
        let other_old = self.wl(id).is_some_and(|old| {
            old.obj.replaces != w.replaces
                || old.obj.first_slice != w.first_slice
                || old.obj.creation != w.creation
        });
        let old_before = self.old_slice(id).filter(|_| other_old);
        if other_old {
            self.slice_forget(id);
        }
        if let Some(from) = self.wl(id).map(|old| old.lq()).filter(|&old| old != lq) {
            self.unqueue(id);
            self.release(id);
            self.drop_entry_penalty(id, from);
        }
        let Some(wl) = self.wl_mut(id) else { return };
        let before = AccountedState::of(wl);
        let news = [cond::FINISHED, cond::PODS_READY]
            .iter()
            .any(|k| w.status.is_true(k) && !wl.obj.status.is_true(k));
        let lost = wl.obj.status.is_true(cond::QUOTA_RESERVED) && !w.status.is_true(cond::QUOTA_RESERVED);
        let old = (news || lost).then(|| wl.obj.status.clone());
        let Shown { observations, reserved_anew } = wl.obj.show(&mut w);
        let ruled_otherwise = self.wl(id).is_some_and(|old| self.is_ruled_otherwise(&old.obj, &w));
        let Some(wl) = self.wl_mut(id) else { return };
        let pending = wl.quota().is_none();
        let reshaped = renamed
            || (ruled_otherwise && pending)
            || named.is_some()
            || other_old
            || wl.obj.pod_sets != w.pod_sets
            || wl.obj.admission_gated_by != w.admission_gated_by;
        let other_holder = wl.quota().is_some() != wl.must_hold() || reserved_anew;
        if *wl.obj == w && !other_holder {
            // As shown it has no spare room, which the edits of the status have left.
            self.workloads.replace(id, w);
            self.record_observations(id, &observations);
            return;
        }
        let same_admission = wl.obj.status.admission == w.status.admission;
        wl.set_lq(lq);
        self.workloads.replace(id, w);
        if ruled_otherwise && !pending {
            self.candidates_changed();
        }
        if other_old {
            self.slice_register(id);
        }
        self.count_seen(id, old.as_ref(), &observations);
        if renamed {
            self.register_dependencies(id, false, now);
        } else if news {
            self.dependency_changed(id, now);
        }
        if reserved_anew {
            self.release(id);
        }
        let Some(wl) = self.wl_mut(id) else { return };
        let other_holder = wl.quota().is_some() != wl.must_hold();
        if !reshaped && same_admission && !other_holder && AccountedState::of(wl) == before {
            // Its pods may have become ready.
            if self.config.blocks_admission() {
                self.due.everywhere();
            }
            self.dirty.workloads.insert(id);
            self.note_checked(id);
            return;
        }
        self.transition(id, Some(&before), reshaped, now);
        self.note_recorded_nodes(id);
        self.note_checked(id);
        if other_old {
            self.recompute_replacements(id);
            old_before.into_iter().for_each(|o| self.recompute_replacements(o));
        }
    }

    /// Counts what the watch showed of a workload; `old` is its status before others changed it.
    fn count_seen(&mut self, id: WorkloadId, old: Option<&WorkloadStatus>, observations: &[Observation]) {
        self.record_observations(id, observations);
        let Some(old) = old else { return };
        let place = self.place_of(id, self.cq_holding(id));
        if let Some(wl) = self.workloads.get(id) {
            seen(&mut self.metrics, old, &wl.obj, &place);
        }
    }

    pub(super) fn workload_gone(&mut self, key: &WorkloadKey, now: Time) {
        let Some(id) = self.workloads.forget_key(key) else { return };
        let Some(wl) = self.wl(id) else { return };
        let (lq, held, scheduling_hash, queued) =
            (wl.lq(), self.reserved_in(wl), wl.scheduling_hash(), wl.queued());
        self.unqueue(id);
        if queued.is_some() {
            // Capacity may have been reserved for it. Kueue requeues none; others would wait on.
            self.requeue_associated_for_quota(lq, queued, now);
        }
        self.scheduling_hashes.give_back(scheduling_hash);
        if self.release(id) {
            self.requeue_associated(lq, held, now);
        }
        self.drop_entry_penalty(id, lq);
        self.lq_mut(lq).members.remove(&id);
        self.dirty.local_queues.insert(lq);
        self.release_nodes(id);
        self.forget_dependencies(id, now);
        self.slice_forget(id);
        self.recompute_replacements(id);
        if let Some(name) = self.wl(id).map(|w| w.obj.run_window.clone()) {
            self.window_named(id, &name, "");
        }
        self.dirty.workloads.remove(&id);
        self.dirty.requeue.remove(&id);
        self.second.forget(id);
        self.waits_for_pods = self.waits_for_pods.filter(|&w| w != id);
        self.workloads.remove(id);
    }
}
