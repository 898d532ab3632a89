//! CronJobs and their Jobs, as far as the controller reads them.

use plimsoll_apimachinery::meta::{Meta, Time, nullable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// `batch/v1` CronJob.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CronJob {
    /// `metadata`.
    pub metadata: Meta,
    /// `spec`.
    pub spec: CronJobSpec,
    /// `status`.
    #[serde(deserialize_with = "nullable")]
    pub status: CronJobStatus,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of batch/v1 CronJobSpec.
pub struct CronJobSpec {
    pub schedule: String,
    pub time_zone: Option<String>,
    pub starting_deadline_seconds: Option<i64>,
    pub concurrency_policy: Option<String>,
    pub suspend: Option<bool>,
    pub job_template: Value,
    pub successful_jobs_history_limit: Option<i32>,
    pub failed_jobs_history_limit: Option<i32>,
}

/// `status`: all of it, because the controller writes all of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of batch/v1 CronJobStatus.
pub struct CronJobStatus {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "nullable")]
    pub active: Vec<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,
}

/// A running Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs)] // The fields of core/v1 ObjectReference.
pub struct Reference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub namespace: String,
    pub resource_version: String,
    pub uid: String,
}

/// A Job as its CronJob sees it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Child {
    /// `metadata`.
    pub metadata: Meta,
    /// `status`.
    #[serde(deserialize_with = "nullable")]
    pub status: ChildStatus,
}

/// `status` of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ChildStatus {
    /// Conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<ChildCondition>,
    /// When it started.
    pub start_time: Option<Time>,
    /// When it succeeded.
    pub completion_time: Option<Time>,
}

/// A condition of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ChildCondition {
    /// Type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status.
    pub status: String,
    /// Since when.
    pub last_transition_time: Option<Time>,
}

impl Child {
    /// `Complete` or `Failed`, if it has ended.
    pub fn finished(&self) -> Option<&ChildCondition> {
        let ends = |c: &&ChildCondition| (c.kind == "Complete" || c.kind == "Failed") && c.status == "True";
        self.status.conditions.iter().find(ends)
    }
}
