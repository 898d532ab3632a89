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
        kind: String,
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
    /// Another object was deleted: kind, namespace (empty for cluster scope), name.
    ObjectDelete(String, String, String),
}
