//! What must be written before a pod can be bound.

use plimsoll_state::model;

/// What the allocation of a claim says beside its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationTerms {
    /// Nodes on which it can be used; `None`: all.
    pub nodes: Option<model::NodeSelector>,
    /// Configurations of DeviceClasses, as JSON, each with the requests (or `request/subrequest`) that got devices of the class.
    pub config: Vec<(Vec<String>, String)>,
}

/// Devices for one claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceGrant {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID of the claim.
    pub uid: String,
    /// Devices to write into `status.allocation`; none when the claim is allocated and only to be reserved.
    pub devices: Vec<model::AllocatedDevice>,
    /// What is written beside them.
    pub terms: AllocationTerms,
    /// Devices that it has been allocated, when it is only to be reserved or released: with others it is another allocation.
    pub allocated: Vec<model::AllocatedDevice>,
}

/// A claim to create for the extended resources of a pod that devices stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtendedClaim {
    /// Requests: name, DeviceClass, number of devices.
    pub requests: Vec<(String, String, i64)>,
    /// `status.extendedResourceClaimStatus.requestMappings` of the pod: container, resource, request.
    pub mappings: Vec<(String, String, String)>,
    /// Devices to write into its `status.allocation`.
    pub devices: Vec<model::AllocatedDevice>,
    /// What is written beside them.
    pub terms: AllocationTerms,
    /// Names of claims that an earlier attempt made for the pod, to be deleted.
    pub stale: Vec<String>,
}

/// What must be written before a pod can be bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreBindWork {
    /// Claims to allocate and to reserve for the pod (`status.reservedFor`).
    pub devices: Vec<DeviceGrant>,
    /// A claim to create and to allocate.
    pub extended: Option<Box<ExtendedClaim>>,
    /// Claims (namespace, name) and the volumes whose `spec.claimRef` is to name them.
    pub bindings: Vec<((String, String), String)>,
    /// Claims (namespace, name) to annotate with the chosen node, so that a volume is made for them.
    pub provisions: Vec<(String, String)>,
}

impl PreBindWork {
    /// How many writes there are.
    pub(crate) fn writes(&self) -> usize {
        self.devices.len()
            + usize::from(self.extended.is_some())
            + self.bindings.len()
            + self.provisions.len()
    }

    /// The volume claims (namespace, name) that are to be bound.
    pub fn volume_claims(&self) -> impl Iterator<Item = &(String, String)> {
        self.bindings.iter().map(|(claim, _)| claim).chain(&self.provisions)
    }
}

impl DeviceGrant {
    /// Whether it only reserves a claim that has its devices already.
    pub fn is_reservation(&self) -> bool {
        self.devices.is_empty()
    }
}
