//! Events of PreemptionConfigs, and what else changes which workloads their rules select.

use std::sync::Arc;

use crate::Queueing;
use crate::bounded::Again;
use crate::ids::{ClusterQueueId, LocalQueueId};
use crate::model::{ClusterQueue, PreemptionConfig, PreemptorKey, Workload};
use crate::state::WorkloadInfo;

impl Queueing {
    pub(super) fn preemption_config(&mut self, c: PreemptionConfig) {
        let known = self.objects.preemption_configs.get(&c.name).is_some_and(|old| **old == c);
        if !self.config.gates.configurable_preemptions || known {
            return;
        }
        let name = c.name.clone();
        self.objects.preemption_configs.insert(name.clone(), Arc::new(c));
        self.preemption_config_changed(&name);
    }

    pub(super) fn preemption_config_gone(&mut self, name: &str) {
        if self.objects.preemption_configs.remove(name).is_some() {
            self.preemption_config_changed(name);
        }
    }

    /// Compiles the rules of ClusterQueues that name a config again: their workloads may preempt others than before.
    fn preemption_config_changed(&mut self, name: &str) {
        for id in self.cluster_queues.ids() {
            let named = self.cq(id).spec.as_ref().filter(|s| s.preemption_config == name).cloned();
            let Some(spec) = named else { continue };
            self.cq_mut(id).rules = Arc::new(self.compile(&spec));
            self.preemptors_changed(id);
            self.dirty.respecified.insert(id);
            self.due.tree_of(id);
        }
    }

    /// The config that a ClusterQueue names. One that doesn't exist or has no rules adds no candidates (Kueue
    /// `NewEvaluatorForPreemptionConfig`, `HasRules`).
    pub(super) fn config_of(&self, q: &ClusterQueue) -> Option<Arc<PreemptionConfig>> {
        self.objects.preemption_configs.get(&q.preemption_config).filter(|c| !c.rules.is_empty()).cloned()
    }

    /// What rules read of workloads that are pending in a ClusterQueue has changed: they may have other scheduling hashes.
    pub(super) fn preemptors_changed(&mut self, id: ClusterQueueId) {
        for lq in &self.cluster_queues.get(id).locals {
            for &member in &self.local_queues.get(*lq).members {
                if self.workloads.get(member).is_some_and(|w| w.quota().is_none()) {
                    self.dirty.requeue(member, Again::Refreshed);
                }
            }
        }
    }

    /// A LocalQueue went from or to a ClusterQueue: with rules its workloads have other scheduling hashes.
    pub(super) fn preemptors_moved(&mut self, cq: ClusterQueueId, lq: LocalQueueId) {
        if self.cq(cq).rules.preemption_config.is_some() {
            let members = &self.local_queues.get(lq).members;
            members.iter().for_each(|&id| self.dirty.requeue(id, Again::Refreshed));
        }
    }

    /// Rules may select other candidates than before.
    pub(super) fn candidates_changed(&mut self) {
        if self.objects.preemption_configs.is_empty() {
            return;
        }
        let ruled = self.cluster_queues.iter().filter(|(_, cq)| cq.rules.preemption_config.is_some());
        self.dirty.respecified.extend(ruled.map(|(id, _)| id));
    }

    /// Whether rules may read something of a workload that has changed.
    pub(super) fn is_ruled_otherwise(&self, old: &Workload, new: &Workload) -> bool {
        !self.objects.preemption_configs.is_empty()
            && (old.labels != new.labels
                || old.priority_class != new.priority_class
                || (old.priority, old.priority_boost) != (new.priority, new.priority_boost))
    }

    /// What the rules of its ClusterQueue read of a workload, for its scheduling hash.
    pub(crate) fn preemptor_key(&self, wl: &WorkloadInfo) -> Option<Box<PreemptorKey>> {
        let config = self.cq(self.lq(wl.lq()).cq?).rules.preemption_config.as_ref()?;
        Some(Box::new(config.preemptor_key(&wl.obj)))
    }
}
