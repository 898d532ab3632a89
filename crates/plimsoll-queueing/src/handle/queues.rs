//! Events of queues, cohorts, flavors and namespaces.

use std::sync::Arc;

use crate::Queueing;
use crate::admission_fair_sharing::ConsumedResources;
use crate::bounded::Again;
use crate::config::LabelSource;
use crate::ids::{ClusterQueueId, FlavorId, LocalQueueId};
use crate::model::{ClusterQueue, Cohort, LocalQueue, ResourceFlavor, StopPolicy};
use crate::quota::Charged;
use crate::rules::{Group, Rules};
use crate::state::{ClusterQueueState, LocalQueueState};
use plimsoll_state::model::StringMap;
use plimsoll_state::time::Time;

impl Queueing {
    /// The number of a ClusterQueue's name, a new one if it was never seen.
    pub(crate) fn cq_slot(&mut self, name: &str) -> ClusterQueueId {
        if let Some(id) = self.cluster_queues.find(name) {
            return id;
        }
        let row = ClusterQueueState { name: name.to_owned(), ..ClusterQueueState::default() };
        self.cluster_queues.insert(name.to_owned(), row)
    }

    /// The number of a LocalQueue, a new one if it was never seen.
    pub(crate) fn lq_slot(&mut self, namespace: &str, name: &str) -> LocalQueueId {
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(id) = self.local_queues.find(&key) {
            return id;
        }
        let row =
            LocalQueueState { namespace: key.0.clone(), name: key.1.clone(), ..LocalQueueState::default() };
        self.local_queues.insert(key, row)
    }

    pub(crate) fn rebuild_soon(&mut self) {
        self.tree_dirty = true;
        self.due.everywhere();
        self.dirty.respecified.extend(self.cluster_queues.ids());
    }

    pub(super) fn cluster_queue(&mut self, mut q: ClusterQueue) {
        if !self.config.gates.configurable_preemptions {
            q.preemption_config.clear();
        }
        let id = self.cq_slot(&q.name);
        self.metrics.custom.store(LabelSource::ClusterQueue, &q.name, &q.metric_labels);
        let rules = Arc::new(self.compile(&q));
        let slot = self.cq_mut(id);
        // With a policy, or without it, other workloads are queued.
        let new = slot.spec.as_ref().is_none_or(|old| old.concurrent_admission != q.concurrent_admission);
        let quota_changed = slot.spec.as_ref().is_none_or(|old| {
            old.cohort != q.cohort
                || old.resource_groups != q.resource_groups
                || old.fair_weight_nano != q.fair_weight_nano
        });
        if slot.spec.as_deref() == Some(&q) {
            return;
        }
        let configured = slot.rules.preemption_config != rules.preemption_config;
        let relabelled = slot.spec.as_ref().is_some_and(|old| old.labels != q.labels);
        slot.rules = rules;
        slot.spec = Some(Box::new(q));
        // Its condition has the generation of the spec (`observedGeneration`).
        slot.reported = None;
        if quota_changed {
            slot.generation += 1;
            let cohort = slot.spec.as_ref().map(|s| s.cohort.clone()).unwrap_or_default();
            self.objects.cleared_cohorts.remove(&cohort);
            self.rebuild_soon();
        }
        self.queue_changed(id);
        let locals = self.cq(id).locals.clone();
        for lq in locals {
            // Its status shows whether the ClusterQueue exists, and the flavors of it.
            self.dirty.local_queues.insert(lq);
            if new {
                self.requeue_members(lq);
            }
            let members = self.lq(lq).members.clone();
            self.dirty.workloads.extend(members);
        }
        if configured {
            self.preemptors_changed(id);
        }
        if relabelled {
            self.candidates_changed();
        }
        self.windows_of_cluster_again(id);
    }

    pub(super) fn compile(&mut self, q: &ClusterQueue) -> Rules {
        let groups: Vec<Group> = q
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
        // Also what a flavor lists no quota for.
        for g in &groups {
            for &f in &g.flavors {
                g.covered.iter().for_each(|&r| {
                    self.ids.pair(f, r);
                });
            }
        }
        Rules {
            groups,
            fungibility: q.fungibility,
            preemption: q.preemption,
            preemption_config: self.config_of(q),
            strategy: q.strategy,
            fair_admission: q.admission_fair_sharing && self.config.admission_fair_sharing.is_some(),
        }
    }

    pub(super) fn cluster_queue_gone(&mut self, name: &str) {
        let id = self.cq_slot(name);
        if self.cq_mut(id).spec.take().is_none() {
            return;
        }
        self.cq_mut(id).reported = None;
        self.metrics.forget(&[("cluster_queue", name)]);
        self.metrics.forget(&[("preempting_cluster_queue", name)]);
        self.metrics.custom.forget(LabelSource::ClusterQueue, name);
        self.rebuild_soon();
        for lq in self.cq(id).locals.clone() {
            self.dirty.local_queues.insert(lq);
            self.requeue_members(lq);
        }
        self.windows_of_cluster_again(id);
    }

    pub(super) fn cohort(&mut self, c: Cohort) {
        if self.objects.cohorts.get(&c.name) != Some(&c) {
            self.metrics.custom.store(LabelSource::Cohort, &c.name, &c.metric_labels);
            for g in &c.resource_groups {
                for f in &g.flavors {
                    for r in &f.resources {
                        let (f, r) = (self.ids.flavor(&f.flavor), self.ids.resource(&r.resource));
                        self.ids.pair(f, r);
                    }
                }
            }
            self.objects.cleared_cohorts.remove(&c.name);
            self.objects.uncounted_cohorts.remove(&c.name);
            self.objects.cohorts.insert(c.name.clone(), c);
            self.rebuild_soon();
        }
    }

