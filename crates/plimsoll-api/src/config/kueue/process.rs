//! Sections about Kueue's process, which have no effect here: their fields and types, and the checks of their values
//! (Kueue's `pkg/config/validation.go`). A file that Kueue refuses is not taken for one that works.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Errors, wire};
use crate::config::selector::LabelSelector;

/// Sections with their fields; none of the values is used, all of the types are checked.
macro_rules! sections {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        #[allow(dead_code)]
        pub(super) struct $name { $($field: Option<$type>,)* })*
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

const SOURCE_KINDS: [&str; 4] = ["Cohort", "LocalQueue", "ClusterQueue", "Workload"];
const TLS_VERSIONS: [&str; 2] = ["VersionTLS12", "VersionTLS13"];

/// Checks of values.
pub(super) fn check(raw: &wire::Configuration, errors: &mut Errors) {
    if let Some(server) = &raw.visibility_server {
        if let Some(address) =
            server.bind_address.as_deref().filter(|a| a.parse::<std::net::IpAddr>().is_err())
        {
            let text = format!("Invalid value: {address:?}: must be a valid IP address");
            errors.add("visibilityServer.bindAddress", text);
        }
        if let Some(port) = server.bind_port.filter(|p| !(1..=65535).contains(p)) {
            let text = format!("Invalid value: {port}: must be a valid port number (1-65535)");
            errors.add("visibilityServer.bindPort", text);
        }
    }
    if let Some(tls) = &raw.tls {
        let version = tls.min_version.as_deref().unwrap_or_default();
        if !version.is_empty() && !TLS_VERSIONS.contains(&version) {
            errors.unsupported("tls.minVersion", version, &TLS_VERSIONS);
        }
        let suites = tls.cipher_suites.as_deref().unwrap_or_default();
        if version == "VersionTLS13" && !suites.is_empty() {
            let text = "may not be specified when `minVersion` is 'VersionTLS13'";
            errors.add("tls.cipherSuites", format!("Invalid value: {suites:?}: {text}"));
        }
    }
    let labels = raw.metrics.as_ref().and_then(|m| m.custom_labels.as_deref()).unwrap_or_default();
    for (i, label) in labels.iter().enumerate() {
        if let Some(kind) = label.source_kind.as_deref().filter(|k| !SOURCE_KINDS.contains(k)) {
            errors.unsupported(&format!("metrics.customLabels[{i}].sourceKind"), kind, &SOURCE_KINDS);
        }
    }
}
