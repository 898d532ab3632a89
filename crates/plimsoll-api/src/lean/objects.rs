//! Kinds of which only a few fields decide something.

use super::meta::{Map, ObjectMeta};
use super::selector::LabelSelector;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Namespace {
    pub metadata: ObjectMeta,
}

/// Service and ReplicationController: a selector of exact pairs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Paired {
    pub metadata: ObjectMeta,
    pub spec: Option<PairedSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PairedSpec {
    pub selector: Map<Option<String>>,
}

/// PodGroup of `scheduling.k8s.io`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodGroup {
    pub metadata: ObjectMeta,
    pub spec: Option<PodGroupSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodGroupSpec {
    pub scheduling_policy: Option<SchedulingPolicy>,
    pub scheduling_constraints: Option<SchedulingConstraints>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SchedulingConstraints {
    pub topology: Option<Vec<TopologyConstraint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TopologyConstraint {
    pub key: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SchedulingPolicy {
    pub gang: Option<Gang>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Gang {
    pub min_count: Option<i64>,
}

/// ReplicaSet and StatefulSet.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Selecting {
    pub metadata: ObjectMeta,
    pub spec: Option<SelectingSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SelectingSpec {
    pub selector: Option<LabelSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Budget {
    pub metadata: ObjectMeta,
    pub spec: Option<SelectingSpec>,
    pub status: Option<BudgetStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    pub disruptions_allowed: Option<i64>,
    pub disrupted_pods: Map<serde::de::IgnoredAny>,
}