    pub(super) fn local_queue(&mut self, q: LocalQueue, now: Time) {
        let id = self.lq_slot(&q.namespace, &q.name);
        let name = format!("{}/{}", q.namespace, q.name);
        self.metrics.custom.store(LabelSource::LocalQueue, &name, &q.metric_labels);
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
        if slot.spec.as_deref() != Some(&q) {
            slot.reported = None;
        }
        slot.spec = Some(Box::new(q));
        self.track_consumed_resources(id, now);
        if before != after || old != Some(cq) {
            self.requeue_members(id);
        }
        if old != Some(cq) {
            old.into_iter().chain([cq]).for_each(|cq| self.preemptors_moved(cq, id));
        }
        let members = self.lq(id).members.clone();
        self.dirty.workloads.extend(members);
        self.touch(cq, id);
        self.windows_of_local_again(id);
    }

    /// Counts anew what workloads of a LocalQueue hold in its ClusterQueue.
    pub(super) fn recount_local(&mut self, id: LocalQueueId) {
        let lq = self.lq_mut(id);
        let (cq, members) = (lq.cq, lq.members.clone());
        (lq.reserving, lq.admitted) = (0, 0);
        lq.reserved_usage.clear();
        lq.admitted_usage.clear();
        for w in members {
            let Some(reservation) = self.quota_reservation(w).filter(|r| Some(r.place) == cq) else {
                continue;
            };
            let Charged { usage, admitted } = reservation.held.clone();
            self.lq_mut(id).charge_usage(&usage, admitted, true);
        }
    }

    /// Requeues all workloads of a LocalQueue as if they were new.
    pub(super) fn requeue_members(&mut self, lq: LocalQueueId) {
        let members = &self.local_queues.get(lq).members;
        members.iter().for_each(|&id| self.dirty.requeue(id, Again::Anew));
    }

    pub(super) fn flavor(&mut self, f: ResourceFlavor) {
        let id = self.ids.flavor(&f.name);
        if self.objects.flavors.get(&id).map(Arc::as_ref) != Some(&f) {
            self.joint.failed.clear();
            self.objects.flavors.insert(id, Arc::new(f));
            self.flavor_changed(id);
            self.windows_of_flavors_again(id);
            self.score_flavors_again();
        }
    }

    pub(super) fn flavor_changed(&mut self, flavor: FlavorId) {
        self.topologies_changed();
        for id in self.cluster_queues.ids() {
            if self.cq(id).rules.groups.iter().any(|g| g.flavors.contains(&flavor)) {
                self.queue_changed(id);
            }
        }
    }

    pub(super) fn all_queues_changed(&mut self) {
        for id in self.cluster_queues.ids() {
            if self.cq(id).spec.is_some() {
                self.queue_changed(id);
            }
        }
    }

    /// Checks again whether a ClusterQueue takes workloads, and requeues its inadmissible ones.
    pub(super) fn queue_changed(&mut self, id: ClusterQueueId) {
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
                    self.dirty.workloads.extend(members);
                    self.dirty.local_queues.insert(lq);
                }
            }
        }
        self.dirty.cluster_queues.insert(id);
        self.dirty.respecified.insert(id);
        self.due.tree_of(id);
    }

    pub(super) fn namespace(&mut self, name: &str, labels: StringMap) {
        if self.objects.namespaces.get(name) == Some(&labels) {
            return;
        }
        self.objects.namespaces.insert(name.to_owned(), labels);
        let here: Vec<LocalQueueId> =
            self.local_queues.ids().filter(|&l| self.lq(l).namespace == name).collect();
        for lq in here {
            self.dirty.inadmissible.extend(self.lq(lq).cq);
            let members = self.lq(lq).members.clone();
            self.dirty.workloads.extend(members);
        }
        self.due.everywhere();
    }

    pub(super) fn cohort_gone(&mut self, name: &str) {
        if self.objects.cohorts.remove(name).is_some() {
            self.metrics.forget(&[("cohort", name)]);
            self.metrics.custom.forget(LabelSource::Cohort, name);
            self.objects.cleared_cohorts.insert(name.to_owned());
            self.objects.uncounted_cohorts.insert(name.to_owned());
            self.rebuild_soon();
        }
    }

    pub(super) fn local_queue_gone(&mut self, namespace: &str, name: &str) {
        let id = self.lq_slot(namespace, name);
        self.metrics.forget(&[("namespace", namespace), ("name", name)]);
        self.metrics.custom.forget(LabelSource::LocalQueue, &format!("{namespace}/{name}"));
        let queue = self.lq_mut(id);
        queue.spec = None;
        queue.reported = None;
        queue.tracks_consumed = false;
        queue.consumed_resources = ConsumedResources::default();
        self.timers.samples.retain(|(_, l)| *l != id);
        self.requeue_members(id);
        self.windows_of_local_again(id);
    }

    pub(super) fn flavor_gone(&mut self, name: &str) {
        let id = self.ids.flavor(name);
        self.objects.flavors.remove(&id);
        self.flavor_changed(id);
        self.windows_of_flavors_again(id);
        self.score_flavors_again();
    }

    pub(super) fn namespace_gone(&mut self, name: &str) {
        self.objects.namespaces.remove(name);
    }
}
