//! Cluster events: what changed, and which changes interest a plugin (KEP-4247).

use super::cluster::objects::ObjectChange;
use super::cluster::{ClaimStatuses, Cluster, NodeInfo, PodId, Shape, Usage};
use plimsoll_state::intern::Sym;
use std::sync::Arc;

/// Kinds of things that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventResource {
    /// Registration only: both kinds of pods.
    Pod,
    /// A pod on a node.
    AssignedPod,
    /// A pod that waits.
    UnschedulablePod,
    /// A node.
    Node,
    /// A PersistentVolume.
    PersistentVolume,
    /// A PersistentVolumeClaim.
    PersistentVolumeClaim,
    /// A CSINode.
    CsiNode,
    /// A CSIDriver.
    CsiDriver,
    /// A VolumeAttachment.
    VolumeAttachment,
    /// A CSIStorageCapacity.
    CsiStorageCapacity,
    /// A StorageClass.
    StorageClass,
    /// A ResourceClaim.
    ResourceClaim,
    /// A ResourceSlice.
    ResourceSlice,
    /// A DeviceClass.
    DeviceClass,
    /// A PodGroup.
    PodGroup,
    /// Everything.
    Any,
}

const RESOURCES: [(EventResource, &str); 16] = [
    (EventResource::Pod, "Pod"),
    (EventResource::AssignedPod, "AssignedPod"),
    (EventResource::UnschedulablePod, "UnschedulablePod"),
    (EventResource::Node, "Node"),
    (EventResource::PersistentVolume, "PersistentVolume"),
    (EventResource::PersistentVolumeClaim, "PersistentVolumeClaim"),
    (EventResource::CsiNode, "storage.k8s.io/CSINode"),
    (EventResource::CsiDriver, "storage.k8s.io/CSIDriver"),
    (EventResource::VolumeAttachment, "storage.k8s.io/VolumeAttachment"),
    (EventResource::CsiStorageCapacity, "storage.k8s.io/CSIStorageCapacity"),
    (EventResource::StorageClass, "storage.k8s.io/StorageClass"),
    (EventResource::ResourceClaim, "resource.k8s.io/ResourceClaim"),
    (EventResource::ResourceSlice, "resource.k8s.io/ResourceSlice"),
    (EventResource::DeviceClass, "resource.k8s.io/DeviceClass"),
    (EventResource::PodGroup, "scheduling.k8s.io/PodGroup"),
    (EventResource::Any, "*"),
];

impl EventResource {
    /// The resource of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        RESOURCES.iter().find(|(_, n)| *n == name).map(|(r, _)| *r)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        RESOURCES.iter().find(|(r, _)| *r == self).map_or("", |(_, name)| *name)
    }

    fn covers(self, incoming: Self) -> bool {
        self == incoming
            || self == Self::Any
            || (self == Self::Pod && matches!(incoming, Self::AssignedPod | Self::UnschedulablePod))
    }
}

/// What happened, as a set of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionType(pub(crate) u32);

impl ActionType {
    /// Added.
    pub const ADD: Self = Self(1);
    /// Deleted.
    pub const DELETE: Self = Self(1 << 1);
    /// A node's allocatable resources changed.
    pub const NODE_ALLOCATABLE: Self = Self(1 << 2);
    /// A node's labels changed.
    pub const NODE_LABEL: Self = Self(1 << 3);
    /// A node's taints changed, or it was uncordoned.
    pub const NODE_TAINT: Self = Self(1 << 4);
    /// A node's conditions changed.
    pub const NODE_CONDITION: Self = Self(1 << 5);
    /// A node's annotations changed.
    pub const NODE_ANNOTATION: Self = Self(1 << 6);
    /// A node's declared features changed.
    pub const NODE_DECLARED_FEATURE: Self = Self(1 << 7);
    /// A pod's labels changed.
    pub const POD_LABEL: Self = Self(1 << 8);
    /// A pod asks for less.
    pub const POD_SCALE_DOWN: Self = Self(1 << 9);
    /// A pod's tolerations changed.
    pub const POD_TOLERATION: Self = Self(1 << 10);
    /// A pod's last scheduling gate was removed.
    pub const POD_GATES_ELIMINATED: Self = Self(1 << 11);
    /// A pod's generated claims changed.
    pub const POD_GENERATED_CLAIM: Self = Self(1 << 12);
    /// Anything else about a pod changed.
    pub const POD_OTHER: Self = Self(1 << 13);
    /// Any update.
    pub const UPDATE: Self = Self(((1 << 14) - 1) & !3);

    /// Any change.
    pub const ALL: Self = Self((1 << 14) - 1);

