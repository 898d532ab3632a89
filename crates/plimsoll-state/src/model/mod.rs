//! What the engine knows of Kubernetes objects: only the fields that decide something, parsed.
//!
//! These are ground state as it arrives. `plimsoll-api` makes them from wire objects; bad input is
//! refused there, so nothing here is "not validated yet". Quantities are canonical integers:
//! cpu in millicores, everything else in whole units (bytes, devices), rounded up.

pub mod device;
pub mod encoded;
pub mod node;
pub mod object;
pub mod owner;
pub mod pod;
pub mod requests;
pub mod selector;
pub mod storage;
pub mod taint;
pub mod workload;

pub use device::{
    AllocatedDevice, AttributeValue, CapacityRequestPolicy, CapacityRequestRange, Counters, Device,
    DeviceAllocation, DeviceAlternative, DeviceCapacity, DeviceClass, DeviceConstraint, DeviceCount,
    DeviceRequest, DeviceSelector, DeviceTaint, DeviceToleration, Reach, ResourceClaim, ResourceSlice,
};
pub use encoded::EncodedObject;
pub use node::{ImageState, Node};
pub use object::{ClusterObject, ClusterObjectKey, ClusterObjectKind, ObjectEvent, OwnerKind};
pub use owner::OwnerRef;
pub use pod::{
    Affinity, Container, ContainerPort, ContainerStatus, NodeAffinity, Phase, Pod, PodAffinity,
    PodAffinityTerm, PodClaimSource, PodCondition, PodResourceClaim, PodSpec, PodStatus, PreemptionPolicy,
    PreferredSchedulingTerm, Protocol, RestartPolicy, SpreadConstraint, UnsatisfiableAction, Volume,
    VolumeClaimTemplate, VolumeSource, WeightedPodAffinityTerm,
};
pub use selector::{LabelSelector, NodeSelector, NodeSelectorTerm, Operator, Requirement};
pub use storage::{
    AccessMode, BindingMode, ClaimRef, CsiDriver, CsiNode, CsiNodeDriver, PersistentVolume,
    PersistentVolumeClaim, StorageCapacity, StorageClass, VolumeAttachment,
};
pub use taint::{Taint, TaintEffect, Toleration, TolerationOperator};
pub use workload::{Protection, WorkloadKey};

use std::collections::BTreeMap;

/// Labels or annotations.
pub type StringMap = BTreeMap<String, String>;

/// Amounts by resource name; cpu in millicores, everything else in whole units.
pub type Resources = BTreeMap<String, i64>;

/// Whether a resource is outside Kubernetes' own names (`IsExtendedResourceName` in `pkg/apis/core/v1/helper`).
pub fn is_extended_resource(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}
