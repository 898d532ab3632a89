//! Kubernetes events that queueing asks for.

use super::model::{REPLACED, WorkloadKey};

/// The controller of Kueue that records an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reporter {
    /// The scheduler.
    Scheduler,
    /// The workload controller.
    WorkloadController,
    /// The controller of nodes in topologies.
    NodeController,
}

/// A Kubernetes event to be recorded on the workload of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesEvent {
    /// Who records it.
    pub reporter: Reporter,
    /// Whether it is a `Warning`.
    pub warning: bool,
    /// Reason.
    pub reason: String,
    /// Text, cut at 1 KiB by the event recorder.
    pub message: String,
}

impl KubernetesEvent {
    /// An event of the scheduler.
    pub(crate) fn of_scheduler(warning: bool, reason: &str, message: String) -> Self {
        Self { reporter: Reporter::Scheduler, warning, reason: reason.to_owned(), message }
    }

    /// Action: the reason, but for slices that others replace (Kueue `replaceWorkloadSlice`).
    pub fn action(&self) -> &str {
        if self.reason == REPLACED { "Replaced" } else { &self.reason }
    }
}

/// What an event is recorded for that comes with no write of its workload's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordCause {
    /// The workload preempts another one.
    Preempted {
        /// The workload that it preempts.
        victim: WorkloadKey,
    },
    /// The second pass found no place in the topology.
    SecondPassFailed,
}

/// An event to be recorded on a workload without writing its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadEvent {
    /// The workload.
    pub key: WorkloadKey,
    /// What happened.
    pub cause: RecordCause,
    /// The event.
    pub event: KubernetesEvent,
}
