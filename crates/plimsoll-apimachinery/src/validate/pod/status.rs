//! Updates of a pod's status (`ValidatePodStatusUpdate`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::path::{Errors, IMMUTABLE, Path};
use super::super::{address, checks, golang};
use super::annotations;
use super::security::MAX_ID;
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// An update of the status.
pub(in super::super) fn status(old: &Obj, new: &Obj, errors: &mut Errors) {
    annotations::update(old, new, &Path::new("metadata").field("annotations"), errors);
    let path = Path::new("status");
    let (was, is) = (object(old, "status"), object(new, "status"));
    let spec = object(new, "spec");
    conditions(list(is, "conditions"), &path.field("conditions"), errors);
    nominated(old, was, is, &path.field("nominatedNodeName"), errors);
    if let Some(generation) = int(is, "observedGeneration").filter(|g| *g < 0) {
        errors.invalid(&path.field("observedGeneration"), generation, "must be a non-negative integer");
    }
    if text(was, "qosClass") != text(is, "qosClass") {
        errors.invalid(&path.field("qosClass"), text(is, "qosClass"), IMMUTABLE);
    }
    for (key, of) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", ""),
    ] {
        transitions(list(was, key), list(is, key), of, object(old, "spec"), &path.field(key), errors);
    }
    claims(is, spec, &path, errors);
    extended_claim(is, spec, &path.field("extendedResourceClaimStatus"), errors);
    addresses(is, was, "podIPs", &path, errors);
    let first = list(is, "hostIPs").first().map(|ip| text(as_obj(ip), "ip"));
    if let Some(first) = first.filter(|first| *first != text(is, "hostIP")) {
        let at = path.field("hostIPs");
        errors.invalid(&at.index(0).field("ip"), first, "must be equal to `hostIP`");
    }
    addresses(is, was, "hostIPs", &path, errors);
    for key in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        users(list(is, key), text(object(spec, "os"), "name"), &path.field(key), errors);
    }
    for (key, of) in [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")] {
        allocated(list(is, key), list(spec, of), &path.field(key), errors);
    }
    let at = path.field("ephemeralContainerStatuses");
    for (i, status) in list(is, "ephemeralContainerStatuses").iter().map(as_obj).enumerate() {
        if !list(status, "allocatedResourcesStatus").is_empty() {
            let here = at.index(i);
            let detail = "must not be specified in container status";
            errors.forbidden(&here.field("allocatedResourcesStatus"), detail);
        }
    }
}

/// `validatePodConditions`.
fn conditions(conditions: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, condition) in conditions.iter().map(as_obj).enumerate() {
        let at = path.index(i);
        if let Some(generation) = int(condition, "observedGeneration").filter(|g| *g < 0) {
            errors.invalid(&at.field("observedGeneration"), generation, "must be a non-negative integer");
        }
        let kind = text(condition, "type");
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            errors.invalid_all(&at.field("Type"), kind, &checks::qualified_name(kind));
        }
    }
}

fn nominated(old: &Obj, was: &Obj, is: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let name = text(is, "nominatedNodeName");
    if name.is_empty() || name == text(was, "nominatedNodeName") {
        return;
    }
    errors.invalid_all(path, name, &checks::dns_subdomain(name));
    if !text(object(old, "spec"), "nodeName").is_empty() {
        errors.forbidden(path, "may not be set on pods that are already bound to a node");
    }
}

/// Containers that ended and may not run again do not. `of`: where they are in the spec; empty: ephemeral ones.
fn transitions(was: &[Value], is: &[Value], of: &str, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if !of.is_empty() && any_restarts_all(spec) {
        return;
    }
    for (i, before) in was.iter().map(as_obj).enumerate() {
        let ended = object(before, "state");
        if !has(ended, "terminated") {
            continue;
        }
        let name = text(before, "name");
        let again =
            is.iter().map(as_obj).any(|s| text(s, "name") == name && !has(object(s, "state"), "terminated"));
        let code = int(object(ended, "terminated"), "exitCode").unwrap_or(0);
        let container = list(spec, of).iter().map(as_obj).find(|c| text(c, "name") == name);
        let allowed = container.is_some_and(|c| restarts(c, spec, code));
        if again && !allowed {
            errors
                .forbidden(&path.index(i).field("state"), "may not be transitioned to non-terminated state");
        }
    }
}

/// Whether an exit of any container restarts all of them (`AllContainersCouldRestart`).
fn any_restarts_all(spec: &Obj) -> bool {
    ["initContainers", "containers"].iter().flat_map(|key| list(spec, key)).any(|c| {
        list(as_obj(c), "restartPolicyRules")
            .iter()
            .any(|r| text(as_obj(r), "action") == "RestartAllContainers")
    })
}

