//! Warnings about objects that are accepted (upstream: the strategies' `WarningsOnCreate`).

use serde_json::Value;

use super::endpoints;
use crate::kinds::Kind;
use crate::obj::{Obj, as_obj, has, list, object};

/// Texts for `Warning` headers; `old` is the object before an update.
pub fn warnings(kind: &Kind, old: Option<&Value>, new: &Value) -> Vec<String> {
    let Some(new) = new.as_object() else { return Vec::new() };
    let mut found = Vec::new();
    if kind.custom.is_some() {
        return found;
    }
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") if old.is_none() => {
            pod(object(new, "spec"), "spec", &mut found);
        }
        ("apps" | "batch", _) | ("", "PodTemplate" | "ReplicationController") => {
            let (template, path) = match kind.gvk.kind.as_str() {
                "CronJob" => (
                    object(object(object(object(new, "spec"), "jobTemplate"), "spec"), "template"),
                    "spec.jobTemplate.spec.template.spec",
                ),
                "PodTemplate" => (object(new, "template"), "template.spec"),
                _ => (object(object(new, "spec"), "template"), "spec.template.spec"),
            };
            let same = old.and_then(Value::as_object).is_some_and(|o| o.get("spec") == new.get("spec"));
            if !same {
                pod(object(template, "spec"), path, &mut found);
            }
        }
        ("", "Endpoints") => endpoints::endpoints_warnings(new, &mut found),
        ("discovery.k8s.io", "EndpointSlice") => endpoints::slice_warnings(old.is_none(), new, &mut found),
        ("storage.k8s.io", "CSIDriver") if old.is_none() => driver(object(new, "spec"), &mut found),
        _ => {}
    }
    found
}

fn driver(spec: &Obj, found: &mut Vec<String>) {
    if !list(spec, "tokenRequests").is_empty() && !has(spec, "serviceAccountTokenInSecrets") {
        found.push(
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned(),
        );
    }
}

/// `warningsForPodSpecAndMeta`, the parts that concern fields in use here.
fn pod(spec: &Obj, path: &str, found: &mut Vec<String>) {
    for (i, constraint) in list(spec, "topologySpreadConstraints").iter().map(as_obj).enumerate() {
        if !has(constraint, "labelSelector") {
            found.push(format!(
                "{path}.topologySpreadConstraints[{i}].labelSelector: a null labelSelector results in matching no pod"
            ));
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = object(object(spec, "affinity"), kind);
        for (i, term) in list(terms, REQUIRED).iter().map(as_obj).enumerate() {
            if !has(term, "labelSelector") {
                found.push(format!(
                    "{path}.affinity.{kind}.{REQUIRED}[{i}].labelSelector: a null labelSelector results in matching no pod"
                ));
            }
        }
    }
    for (i, volume) in list(spec, "volumes").iter().map(as_obj).enumerate() {
        if has(volume, "gitRepo") {
            found.push(format!("{path}.volumes[{i}].gitRepo: deprecated in v1.11"));
        }
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
