//! Kinds of objects that the API model serves.

use plimsoll_api::resource::{self, Resource};

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
    /// Configurations of requests to the cluster autoscaler.
    ProvisioningConfig,
    /// Requests to the cluster autoscaler.
    ProvisioningRequest,
    /// Pod templates of those.
    PodTemplate,
    /// Topologies.
    Topology,
    /// Priority classes of workloads.
    WorkloadPriorityClass,
    /// Run windows.
    RunWindow,
    /// Classes of devices.
    DeviceClass,
    /// Devices.
    ResourceSlice,
    /// Templates of claims for devices.
    ClaimTemplate,
    /// Claims for devices.
    ResourceClaim,
    /// Quota that a tree of cohorts lends to another one.
    QuotaLoan,
}

impl Kind {
    /// All kinds. Lists of a client that starts are read in this order.
    pub const ALL: [Self; 21] = [
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
        Self::ProvisioningConfig,
        Self::ProvisioningRequest,
        Self::PodTemplate,
        Self::Topology,
        Self::WorkloadPriorityClass,
        Self::RunWindow,
        Self::DeviceClass,
        Self::ResourceSlice,
        Self::ClaimTemplate,
        Self::ResourceClaim,
        Self::QuotaLoan,
    ];

    /// The resource that has it.
    pub const fn resource(self) -> Resource {
        match self {
            Self::Namespace => resource::NAMESPACES,
            Self::Node => resource::NODES,
            Self::Pod => resource::PODS,
            Self::Job => resource::JOBS,
            Self::Workload => resource::WORKLOADS,
            Self::ClusterQueue => resource::CLUSTER_QUEUES,
            Self::LocalQueue => resource::LOCAL_QUEUES,
            Self::Cohort => resource::COHORTS,
            Self::Flavor => resource::FLAVORS,
            Self::AdmissionCheck => resource::ADMISSION_CHECKS,
            Self::ProvisioningConfig => resource::PROVISIONING_CONFIGS,
            Self::ProvisioningRequest => resource::PROVISIONING_REQUESTS,
            Self::PodTemplate => resource::POD_TEMPLATES,
            Self::Topology => resource::TOPOLOGIES,
            Self::WorkloadPriorityClass => resource::WORKLOAD_PRIORITY_CLASSES,
            Self::RunWindow => resource::RUN_WINDOWS,
            Self::DeviceClass => resource::DEVICE_CLASSES,
            Self::ResourceSlice => resource::DEVICE_SLICES,
            Self::ClaimTemplate => resource::CLAIM_TEMPLATES,
            Self::ResourceClaim => resource::DEVICE_CLAIMS,
            Self::QuotaLoan => resource::QUOTA_LOANS,
        }
    }

    /// The name of the kind, as in objects.
    pub const fn name(self) -> &'static str {
        self.resource().kind
    }

    /// `apiVersion` of its objects.
    pub const fn api_version(self) -> &'static str {
        self.resource().api_version
    }

    /// The kind of a resource; `None`: the API model does not serve it.
    pub fn of(resource: Resource) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.resource() == resource)
    }
}
