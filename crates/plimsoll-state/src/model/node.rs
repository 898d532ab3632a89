//! Nodes.

use super::{EncodedObject, Resources, StringMap, Taint};
use crate::time::Time;

/// A container image present on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageState {
    /// All names of the image.
    pub names: Vec<String>,
    /// Size in bytes.
    pub size_bytes: i64,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Name, unique.
    pub name: String,
    /// UID; a node of the same name with another UID is another node.
    pub uid: String,
    /// Labels.
    pub labels: StringMap,
    /// Annotations.
    pub annotations: StringMap,
    /// `spec.unschedulable` (cordoned).
    pub unschedulable: bool,
    /// Taints.
    pub taints: Vec<Taint>,
    /// `status.allocatable`.
    pub allocatable: Resources,
    /// `status.images`.
    pub images: Vec<ImageState>,
    /// Statuses of the conditions by type.
    pub conditions: StringMap,
    /// Whether the condition `Ready` is `True`.
    pub ready: bool,
    /// When the condition `Ready` last changed; `None`: there is no such condition.
    pub ready_since: Option<Time>,
    /// `status.declaredFeatures`.
    pub declared_features: Vec<String>,
    /// The whole object, for plugins that hand it on; `None`: it is not kept.
    pub encoded: Option<EncodedObject>,
}