/// `ContainerShouldRestart`: rules first, then the container's policy, then the pod's.
fn restarts(c: &Obj, spec: &Obj, code: i64) -> bool {
    for rule in list(c, "restartPolicyRules").iter().map(as_obj) {
        let codes = object(rule, "exitCodes");
        let listed = list(codes, "values").iter().any(|v| v.as_i64() == Some(code));
        let hit = match text(codes, "operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        };
        if hit && text(rule, "action") == "Restart" {
            return true;
        }
    }
    let own = text(c, "restartPolicy");
    match if own.is_empty() { text(spec, "restartPolicy") } else { own } {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

/// `validatePodResourceClaimStatuses`.
fn claims(is: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("resourceClaimStatuses");
    let mut seen = BTreeSet::new();
    for (i, status) in list(is, "resourceClaimStatuses").iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let name = text(status, "name");
        if !list(spec, "resourceClaims").iter().any(|c| text(as_obj(c), "name") == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&here.field("name"), name, detail);
        }
        if !seen.insert(name) {
            errors.duplicate(&here.field("name"), name);
        }
        if let Some(claim) = status.get("resourceClaimName").and_then(Value::as_str) {
            errors.invalid_all(&here.field("resourceClaimName"), claim, &checks::dns_subdomain(claim));
        }
    }
}

/// `validatePodExtendedResourceClaimStatus`.
fn extended_claim(is: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let Some(status) = is.get("extendedResourceClaimStatus").and_then(Value::as_object) else { return };
    let at = path.field("requestMappings");
    let mappings = list(status, "requestMappings");
    if mappings.is_empty() {
        errors.required(&at, "at least one request mapping is required");
    }
    let mut seen = BTreeSet::new();
    for (i, mapping) in mappings.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let key =
            [text(mapping, "containerName"), text(mapping, "resourceName"), text(mapping, "requestName")];
        let [container, resource, request] = key;
        let mut all = list(spec, "containers").iter().chain(list(spec, "initContainers")).map(as_obj);
        match all.find(|c| text(c, "name") == container) {
            Some(c) if !object(object(c, "resources"), "requests").contains_key(resource) => {
                let detail = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                errors.invalid(&here.field("resourceName"), resource, detail);
            }
            Some(_) => {}
            None => {
                let detail =
                    "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.invalid(&here.field("containerName"), container, detail);
            }
        }
        errors.invalid_all(&path.field("requestName"), request, &checks::dns_label(request));
        if !seen.insert(key) {
            for (name, value) in ["containerName", "resourceName", "requestName"].iter().zip(key) {
                errors.duplicate(&here.field(name), value);
            }
        }
    }
    let claim = text(status, "resourceClaimName");
    errors.named(&path.field("resourceClaimName"), claim, checks::dns_subdomain);
}

/// Addresses are valid, at most one of each family. Existing ones may stay.
fn addresses(is: &Obj, was: &Obj, key: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field(key);
    let ips: Vec<&str> = list(is, key).iter().map(|ip| text(as_obj(ip), "ip")).collect();
    for (i, ip) in ips.iter().enumerate() {
        if !list(was, key).iter().any(|known| text(as_obj(known), "ip") == *ip) {
            errors.invalid_all(&at.index(i), ip, &address::legacy(ip));
        }
    }
    if ips.len() < 2 {
        return;
    }
    let families: Option<Vec<bool>> =
        ips.iter().map(|ip| ip.parse::<std::net::IpAddr>().ok().map(|a| a.is_ipv4())).collect();
    let dual = families.is_some_and(|f| f.contains(&true) && f.contains(&false));
    if !dual || ips.len() > 2 {
        errors.invalid_text(
            &at,
            golang::list("PodIP", list(is, key)),
            "may specify no more than one IP for each IP family",
        );
    }
}

/// `validateContainerStatusUsers`.
fn users(statuses: &[Value], os: &str, path: &Path<'_>, errors: &mut Errors) {
    for (i, status) in statuses.iter().map(as_obj).enumerate() {
        let Some(user) = object(status, "user").get("linux").and_then(Value::as_object) else { continue };
        let here = path.index(i);
        let at = here.field("user");
        let at = at.field("linux");
        if os == "windows" {
            errors.forbidden(&at, "cannot be set for a windows pod");
            continue;
        }
        for key in ["uid", "gid"] {
            errors.between(&at.field(key), int(user, key).unwrap_or(0), 0..=MAX_ID);
        }
        let groups = at.field("supplementalGroups");
        for (j, group) in list(user, "supplementalGroups").iter().enumerate() {
            errors.between(&groups.index(j), group.as_i64().unwrap_or(0), 0..=MAX_ID);
        }
    }
}

/// `validateContainerStatusAllocatedResourcesStatus`.
fn allocated(statuses: &[Value], containers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (i, status) in statuses.iter().map(as_obj).enumerate() {
        let here = path.index(i);
        let at = here.field("allocatedResourcesStatus");
        let container = containers.iter().map(as_obj).find(|c| text(c, "name") == text(status, "name"));
        for (j, one) in list(status, "allocatedResourcesStatus").iter().map(as_obj).enumerate() {
            let here = at.index(j);
            if let Some(c) = container {
                known_resource(one, object(c, "resources"), &here, errors);
            }
            healths(list(one, "resources"), &here.field("resources"), errors);
        }
    }
}

fn known_resource(one: &Obj, asked: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let name = text(one, "name");
    let (found, detail) = if name.starts_with("claim:") {
        let found = list(asked, "claims").iter().map(as_obj).any(|c| {
            let request = text(c, "request");
            let slash = if request.is_empty() { "" } else { "/" };
            format!("claim:{}{slash}{request}", text(c, "name")) == name
        });
        (
            found,
            "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty",
        )
    } else {
        (object(asked, "requests").contains_key(name), "must match one of the container's resource requests")
    };
    if !found {
        errors.invalid(&path.field("name"), name, detail);
    }
}

fn healths(devices: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (k, device) in devices.iter().map(as_obj).enumerate() {
        let at = path.index(k);
        errors.one_of(&at.field("health"), text(device, "health"), &["Healthy", "Unhealthy", "Unknown"]);
        match device.get("message").and_then(Value::as_str) {
            Some("") => errors.required(&at.field("message"), "must be non-empty if specified"),
            Some(message) if message.len() > 1024 => errors.too_long(&at.field("message"), 1024),
            _ => {}
        }
        let id = text(device, "resourceID");
        if !seen.insert(id) {
            errors.duplicate(&at.field("resourceID"), id);
        }
    }
}
