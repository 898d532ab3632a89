//! Events into state.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::account::Before;
use super::afs::Ledger;
use super::depend::Progress;
use super::ids::Flavor;
use super::metrics::{Tally, seen};
use super::model::{
    ClusterQueue, Cohort, LocalQueue, ResourceFlavor, StopPolicy, Workload, WorkloadKey, WorkloadStatus,
};
use super::pending::{LqId, WlId};
use super::state::{CqId, Group, Queueing, Rules, Wl, Write};
use super::{Event, cond};
use plimsoll_state::{cast::index32, model::StringMap, time::Time};

impl Queueing {
    /// Takes one event into the ground and derived state. Decides nothing.
    pub fn absorb(&mut self, now: Time, event: Event) {
        match event {
            Event::ClusterQueueUpsert(q) => self.cluster_queue(*q, now),
            Event::ClusterQueueDelete(name) => self.cluster_queue_gone(&name, now),
            Event::CohortUpsert(c) => self.cohort(*c),
            Event::CohortDelete(name) => {
                if self.cohorts.remove(&name).is_some() {
                    self.rebuild_soon();
                }
            }
            Event::LocalQueueUpsert(q) => self.local_queue(*q, now),
            Event::LocalQueueDelete(ns, name) => {
                let id = self.lq_slot(&ns, &name);
                self.metrics.forget(&[("namespace", &ns), ("name", &name)]);
                self.lq_mut(id).spec = None;
                self.lq_mut(id).reported = None;
                self.lq_mut(id).ledger_open = false;
                self.lq_mut(id).ledger = Ledger::default();
                self.samples.retain(|(_, l)| *l != id);
                self.members_again(id, now);
                self.windows_of_local_again(id, now);
            }
            Event::ResourceFlavorUpsert(f) => self.flavor(*f, now),
            Event::ResourceFlavorDelete(name) => {
                let id = self.ids.flavor(&name);
                self.flavors.remove(&id);
                self.flavor_changed(id);
                self.windows_of_flavors_again(id, now);
            }
            Event::NamespaceUpsert(name, labels) => self.namespace(&name, labels),
            Event::NamespaceDelete(name) => {
                self.namespaces.remove(&name);
            }
            Event::LimitRangeUpsert(r) => {
                let namespace = r.namespace.clone();
                self.limit_ranges.insert((r.namespace.clone(), r.name.clone()), *r);
                self.requests_again(|w| w.key.namespace == namespace, now);
            }
            Event::LimitRangeDelete(namespace, name) => {
                self.limit_ranges.remove(&(namespace.clone(), name));
                self.requests_again(|w| w.key.namespace == namespace, now);
            }
            Event::RuntimeClassUpsert(name, overhead) => {
                self.runtime_classes.insert(name.clone(), overhead);
                self.requests_again(|w| w.pod_sets.iter().any(|p| p.spec.runtime_class_name == name), now);
            }
            Event::RuntimeClassDelete(name) => {
                self.runtime_classes.remove(&name);
            }
            Event::AdmissionCheckUpsert(c) => {
                self.checks.insert(c.name.clone(), *c);
                self.all_queues_again();
            }
            Event::AdmissionCheckDelete(name) => {
                self.checks.remove(&name);
                self.all_queues_again();
            }
            Event::TopologyUpsert(t) => {
                self.topologies.insert(t.name.clone(), *t);
                self.topologies_changed();
                self.all_queues_again();
            }
            Event::TopologyDelete(name) => {
                self.topologies.remove(&name);
                self.topologies_changed();
                self.all_queues_again();
            }
            Event::RunWindowUpsert(w) => self.run_window(*w, now),
            Event::RunWindowDelete(name) => self.run_window_gone(&name, now),
            Event::ClaimTemplateUpsert(t) => {
                self.devices.template((t.namespace.clone(), t.name.clone()), Some(*t));
            }
            Event::ClaimTemplateDelete(ns, name) => self.devices.template((ns, name), None),
            Event::DeviceClassUpsert(c) => self.devices.class(&c.name.clone(), Some(*c)),
            Event::DeviceClassDelete(name) => self.devices.class(&name, None),
            Event::ResourceSliceUpsert(s) => self.devices.slice(&s.name.clone(), Some(*s)),
            Event::ResourceSliceDelete(name) => self.devices.slice(&name, None),
            Event::WorkloadUpsert(w) => {
                let key = w.key.clone();
                self.workload(*w, now);
                if let Some(&id) = self.wl_by_key.get(&key) {
                    self.say_unsaid(id, now);
                }
            }
            Event::WorkloadDelete(key) => self.workload_gone(&key, now),
            Event::WorkloadStopped(key) => {
                let explicit = self.config.gates.explicit_status;
                if let Some(&id) = self.wl_by_key.get(&key) {
                    self.edit(id, now, Vec::new(), |e| {
                        e.stopped(explicit);
                    });
                }
            }
            Event::Written { key, id, version } => self.written(&key, id, version, now),
            Event::WriteFailed { key, id, message: _ } => self.write_failed(&key, id, now),
            Event::Answered { action, answer } => self.answered(&action, &answer, now),
        }
    }

