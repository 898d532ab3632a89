//! Pods and pod templates.

use super::meta::{Condition, Map, ObjectMeta, RawResources};
use super::selector::{LabelSelector, NodeSelector, NodeSelectorTerm};
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: ObjectMeta,
    pub spec: PodSpec,
    pub status: Option<PodStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub node_name: Option<String>,
    pub scheduler_name: Option<String>,
    pub priority: Option<i32>,
    pub priority_class_name: Option<String>,
    pub preemption_policy: Option<String>,
    pub node_selector: Map<Option<String>>,
    pub affinity: Option<Affinity>,
    pub tolerations: Option<Vec<Toleration>>,
    pub topology_spread_constraints: Option<Vec<Spread>>,
    pub containers: Option<Vec<Container>>,
    pub init_containers: Option<Vec<Container>>,
    pub overhead: RawResources,
    pub runtime_class_name: Option<String>,
    pub resources: Option<Requirements>,
    pub scheduling_gates: Option<Vec<Named>>,
    pub host_network: Option<bool>,
    pub host_users: Option<bool>,
    pub volumes: Option<Vec<Volume>>,
    pub resource_claims: Option<Vec<ResourceClaim>>,
    pub scheduling_group: Option<SchedulingGroup>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    pub pod_group_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Named {
    pub name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Requirements {
    pub requests: RawResources,
    pub limits: RawResources,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: Option<String>,
    pub image: Option<String>,
    pub resources: Option<Requirements>,
    pub ports: Option<Vec<Port>>,
    pub restart_policy: Option<String>,
    pub restart_policy_rules: Option<Vec<RestartRule>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RestartRule {
    pub action: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Port {
    #[serde(rename = "hostPort")]
    pub host_port: Option<i64>,
    #[serde(rename = "hostIP")]
    pub host_ip: Option<String>,
    pub protocol: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    pub node_affinity: Option<NodeAffinity>,
    pub pod_affinity: Option<PodAffinity>,
    pub pod_anti_affinity: Option<PodAffinity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<PreferredTerm>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PreferredTerm {
    pub weight: Option<i32>,
    pub preference: Option<NodeSelectorTerm>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<Vec<PodAffinityTerm>>,
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
    pub preferred: Option<Vec<WeightedTerm>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WeightedTerm {
    pub weight: Option<i32>,
    pub pod_affinity_term: Option<PodAffinityTerm>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodAffinityTerm {
    pub label_selector: Option<LabelSelector>,
    pub namespaces: Option<Vec<String>>,
    pub namespace_selector: Option<LabelSelector>,
    pub topology_key: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Toleration {
    pub key: Option<String>,
    pub operator: Option<String>,
    pub value: Option<String>,
    pub effect: Option<String>,
    pub toleration_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spread {
    pub max_skew: Option<i32>,
    pub topology_key: Option<String>,
    pub when_unsatisfiable: Option<String>,
    pub label_selector: Option<LabelSelector>,
    pub min_domains: Option<i32>,
    pub node_affinity_policy: Option<String>,
    pub node_taints_policy: Option<String>,
    pub match_label_keys: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    pub name: Option<String>,
    pub persistent_volume_claim: Option<ClaimVolume>,
    pub ephemeral: Option<EphemeralVolume>,
    pub csi: Option<CsiVolume>,
    pub gce_persistent_disk: Option<DiskVolume>,
    pub aws_elastic_block_store: Option<DiskVolume>,
    pub iscsi: Option<DiskVolume>,
    pub rbd: Option<DiskVolume>,
    pub image: Option<ImageVolume>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EphemeralVolume {
    pub volume_claim_template: Option<VolumeClaimTemplate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeClaimTemplate {
    pub spec: Option<super::storage::ClaimSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    pub claim_name: Option<String>,
    pub read_only: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CsiVolume {
    pub driver: Option<String>,
}

/// Union of the inline disk sources.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DiskVolume {
    pub pd_name: Option<String>,
    #[serde(rename = "volumeID")]
    pub volume_id: Option<String>,
    pub iqn: Option<String>,
    pub monitors: Option<Vec<String>>,
    pub pool: Option<String>,
    pub image: Option<String>,
    pub read_only: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ImageVolume {
    pub reference: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceClaim {
    pub name: Option<String>,
    pub resource_claim_name: Option<String>,
    pub resource_claim_template_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: Option<String>,
    pub nominated_node_name: Option<String>,
    pub start_time: Option<String>,
    pub conditions: Option<Vec<Condition>>,
    pub container_statuses: Option<Vec<ContainerStatus>>,
    pub init_container_statuses: Option<Vec<ContainerStatus>>,
    pub resource_claim_statuses: Option<Vec<ResourceClaim>>,
    pub allocated_resources: RawResources,
    pub resources: Option<Requirements>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: Option<String>,
    pub allocated_resources: RawResources,
    pub resources: Option<Requirements>,
}
