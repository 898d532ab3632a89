//! StatefulSets, as far as the controller reads them.

use plimsoll_apimachinery::meta::{Meta, Selector, nullable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::apps::model::Condition;

/// `apps/v1` StatefulSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatefulSet {
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
#[allow(missing_docs)] // The fields of apps/v1 StatefulSetSpec.
pub struct Spec {
    pub replicas: Option<i32>,
    pub selector: Selector,
    pub template: Value,
    #[serde(deserialize_with = "nullable")]
    pub volume_claim_templates: Vec<Value>,
    #[serde(deserialize_with = "nullable")]
    pub service_name: String,
    #[serde(deserialize_with = "nullable")]
    pub pod_management_policy: String,
    #[serde(deserialize_with = "nullable")]
    pub update_strategy: Strategy,
    pub revision_history_limit: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    pub min_ready_seconds: i32,
    #[serde(deserialize_with = "nullable")]
    pub ordinals: Ordinals,
    #[serde(deserialize_with = "nullable")]
    pub persistent_volume_claim_retention_policy: Retention,
}

/// `spec.persistentVolumeClaimRetentionPolicy`: `Retain` or `Delete`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Retention {
    /// What becomes of claims when the set is deleted.
    pub when_deleted: String,
    /// What becomes of the claims of pods that are too many.
    pub when_scaled: String,
}

/// `spec.ordinals`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Ordinals {
    /// Of the first pod.
    pub start: i32,
}

/// `spec.updateStrategy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Strategy {
    /// `RollingUpdate` or `OnDelete`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Limits of a rolling update.
    #[serde(deserialize_with = "nullable")]
    pub rolling_update: Rolling,
}

/// `spec.updateStrategy.rollingUpdate`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Rolling {
    /// Pods below this ordinal (counted from the first one) keep the old template.
    pub partition: Option<i32>,
}

/// `status`: all of it, because the controller writes all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of apps/v1 StatefulSetStatus.
pub struct Status {
    #[serde(skip_serializing_if = "is_zero64", deserialize_with = "nullable")]
    pub observed_generation: i64,
    #[serde(deserialize_with = "nullable")]
    pub replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub ready_replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub current_replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub updated_replicas: i32,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub current_revision: String,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub update_revision: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    pub available_replicas: i32,
}

fn is_zero(n: &i32) -> bool {
    *n == 0
}

fn is_zero64(n: &i64) -> bool {
    *n == 0
}

impl StatefulSet {
    /// The ordinals that there should be.
    pub fn ordinals(&self) -> std::ops::Range<i32> {
        let start = self.spec.ordinals.start.max(0);
        start..start.saturating_add(self.spec.replicas.unwrap_or(1).max(0))
    }

    /// One pod after the other.
    pub fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy != "Parallel"
    }

    /// The first ordinal that gets a new template.
    pub fn first_updated(&self) -> i32 {
        let partition = self.spec.update_strategy.rolling_update.partition.unwrap_or(0).max(0);
        self.ordinals().start.saturating_add(partition)
    }

    /// The ordinal in a pod's name, if it is a name of ours.
    pub fn ordinal(&self, pod: &str) -> Option<i32> {
        let number = pod.strip_prefix(&self.metadata.name)?.strip_prefix('-')?;
        let canonical = number == "0" || !number.starts_with(['0', '+']);
        canonical.then(|| number.parse().ok()).flatten()
    }
}
