//! Objects other than nodes and pods, and what a watch reports of all of them.

use super::{
    CsiDriver, CsiNode, DeviceClass, LabelSelector, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    ResourceClaim, ResourceSlice, StorageCapacity, StorageClass, StringMap, VolumeAttachment,
};

/// Objects other than nodes and pods that the scheduler reads.
#[derive(Clone, Debug)]
pub enum ClusterObject {
    /// A namespace and its labels, for namespace selectors of pod affinity.
    Namespace {
        /// Name.
        name: String,
        /// Labels.
        labels: StringMap,
    },
    /// A Service, for default spreading.
    Service {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// `spec.selector`.
        selector: StringMap,
    },
    /// A ReplicationController, ReplicaSet or StatefulSet, for default spreading.
    Workload {
        /// Kind.
        kind: OwnerKind,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// UID.
        uid: String,
        /// `spec.selector`.
        selector: LabelSelector,
    },
    /// A PersistentVolume.
    Volume(PersistentVolume),
    /// A PersistentVolumeClaim.
    Claim(PersistentVolumeClaim),
    /// A StorageClass.
    StorageClass(StorageClass),
    /// A CSINode.
    CsiNode(CsiNode),
    /// A CSIDriver.
    CsiDriver(CsiDriver),
    /// A CSIStorageCapacity.
    StorageCapacity(StorageCapacity),
    /// A VolumeAttachment.
    VolumeAttachment(VolumeAttachment),
    /// A ResourceClaim.
    DeviceClaim(ResourceClaim),
    /// A ResourceClaimTemplate, as the claim that is made from it, but for name and owner.
    DeviceClaimTemplate(ResourceClaim),
    /// A ResourceSlice.
    DeviceSlice(ResourceSlice),
    /// A DeviceClass.
    DeviceClass(DeviceClass),
    /// A PodGroup of `scheduling.k8s.io`, for gangs.
    PodGroup {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// `spec.schedulingPolicy.gang.minCount`; `None`: another policy.
        min_count: Option<u32>,
        /// `spec.schedulingConstraints.topology[0].key`: label of the nodes of a topology domain that all pods share.
        topology_key: Option<String>,
    },
    /// A PodDisruptionBudget, for preemption.
    Budget {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// `spec.selector`; `None` or empty protects nothing.
        selector: Option<LabelSelector>,
        /// `status.disruptionsAllowed`.
        allowed: i64,
        /// Keys of `status.disruptedPods`.
        disrupted: Vec<String>,
    },
}

/// A controller that takes part in default spreading (upstream `plugins/helper/spread.go`, `DefaultSelector`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OwnerKind {
    /// v1 ReplicationController.
    ReplicationController,
    /// apps ReplicaSet.
    ReplicaSet,
    /// apps StatefulSet.
    StatefulSet,
}

impl OwnerKind {
    /// By API version and kind, as owner references name them.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        match (api_version, kind) {
            ("v1", "ReplicationController") => Some(Self::ReplicationController),
            ("apps/v1", "ReplicaSet") => Some(Self::ReplicaSet),
            ("apps/v1", "StatefulSet") => Some(Self::StatefulSet),
            _ => None,
        }
    }
}

/// The kinds of [`ClusterObject`], a variant for each of its variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterObjectKind {
    /// Namespace.
    Namespace,
    /// Service.
    Service,
    /// ReplicationController, ReplicaSet or StatefulSet.
    Workload(OwnerKind),
    /// PersistentVolume.
    Volume,
    /// PersistentVolumeClaim.
    Claim,
    /// StorageClass.
    StorageClass,
    /// CSINode.
    CsiNode,
    /// CSIDriver.
    CsiDriver,
    /// CSIStorageCapacity.
    StorageCapacity,
    /// VolumeAttachment.
    VolumeAttachment,
    /// ResourceClaim.
    DeviceClaim,
    /// ResourceClaimTemplate.
    DeviceClaimTemplate,
    /// ResourceSlice.
    DeviceSlice,
    /// DeviceClass.
    DeviceClass,
    /// PodGroup of `scheduling.k8s.io`.
    PodGroup,
    /// PodDisruptionBudget.
    Budget,
}

impl ClusterObjectKind {
    /// By the API's name of the kind. `None`: the scheduler does not read objects of this kind, or it is that of nodes or
    /// pods, which have events of their own.
    pub fn from_name(kind: &str) -> Option<Self> {
        Some(match kind {
            "Namespace" => Self::Namespace,
            "Service" => Self::Service,
            "ReplicationController" => Self::Workload(OwnerKind::ReplicationController),
            "ReplicaSet" => Self::Workload(OwnerKind::ReplicaSet),
            "StatefulSet" => Self::Workload(OwnerKind::StatefulSet),
            "PersistentVolume" => Self::Volume,
            "PersistentVolumeClaim" => Self::Claim,
            "StorageClass" => Self::StorageClass,
            "CSINode" => Self::CsiNode,
            "CSIDriver" => Self::CsiDriver,
            "CSIStorageCapacity" => Self::StorageCapacity,
            "VolumeAttachment" => Self::VolumeAttachment,
            "ResourceClaim" => Self::DeviceClaim,
            "ResourceClaimTemplate" => Self::DeviceClaimTemplate,
            "ResourceSlice" => Self::DeviceSlice,
            "DeviceClass" => Self::DeviceClass,
            "PodGroup" => Self::PodGroup,
            "PodDisruptionBudget" => Self::Budget,
            _ => return None,
        })
    }
}

/// Names an object other than a node or pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterObjectKey {
    /// Kind.
    pub kind: ClusterObjectKind,
    /// Namespace; empty for cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// A change of an object, as the watch reports it. Both halves of the engine handle it: the scheduler all of them,
/// queueing nodes and pods, for topology-aware scheduling.
#[derive(Clone, Debug)]
pub enum ObjectEvent {
    /// A node was added or changed.
    NodeUpsert(Box<Node>),
    /// The node of this name was deleted.
    NodeDelete(String),
    /// A pod was added or changed.
    PodUpsert(Box<Pod>),
    /// The pod of this UID was deleted.
    PodDelete(String),
    /// Another object was added or changed.
    ObjectUpsert(Box<ClusterObject>),
    /// Another object was deleted.
    ObjectDelete(ClusterObjectKey),
    /// A ResourceClaim as an answer to a write shows it. The watch may have shown its end before, so it only replaces an older
    /// version of the same claim.
    ClaimWritten(Box<ResourceClaim>),
}
