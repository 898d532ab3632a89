//! What both halves of the engine know of workloads.

/// Namespace and name of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What speaks against preempting the pods of a workload, as for kube-scheduler's preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Nothing.
    None,
    /// A PodDisruptionBudget would be violated: the workload is preempted only if nothing else helps.
    Budget,
    /// A pod has a higher priority than the preemptor's.
    Priority,
}
