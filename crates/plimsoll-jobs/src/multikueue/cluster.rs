//! The conditions of MultiKueueClusters: `Active` (Kueue `multikueuecluster.go`, `updateStatus`), and which kinds of jobs a worker
//! lacks.

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::event::EventRecord;
use plimsoll_api::json;
use plimsoll_api::resource::MULTIKUEUE_CLUSTERS;
use serde_json::{Value, json};

use super::Lacks;
use super::config::{ClusterSource, source};
use super::lacks::describe;
use crate::plan::{Write, patch_status, reference};
use crate::store::Kind;
use crate::{Env, names};

/// How it is with the connection to a worker cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// The watches of everything but some kinds of jobs are open.
    Connected {
        /// The kinds of jobs that it can't run.
        lacks: Lacks,
    },
    /// It is not connected: reason and message of the condition.
    Disconnected {
        /// Reason: `BadKubeConfig`, `InsecureKubeConfig`, `ClientConnectionFailed`, …
        reason: &'static str,
        /// Message.
        message: String,
    },
}

/// The write of the conditions; `None` when they are up to date, or the cluster is gone.
pub fn plan(name: &str, state: &ClusterState, env: Env<'_>) -> Option<Write> {
    let cluster = env.objects.get(Kind::MultiKueueCluster, "", name).filter(|c| !json::deleting(c))?;
    let (active, reason, message) = match state {
        ClusterState::Connected { .. } => (true, "Active", "Connected"),
        ClusterState::Disconnected { reason, message } => (false, *reason, message.as_str()),
    };
    let mut new = Value::clone(&cluster);
    let mut changed = set(&mut new, "Active", active, reason, message, env);
    if let ClusterState::Connected { lacks } = state {
        match describe(lacks, env.objects) {
            Some(message) => {
                changed |= set(&mut new, names::JOB_KINDS_SERVED, false, "NotServed", &message, env);
            }
            None if json::condition(&cluster, names::JOB_KINDS_SERVED).is_some() => {
                let message = "All kinds of jobs are served";
                changed |= set(&mut new, names::JOB_KINDS_SERVED, true, "Served", message, env);
            }
            None => {}
        }
    }
    let conditions = &new["status"]["conditions"];
    changed.then(|| patch_status(MULTIKUEUE_CLUSTERS, &cluster, &json!({ "conditions": conditions })))
}

/// Sets a condition; whether it was another one.
fn set(cluster: &mut Value, kind: &str, is: bool, reason: &str, message: &str, env: Env<'_>) -> bool {
    if is_told(cluster, kind, is, reason, message) {
        return false;
    }
    let Some(conditions) = set_status_condition(cluster, kind, is, reason, message, env.now) else {
        return false;
    };
    json::set(cluster, &["status", "conditions"], conditions.into());
    true
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
            reporting_controller: "multikueue-cluster".into(),
            reporting_instance: String::new(),
        }))
    })
}

/// As in Kueue another generation alone is no change (`cmpConditionState`).
fn is_told(cluster: &Value, kind: &str, is: bool, reason: &str, message: &str) -> bool {
    json::condition(cluster, kind).is_some_and(|c| {
        c["status"] == (if is { "True" } else { "False" }) && c["reason"] == reason && c["message"] == message
    })
}
