//! Events about pods, and what they are recorded for.

/// A Kubernetes event to be recorded about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// Whether it is a `Warning`; otherwise `Normal`.
    pub warning: bool,
    /// Reason, such as `FailedScheduling`.
    pub reason: &'static str,
    /// Action, such as `Scheduling`.
    pub action: &'static str,
    /// Text.
    pub message: String,
}

/// Why an attempt to schedule a pod failed, as the condition `PodScheduled=False` and upstream's metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureReason {
    /// Plugins reject the pod on all nodes (upstream `PodReasonUnschedulable`).
    Unschedulable,
    /// The attempt itself failed, or the binding did (upstream `PodReasonSchedulerError`).
    SchedulerError,
}

impl FailureReason {
    /// Reason of the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::SchedulerError => "SchedulerError",
        }
    }
}

impl std::fmt::Display for FailureReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an event about a pod is recorded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordCause {
    /// The pod is bound.
    Scheduled,
    /// The pod is a victim of preemption.
    Preempted,
    /// An attempt to schedule the pod failed.
    Failed(FailureReason),
    /// The pod is being deleted, and is not scheduled. This is no attempt (upstream `skipPodSchedule`).
    Deleting,
}

impl RecordCause {
    /// The event, with upstream's reason and action.
    pub(crate) const fn event(self, message: String) -> PodEvent {
        let (warning, reason, action) = match self {
            Self::Scheduled => (false, "Scheduled", "Binding"),
            Self::Preempted => (false, "Preempted", "Preempting"),
            Self::Failed(_) | Self::Deleting => (true, "FailedScheduling", "Scheduling"),
        };
        PodEvent { warning, reason, action, message }
    }
}
