//! Pods and pod templates.

use plimsoll_api::Quantity;
use plimsoll_state::collect::InsertEach as _;
use serde_json::{Map, Value};

use super::container::container;
use super::volume::volume;
use crate::obj::{Obj, child, children, flag, int, list, object, set, set_zero, text, with_child};

/// core/v1 Pod.
pub(super) fn pod(pod: &mut Obj) {
    if let Some(status) = child(pod, "status") {
        first_address(status, "podIP", "podIPs");
    }
    with_child(pod, "spec", |spec| {
        pod_spec(spec);
        for key in ["containers", "initContainers"] {
            for c in children(spec, key) {
                requests_from_limits(c);
            }
        }
        pod_level_limits(spec);
        pod_level_requests(spec);
        set(spec, "enableServiceLinks", true);
        if flag(spec, "hostNetwork") {
            for key in ["containers", "initContainers"] {
                for port in children(spec, key).flat_map(|c| children(c, "ports")) {
                    if let Some(number) = int(port, "containerPort") {
                        set_zero(port, "hostPort", number);
                    }
                }
            }
        }
    });
}

/// Makes the single address and the first of the list equal; where both are given, the single one wins (conversion of
/// core/v1 `PodStatus`).
fn first_address(status: &mut Obj, one: &str, many: &str) {
    let single = text(status, one).to_owned();
    let first = list(status, many).first().map(|v| text(crate::obj::as_obj(v), "ip").to_owned());
    match first {
        None if single.is_empty() => {}
        Some(first) if single.is_empty() => {
            if !first.is_empty() {
                status.insert(one.to_owned(), Value::String(first));
            }
        }
        Some(first) if first == single => {}
        _ => {
            status.insert(many.to_owned(), serde_json::json!([{ "ip": single }]));
        }
    }
}

/// core/v1 `PodTemplate`.
pub(super) fn pod_template(object: &mut Obj) {
    template(object);
}

/// The `template` of a workload.
pub(super) fn template(owner: &mut Obj) {
    if let Some(spec) = child(owner, "template").and_then(|t| child(t, "spec")) {
        pod_spec(spec);
    }
}

/// core/v1 `SetDefaults_PodSpec` with everything below it.
pub(super) fn pod_spec(spec: &mut Obj) {
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "restartPolicy", "Always");
    set(spec, "securityContext", Map::new());
    set(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "schedulerName", "default-scheduler");
    mirror_service_account(spec);
    for v in children(spec, "volumes") {
        volume(v);
    }
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        for c in children(spec, key) {
            container(c);
        }
    }
}

/// The deprecated name of the account follows the new one and counts where only it is given.
fn mirror_service_account(spec: &mut Obj) {
    let name = match (text(spec, "serviceAccountName"), text(spec, "serviceAccount")) {
        ("", "") => {
            spec.remove("serviceAccount");
            return;
        }
        ("", old) => old.to_owned(),
        (new, _) => new.to_owned(),
    };
    spec.insert("serviceAccountName".to_owned(), Value::from(name.clone()));
    spec.insert("serviceAccount".to_owned(), Value::from(name));
}

/// Requests that are missing are the limits (core/v1 `SetDefaults_Pod`).
fn requests_from_limits(c: &mut Obj) {
    let Some(resources) = child(c, "resources") else { return };
    let requests = object(resources, "requests");
    let missing = object(resources, "limits").iter().filter(|(name, _)| !requests.contains_key(*name));
    let missing: Obj = missing.map(|(name, amount)| (name.clone(), amount.clone())).insert_each();
    if !missing.is_empty() {
        with_child(resources, "requests", |requests| requests.extend(missing));
    }
}

fn fill(requests: &mut Obj, from: &Obj) {
    for (name, amount) in from {
        set(requests, name, amount.clone());
    }
}

/// Huge page limits of the pod: the sum of its containers' limits, unless the pod has limits of its own
/// (`defaultHugePagePodLimits`).
fn pod_level_limits(spec: &mut Obj) {
    let Some(resources) = spec.get("resources").and_then(Value::as_object) else { return };
    if object(resources, "limits").is_empty() && object(resources, "requests").is_empty() {
        return;
    }
    let mut sums = container_sums(spec, "limits");
    sums.retain(|name, _| {
        name.starts_with("hugepages-") && !object(object(spec, "resources"), "requests").contains_key(name)
    });
    let Some(resources) = child(spec, "resources").filter(|_| !sums.is_empty()) else { return };
    with_child(resources, "limits", |limits| fill(limits, &sums));
}

/// Requests of a pod that has limits: the sum of its containers' requests, else the limit (`defaultPodRequests`).
fn pod_level_requests(spec: &mut Obj) {
    let mut limits = object(object(spec, "resources"), "limits").clone();
    if limits.is_empty() {
        return;
    }
    let mut sums = container_sums(spec, "requests");
    sums.retain(|name, _| matches!(name.as_str(), "cpu" | "memory"));
    limits.retain(|name, _| is_pod_level(name));
    let Some(resources) = child(spec, "resources") else { return };
    if !(sums.is_empty() && limits.is_empty()) {
        with_child(resources, "requests", |requests| {
            fill(requests, &sums);
            fill(requests, &limits);
        });
    }
}

/// Resources a pod may ask for as a whole.
pub(crate) fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// `requests` or `limits` of containers together: the sum over containers and sidecars, or the largest init container
/// on top of the sidecars before it.
pub(crate) fn container_sums(spec: &Obj, key: &str) -> Obj {
    let amounts = |c: &Value| -> Vec<(String, Quantity)> {
        let requests = c.get("resources").and_then(|r| r.get(key)).and_then(Value::as_object);
        requests
            .into_iter()
            .flatten()
            .filter_map(|(name, v)| Some((name.clone(), v.as_str()?.parse().ok()?)))
            .collect()
    };
    let mut sums: std::collections::BTreeMap<String, Quantity> = std::collections::BTreeMap::new();
    let mut sidecars = sums.clone();
    let mut peaks = sums.clone();
    for c in list(spec, "containers") {
        for (name, q) in amounts(c) {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(q);
        }
    }
    for c in list(spec, "initContainers") {
        let sidecar = c.get("restartPolicy").and_then(Value::as_str) == Some("Always");
        for (name, q) in amounts(c) {
            let before = sidecars.entry(name.clone()).or_default();
            let total = before.saturating_add(q);
            if sidecar {
                *before = total;
                let sum = sums.entry(name.clone()).or_default();
                *sum = sum.saturating_add(q);
            }
            let peak = peaks.entry(name).or_default();
            *peak = (*peak).max(total);
        }
    }
    for (name, peak) in peaks {
        let sum = sums.entry(name).or_default();
        *sum = (*sum).max(peak);
    }
    sums.into_iter().map(|(name, q)| (name, Value::String(q.to_string()))).insert_each()
}