    fn rebuild_soon(&mut self) {
        self.tree_dirty = true;
        self.cycle_due = true;
        self.to_wake.extend(0..index32(self.cqs.len()));
    }

    fn cluster_queue(&mut self, q: ClusterQueue, now: Time) {
        let id = self.cq_slot(&q.name);
        let rules = Arc::new(self.compile(&q));
        let slot = self.cq_mut(id);
        let new = slot.spec.is_none();
        let quota_changed = slot.spec.as_ref().is_none_or(|old| {
            old.cohort != q.cohort
                || old.resource_groups != q.resource_groups
                || old.fair_weight_nano != q.fair_weight_nano
        });
        if slot.spec.as_deref() == Some(&q) {
            return;
        }
        slot.rules = rules;
        slot.spec = Some(Box::new(q));
        if quota_changed {
            slot.generation += 1;
            self.rebuild_soon();
        }
        self.queue_changed(id);
        let locals = self.cq(id).locals.clone();
        for lq in locals {
            if new {
                self.members_again(lq, now);
            }
            let members = self.lq(lq).members.clone();
            self.dirty.extend(members);
        }
        self.windows_of_cluster_again(id, now);
    }

    fn compile(&mut self, q: &ClusterQueue) -> Rules {
        let groups = q
            .resource_groups
            .iter()
            .map(|g| Group {
                covered: g.covered.iter().map(|r| self.ids.resource(r)).collect(),
                flavors: g.flavors.iter().map(|f| self.ids.flavor(&f.flavor)).collect(),
            })
            .collect();
        for g in &q.resource_groups {
            for f in &g.flavors {
                for r in &f.resources {
                    let (f, r) = (self.ids.flavor(&f.flavor), self.ids.resource(&r.resource));
                    self.ids.pair(f, r);
                }
            }
        }
        Rules {
            groups,
            fungibility: q.fungibility,
            preemption: q.preemption,
            strategy: q.strategy,
            fair_admission: q.admission_fair_sharing && self.config.admission_fair_sharing.is_some(),
        }
    }

    fn cluster_queue_gone(&mut self, name: &str, now: Time) {
        let id = self.cq_slot(name);
        if self.cq_mut(id).spec.take().is_none() {
            return;
        }
        self.cq_mut(id).reported = None;
        self.metrics.forget(&[("cluster_queue", name)]);
        self.rebuild_soon();
        for lq in self.cq(id).locals.clone() {
            self.members_again(lq, now);
        }
        self.windows_of_cluster_again(id, now);
    }

    fn cohort(&mut self, c: Cohort) {
        if self.cohorts.get(&c.name) != Some(&c) {
            for g in &c.resource_groups {
                for f in &g.flavors {
                    for r in &f.resources {
                        let (f, r) = (self.ids.flavor(&f.flavor), self.ids.resource(&r.resource));
                        self.ids.pair(f, r);
                    }
                }
            }
            self.cohorts.insert(c.name.clone(), c);
            self.rebuild_soon();
        }
    }

