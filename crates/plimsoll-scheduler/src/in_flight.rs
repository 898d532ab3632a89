//! In-flight events: what happens while a pod is in its cycle or waits on Permit, and is replayed when its attempt fails
//! (upstream `backend/queue/active_queue.go`, `inFlightEvents`).

use super::Scheduler;
use super::cluster::PodId;
use super::events::ClusterEvent;
use super::queue::{MoveCause, Stage};
use super::requeue::QueueingStrategy;
use std::collections::BTreeMap;

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
    /// How many events are kept for pods that are in their cycle or wait on Permit, and how many such pods there are
    /// (`scheduler_inflight_events`), by upstream's label. An event counts for each of the pods.
    pub fn events_in_flight(&self) -> BTreeMap<String, u64> {
        let events = self.in_flight_events.values().flat_map(|in_flight| &in_flight.events);
        let labels = events.map(|event| MoveCause::Event(event.resource, event.actions).label());
        let popped = self.in_flight_events.keys().map(|_| "PodPopped".to_owned());
        let mut out = BTreeMap::new();
        labels.chain(popped).for_each(|label| *out.entry(label).or_insert(0) += 1);
        out
    }

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
