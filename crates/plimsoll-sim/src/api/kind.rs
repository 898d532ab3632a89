//! Kinds of objects that the API model serves.

/// A kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Namespaces.
    Namespace,
    /// Nodes.
    Node,
    /// Pods.
    Pod,
    /// Jobs.
    Job,
    /// Workloads.
    Workload,
    /// Cluster queues.
    ClusterQueue,
    /// Local queues.
    LocalQueue,
    /// Cohorts.
    Cohort,
    /// Resource flavors.
    Flavor,
    /// Admission checks.
    AdmissionCheck,
    /// Topologies.
    Topology,
    /// Priority classes of workloads.
    WorkloadPriorityClass,
}

impl Kind {
    /// All kinds. Lists of a client that starts are read in this order.
    pub const ALL: [Self; 12] = [
        Self::Namespace,
        Self::Node,
        Self::Pod,
        Self::Job,
        Self::Workload,
        Self::ClusterQueue,
        Self::LocalQueue,
        Self::Cohort,
        Self::Flavor,
        Self::AdmissionCheck,
        Self::Topology,
        Self::WorkloadPriorityClass,
    ];

    /// The name of the kind, as in objects.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Job => "Job",
            Self::Workload => "Workload",
            Self::ClusterQueue => "ClusterQueue",
            Self::LocalQueue => "LocalQueue",
            Self::Cohort => "Cohort",
            Self::Flavor => "ResourceFlavor",
            Self::AdmissionCheck => "AdmissionCheck",
            Self::Topology => "Topology",
            Self::WorkloadPriorityClass => "WorkloadPriorityClass",
        }
    }

    /// `apiVersion` of its objects.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::Namespace | Self::Node | Self::Pod => "v1",
            Self::Job => "batch/v1",
            Self::Workload
            | Self::ClusterQueue
            | Self::LocalQueue
            | Self::Cohort
            | Self::Flavor
            | Self::AdmissionCheck
            | Self::Topology
            | Self::WorkloadPriorityClass => "kueue.x-k8s.io/v1beta2",
        }
    }

    /// The kind of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.name() == name)
    }
}
