//! In-flight events: what happens while a pod is in its cycle or waits on Permit, and is replayed when its attempt fails
//! (upstream `backend/queue/active_queue.go`, `inFlightEvents`).

use super::Scheduler;
use super::cluster::PodId;
use super::events::ClusterEvent;
use super::queue::Stage;
use super::requeue::QueueingStrategy;

/// Most events kept for one attempt; when there are more, the pod is simply tried again.
const MAX_EVENTS: usize = 4096;

/// Events that came while a pod was in its cycle, to be replayed when it returns.
#[derive(Debug, Default)]
pub(crate) struct InFlightEvents {
    events: Vec<ClusterEvent>,
    overflow: bool,
}

impl InFlightEvents {
    /// Drops the events: the pod is simply tried again.
    pub(super) fn forget(&mut self) {
        self.overflow |= !self.events.is_empty();
        self.events.clear();
    }

    /// Something happened that helps in any case.
    pub(super) const fn anything(&mut self) {
        self.overflow = true;
    }

    /// How many events are kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn push(&mut self, event: &ClusterEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push(event.clone());
        } else {
            self.overflow = true;
        }
    }
}

impl Scheduler {
    /// Keeps an event for the pods that are in their cycle.
    pub(super) fn record_in_flight(&mut self, event: &ClusterEvent) {
        for in_flight in self.in_flight_events.values_mut() {
            in_flight.push(event);
        }
    }

    /// Replays the in-flight events of a pod that has just entered the unschedulable pods: the strongest of them moves it (upstream
    /// `determineSchedulingHintForInFlightPod`).
    pub(super) fn replay_in_flight(&mut self, id: PodId) {
        let Some(in_flight) = self.in_flight_events.remove(&id) else { return };
        let Some(row) = self.queue.get(id).filter(|q| q.stage == Stage::Unschedulable) else { return };
        // Only pending plugins skip the backoff.
        let strongest = if row.pending_plugins.is_empty() {
            QueueingStrategy::AfterBackoff
        } else {
            QueueingStrategy::Immediately
        };
        let mut strategy =
            if in_flight.overflow { QueueingStrategy::AfterBackoff } else { QueueingStrategy::Skip };
        for event in &in_flight.events {
            if strategy == strongest {
                break;
            }
            strategy = strategy.max(self.queueing_strategy(id, event));
        }
        self.requeue(id, strategy);
    }
}
