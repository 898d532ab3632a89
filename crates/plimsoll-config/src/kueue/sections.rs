//! Sections about Kueue's process, which have no effect here: their fields and types.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::selector::LabelSelector;

/// Sections with their fields; none of the values is used, all of the types are checked.
macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        #[allow(dead_code)]
        pub(super) struct $name { $(pub(super) $field: Option<$type>,)* })*
    };
}

sections! {
    /// `webhook`.
    Webhook { port: i64, host: String, cert_dir: String, }
    /// `leaderElection` (component-base's `LeaderElectionConfiguration`).
    LeaderElection {
        leader_elect: bool, lease_duration: String, renew_deadline: String, retry_period: String, resource_lock: String,
        resource_name: String, resource_namespace: String,
    }
    /// `metrics`.
    Metrics {
        bind_address: String, enable_cluster_queue_resources: bool, custom_labels: Vec<CustomLabel>,
        local_queue_metrics: LocalQueueMetrics,
    }
    /// `metrics.customLabels[*]`.
    CustomLabel {
        name: String, source_label_key: String, source_annotation_key: String, source_kind: String,
        tracked_values: Vec<String>,
    }
    /// `metrics.localQueueMetrics`.
    LocalQueueMetrics { enable: bool, local_queue_selector: LabelSelector, }
    /// `health`.
    Health { health_probe_bind_address: String, readiness_endpoint_name: String, liveness_endpoint_name: String, }
    /// `controller`; the timeout is a number of nanoseconds.
    Controller { group_kind_concurrency: BTreeMap<String, i64>, cache_sync_timeout: i64, }
    /// `tls`.
    Tls { min_version: String, cipher_suites: Vec<String>, curve_preferences: Vec<i32>, }
    /// `internalCertManagement`.
    Certificates { enable: bool, webhook_service_name: String, webhook_secret_name: String, }
    /// `visibilityServer`.
    VisibilityServer { bind_address: String, bind_port: i32, }
    /// `queueVisibility`, v1beta1 only.
    QueueVisibility { cluster_queues: ClusterQueueVisibility, update_interval_seconds: i32, }
    /// `queueVisibility.clusterQueues`.
    ClusterQueueVisibility { max_count: i32, }
    /// `integrations.podOptions`, v1beta1 only.
    PodOptions { namespace_selector: LabelSelector, pod_selector: LabelSelector, }
}
