//! Rules for a pod as a whole: total resources of its containers, the host's namespaces, hostname and subdomain.

use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::{checks, resources};
use super::each_container;
use crate::default::container_sums;
use crate::obj::{Obj, as_obj, flag, list, object, text};

/// `validatePodResources`.
pub(super) fn pod_resources(spec: &Obj, claims: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let Some(whole) = spec.get("resources").and_then(Value::as_object) else { return };
    let at = path.field("resources");
    if text(object(spec, "os"), "name") == "windows" {
        errors.forbidden(&at, "may not be set for a windows pod");
        return;
    }
    if whole.contains_key("claims") {
        errors.forbidden(&at.field("claims"), "claims may not be set for Resources at pod-level");
    }
    resources::pod(whole, claims, &at, errors);
    consistent(spec, whole, &at, errors);
}

/// `validatePodResourceConsistency`: containers together fit into the pod.
fn consistent(spec: &Obj, whole: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (requests, limits) = (object(whole, "requests"), object(whole, "limits"));
    for (key, given) in [("requests", requests), ("limits", limits)] {
        let at = path.field(key);
        for (name, sum) in container_sums(spec, key) {
            if key == "limits" && !name.starts_with("hugepages-") {
                continue;
            }
            let Some(given) = given.get(&name).map(resources::amount) else { continue };
            if resources::amount(&sum) > given {
                let sum = sum.as_str().unwrap_or_default();
                let detail = format!("must be greater than or equal to aggregate container {key} of {sum}");
                errors.invalid(&at.key(&name), given.to_string(), &detail);
            }
        }
    }
    let containers = path.field("containers");
    for (i, c) in list(spec, "containers").iter().map(as_obj).enumerate() {
        let at = containers.index(i);
        for (name, limit) in object(object(c, "resources"), "limits") {
            let Some(given) = limits.get(name).map(resources::amount) else { continue };
            let limit = resources::amount(limit);
            if limit > given {
                let detail = format!("must be less than or equal to pod limits of {given}");
                errors.invalid(&at.key(name).field("limits"), limit.to_string(), &detail);
            }
        }
    }
}

/// Pods that share the host's namespaces can't have a user namespace of their own (`validateHostUsers`).
pub(super) fn host_users(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.get("hostUsers") != Some(&Value::Bool(false)) {
        return;
    }
    for (key, name) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(spec, key) {
            errors.forbidden(&path.field(name), DETAIL);
        }
    }
    each_container(spec, path, &mut |c, at| {
        if !list(c, "volumeDevices").is_empty() {
            errors.forbidden(&at.field("volumeDevices"), DETAIL);
        }
    });
}

/// `validatePodHostName`.
pub(super) fn host_name(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let Some(name) = spec.get("hostnameOverride").and_then(Value::as_str) else { return };
    let at = path.field("hostnameOverride");
    if flag(spec, "setHostnameAsFQDN") {
        errors.forbidden(&at, "may not be specified when setHostnameAsFQDN is true");
    }
    if flag(spec, "hostNetwork") {
        errors.forbidden(&at, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        errors.too_long(&at, 64);
    }
    errors.invalid_all(&at, name, &checks::dns_subdomain(name));
}
