//! Section `multiKueue` of the configuration.

use plimsoll_api::kueue::{AccessProvider, Dispatcher};
use plimsoll_state::Duration;

/// Section `multiKueue` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Namespace of the Secrets with kubeconfigs.
    pub namespace: String,
    /// `origin`: the value of the label [`ORIGIN`](crate::names::ORIGIN).
    pub origin: String,
    /// `workerLostTimeout`: how long a workload stays admitted while its worker is unreachable.
    pub worker_lost_timeout: Duration,
    /// `gcInterval`: time between two looks for objects of workers whose workload is gone; `None`: never.
    pub gc_interval: Option<Duration>,
    /// `dispatcherName`.
    pub dispatcher: Dispatcher,
    /// Gate `MultiKueueOrchestratedPreemption`: whether copies preempt on one worker after the other.
    pub orchestrates_preemption: bool,
    /// Gate `MultiKueueKubeConfigPathValidation`: whether kubeconfigs that are files have to be in one directory.
    pub validates_paths: bool,
    /// Gate `MultiKueueManagerQuotaAutomation`: whether quotas of this cluster follow those of the workers, where a
    /// MultiKueueConfig asks for it.
    pub automates_quota: bool,
    /// Gate `MultiKueueBatchJobClearingTTLSecondsAfterFinishedOnWorkerCluster`: whether batch Jobs stay on workers until this
    /// cluster removes them. One that a worker removes first would be dispatched again.
    pub clears_ttl: bool,
    /// How to connect to the clusters that ClusterProfiles describe; `None`: gate `MultiKueueClusterProfile` is off.
    pub access_providers: Option<Vec<AccessProvider>>,
    /// `externalFrameworks`: kinds whose jobs other controllers queue, as `Kind.version.group`.
    pub external_frameworks: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: plimsoll_api::webhooks::NAMESPACE.to_owned(),
            origin: "multikueue".to_owned(),
            worker_lost_timeout: Duration::from_seconds(15 * 60),
            gc_interval: Some(Duration::from_seconds(60)),
            dispatcher: Dispatcher::AllAtOnce,
            orchestrates_preemption: false,
            validates_paths: true,
            automates_quota: false,
            clears_ttl: true,
            access_providers: None,
            external_frameworks: Vec::new(),
        }
    }
}
