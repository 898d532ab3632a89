//! How many pods came to the parts of the queue, and why (`SchedulerQueueIncomingPods` in upstream's `metrics/metrics.go`).

use super::Stage;
use crate::events::{ActionType, EventResource};
use std::collections::BTreeMap;

/// Why a pod came to a part of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MoveCause {
    /// A cluster event.
    Event(EventResource, ActionType),
    /// Its attempt failed.
    ScheduleAttemptFailure,
    /// Its backoff is over.
    BackoffComplete,
    /// No pod was active.
    PopFromBackoffQ,
    /// A plugin, or a write that failed, asks for another attempt.
    ForceActivate,
    /// It has waited for an event for too long.
    UnschedulableTimeout,
}

impl MoveCause {
    /// Upstream's label (`ClusterEvent.Label`, and the special ones in `framework/events.go`).
    pub fn label(self) -> String {
        let text = match self {
            Self::Event(resource, actions) => return format!("{}{}", resource.name(), actions.name()),
            Self::ScheduleAttemptFailure => "ScheduleAttemptFailure",
            Self::BackoffComplete => "BackoffComplete",
            Self::PopFromBackoffQ => "PopFromBackoffQ",
            Self::ForceActivate => "ForceActivate",
            Self::UnschedulableTimeout => "UnschedulableTimeout",
        };
        text.to_owned()
    }
}

/// Counts by part of the queue and cause.
#[derive(Debug, Default)]
pub(super) struct Incoming(BTreeMap<(&'static str, MoveCause), u64>);

impl Incoming {
    fn entry(&mut self, stage: Stage, cause: MoveCause) -> Option<&mut u64> {
        let part = match stage {
            Stage::Active => "active",
            Stage::Backoff | Stage::ErrorBackoff => "backoff",
            Stage::Unschedulable | Stage::Gated(_) => "unschedulable",
            Stage::InFlight => return None,
        };
        Some(self.0.entry((part, cause)).or_insert(0))
    }

    /// A pod came.
    pub fn count(&mut self, stage: Stage, cause: MoveCause) {
        if let Some(n) = self.entry(stage, cause) {
            *n += 1;
        }
    }

    /// A pod that was counted is where it was before.
    pub fn undo(&mut self, stage: Stage, cause: MoveCause) {
        if let Some(n) = self.entry(stage, cause) {
            *n = n.saturating_sub(1);
        }
    }

    /// Part of the queue, upstream's label of the cause, and how many pods came.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, String, u64)> {
        self.0.iter().map(|((part, cause), n)| (*part, cause.label(), *n))
    }
}
