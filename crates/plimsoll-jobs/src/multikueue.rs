//! MultiKueue is not supported: objects that ask for it get a condition or a warning instead of being ignored.

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::json;
use plimsoll_api::resource::ADMISSION_CHECKS;
use serde_json::json;

use crate::Env;
use crate::plan::{Plan, patch_status};
use crate::store::{Kind, ObjectStore};
use crate::webhook::kueue::{MULTIKUEUE, without_effect};

/// The condition `Active` of a check that has no controller. ClusterQueues that name it are inactive
/// (AdmissionCheckInactive), as in Kueue without a usable worker cluster.
pub(crate) fn plan(name: &str, env: Env<'_>) -> Plan {
    let Some(check) = env.objects.get(Kind::AdmissionCheck, "", name).filter(|c| !json::deleting(c)) else {
        return Plan::new();
    };
    if check["spec"]["controllerName"] != MULTIKUEUE {
        return Plan::new();
    }
    let message = "MultiKueue is not supported: no controller sends workloads to other clusters";
    let conditions =
        set_status_condition(&check, "Active", false, "MultiKueueNotSupported", message, env.now);
    let write = |c| patch_status(ADMISSION_CHECKS, &check, &json!({ "conditions": c }));
    conditions.map(write).into_iter().collect()
}

/// Existing objects that have no effect: `plural/name` and why. For the log at the start.
pub fn objects_without_effect(objects: &ObjectStore) -> Vec<(String, String)> {
    let kinds = [(Kind::ClusterQueue, "clusterqueues"), (Kind::AdmissionCheck, "admissionchecks")];
    kinds
        .into_iter()
        .flat_map(|(kind, plural)| objects.all(kind).map(move |object| (plural, object)))
        .filter_map(|(plural, o)| Some((format!("{plural}/{}", json::name(o)), without_effect(plural, o)?)))
        .collect()
}
