//! The condition `Active` of AdmissionChecks of MultiKueue (Kueue `admissioncheck.go`, `ACReconciler`).

use plimsoll_api::conditions::set_status_condition;
use plimsoll_api::json;
use plimsoll_api::resource::ADMISSION_CHECKS;
use serde_json::{Value, json};

use super::config;
use crate::Env;
use crate::key::Key;
use crate::plan::{Plan, patch_status};
use crate::store::{Kind, ObjectStore};

/// The checks that a changed object concerns, beside themselves.
pub(crate) fn affected(objects: &ObjectStore, kind: Kind, object: &Value) -> Vec<Key> {
    match kind {
        Kind::MultiKueueConfig | Kind::MultiKueueCluster => {
            config::checks_concerned(kind, object, objects).into_iter().map(Key::AdmissionCheck).collect()
        }
        _ => Vec::new(),
    }
}

/// The condition `Active` of a check.
pub(crate) fn plan(name: &str, env: Env<'_>) -> Plan {
    // Also of a terminating one: ClusterQueues hold it by its finalizer, and use it as long as it is there.
    let Some(check) = config::check(env.objects, name) else {
        return Plan::new();
    };
    let (active, reason, message) = match config::clusters(env.objects, &check) {
        Err(problem) => {
            (false, "BadConfig", format!("Cannot load the AdmissionChecks parameters: {problem}"))
        }
        Ok(clusters) => usable(&clusters, env.objects),
    };
    let conditions = set_status_condition(&check, "Active", active, reason, &message, env.now);
    conditions
        .map(|c| patch_status(ADMISSION_CHECKS, &check, &json!({ "conditions": c })))
        .into_iter()
        .collect()
}

/// A check is active while one of its clusters is.
fn usable(clusters: &[String], objects: &ObjectStore) -> (bool, &'static str, String) {
    let (mut missing, mut inactive) = (Vec::new(), Vec::new());
    for name in clusters {
        match objects.get(Kind::MultiKueueCluster, "", name) {
            None => missing.push(name.as_str()),
            Some(cluster) if !json::is_true(&cluster, "Active") => inactive.push(name.as_str()),
            Some(_) => {}
        }
    }
    if missing.is_empty() && inactive.is_empty() {
        return (true, "Active", "The admission check is active".to_owned());
    }
    let parts = [("Missing", &missing), ("Inactive", &inactive)];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let message: Vec<String> =
        parts.map(|(what, names)| format!("{what} clusters: [{}]", names.join(" "))).collect();
    let some = missing.len() + inactive.len() < clusters.len();
    let reason = if some { "SomeActiveClusters" } else { "NoUsableClusters" };
    (some, reason, message.join(", "))
}