    /// Both.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Upstream's name (`ActionType.String`); of several bits, that of the general update.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ADD => "Add",
            Self::DELETE => "Delete",
            Self::NODE_ALLOCATABLE => "UpdateNodeAllocatable",
            Self::NODE_LABEL => "UpdateNodeLabel",
            Self::NODE_TAINT => "UpdateNodeTaint",
            Self::NODE_CONDITION => "UpdateNodeCondition",
            Self::NODE_ANNOTATION => "UpdateNodeAnnotation",
            Self::NODE_DECLARED_FEATURE => "UpdateNodeDeclaredFeature",
            Self::POD_LABEL => "UpdatePodLabel",
            Self::POD_SCALE_DOWN => "UpdatePodScaleDown",
            Self::POD_TOLERATION => "UpdatePodToleration",
            Self::POD_GATES_ELIMINATED => "UpdatePodSchedulingGatesEliminated",
            Self::POD_GENERATED_CLAIM => "UpdatePodGeneratedResourceClaim",
            _ => "Update",
        }
    }

    /// By upstream's name.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "Add" => Self::ADD,
            "Delete" => Self::DELETE,
            "Update" => Self::UPDATE,
            "UpdateNodeAllocatable" => Self::NODE_ALLOCATABLE,
            "UpdateNodeLabel" => Self::NODE_LABEL,
            "UpdateNodeTaint" => Self::NODE_TAINT,
            "UpdateNodeCondition" => Self::NODE_CONDITION,
            "UpdateNodeAnnotation" => Self::NODE_ANNOTATION,
            "UpdateNodeDeclaredFeature" => Self::NODE_DECLARED_FEATURE,
            "UpdatePodLabel" => Self::POD_LABEL,
            "UpdatePodScaleDown" => Self::POD_SCALE_DOWN,
            "UpdatePodToleration" => Self::POD_TOLERATION,
            "UpdatePodSchedulingGatesEliminated" => Self::POD_GATES_ELIMINATED,
            "UpdatePodGeneratedResourceClaim" => Self::POD_GENERATED_CLAIM,
            _ => return None,
        })
    }
}

/// A registration of a plugin for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterEventWithHint {
    /// Kind of object.
    pub resource: EventResource,
    /// Which changes.
    pub actions: ActionType,
    /// Whether the plugin's hint is asked; otherwise the pod is always queued.
    pub hinted: bool,
}

impl ClusterEventWithHint {
    /// Changes about which the plugin gives hints.
    pub const fn hinted(resource: EventResource, actions: ActionType) -> Self {
        Self { resource, actions, hinted: true }
    }

    /// Changes that always queue the pod.
    pub const fn always(resource: EventResource, actions: ActionType) -> Self {
        Self { resource, actions, hinted: false }
    }

    /// Whether an event falls under this registration (framework `ClusterEvent.Match`).
    pub fn matches(&self, resource: EventResource, actions: ActionType) -> bool {
        self.resource.covers(resource) && self.actions.0 & actions.0 != 0 && actions.0 <= self.actions.0
    }
}

/// The registration added for plugins that register node additions but not taint changes: a node whose
/// taint another plugin rejects is not seen as an addition by them (upstream issue 109437).
pub const EXTRA_TAINT: ClusterEventWithHint =
    ClusterEventWithHint::always(EventResource::Node, ActionType::NODE_TAINT);

/// Whether [`EXTRA_TAINT`] applies to a plugin with these registrations.
pub fn needs_extra_taint(interests: &[ClusterEventWithHint]) -> bool {
    let registers =
        |a: ActionType| interests.iter().any(|i| i.resource == EventResource::Node && i.actions.0 & a.0 != 0);
    registers(ActionType::ADD) && !registers(ActionType::NODE_TAINT)
}

/// A pod at one moment.
#[derive(Clone, Debug)]
pub struct PodSnapshot {
    /// Its shape.
    pub shape: Arc<Shape>,
    /// What it occupies, if on a node.
    pub usage: Usage,
    /// Node it is on.
    pub node: Option<Sym>,
    /// Whether it is nominated to a node.
    pub nominated: bool,
    /// Names of generated device claims.
    pub claim_statuses: ClaimStatuses,
    /// PodGroup it belongs to, empty for none.
    pub group: Box<str>,
}

impl PodSnapshot {
    /// A pod as it is now.
    pub fn new(cluster: &Cluster, id: PodId) -> Self {
        let pod = &cluster.pods[id];
        Self {
            shape: Arc::clone(cluster.shape(id)),
            usage: cluster.usage(pod).clone(),
            node: pod.node.map(|n| cluster.nodes[n].name),
            nominated: pod.nominated.is_some(),
            claim_statuses: pod.extra.as_ref().map_or_else(Box::default, |e| e.claim_statuses.clone()),
            group: pod.extra.as_ref().map_or_else(Box::default, |e| e.group.clone()),
        }
    }
}

