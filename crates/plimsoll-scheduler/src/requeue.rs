//! Cluster events → the pods that they may make schedulable (upstream `backend/queue/scheduling_queue.go`).

use super::Scheduler;
use super::cluster::PodId;
use super::events::{ClusterEvent, EXTRA_TAINT, needs_extra_taint};
use super::framework::PluginId;
use super::hints::hint;
use super::queue::{MoveCause, Stage};
use std::sync::Arc;

/// Where an event moves a pod, the strongest last (upstream `queueingStrategy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum QueueingStrategy {
    Skip,
    AfterBackoff,
    Immediately,
}

impl Scheduler {
    /// Requeues the pods that the event may make schedulable (upstream `MoveAllToActiveOrBackoffQueue`).
    pub(super) fn changed(&mut self, change: &ClusterEvent) {
        self.changed_for(change, |_, _| true);
    }

    /// The same for some pods only (upstream's `PreEnqueueCheck`).
    pub(super) fn changed_for(&mut self, change: &ClusterEvent, applies: impl Fn(&Self, PodId) -> bool) {
        self.wake_released();
        if !self.is_watched() {
            return;
        }
        self.record_in_flight(change);
        let mut affected: Vec<(u64, PodId)> = Vec::new();
        for &id in &*self.registered_for(change) {
            affected.extend(self.queue.stopped_by(id));
        }
        affected.sort_unstable();
        affected.dedup();
        for (_, id) in affected {
            if applies(self, id) && self.reconsider(id, change) {
                self.queue.came(id, MoveCause::Event(change.resource, change.actions));
            }
        }
    }

    /// Lets events find the pods again whose victims are gone.
    #[inline]
    pub(super) fn wake_released(&mut self) {
        if self.cluster.preempting.has_released() {
            self.wake_all_released();
        }
    }

    #[cold]
    fn wake_all_released(&mut self) {
        for id in self.cluster.preempting.take_released() {
            self.queue.wake(id);
        }
    }

    /// The plugins that have registered for such events. They never change what they register for.
    fn registered_for(&mut self, change: &ClusterEvent) -> Arc<[PluginId]> {
        let runners = &self.runners[..self.config.profiles.len().min(self.runners.len())];
        let registered = |id: &PluginId| {
            runners.iter().filter_map(|r| r.plugin(*id)).any(|p| {
                let list = p.events_to_register();
                list.iter().any(|i| i.matches(change.resource, change.actions))
                    || (needs_extra_taint(list) && EXTRA_TAINT.matches(change.resource, change.actions))
            })
        };
        let all = || runners.first().map(|r| r.names.ids()).into_iter().flatten();
        let known = self.registered.entry((change.resource, change.actions));
        Arc::clone(known.or_insert_with(|| all().filter(registered).collect()))
    }

    /// Asks the plugins that stopped a pod whether the change may help, and moves it accordingly. Whether it did.
    pub(super) fn reconsider(&mut self, id: PodId, change: &ClusterEvent) -> bool {
        let strategy = self.queueing_strategy(id, change);
        self.requeue(id, strategy);
        strategy != QueueingStrategy::Skip
    }

    /// Whether the change may help a pod that waits, by the plugins that stopped it (upstream `isPodWorthRequeuing`).
    pub(super) fn queueing_strategy(&self, id: PodId, change: &ClusterEvent) -> QueueingStrategy {
        let Some(row) = self.queue.get(id) else { return QueueingStrategy::Skip };
        let gating = match row.stage {
            Stage::Gated(plugin) => Some(plugin),
            Stage::Active | Stage::Backoff | Stage::ErrorBackoff | Stage::Unschedulable | Stage::InFlight => {
                None
            }
        };
        // Whatever they say, PreEnqueue keeps it out.
        if gating.is_some() && self.cluster.is_held_for_preemption(id) {
            return QueueingStrategy::Skip;
        }
        let Some(runner) = self.runners.get(row.profile as usize) else { return QueueingStrategy::Skip };
        let helps = |plugin: PluginId| {
            let made = runner.plugin(plugin);
            made.is_some_and(|p| hint(p, &self.cluster, id, change) == Some(true))
        };
        if row.pending_plugins.iter().any(helps) {
            QueueingStrategy::Immediately
        } else if row.unschedulable_plugins.iter().chain(gating).any(helps) {
            QueueingStrategy::AfterBackoff
        } else {
            QueueingStrategy::Skip
        }
    }

    /// Moves a pod as events have decided (upstream `requeuePodWithQueueingStrategy`).
    pub(super) fn requeue(&mut self, id: PodId, strategy: QueueingStrategy) {
        let stage = match strategy {
            QueueingStrategy::Skip => return,
            QueueingStrategy::AfterBackoff if self.queue.is_backing_off(id, self.now) => Stage::Backoff,
            QueueingStrategy::AfterBackoff | QueueingStrategy::Immediately => Stage::Active,
        };
        self.admit_to(id, stage);
    }

    /// Requeues a pod without an event.
    pub(super) fn retry(&mut self, id: PodId) {
        self.requeue(id, QueueingStrategy::AfterBackoff);
    }
}
