//! MultiKueue, which is not there: what asks for it says so, instead of waiting for ever in silence.

use serde_json::json;

use super::{Env, Write, patch_status, workload};
use crate::api::ADMISSION_CHECKS;
use crate::cache::{Cache, Kind};
use crate::json;
use crate::webhook::{MULTIKUEUE, without_effect};

/// The condition `Active` of a check that nothing acts on. ClusterQueues that name it are inactive
/// (AdmissionCheckInactive), as in Kueue without a usable worker cluster.
pub(super) fn plan(name: &str, env: Env<'_>) -> Vec<Write> {
    let Some(check) = env.cache.get(Kind::AdmissionCheck, "", name).filter(|c| !json::deleting(c)) else {
        return Vec::new();
    };
    if check["spec"]["controllerName"] != MULTIKUEUE {
        return Vec::new();
    }
    let message = "MultiKueue is not supported: no controller sends workloads to other clusters";
    let conditions =
        workload::with_condition(&check, "Active", false, "MultiKueueNotSupported", message, env.now);
    let write = |c| patch_status(ADMISSION_CHECKS, &check, &json!({ "conditions": c }));
    conditions.map(write).into_iter().collect()
}

/// Names in the log what is there at the start that nothing acts on.
pub(super) fn warn(cache: &Cache) {
    for (kind, plural) in [(Kind::ClusterQueue, "clusterqueues"), (Kind::AdmissionCheck, "admissionchecks")] {
        for object in cache.all(kind) {
            if let Some(text) = without_effect(plural, &object) {
                tracing::warn!(object = %format!("{plural}/{}", json::name(&object)), "{text}");
            }
        }
    }
}