/// What changed.
#[derive(Clone, Debug)]
pub enum Payload {
    /// A node.
    Node {
        /// Its name.
        name: Sym,
        /// Before; `None`: added.
        old: Option<Arc<NodeInfo>>,
        /// After; `None`: deleted.
        new: Option<Arc<NodeInfo>>,
    },
    /// A pod. Its row may be gone.
    Pod {
        /// Its row.
        id: PodId,
        /// Before; `None`: added.
        old: Option<Box<PodSnapshot>>,
        /// After; `None`: deleted.
        new: Option<Box<PodSnapshot>>,
    },
    /// Another object.
    Object(ObjectChange),
}

/// A cluster event.
#[derive(Clone, Debug)]
pub struct ClusterEvent {
    /// Kind of object.
    pub(crate) resource: EventResource,
    /// What happened to it.
    pub(crate) actions: ActionType,
    /// The object before and after.
    pub(crate) payload: Payload,
}

impl ClusterEvent {
    /// Kind of object.
    pub fn resource(&self) -> EventResource {
        self.resource
    }

    /// What happened to it.
    pub fn action(&self) -> ActionType {
        self.actions
    }

    /// The pod that changed, where it is one; it may be gone.
    pub fn pod(&self) -> Option<PodId> {
        match &self.payload {
            Payload::Pod { id, .. } => Some(*id),
            Payload::Node { .. } | Payload::Object(_) => None,
        }
    }

    /// Name of the node that changed, where it is one; it may be gone.
    pub fn node_name<'a>(&self, cluster: &'a Cluster) -> Option<&'a str> {
        match &self.payload {
            Payload::Node { name, .. } => Some(cluster.strings.text(*name)),
            Payload::Pod { .. } | Payload::Object(_) => None,
        }
    }

    /// Name of the node on which the pod that changed is, or was before it was deleted; `None`: the event is of no pod, or
    /// of one without a node.
    pub fn node_name_of_pod<'a>(&self, cluster: &'a Cluster) -> Option<&'a str> {
        match &self.payload {
            Payload::Pod { old, new, .. } => {
                let node = |pod: &Option<Box<PodSnapshot>>| pod.as_ref().and_then(|pod| pod.node);
                node(new).or_else(|| node(old)).map(|name| cluster.strings.text(name))
            }
            Payload::Node { .. } | Payload::Object(_) => None,
        }
    }
}

/// The events of a node update, in upstream's order. `annotated`: an annotation that a plugin reads has changed.
pub(crate) fn node_actions(old: &NodeInfo, new: &NodeInfo, annotated: bool) -> Vec<ActionType> {
    let mut out = Vec::new();
    if old.alloc != new.alloc || old.scalars != new.scalars {
        out.push(ActionType::NODE_ALLOCATABLE);
    }
    if old.labels != new.labels {
        out.push(ActionType::NODE_LABEL);
    }
    if old.taints != new.taints || (old.unschedulable && !new.unschedulable) {
        out.push(ActionType::NODE_TAINT);
    }
    if old.conditions != new.conditions {
        out.push(ActionType::NODE_CONDITION);
    }
    if annotated {
        out.push(ActionType::NODE_ANNOTATION);
    }
    if old.features != new.features {
        out.push(ActionType::NODE_DECLARED_FEATURE);
    }
    out
}

/// The events of a pod update, in upstream's order.
pub(crate) fn pod_actions(old: &PodSnapshot, new: &PodSnapshot, gates_gone: bool) -> Vec<ActionType> {
    let mut out = Vec::new();
    if old.shape.labels != new.shape.labels {
        out.push(ActionType::POD_LABEL);
    }
    if scaled_down(old, new) {
        out.push(ActionType::POD_SCALE_DOWN);
    }
    if gates_gone {
        out.push(ActionType::POD_GATES_ELIMINATED);
    }
    if old.shape.spec.tolerations != new.shape.spec.tolerations {
        out.push(ActionType::POD_TOLERATION);
    }
    if old.claim_statuses != new.claim_statuses {
        out.push(ActionType::POD_GENERATED_CLAIM);
    }
    if out.is_empty() {
        out.push(ActionType::POD_OTHER);
    }
    out
}

/// Whether any request shrank.
fn scaled_down(old: &PodSnapshot, new: &PodSnapshot) -> bool {
    let (o, n) = (&old.usage.requests, &new.usage.requests);
    o.cpu > n.cpu
        || o.memory > n.memory
        || o.ephemeral > n.ephemeral
        || o.scalars.iter().any(|(name, amount)| *amount > n.scalar(*name))
}
