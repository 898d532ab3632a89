//! Volumes, claims and classes.

use super::meta::{ObjectMeta, RawQuantity, RawResources};
use super::selector::{LabelSelector, NodeSelector};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Volume {
    pub metadata: ObjectMeta,
    pub spec: VolumeSpec,
    pub status: Option<Phase>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Phase {
    pub phase: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    pub capacity: RawResources,
    pub access_modes: Option<Vec<String>>,
    pub claim_ref: Option<ClaimRef>,
    pub storage_class_name: Option<String>,
    pub volume_attributes_class_name: Option<String>,
    pub volume_mode: Option<String>,
    pub node_affinity: Option<VolumeAffinity>,
    pub csi: Option<CsiSource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimRef {
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub uid: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeAffinity {
    pub required: Option<NodeSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    pub driver: Option<String>,
    pub volume_handle: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Claim {
    pub metadata: ObjectMeta,
    pub spec: ClaimSpec,
    pub status: Option<Phase>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ClaimResources {
    pub requests: RawResources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    pub access_modes: Option<Vec<String>>,
    pub resources: Option<ClaimResources>,
    pub storage_class_name: Option<String>,
    pub volume_attributes_class_name: Option<String>,
    pub volume_name: Option<String>,
    pub volume_mode: Option<String>,
    pub selector: Option<LabelSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    pub metadata: ObjectMeta,
    pub provisioner: Option<String>,
    pub volume_binding_mode: Option<String>,
    pub allowed_topologies: Option<Vec<TopologyTerm>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyTerm {
    pub match_label_expressions: Option<Vec<TopologyRequirement>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TopologyRequirement {
    pub key: Option<String>,
    pub values: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNode {
    pub metadata: ObjectMeta,
    pub spec: CsiNodeSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeSpec {
    pub drivers: Option<Vec<CsiNodeDriver>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiNodeDriver {
    pub name: Option<String>,
    pub allocatable: Option<Limit>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Limit {
    pub count: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiDriver {
    pub metadata: ObjectMeta,
    pub spec: CsiDriverSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    pub storage_capacity: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageCapacity {
    pub metadata: ObjectMeta,
    pub storage_class_name: Option<String>,
    pub node_topology: Option<LabelSelector>,
    pub capacity: Option<RawQuantity>,
    pub maximum_volume_size: Option<RawQuantity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Attachment {
    pub metadata: ObjectMeta,
    pub spec: AttachmentSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSpec {
    pub attacher: Option<String>,
    pub node_name: Option<String>,
    pub source: Option<AttachmentSource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSource {
    pub persistent_volume_name: Option<String>,
}
