//! What the job controllers reconcile.

/// One unit of work of the job controllers. A work queue handles each key in one place at a time; [`crate::controllers::reconcile`]
/// plans its writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A job.
    Job {
        /// Its integration, as in `integrations.frameworks`.
        framework: &'static str,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
    },
    /// A pod group: namespace, group.
    PodGroup(String, String),
    /// A workload with a topology assignment, for its gated pods: namespace, name.
    Topology(String, String),
    /// A workload that has ended, for its retention period: namespace, name.
    Retention(String, String),
    /// A pod that is being deleted and may be deleted forcefully: namespace, name.
    TerminatingPod(String, String),
    /// A workload without an owner: namespace, name.
    Orphan(String, String),
    /// A workload that is admitted by variants: namespace, name.
    Variants(String, String),
    /// A workload with admission checks, for its provisioning requests: namespace, name.
    Provisioning(String, String),
    /// A JobKind, for its finalizer and its conditions.
    JobKind(String),
    /// An AdmissionCheck, for its finalizer and its condition `Active`.
    AdmissionCheck(String),
    /// A ClusterQueue, for its finalizer.
    ClusterQueue(String),
    /// A ResourceFlavor, for its finalizer.
    ResourceFlavor(String),
    /// A Topology, for its finalizer.
    TopologyInUse(String),
    /// A WorkloadPriorityClass, for its value in workloads.
    WorkloadPriorityClass(String),
}

impl Key {
    /// A job of this framework.
    pub fn job(framework: &'static str, namespace: &str, name: &str) -> Self {
        Self::Job { framework, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Whether each write of its plan concerns another object, so that a failed write does not end the plan.
    pub(crate) const fn has_independent_writes(&self) -> bool {
        matches!(self, Self::WorkloadPriorityClass(_))
    }
}
