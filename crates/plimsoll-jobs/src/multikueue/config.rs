//! Which worker clusters a check stands for (Kueue `pkg/util/admissioncheck`), and how to connect to one.

use std::sync::Arc;

use plimsoll_api::json;
use serde_json::Value;

use crate::names::MULTIKUEUE as CONTROLLER;
use crate::store::{Kind, ObjectStore};
use crate::{Env, check_parameters};

pub(super) const CONFIG: &str = "MultiKueueConfig";

/// `spec.clusterSource` of a MultiKueueCluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterSource {
    /// The key `kubeconfig` of a Secret of this name in the own namespace.
    Secret(String),
    /// A file.
    Path(String),
    /// A ClusterProfile, which is behind the gate MultiKueueClusterProfile.
    Profile(String),
    /// Nothing that is known.
    None,
}

/// The AdmissionCheck of this name, if MultiKueue is responsible for it.
pub(super) fn check(objects: &ObjectStore, name: &str) -> Option<Arc<Value>> {
    objects
        .get(Kind::AdmissionCheck, "", name)
        .filter(|c| json::text(c, &["spec", "controllerName"]) == CONTROLLER)
}

/// The state of the check of MultiKueue in a workload (Kueue `GetMultiKueueAdmissionCheck`).
pub(super) fn row<'a>(objects: &ObjectStore, workload: &'a Value) -> Option<&'a Value> {
    let mut rows = json::list(workload, &["status", "admissionChecks"]).iter();
    rows.find(|row| check(objects, json::text(row, &["name"])).is_some())
}

/// The clusters of a check, in the order of its configuration.
///
/// # Errors
/// Why there are none, in Kueue's words.
pub(super) fn clusters(objects: &ObjectStore, check: &Value) -> Result<Vec<String>, String> {
    let name = check_parameters::reference(check, CONFIG)?;
    let Some(config) = objects.get(Kind::MultiKueueConfig, "", name) else {
        return Err(format!("{CONFIG}.{} \"{name}\" not found", check_parameters::GROUP));
    };
    let names = json::list(&config, &["spec", "clusters"]).iter().filter_map(Value::as_str);
    Ok(names.map(str::to_owned).collect())
}

/// The checks that a changed AdmissionCheck, MultiKueueConfig or MultiKueueCluster concerns.
pub(super) fn checks_concerned(kind: Kind, object: &Value, objects: &ObjectStore) -> Vec<String> {
    let name = json::name(object);
    let concerned = |check: &Value| match kind {
        Kind::AdmissionCheck => json::name(check) == name,
        Kind::MultiKueueConfig => check_parameters::reference(check, CONFIG) == Ok(name),
        _ => clusters(objects, check).is_ok_and(|all| all.iter().any(|c| c == name)),
    };
    let ours = objects.all(Kind::AdmissionCheck).filter(|c| c["spec"]["controllerName"] == CONTROLLER);
    ours.filter(|c| concerned(c)).map(|c| json::name(&c).to_owned()).collect()
}

/// Where a MultiKueueCluster has its kubeconfig.
pub fn source(cluster: &Value) -> ClusterSource {
    let source = &cluster["spec"]["clusterSource"];
    if let Some(name) = source["clusterProfileRef"]["name"].as_str() {
        return ClusterSource::Profile(name.to_owned());
    }
    match (source["kubeConfig"]["location"].as_str(), json::text(source, &["kubeConfig", "locationType"])) {
        (Some(path), "Path") => ClusterSource::Path(path.to_owned()),
        (Some(name), _) => ClusterSource::Secret(name.to_owned()),
        (None, _) => ClusterSource::None,
    }
}

/// Whether MultiKueue dispatches a workload, so that its pods run on another cluster (Kueue `ShouldSkipLocalExecution`).
pub(crate) fn runs_elsewhere(workload: &Value, env: Env<'_>) -> bool {
    row(env.objects, workload).is_some()
}
