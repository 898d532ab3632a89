//! Which controllers this process runs.

/// What this process does; the rest is left to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Queues, quota and jobs, as Kueue.
    pub queueing: bool,
    /// Pods to nodes, as kube-scheduler.
    pub placement: bool,
}
