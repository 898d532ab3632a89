//! Pods and pod templates.

use plimsoll_api::Quantity;
use serde_json::{Map, Value};

use super::container::container;
use super::volume::volume;
use crate::obj::{Obj, child, children, flag, int, list, object, set, text, with_child};

/// core/v1 Pod.
pub(super) fn pod(pod: &mut Obj) {
    with_child(pod, "spec", |spec| {
        pod_spec(spec);
        for key in ["containers", "initContainers"] {
            for c in children(spec, key) {
                requests_from_limits(c);
            }
        }
        pod_level_requests(spec);
        set(spec, "enableServiceLinks", true);
        if flag(spec, "hostNetwork") {
            for key in ["containers", "initContainers"] {
                for port in children(spec, key).flat_map(|c| children(c, "ports")) {
                    if let Some(number) = int(port, "containerPort") {
                        set(port, "hostPort", number);
                    }
                }
            }
        }
    });
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
    let limits = object(resources, "limits").clone();
    if !limits.is_empty() {
        with_child(resources, "requests", |requests| fill(requests, &limits));
    }
}

fn fill(requests: &mut Obj, from: &Obj) {
    for (name, amount) in from {
        set(requests, name, amount.clone());
    }
}

/// Requests of the pod as a whole: what its containers ask for, else the pod's limit.
fn pod_level_requests(spec: &mut Obj) {
    if !spec.get("resources").is_some_and(Value::is_object) {
        return;
    }
    let mut sums = container_requests(spec);
    sums.retain(|name, _| is_pod_level(name));
    let Some(resources) = child(spec, "resources") else { return };
    let mut limits = object(resources, "limits").clone();
    limits.retain(|name, _| is_pod_level(name));
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

/// Sum over containers and sidecars, or the largest init container on top of the sidecars before it.
pub(crate) fn container_requests(spec: &Obj) -> Obj {
    let amounts = |c: &Value| -> Vec<(String, Quantity)> {
        let requests = c.get("resources").and_then(|r| r.get("requests")).and_then(Value::as_object);
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
    sums.into_iter().map(|(name, q)| (name, Value::String(q.to_string()))).collect()
}
