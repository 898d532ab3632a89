//! Administrative access to devices: claims in namespaces that say so (`AuthorizedForAdmin` and
//! `AuthorizedForAdminStatus` of `pkg/registry/resource`).

use plimsoll_apimachinery::FieldError;
use serde_json::Value;

use super::Write;
use crate::store::Key;

const LABEL: &str = "resource.kubernetes.io/admin-access";

/// What is wrong with a write of a claim or of a template; `old` is the object before.
pub fn admin_access(w: &Write, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if w.kind.custom.is_some() || w.kind.gvk.group != "resource.k8s.io" {
        return Vec::new();
    }
    let place = match (w.kind.plural.as_str(), w.subresource.as_str(), old) {
        ("resourceclaims", "", None) => asked(&object["spec"]),
        ("resourceclaimtemplates", "", None) => asked(&object["spec"]["spec"]),
        ("resourceclaims", "status", Some(old)) if granted(old).is_none() => granted(object),
        _ => None,
    };
    let Some(field) = place.filter(|_| !allowed(w)) else { return Vec::new() };
    let why =
        format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
    vec![FieldError::forbidden(field, why)]
}

fn first(all: &Value, is_admin: impl Fn(&Value) -> bool, path: &str) -> Option<String> {
    let index = all.as_array()?.iter().position(is_admin)?;
    Some(format!("{path}[{index}].adminAccess"))
}

/// The first request for access. Its path leaves out `exactly`, and where a template keeps it, as upstream has it.
fn asked(spec: &Value) -> Option<String> {
    let requests = &spec["devices"]["requests"];
    first(requests, |r| r["exactly"]["adminAccess"] == true, "spec.devices.requests")
}

fn granted(claim: &Value) -> Option<String> {
    let results = &claim["status"]["allocation"]["devices"]["results"];
    first(results, |r| r["adminAccess"] == true, "status.allocation.devices.results")
}

fn allowed(w: &Write) -> bool {
    let key = Key::new("/namespaces", "", w.namespace.as_str());
    let namespace = w.server.store().latest(&key);
    namespace.is_some_and(|record| record.labels.get(LABEL).is_some_and(|value| value == "true"))
}
