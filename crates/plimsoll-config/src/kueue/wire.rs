//! The file as it is written (`apis/config/v1beta1` and `v1beta2`). Every field is listed, so that unknown ones are
//! errors; those of sections without effect are read for strictness only.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::sections;
use crate::selector::LabelSelector;

type Quantities = BTreeMap<String, Value>;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Configuration {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: Option<String>,
    pub(super) webhook: Option<sections::Webhook>,
    pub(super) leader_election: Option<sections::LeaderElection>,
    pub(super) metrics: Option<sections::Metrics>,
    pub(super) health: Option<sections::Health>,
    pub(super) pprof_bind_address: Option<String>,
    pub(super) controller: Option<sections::Controller>,
    pub(super) tls: Option<sections::Tls>,
    pub(super) manage_jobs_without_queue_name: bool,
    pub(super) managed_jobs_namespace_selector: Option<LabelSelector>,
    pub(super) internal_cert_management: Option<sections::Certificates>,
    pub(super) wait_for_pods_ready: Option<WaitForPodsReady>,
    pub(super) client_connection: Option<ClientConnection>,
    pub(super) integrations: Option<Integrations>,
    /// v1beta1 only; ignored there.
    pub(super) queue_visibility: Option<sections::QueueVisibility>,
    pub(super) multi_kueue: Option<MultiKueue>,
    pub(super) fair_sharing: Option<FairSharing>,
    pub(super) admission_fair_sharing: Option<AdmissionFairSharing>,
    pub(super) resources: Option<Resources>,
    pub(super) feature_gates: BTreeMap<String, bool>,
    pub(super) object_retention_policies: Option<Retention>,
    pub(super) visibility_server: Option<sections::VisibilityServer>,
    /// Not Kueue's.
    pub(super) plimsoll: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct MultiKueue {
    pub(super) gc_interval: Option<String>,
    pub(super) origin: Option<String>,
    pub(super) worker_lost_timeout: Option<String>,
    pub(super) dispatcher_name: Option<String>,
    pub(super) external_frameworks: Vec<ExternalFramework>,
    pub(super) cluster_profile: Option<ClusterProfile>,
    pub(super) incremental_dispatcher_config: Option<IncrementalDispatcher>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ExternalFramework {
    pub(super) name: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClusterProfile {
    pub(super) access_providers: Vec<AccessProvider>,
    /// The same, deprecated.
    pub(super) credentials_providers: Vec<AccessProvider>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct AccessProvider {
    pub(super) name: String,
    pub(super) exec_config: ExecConfig,
}

/// `ExecConfig` of `k8s.io/client-go/tools/clientcmd/api`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ExecConfig {
    pub(super) command: String,
    pub(super) args: Option<Vec<String>>,
    pub(super) env: Option<Vec<ExecEnvVar>>,
    pub(super) api_version: String,
    pub(super) install_hint: String,
    pub(super) provide_cluster_info: bool,
    pub(super) interactive_mode: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ExecEnvVar {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct IncrementalDispatcher {
    pub(super) step_size: Option<i32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ClientConnection {
    pub(super) qps: Option<f64>,
    pub(super) burst: Option<i32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WaitForPodsReady {
    /// v1beta1 only.
    pub(super) enable: Option<bool>,
    pub(super) timeout: Option<String>,
    pub(super) block_admission: Option<bool>,
    pub(super) requeuing_strategy: Option<Requeuing>,
    pub(super) recovery_timeout: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Requeuing {
    pub(super) timestamp: Option<String>,
    pub(super) backoff_limit_count: Option<i32>,
    pub(super) backoff_base_seconds: Option<i32>,
    pub(super) backoff_max_seconds: Option<i32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Integrations {
    pub(super) frameworks: Vec<String>,
    pub(super) external_frameworks: Vec<String>,
    /// v1beta1 only; ignored there.
    pub(super) pod_options: Option<sections::PodOptions>,
    pub(super) label_keys_to_copy: Vec<String>,
    /// v1beta2 only.
    pub(super) quota_release_strategy: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct FairSharing {
    /// v1beta1 only.
    pub(super) enable: Option<bool>,
    pub(super) preemption_strategies: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct AdmissionFairSharing {
    pub(super) usage_half_life_time: Option<String>,
    pub(super) usage_sampling_interval: Option<String>,
    pub(super) resource_weights: BTreeMap<String, f64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Resources {
    pub(super) quota_check_strategy: Option<String>,
    pub(super) exclude_resource_prefixes: Vec<String>,
    pub(super) transformations: Vec<Transformation>,
    pub(super) device_class_mappings: Vec<DeviceClassMapping>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct DeviceClassMapping {
    pub(super) name: String,
    pub(super) device_class_names: Vec<String>,
    pub(super) sources: Vec<DeviceSource>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct DeviceSource {
    pub(super) counter: Option<NamedSource>,
    pub(super) capacity: Option<NamedSource>,
}

/// `DeviceClassCounterSource` or `DeviceClassCapacitySource`.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct NamedSource {
    pub(super) name: String,
    pub(super) driver: String,
    pub(super) device_selector: DeviceSelector,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DeviceSelector {
    pub(super) cel: Option<Cel>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cel {
    pub(super) expression: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Transformation {
    pub(super) input: String,
    pub(super) strategy: Option<String>,
    pub(super) multiply_by: Option<String>,
    pub(super) outputs: Quantities,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Retention {
    pub(super) workloads: Option<WorkloadRetention>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct WorkloadRetention {
    pub(super) after_finished: Option<String>,
    pub(super) after_deactivated_by_kueue: Option<String>,
}
