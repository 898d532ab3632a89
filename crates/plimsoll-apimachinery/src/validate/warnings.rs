//! Warnings about objects that are accepted (upstream: the strategies' `WarningsOnCreate`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{checks, deprecated, endpoints, meta, network_policy, networking, objects, path, pod, resource};
use crate::go::go_quote;
use crate::kinds::Kind;
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// Texts for `Warning` headers about a status that is written.
pub fn status_warnings(kind: &Kind, new: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let Some(new) = new.as_object() else { return found };
    let status = object(new, "status");
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::warnings::addresses(status, &mut found),
        ("", "Service") | ("networking.k8s.io", "Ingress") => objects::balancer_status(status, &mut found),
        _ => {}
    }
    found
}

/// Texts for `Warning` headers about an object itself; `old` is the object before an update.
pub fn warnings(kind: &Kind, old: Option<&Value>, new: &Value) -> Vec<String> {
    let Some(new) = new.as_object() else { return Vec::new() };
    let mut found = Vec::new();
    if kind.custom.is_some() {
        finalizers(old.and_then(Value::as_object), new, &mut found);
        return found;
    }
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") if old.is_none() => pod::warnings::pod(new, &mut found),
        ("apps" | "batch", _) | ("", "PodTemplate" | "ReplicationController") => {
            let (template, path) = match kind.gvk.kind.as_str() {
                "CronJob" => (
                    object(object(object(object(new, "spec"), "jobTemplate"), "spec"), "template"),
                    "spec.jobTemplate.spec.template",
                ),
                "PodTemplate" => (object(new, "template"), "template"),
                _ => (object(object(new, "spec"), "template"), "spec.template"),
            };
            // As far as generation counts.
            let annotations = |o: &Obj| object(object(o, "metadata"), "annotations").clone();
            let same = old.and_then(Value::as_object).is_some_and(|o| {
                let annotated = kind.gvk.kind == "Deployment" && annotations(o) != annotations(new);
                o.get("spec") == new.get("spec") && !annotated
            });
            if !same {
                owner(kind, old.is_none(), new, &mut found);
                // Upstream lets changes of these pass.
                if old.is_none() || kind.gvk.kind != "PodTemplate" {
                    pod::warnings::template(template, path, &mut found);
                }
            }
        }
        ("", "Service") => objects::service(new, &mut found),
        ("", "Node") => objects::node(new, &mut found),
        ("", "Secret") => objects::secret(new, &mut found),
        ("node.k8s.io", "RuntimeClass") => objects::runtime_class(new, &mut found),
        ("", "ServiceAccount") => objects::service_account(old.and_then(Value::as_object), new, &mut found),
        ("", "ResourceQuota") if old.is_none() => objects::quota(new, &mut found),
        ("", "PersistentVolume") => objects::volume(new, &mut found),
        ("", "PersistentVolumeClaim") => objects::claim(new, &mut found),
        ("storage.k8s.io", "StorageClass") => objects::storage_class(new, &mut found),
        ("storage.k8s.io", "CSIStorageCapacity") => objects::capacity(new, &mut found),
        ("", "Endpoints") => endpoints::endpoints_warnings(new, &mut found),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::slice_warnings(old.is_none(), new, &mut found),
        ("resource.k8s.io", "ResourceSlice") => resource::slice_warnings(new, &mut found),
        ("networking.k8s.io", "Ingress") if old.is_none() => networking::ingress_warnings(new, &mut found),
        ("networking.k8s.io", "NetworkPolicy") => network_policy::warnings(new, &mut found),
        ("storage.k8s.io", "CSIDriver") => {
            let requests = |o: &Obj| list(object(o, "spec"), "tokenRequests").to_vec();
            let same = old.and_then(Value::as_object).is_some_and(|o| requests(o) == requests(new));
            if !same {
                driver(object(new, "spec"), &mut found);
            }
        }
        _ => {}
    }
    found
}

/// Finalizers that a custom resource gets (`generateWarningsFromObj`).
fn finalizers(old: Option<&Obj>, new: &Obj, found: &mut Vec<String>) {
    let of = |o: &Obj| {
        let all = list(object(o, "metadata"), "finalizers").iter().filter_map(Value::as_str);
        all.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    let before = old.map(of).unwrap_or_default();
    for finalizer in of(new).difference(&before) {
        let shown = go_quote(finalizer);
        let faults = checks::qualified_name(finalizer);
        found.extend(faults.iter().map(|fault| format!("metadata.finalizers: {shown}: {fault}")));
        if finalizer.contains('/') || meta::STANDARD_FINALIZERS.contains(&finalizer.as_str()) {
            continue;
        }
        let more = if finalizer.contains('.') { " including a path (/)" } else { "" };
        found.push(format!(
            "metadata.finalizers: {shown}: prefer a domain-qualified finalizer name{more} to avoid accidental conflicts with other finalizer writers"
        ));
    }
}

/// Warnings about a workload apart from its template.
fn owner(kind: &Kind, created: bool, new: &Obj, found: &mut Vec<String>) {
    let what = match kind.gvk.kind.as_str() {
        "Deployment" | "ReplicaSet" | "Job" | "CronJob" | "ReplicationController" => {
            "Pod names and hostnames"
        }
        _ => "",
    };
    let faults = checks::dns_label(text(object(new, "metadata"), "name"));
    if created && !what.is_empty() && !faults.is_empty() {
        found.push(format!(
            "metadata.name: this is used in {what}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            faults.join(" ")
        ));
    }
    let spec = object(new, "spec");
    match kind.gvk.kind.as_str() {
        "Job" => many_indexes(spec, "spec", found),
        "CronJob" => {
            many_indexes(object(object(spec, "jobTemplate"), "spec"), "spec.jobTemplate.spec", found);
        }
        "StatefulSet" => stateful_set(spec, created, found),
        _ => {}
    }
}

fn stateful_set(spec: &Obj, created: bool, found: &mut Vec<String>) {
    // Upstream's path contains `Spec` on updates.
    let part = if created { "" } else { ".Spec" };
    for (i, claim) in list(spec, "volumeClaimTemplates").iter().map(as_obj).enumerate() {
        let path = format!("spec.volumeClaimTemplates[{i}]{part}");
        deprecated::claim(object(claim, "spec"), &path::Path::new(&path), found);
    }
    if int(spec, "revisionHistoryLimit").is_some_and(|n| n < 0) {
        found.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
}

/// Jobs with more indexes than may be kept track of (`WarningsForJobSpec`).
fn many_indexes(spec: &Obj, path: &str, found: &mut Vec<String>) {
    let number = |key: &str| int(spec, key).unwrap_or(0);
    let many = number("completions") > 100_000 && number("parallelism") > 10_000;
    if text(spec, "completionMode") == "Indexed" && many {
        found.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
}

fn driver(spec: &Obj, found: &mut Vec<String>) {
    if !list(spec, "tokenRequests").is_empty() && !has(spec, "serviceAccountTokenInSecrets") {
        found.push(
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned(),
        );
    }
}
