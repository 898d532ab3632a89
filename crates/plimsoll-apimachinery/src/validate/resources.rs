//! Amounts of resources: names, quantities, requests and limits (core validation).

use std::collections::BTreeSet;

use plimsoll_api::Quantity;
use serde_json::Value;

use super::checks;
use super::path::{Errors, NOT_NEGATIVE, Path};
use crate::obj::{Obj, as_obj, list, object, text};

/// A quantity in a field; zero when the value is no quantity.
pub(super) fn amount(value: &Value) -> Quantity {
    value.as_str().and_then(|t| t.parse().ok()).unwrap_or_default()
}

/// Not below zero.
pub(super) fn non_negative(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    not_below_zero(amount(value), path, errors);
}

fn not_below_zero(amount: Quantity, path: &Path<'_>, errors: &mut Errors) {
    if amount.signum() < 0 {
        errors.invalid(path, amount.to_string(), NOT_NEGATIVE);
    }
}

/// `validateBasicResource`.
pub(super) fn basic(value: &Value, path: &Path<'_>, errors: &mut Errors) -> bool {
    let units = amount(value).value();
    if units < 0 {
        errors.invalid(path, units, "must be a valid resource quantity");
    }
    units >= 0
}

/// Standard names in general (`standardResources`).
fn is_standard(name: &str) -> bool {
    name == "storage" || is_standard_quota(name)
}

/// Names a quota may count (`standardQuotaResources`).
pub(super) fn is_standard_quota(name: &str) -> bool {
    let counted = [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.storage",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "persistentvolumeclaims",
        "configmaps",
        "services.nodeports",
        "services.loadbalancers",
    ];
    counted.contains(&name) || name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

/// Names of things that come in whole numbers (`IsIntegerResourceName`).
pub(super) fn is_whole(name: &str) -> bool {
    let counted = [
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    counted.contains(&name) || is_extended(name)
}

/// Resources of no domain or of `kubernetes.io` (`IsNativeResource`).
pub(super) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// `IsExtendedResourceName`.
pub(super) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && checks::qualified_name(&format!("requests.{name}")).is_empty()
}

/// `IsOvercommitAllowed`.
pub(super) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

/// `validateResourceName`; whether nothing is wrong.
pub(super) fn name(name: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let faults = checks::qualified_name(name);
    errors.invalid_all(path, name, &faults);
    let unknown = faults.is_empty() && !name.contains('/') && !is_standard(name);
    if unknown {
        errors.invalid(path, name, "must be a standard resource type or fully qualified");
    }
    faults.is_empty() && !unknown
}

/// A name a container may ask for (`validateContainerResourceName`).
pub(super) fn container_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    name(resource, path, errors);
    if !resource.contains('/') {
        let standard =
            matches!(resource, "cpu" | "memory" | "ephemeral-storage") || resource.starts_with("hugepages-");
        if !standard {
            errors.invalid(path, resource, "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        errors.invalid(path, resource, "doesn't follow extended resource name standard");
    }
}

/// A name a pod as a whole may ask for (`validatePodResourceName`).
fn pod_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    if name(resource, path, errors) && !crate::default::is_pod_level(resource) {
        errors.not_supported(path, resource, &["cpu", "hugepages-", "memory"]);
    }
}

/// A name a quota may count (`ValidateResourceQuotaResourceName`).
pub(super) fn quota_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    name(resource, path, errors);
    if !resource.contains('/') && !is_standard_quota(resource) {
        errors.invalid(path, resource, "must be a standard resource for quota");
    }
}

/// A quantity of a resource: not negative, whole where it must be (`ValidateResourceQuantityValue`).
pub(super) fn quantity(resource: &str, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    quantity_of(resource, amount(value), path, errors);
}

fn quantity_of(resource: &str, amount: Quantity, path: &Path<'_>, errors: &mut Errors) {
    not_below_zero(amount, path, errors);
    if is_whole(resource) && amount.milli_value() % 1000 != 0 {
        errors.invalid(path, amount.to_string(), "must be an integer");
    }
}

/// Requests and limits of a container (`ValidateContainerResourceRequirements`).
pub(super) fn container(resources: &Obj, claims: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let (limits, requests) = (object(resources, "limits"), object(resources, "requests"));
    requirements(limits, requests, container_name, path, errors);
    resource_claims(list(resources, "claims"), claims, path, errors);
}

