//! DaemonSets and nodes, as far as the controller reads them.

use std::collections::BTreeMap;

use plimsoll_apimachinery::meta::{Meta, Selector, nullable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::apps::model::{Condition, Strategy, share};

/// Annotation that counts templates, from before there were revisions.
pub const GENERATION: &str = "deprecated.daemonset.template.generation";

/// `apps/v1` DaemonSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DaemonSet {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    pub spec: Spec,
    /// `status`.
    #[serde(deserialize_with = "nullable")]
    pub status: Status,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of apps/v1 DaemonSetSpec.
pub struct Spec {
    pub selector: Selector,
    pub template: Value,
    #[serde(deserialize_with = "nullable")]
    pub update_strategy: Strategy,
    #[serde(deserialize_with = "nullable")]
    pub min_ready_seconds: i32,
    pub revision_history_limit: Option<i32>,
}

/// `status`: all of it, because the controller writes all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of apps/v1 DaemonSetStatus.
pub struct Status {
    #[serde(deserialize_with = "nullable")]
    pub current_number_scheduled: i32,
    #[serde(deserialize_with = "nullable")]
    pub number_misscheduled: i32,
    #[serde(deserialize_with = "nullable")]
    pub desired_number_scheduled: i32,
    #[serde(deserialize_with = "nullable")]
    pub number_ready: i32,
    #[serde(skip_serializing_if = "is_zero64", deserialize_with = "nullable")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub updated_number_scheduled: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub number_available: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub number_unavailable: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

fn is_zero(n: &i32) -> bool {
    *n == 0
}

fn is_zero64(n: &i64) -> bool {
    *n == 0
}

impl DaemonSet {
    /// `maxSurge` and `maxUnavailable` for so many nodes, both rounded up; at least one of them lets something move.
    pub fn limits(&self, nodes: i32) -> (i32, i32) {
        if !self.is_rolling() {
            return (0, 0);
        }
        let rolling = &self.spec.update_strategy.rolling_update;
        let surge = share(&rolling.max_surge, nodes, true);
        let unavailable = share(&rolling.max_unavailable, nodes, true);
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
    }

    /// Whether a new template replaces pods.
    pub fn is_rolling(&self) -> bool {
        self.spec.update_strategy.kind == "RollingUpdate"
    }

    /// Whether a node may have an old and a new pod for a time.
    pub fn allows_surge(&self) -> bool {
        self.is_rolling() && share(&self.spec.update_strategy.rolling_update.max_surge, 1, true) > 0
    }
}

/// A node: where a pod may run.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Node {
    /// `metadata`.
    pub metadata: NodeMeta,
    /// `spec`.
    #[serde(deserialize_with = "nullable")]
    pub spec: NodeSpec,
}

/// `metadata` of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeMeta {
    /// Name.
    pub name: String,
    /// Labels.
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
}

/// `spec` of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Taints.
    #[serde(deserialize_with = "nullable")]
    pub taints: Vec<Taint>,
}

/// A taint of a node.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs)] // The fields of core/v1 Taint.
pub struct Taint {
    pub key: String,
    #[serde(deserialize_with = "nullable")]
    pub value: String,
    pub effect: String,
}
