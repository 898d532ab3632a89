//! ReplicaSets and Deployments, as far as the controllers read them.

use plimsoll_apimachinery::meta::{Meta, Selector, Time, nullable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `apps/v1` ReplicaSet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReplicaSet {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    pub spec: ReplicaSetSpec,
    /// `status`.
    #[serde(deserialize_with = "nullable")]
    pub status: ReplicaSetStatus,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of apps/v1 ReplicaSetSpec.
pub struct ReplicaSetSpec {
    pub replicas: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    pub min_ready_seconds: i32,
    pub selector: Selector,
    pub template: Value,
}

impl ReplicaSet {
    /// `spec.replicas`, never negative.
    pub fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1).max(0)
    }
}

/// `status`: all of it, because the controller writes all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of apps/v1 ReplicaSetStatus.
pub struct ReplicaSetStatus {
    #[serde(deserialize_with = "nullable")]
    pub replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub fully_labeled_replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub ready_replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub available_replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    #[serde(skip_serializing_if = "is_zero64", deserialize_with = "nullable")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// `apps/v1` Deployment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Deployment {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    pub spec: DeploymentSpec,
    /// `status`.
    #[serde(deserialize_with = "nullable")]
    pub status: DeploymentStatus,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of apps/v1 DeploymentSpec.
pub struct DeploymentSpec {
    pub replicas: Option<i32>,
    pub selector: Selector,
    pub template: Value,
    #[serde(deserialize_with = "nullable")]
    pub strategy: Strategy,
    #[serde(deserialize_with = "nullable")]
    pub min_ready_seconds: i32,
    pub revision_history_limit: Option<i32>,
    #[serde(deserialize_with = "nullable")]
    pub paused: bool,
    pub progress_deadline_seconds: Option<i32>,
}

/// `spec.strategy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Strategy {
    /// `Recreate` or `RollingUpdate`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Limits of a rolling update.
    #[serde(deserialize_with = "nullable")]
    pub rolling_update: RollingUpdate,
}

/// `spec.strategy.rollingUpdate`: numbers or percentages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    /// Pods above `replicas`.
    pub max_surge: Value,
    /// Pods below `replicas`.
    pub max_unavailable: Value,
}

/// `status`: all of it, because the controller writes all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of apps/v1 DeploymentStatus.
pub struct DeploymentStatus {
    #[serde(skip_serializing_if = "is_zero64", deserialize_with = "nullable")]
    pub observed_generation: i64,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub updated_replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub ready_replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub available_replicas: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub unavailable_replicas: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating_replicas: Option<i32>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collision_count: Option<i32>,
}

/// A condition of a ReplicaSet or a Deployment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// When something of it last changed (Deployments only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// When its status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Reason.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub reason: String,
    /// Message.
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub message: String,
}

fn is_zero(n: &i32) -> bool {
    *n == 0
}

fn is_zero64(n: &i64) -> bool {
    *n == 0
}

impl Deployment {
    /// `spec.replicas`, never negative.
    pub fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1).max(0)
    }

    /// `maxSurge` and `maxUnavailable` as numbers of pods. Surge is rounded up, unavailability down; if both come out as 0, one
    /// pod may be unavailable, because else nothing could move (`ResolveFenceposts`).
    pub fn limits(&self) -> (i32, i32) {
        if self.spec.strategy.kind == "Recreate" {
            return (0, 0);
        }
        let RollingUpdate { max_surge, max_unavailable } = &self.spec.strategy.rolling_update;
        let surge = share(max_surge, self.replicas(), true);
        let unavailable = share(max_unavailable, self.replicas(), false);
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable.min(self.replicas())) }
    }
}

/// A number, or a percentage of another.
pub(crate) fn share(value: &Value, of: i32, round_up: bool) -> i32 {
    match value {
        Value::Number(n) => n.as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or(0).max(0),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%').and_then(|t| t.parse().ok()).unwrap_or(0);
            let product = percent.clamp(0, 1_000_000) * i64::from(of);
            let result = if round_up { (product + 99) / 100 } else { product / 100 };
            i32::try_from(result).unwrap_or(i32::MAX)
        }
        _ => 0,
    }
}