    fn local_queue(&mut self, q: LocalQueue, now: Time) {
        let id = self.lq_slot(&q.namespace, &q.name);
        let cq = self.cq_slot(&q.cluster_queue);
        let old = self.lq(id).cq;
        if old != Some(cq) {
            if let Some(old) = old {
                self.cq_mut(old).locals.remove(&id);
            }
            self.cq_mut(cq).locals.insert(id);
            self.lq_mut(id).cq = Some(cq);
            self.recount_local(id);
        }
        let slot = self.lq_mut(id);
        let usable = |s: &LocalQueue| s.stop_policy == StopPolicy::None;
        let before = slot.spec.as_deref().is_some_and(usable);
        let after = usable(&q);
        slot.spec = Some(Box::new(q));
        self.open_ledger(id, now);
        if before != after || old != Some(cq) {
            self.members_again(id, now);
        }
        let members = self.lq(id).members.clone();
        self.dirty.extend(members);
        self.touch(cq, id);
        self.windows_of_local_again(id, now);
    }

    /// Counts anew what workloads of a LocalQueue hold in its ClusterQueue.
    fn recount_local(&mut self, id: LqId) {
        let lq = self.lq_mut(id);
        let (cq, members) = (lq.cq, lq.members.clone());
        (lq.reserving, lq.admitted) = (0, 0);
        lq.reserved_usage.clear();
        lq.admitted_usage.clear();
        for w in members {
            let Some(wl) = self.wl(w).filter(|w| w.held.is_some() && w.held == cq) else { continue };
            let (usage, admitted) = (wl.usage.clone(), wl.counted_admitted);
            self.lq_mut(id).book(&usage, admitted, true);
        }
    }

    /// Queues all workloads of a LocalQueue as if they were seen anew.
    fn members_again(&mut self, lq: LqId, now: Time) {
        let members = self.lq(lq).members.clone();
        for id in members {
            self.dirty.insert(id);
            if self.wl(id).is_some_and(|w| w.held.is_none()) {
                self.unqueue(id);
                self.enqueue(id, false, now);
            }
        }
    }

    fn flavor(&mut self, f: ResourceFlavor, now: Time) {
        let id = self.ids.flavor(&f.name);
        if self.flavors.get(&id).map(Arc::as_ref) != Some(&f) {
            self.flavors.insert(id, Arc::new(f));
            self.flavor_changed(id);
            self.windows_of_flavors_again(id, now);
        }
    }

    fn flavor_changed(&mut self, flavor: Flavor) {
        self.topologies_changed();
        for id in 0..index32(self.cqs.len()) {
            if self.cq(id).rules.groups.iter().any(|g| g.flavors.contains(&flavor)) {
                self.queue_changed(id);
            }
        }
    }

    fn all_queues_again(&mut self) {
        for id in 0..index32(self.cqs.len()) {
            if self.cq(id).spec.is_some() {
                self.queue_changed(id);
            }
        }
    }

    /// Looks again whether a ClusterQueue takes workloads, and gives its parked ones another chance.
    fn queue_changed(&mut self, id: CqId) {
        let inactive = self.inactive_reason(id);
        let slot = self.cq_mut(id);
        if slot.inactive != inactive {
            let switched = slot.inactive.is_some() != inactive.is_some();
            slot.inactive = inactive;
            if switched {
                self.tree_dirty = true;
                let locals = self.cq(id).locals.clone();
                for lq in locals {
                    let members = self.lq(lq).members.clone();
                    self.dirty.extend(members);
                    self.dirty_lqs.insert(lq);
                }
            }
        }
        self.dirty_cqs.insert(id);
        self.to_wake.insert(id);
        self.cycle_due = true;
    }

    fn namespace(&mut self, name: &str, labels: StringMap) {
        if self.namespaces.get(name) == Some(&labels) {
            return;
        }
        self.namespaces.insert(name.to_owned(), labels);
        let here: Vec<LqId> =
            (0..index32(self.lqs.len())).filter(|&l| self.lq(l).namespace == name).collect();
        for lq in here {
            self.to_wake.extend(self.lq(lq).cq);
            let members = self.lq(lq).members.clone();
            self.dirty.extend(members);
        }
        self.cycle_due = true;
    }

