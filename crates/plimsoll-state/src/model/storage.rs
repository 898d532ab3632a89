//! Volumes, claims and what provisions them. Amounts of storage are bytes.

use super::{LabelSelector, NodeSelector, OwnerRef, StringMap};

/// How a volume may be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessMode {
    /// By one node.
    ReadWriteOnce,
    /// By many nodes, read-only.
    ReadOnlyMany,
    /// By many nodes.
    ReadWriteMany,
    /// By one pod.
    ReadWriteOncePod,
}

/// Names a claim; the UID may be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolume {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: StringMap,
    /// Whether deletion has been asked for.
    pub deleting: bool,
    /// Size.
    pub capacity: i64,
    /// How it may be mounted.
    pub access_modes: Vec<AccessMode>,
    /// Claim it is bound to or kept for.
    pub claim: Option<ClaimRef>,
    /// Storage class, possibly empty.
    pub storage_class: String,
    /// Attributes class, possibly empty.
    pub attributes_class: String,
    /// A block device instead of a file system.
    pub block: bool,
    /// Nodes that can reach it.
    pub node_affinity: Option<NodeSelector>,
    /// CSI driver and volume handle.
    pub csi: Option<(String, String)>,
    /// Phase is `Available`.
    pub available: bool,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Owners.
    pub owners: Vec<OwnerRef>,
    /// Whether deletion has been asked for.
    pub deleting: bool,
    /// How it wants to be mounted.
    pub access_modes: Vec<AccessMode>,
    /// Requested size; `None`: not given.
    pub request: Option<i64>,
    /// Storage class, possibly empty.
    pub storage_class: String,
    /// Attributes class, possibly empty.
    pub attributes_class: String,
    /// Volume it is or wants to be bound to, possibly empty.
    pub volume_name: String,
    /// A block device instead of a file system.
    pub block: bool,
    /// Which volumes will do.
    pub selector: Option<LabelSelector>,
    /// Annotation `pv.kubernetes.io/bind-completed` is there.
    pub bind_completed: bool,
    /// Annotation `volume.kubernetes.io/selected-node`.
    pub selected_node: Option<String>,
    /// Phase is `Lost`.
    pub lost: bool,
}

/// When a class binds its claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindingMode {
    /// At once.
    Immediate,
    /// When a pod that uses the claim is placed.
    WaitForFirstConsumer,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClass {
    /// Name.
    pub name: String,
    /// Provisioner.
    pub provisioner: String,
    /// When claims are bound.
    pub binding_mode: Option<BindingMode>,
    /// Alternatives of (label key, values), all pairs of one alternative must hold; none at all allows any.
    pub allowed_topologies: Vec<Vec<(String, Vec<String>)>>,
    /// Whether claims without a class get this one.
    pub default: bool,
}

/// A driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNodeDriver {
    /// Driver name.
    pub name: String,
    /// Most volumes; `None`: no limit.
    pub limit: Option<i64>,
}

/// A CSINode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNode {
    /// Node name.
    pub name: String,
    /// Drivers on the node.
    pub drivers: Vec<CsiNodeDriver>,
    /// Annotation `storage.alpha.kubernetes.io/migrated-plugins`.
    pub migrated_plugins: String,
}

/// A CSIDriver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiDriver {
    /// Name.
    pub name: String,
    /// Whether it publishes capacities that must be looked at.
    pub storage_capacity: bool,
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageCapacity {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Storage class.
    pub storage_class: String,
    /// Nodes it is about; `None`: none.
    pub topology: Option<LabelSelector>,
    /// Free space.
    pub capacity: Option<i64>,
    /// Largest possible volume.
    pub maximum_volume_size: Option<i64>,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeAttachment {
    /// Name.
    pub name: String,
    /// Driver.
    pub attacher: String,
    /// Node.
    pub node: String,
    /// PersistentVolume, if it is one.
    pub volume: Option<String>,
}
