//! The condition `Active` of MultiKueueClusters (Kueue `multikueuecluster.go`, `updateStatus`).

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::event::EventRecord;
use plimsoll_api::json;
use plimsoll_api::resource::MULTIKUEUE_CLUSTERS;
use serde_json::{Value, json};

use super::config::{ClusterSource, source};
use crate::Env;
use crate::plan::{Write, patch_status, reference};
use crate::store::Kind;

/// How it is with the connection to a worker cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// All watches are open.
    Connected,
    /// It is not connected: reason and message of the condition.
    Disconnected {
        /// Reason: `BadKubeConfig`, `InsecureKubeConfig`, `ClientConnectionFailed`, …
        reason: &'static str,
        /// Message.
        message: String,
    },
}

/// The write of the condition; `None` when it is up to date, or the cluster is gone.
pub fn plan(name: &str, state: &ClusterState, env: Env<'_>) -> Option<Write> {
    let cluster = env.objects.get(Kind::MultiKueueCluster, "", name).filter(|c| !json::deleting(c))?;
    let (active, reason, message) = match state {
        ClusterState::Connected => (true, "Active", "Connected"),
        ClusterState::Disconnected { reason, message } => (false, *reason, message.as_str()),
    };
    if is_told(&cluster, active, reason, message) {
        return None;
    }
    let conditions = set_status_condition(&cluster, "Active", active, reason, message, env.now)?;
    Some(patch_status(MULTIKUEUE_CLUSTERS, &cluster, &json!({ "conditions": conditions })))
}

/// The Event that warns of a kubeconfig that may be any file (Kueue `clustersReconciler.Reconcile`).
pub fn path_warning(cluster: &Value, env: Env<'_>) -> Option<Write> {
    const REASON: &str = "DeprecatedPathUsage";
    const MESSAGE: &str = "Using locationType=Path without MultiKueueKubeConfigPathValidation feature gate is deprecated and \
                           will be removed in a future release. Enable the MultiKueueKubeConfigPathValidation feature gate and \
                           place kubeconfig files under /etc/multikueue/kubeconfigs/.";
    let warns = !env.config.multikueue.validates_paths && matches!(source(cluster), ClusterSource::Path(_));
    warns.then(|| {
        Write::Event(Box::new(EventRecord {
            regarding: reference(MULTIKUEUE_CLUSTERS, cluster),
            warning: true,
            reason: REASON.to_owned(),
            action: REASON.to_owned(),
            message: MESSAGE.to_owned(),
            reporting_controller: "multikueue-cluster",
            reporting_instance: String::new(),
        }))
    })
}

/// As in Kueue another generation alone is no change (`cmpConditionState`).
fn is_told(cluster: &Value, active: bool, reason: &str, message: &str) -> bool {
    json::condition(cluster, "Active").is_some_and(|c| {
        c["status"] == (if active { "True" } else { "False" })
            && c["reason"] == reason
            && c["message"] == message
    })
}