    /// Computes anew what waiting workloads ask for.
    fn requests_again(&mut self, which: impl Fn(&Workload) -> bool, now: Time) {
        let ids: BTreeSet<WlId> = (0u32..)
            .zip(&self.wls)
            .filter(|(_, w)| w.as_ref().is_some_and(|w| w.held.is_none() && which(&w.obj)))
            .map(|(i, _)| i)
            .collect();
        for id in ids {
            self.dirty.insert(id);
            self.unqueue(id);
            self.refresh_request(id);
            self.enqueue(id, false, now);
        }
    }

    fn workload(&mut self, mut w: Workload, now: Time) {
        self.honour_gates(&mut w);
        match self.wl_by_key.get(&w.key).copied() {
            Some(id) if self.wl(id).is_some_and(|old| old.obj.uid == w.uid) => {
                self.workload_changed(id, w, now);
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
        let key = w.key.clone();
        let wl = Wl {
            uid: Arc::from(w.uid.as_str()),
            obj: Box::new(w),
            base: None,
            writes: Vec::new(),
            unsaid: None,
            said: None,
            explain_due: false,
            hold_off: None,
            checks_not_reset: false,
            not_released: false,
            failures: 0,
            lq,
            totals: Vec::new(),
            shape: u32::MAX,
            invalid: None,
            invalid_as_written: None,
            devices: Ok(Vec::new()),
            usage: Vec::new(),
            held: None,
            counted_admitted: false,
            queued: None,
            last: None,
            hidden: false,
            depend: Progress::default(),
            promised: false,
            rounds: super::cycle::Rounds::default(),
        };
        let id = match self.free_wls.pop() {
            Some(id) => {
                self.wls[id as usize] = Some(wl);
                id
            }
            None => {
                self.wls.push(Some(wl));
                index32(self.wls.len()) - 1
            }
        };
        self.wl_by_key.insert(key, id);
        self.slice_register(id);
        if let Some(name) = self.wl(id).map(|w| w.obj.run_window.clone()) {
            self.window_named(id, "", &name);
        }
        self.depend_register(id, true, now);
        self.transition(id, None, true, now);
        self.recharge_heirs(id);
    }

    fn workload_changed(&mut self, id: WlId, mut w: Workload, now: Time) {
        let same = self.wl(id).filter(|old| old.obj.queue == w.queue).map(|old| old.lq);
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
            self.depend_forget(id, now);
        }
        let named = self.wl(id).map(|o| o.obj.run_window.clone()).filter(|o| *o != w.run_window);
        if let Some(old) = &named {
            self.window_named(id, old, &w.run_window);
        }
        let other_old =
            self.wl(id).is_some_and(|old| old.obj.replaces != w.replaces || old.obj.creation != w.creation);
        let old_before = self.old_slice(id).filter(|_| other_old);
        if other_old {
            self.slice_forget(id);
        }
        if let Some(from) = self.wl(id).map(|old| old.lq).filter(|&old| old != lq) {
            self.unqueue(id);
            self.release(id);
            self.drop_entry(id, from);
        }
        let Some(wl) = self.wl_mut(id) else { return };
        let before = Before::of(wl);
        let news = [cond::FINISHED, cond::PODS_READY]
            .iter()
            .any(|k| w.status.is_true(k) && !wl.obj.status.is_true(k));
        let old = news.then(|| wl.obj.status.clone());
        let mut tallies = Vec::new();
        // What is new in the object was carried out, and whatever was to be done before it.
        let new = |p: &Write| {
            p.update.shows_in(&w.status) && wl.base.as_ref().is_some_and(|b| !p.update.shows_in(b))
        };
        if let Some(at) = wl.writes.iter().rposition(new) {
            tallies.extend(wl.writes.drain(..=at).flat_map(|p| p.tallies));
        }
        wl.writes.retain_mut(|p| {
            let shown = p.update.shows_in(&w.status);
            if shown {
                tallies.append(&mut p.tallies);
            }
            !shown
        });
        if wl.writes.is_empty() {
            wl.base = None;
        } else {
            wl.base = Some(Box::new(w.status.clone()));
            wl.writes.iter().for_each(|p| p.update.apply(&mut w.status));
        }
        let reshaped = renamed
            || named.is_some()
            || other_old
            || wl.obj.pod_sets != w.pod_sets
            || wl.obj.admission_gated_by != w.admission_gated_by;
        let released = wl.held.is_some() && !wl.must_hold();
        if *wl.obj == w && !released {
            self.book_tallies(id, &tallies);
            return;
        }
        let same_admission = wl.obj.status.admission == w.status.admission;
        wl.lq = lq;
        *wl.obj = w;
        if other_old {
            self.slice_register(id);
        }
        self.count_seen(id, old.as_ref(), &tallies);
        if renamed {
            self.depend_register(id, false, now);
        } else if news {
            self.depend_touch(id, now);
        }
        let Some(wl) = self.wl_mut(id) else { return };
        let released = wl.held.is_some() && !wl.must_hold();
        if !reshaped && same_admission && !released && Before::of(wl) == before {
            // Its pods may have become ready.
            self.cycle_due |= self.config.wait_for_pods_ready.is_some();
            self.dirty.insert(id);
            return;
        }
        self.transition(id, Some(&before), reshaped, now);
        if other_old {
            self.recharge_heirs(id);
            old_before.into_iter().for_each(|o| self.recharge_heirs(o));
        }
    }

    /// Counts what the watch showed of a workload; `old` is its status before others changed it.
    fn count_seen(&mut self, id: WlId, old: Option<&WorkloadStatus>, tallies: &[Tally]) {
        self.book_tallies(id, tallies);
        let Some(old) = old else { return };
        let place = self.place_of(id, self.wl(id).and_then(|w| w.held));
        if let Some(Some(wl)) = self.wls.get(id as usize) {
            seen(&mut self.metrics, old, &wl.obj, &place);
        }
    }

    fn workload_gone(&mut self, key: &WorkloadKey, now: Time) {
        let Some(id) = self.wl_by_key.remove(key) else { return };
        let Some(wl) = self.wl(id) else { return };
        let (lq, held, shape, queued) = (wl.lq, wl.held, wl.shape, wl.queued);
        self.unqueue(id);
        if queued.is_some() {
            // Capacity may have been kept for it (`reserve_for_later`). Kueue wakes nobody; others would wait on.
            self.wake_queues(lq, queued, now);
        }
        self.shapes.give_back(shape);
        if self.release(id) {
            self.wake_around(lq, held, now);
        }
        self.drop_entry(id, lq);
        self.lq_mut(lq).members.remove(&id);
        self.unpromise(id);
        self.depend_forget(id, now);
        self.slice_forget(id);
        self.recharge_heirs(id);
        if let Some(name) = self.wl(id).map(|w| w.obj.run_window.clone()) {
            self.window_named(id, &name, "");
        }
        self.dirty.remove(&id);
        self.second.forget(id);
        self.wls[id as usize] = None;
        self.free_wls.push(id);
    }

    fn written(&mut self, key: &WorkloadKey, write: u64, version: u64, now: Time) {
        let Some(&id) = self.wl_by_key.get(key) else { return };
        let Some(wl) = self.wl_mut(id) else { return };
        wl.failures = 0;
        wl.hold_off = None;
        let Some(at) = wl.writes.iter().position(|p| p.update.id == write) else { return };
        let before = Before::of(wl);
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
            self.dirty.insert(id);
        }
        done.iter().for_each(|w| self.book_tallies(id, &w.tallies));
        self.transition(id, Some(&before), false, now);
        self.say_unsaid(id, now);
    }

    /// Forgets one write: the effective object is what the API showed plus the other writes.
    pub(super) fn drop_write(&mut self, id: WlId, write: u64, now: Time) {
        let Some(wl) = self.wl_mut(id) else { return };
        let before = Before::of(wl);
        wl.writes.retain(|p| p.update.id != write);
        let Some(mut status) = wl.base.as_deref().cloned() else { return };
        wl.writes.iter().for_each(|p| p.update.apply(&mut status));
        wl.obj.status = status;
        if wl.writes.is_empty() {
            wl.base = None;
        }
        self.transition(id, Some(&before), false, now);
    }
}
