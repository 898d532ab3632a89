//! Jobs, as far as the controller reads them.

use plimsoll_apimachinery::meta::{Meta, Selector, Time, nullable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Finalizer of pods that the Job has yet to count.
pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Index of a pod: annotation and label.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Failures of the index before this pod.
pub const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// Failures of the index before this pod that the failure policy ignored.
pub const INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// `spec.managedBy` of Jobs that this controller reconciles.
pub const MANAGED_BY: &str = "kubernetes.io/job-controller";

/// `batch/v1` Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Job {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    pub spec: JobSpec,
    /// `status`.
    #[serde(deserialize_with = "nullable")]
    pub status: JobStatus,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of batch/v1 JobSpec.
pub struct JobSpec {
    pub parallelism: Option<i32>,
    pub completions: Option<i32>,
    pub active_deadline_seconds: Option<i64>,
    pub pod_failure_policy: Option<PodFailurePolicy>,
    pub success_policy: Option<SuccessPolicy>,
    pub backoff_limit: Option<i32>,
    pub backoff_limit_per_index: Option<i32>,
    pub max_failed_indexes: Option<i32>,
    pub selector: Option<Selector>,
    pub template: Value,
    pub ttl_seconds_after_finished: Option<i32>,
    pub completion_mode: Option<String>,
    pub suspend: Option<bool>,
    pub pod_replacement_policy: Option<String>,
    pub managed_by: Option<String>,
}

/// `spec.podFailurePolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodFailurePolicy {
    /// The first rule that matches decides.
    #[serde(deserialize_with = "nullable")]
    pub rules: Vec<FailureRule>,
}

/// One of `spec.podFailurePolicy.rules`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct FailureRule {
    /// `FailJob`, `FailIndex`, `Ignore`, `Count`.
    pub action: String,
    /// Condition on exit codes.
    pub on_exit_codes: Option<OnExitCodes>,
    /// Condition on the pod's conditions.
    #[serde(deserialize_with = "nullable")]
    pub on_pod_conditions: Vec<OnPodCondition>,
}

/// `onExitCodes`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OnExitCodes {
    /// Only this container.
    pub container_name: Option<String>,
    /// `In`, `NotIn`.
    pub operator: String,
    /// Exit codes.
    #[serde(deserialize_with = "nullable")]
    pub values: Vec<i32>,
}

/// One of `onPodConditions`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct OnPodCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status.
    pub status: String,
}

/// `spec.successPolicy`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SuccessPolicy {
    /// One of them is enough.
    #[serde(deserialize_with = "nullable")]
    pub rules: Vec<SuccessRule>,
}

/// One of `spec.successPolicy.rules`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SuccessRule {
    /// Indexes, as in `status.completedIndexes`.
    pub succeeded_indexes: Option<String>,
    /// How many of them.
    pub succeeded_count: Option<i32>,
}

/// `status`: all of it, because the controller writes all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of batch/v1 JobStatus.
pub struct JobStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub active: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub succeeded: i32,
    #[serde(skip_serializing_if = "is_zero", deserialize_with = "nullable")]
    pub failed: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminating: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub completed_indexes: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_indexes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncounted_terminated_pods: Option<Uncounted>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<i32>,
}

fn is_zero(n: &i32) -> bool {
    *n == 0
}

/// `status.uncountedTerminatedPods`: UIDs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Uncounted {
    /// Succeeded, not yet in `status.succeeded`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub succeeded: Vec<String>,
    /// Failed, not yet in `status.failed`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub failed: Vec<String>,
}

/// A condition of a Job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False`, `Unknown`.
    pub status: String,
    /// Last probe time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// When its status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// Reason.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub reason: String,
    /// Message.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "nullable")]
    pub message: String,
}

impl Job {
    /// `spec.completionMode` is `Indexed`.
    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    /// `spec.suspend`.
    pub fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    /// `spec.parallelism`, never negative.
    pub fn parallelism(&self) -> i32 {
        self.spec.parallelism.unwrap_or(1).max(0)
    }

    /// `spec.completions` of an indexed Job: the number of its indexes.
    pub fn indexes(&self) -> i32 {
        self.spec.completions.unwrap_or(0).max(0)
    }

    /// `spec.backoffLimit`.
    pub fn backoff_limit(&self) -> i32 {
        self.spec.backoff_limit.unwrap_or(6)
    }

    /// `spec.backoffLimitPerIndex`, which indexed Jobs may have.
    pub fn backoff_limit_per_index(&self) -> Option<i32> {
        self.spec.backoff_limit_per_index.filter(|_| self.is_indexed())
    }

    /// Whether pods are replaced only when they have failed, not when they are on their way out.
    pub fn replaces_failed_only(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
            || self.spec.pod_failure_policy.is_some()
    }

    /// Whether another controller reconciles it.
    pub fn is_foreign(&self) -> bool {
        self.spec.managed_by.as_deref().is_some_and(|m| m != MANAGED_BY)
    }

    /// Whether it is complete or failed.
    pub fn is_finished(&self) -> bool {
        self.status.conditions.iter().any(|c| (c.kind == "Complete" || c.kind == "Failed") && c.is_true())
    }

    /// The condition of a type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|c| c.kind == kind)
    }
}

impl Condition {
    /// Whether its status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }
}