/// Requests and limits of a pod as a whole (`validatePodResourceRequirements`).
pub(super) fn pod(resources: &Obj, claims: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let (limits, requests) = (object(resources, "limits"), object(resources, "requests"));
    requirements(limits, requests, pod_name, path, errors);
    resource_claims(list(resources, "claims"), claims, path, errors);
}

/// The overhead of a pod, checked like limits of a container (`validateOverhead`).
pub(super) fn overhead(overhead: &Obj, path: &Path<'_>, errors: &mut Errors) {
    requirements(overhead, crate::obj::empty(), container_name, path, errors);
}

/// Checks a resource's name.
type NameCheck = fn(&str, &Path<'_>, &mut Errors);

fn requirements(limits: &Obj, requests: &Obj, named: NameCheck, path: &Path<'_>, errors: &mut Errors) {
    let (limit_path, request_path) = (path.field("limits"), path.field("requests"));
    for (resource, value) in limits {
        let at = limit_path.key(resource);
        let limit = amount(value);
        named(resource, &at, errors);
        quantity_of(resource, limit, &at, errors);
        whole_pages(resource, limit, &at, errors);
    }
    for (resource, value) in requests {
        let at = request_path.key(resource);
        let asked = amount(value);
        named(resource, &at, errors);
        quantity_of(resource, asked, &at, errors);
        match limits.get(resource) {
            // Equal texts are equal quantities.
            Some(limit) if limit == value => {}
            Some(limit) => within(resource, asked, amount(limit), &request_path, errors),
            None if !may_overcommit(resource) => {
                errors.required(&limit_path, "Limit must be set for non overcommitable resources");
            }
            None => {}
        }
        whole_pages(resource, asked, &at, errors);
    }
    let any = |wanted: fn(&str) -> bool| limits.keys().chain(requests.keys()).any(|name| wanted(name));
    if any(|name| name.starts_with("hugepages-")) && !any(|name| matches!(name, "cpu" | "memory")) {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
}

/// A request doesn't exceed the limit, and equals it for resources that can't be overcommitted.
fn within(resource: &str, asked: Quantity, limit: Quantity, path: &Path<'_>, errors: &mut Errors) {
    if asked != limit && !may_overcommit(resource) {
        let detail = format!("must be equal to {resource} limit of {limit}");
        errors.invalid(path, asked.to_string(), &detail);
    } else if asked > limit {
        let detail = format!("must be less than or equal to {resource} limit of {limit}");
        errors.invalid(path, asked.to_string(), &detail);
    }
}

/// Huge pages come in whole ones (`validateResourceQuantityHugePageValue`).
fn whole_pages(resource: &str, asked: Quantity, path: &Path<'_>, errors: &mut Errors) {
    let Some(page) = resource.strip_prefix("hugepages-") else { return };
    let page: Quantity = page.parse().unwrap_or_default();
    let whole = page.signum() > 0 && page.nanos() % 1_000_000_000 == 0 && asked.value() % page.value() == 0;
    if !whole {
        let detail = format!("{asked} is not positive integer multiple of {resource}");
        errors.invalid(path, asked.to_string(), &detail);
    }
}

/// `validateResourceClaimNames`.
fn resource_claims(asked: &[Value], claims: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if asked.is_empty() {
        return;
    }
    let claim_path = path.field("claims");
    let known: BTreeSet<&str> = claims.iter().copied().collect();
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (i, claim) in asked.iter().map(as_obj).enumerate() {
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        let at = claim_path.index(i);
        if name.is_empty() {
            errors.required(&at, "");
            continue;
        }
        if seen.contains(&(name, "")) {
            errors.duplicate(&at, name);
        } else {
            if !request.is_empty() {
                errors.invalid_all(&at.field("request"), request, &checks::dns_label(request));
            }
            if seen.contains(&(name, request)) {
                errors.duplicate(&at, format!("{name}/{request}"));
            } else if request.is_empty() {
                for _ in seen.range((name, "")..).take_while(|(known, _)| *known == name) {
                    errors.duplicate(&at, name);
                }
            }
            seen.insert((name, request));
        }
        if !known.contains(name) {
            let mut detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if known.is_empty() {
                detail.push_str(" which is empty");
            } else {
                let names: Vec<&str> = known.iter().copied().collect();
                detail = format!("{detail}: {}", names.join(", "));
            }
            errors.not_found(&at, name, &detail);
        }
    }
}
