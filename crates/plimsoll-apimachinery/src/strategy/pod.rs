//! core/v1 Pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use plimsoll_api::Quantity;
use serde_json::{Value, json};

use super::keep;
use crate::obj::{Obj, as_obj, children, has, list, object, set, text, with_child};
use crate::validate::APP_ARMOR;

/// A new pod is pending, has its quality of service class, and a condition when gates hold it back.
pub(super) fn create(pod: &mut Obj, now: Timestamp) {
    grace(pod);
    let gated = !list(object(pod, "spec"), "schedulingGates").is_empty();
    let class = qos_class(object(pod, "spec"));
    if ["affinity", "topologySpreadConstraints"].iter().any(|key| has(object(pod, "spec"), key)) {
        let labels = object(object(pod, "metadata"), "labels").clone();
        with_child(pod, "spec", |spec| match_label_keys(spec, &labels));
    }
    app_armor(pod);
    with_child(pod, "status", |status| {
        status.insert("phase".to_owned(), json!("Pending"));
        status.insert("qosClass".to_owned(), json!(class));
        if gated {
            let condition = json!({
                "type": "PodScheduled", "status": "False", "lastProbeTime": null,
                "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            });
            status.insert("conditions".to_owned(), json!([condition]));
        }
    });
}

/// A negative grace period means the shortest.
pub(super) fn grace(pod: &mut Obj) {
    const KEY: &str = "terminationGracePeriodSeconds";
    with_child(pod, "spec", |spec| {
        if spec.get(KEY).and_then(Value::as_i64).is_some_and(|s| s < 0) {
            spec.insert(KEY.to_owned(), json!(1));
        }
    });
}

/// An update of the status: a kubelet can't change a pod's owners or deletion.
pub(super) fn status(old: &Obj, new: &mut Obj) {
    with_child(new, "metadata", |meta| keep(meta, object(old, "metadata"), "ownerReferences"));
    let before = object(old, "status");
    with_child(new, "status", |status| {
        if text(status, "qosClass").is_empty() {
            keep(status, before, "qosClass");
        }
        keep_observed(status, before);
        // Each condition has that of its type before, in the order of occurrence.
        let mut seen: Vec<(String, usize)> = Vec::new();
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten();
        for condition in conditions.filter_map(Value::as_object_mut) {
            let kind = text(condition, "type").to_owned();
            let at = match seen.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, at)) => {
                    *at += 1;
                    *at
                }
                None => {
                    seen.push((kind.clone(), 0));
                    0
                }
            };
            let known = list(before, "conditions").iter().filter_map(Value::as_object);
            if let Some(known) = known.filter(|c| text(c, "type") == kind).nth(at) {
                keep_observed(condition, known);
            }
        }
    });
}

/// A client that does not know of `observedGeneration` does not take it away (`preserveOldObservedGeneration`).
fn keep_observed(new: &mut Obj, old: &Obj) {
    if new.get("observedGeneration").and_then(Value::as_i64).unwrap_or(0) == 0 {
        keep(new, old, "observedGeneration");
    }
}

/// `ephemeralcontainers` and `resize` change one part of the spec each.
pub(super) fn subresource(name: &str, old: &Obj, new: &mut Obj) {
    let wanted = object(new, "spec").clone();
    let mut spec = object(old, "spec").clone();
    let groups = ["containers", "initContainers"];
    if name == "ephemeralcontainers" {
        keep(&mut spec, &wanted, "ephemeralContainers");
    } else if groups.iter().any(|key| list(&wanted, key).len() != list(&spec, key).len()) {
        // Validation refuses added and removed containers.
        return;
    } else {
        keep(&mut spec, &wanted, "resources");
        for key in groups {
            let sizes = list(&wanted, key);
            let same = sizes.iter().zip(list(&spec, key)).all(|(is, was)| is["name"] == was["name"]);
            if !same {
                keep(&mut spec, &wanted, key);
                continue;
            }
            for (c, size) in children(&mut spec, key).zip(sizes) {
                keep(c, as_obj(size), "resources");
                keep(c, as_obj(size), "resizePolicy");
            }
        }
    }
    keep(new, old, "status");
    new.insert("spec".to_owned(), Value::Object(spec));
    with_child(new, "metadata", |meta| {
        for key in ["labels", "annotations", "finalizers", "ownerReferences"] {
            keep(meta, object(old, "metadata"), key);
        }
    });
}

/// Adds `matchLabelKeys` and `mismatchLabelKeys` of affinity terms to their selectors (`mutatePodAffinity`); also those
/// of topology spread constraints (`mutateTopologySpreadConstraints`).
fn match_label_keys(spec: &mut Obj, labels: &Obj) {
    for constraint in children(spec, "topologySpreadConstraints") {
        merge_keys(constraint, labels);
    }
    let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) else { return };
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(terms) = affinity.get_mut(kind).and_then(Value::as_object_mut) else { continue };
        for term in children(terms, "requiredDuringSchedulingIgnoredDuringExecution") {
            merge_keys(term, labels);
        }
        for weighted in children(terms, "preferredDuringSchedulingIgnoredDuringExecution") {
            if let Some(term) = weighted.get_mut("podAffinityTerm").and_then(Value::as_object_mut) {
                merge_keys(term, labels);
            }
        }
    }
}

fn merge_keys(term: &mut Obj, labels: &Obj) {
    if !term.get("labelSelector").is_some_and(Value::is_object) {
        return;
    }
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys: Vec<String> =
            list(term, field).iter().filter_map(|k| k.as_str().map(str::to_owned)).collect();
        for key in keys {
            let Some(value) = labels.get(&key).cloned() else { continue };
            with_child(term, "labelSelector", |selector| {
                let mut expressions = list(selector, "matchExpressions").to_vec();
                expressions.push(json!({ "key": key, "operator": operator, "values": [value] }));
                selector.insert("matchExpressions".to_owned(), Value::Array(expressions));
            });
        }
    }
}

/// Annotations that gave containers an AppArmor profile before there was a field fill the field
/// (`applyAppArmorVersionSkew`).
fn app_armor(pod: &mut Obj) {
    let annotations = object(object(pod, "metadata"), "annotations");
    let profiles: Vec<(String, Value)> = annotations
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(APP_ARMOR)?.to_owned(), profile(value.as_str()?)?)))
        .collect();
    let spec = object(pod, "spec");
    if profiles.is_empty() || text(object(spec, "os"), "name") == "windows" {
        return;
    }
    let of_pod = object(spec, "securityContext").get("appArmorProfile").cloned();
    with_child(pod, "spec", |spec| {
        for key in ["initContainers", "containers", "ephemeralContainers"] {
            for c in children(spec, key) {
                let wanted = profiles.iter().find(|(name, _)| name == text(c, "name"));
                let Some((_, wanted)) = wanted.filter(|(_, wanted)| Some(wanted) != of_pod.as_ref()) else {
                    continue;
                };
                if !object(c, "securityContext").contains_key("appArmorProfile") {
                    with_child(c, "securityContext", |s| set(s, "appArmorProfile", wanted.clone()));
                }
            }
        }
    });
}

/// The profile of an annotation (`ApparmorFieldForAnnotation`).
pub(crate) fn profile(annotation: &str) -> Option<Value> {
    let local = annotation.strip_prefix("localhost/");
    Some(match (annotation, local) {
        ("unconfined", _) => json!({"type": "Unconfined"}),
        ("runtime/default", _) => json!({"type": "RuntimeDefault"}),
        (_, Some(local)) if !local.is_empty() && local.trim() == local && local.len() <= 4095 => {
            json!({"type": "Localhost", "localhostProfile": local})
        }
        _ => return None,
    })
}

/// The quality-of-service class of a pod's spec (`ComputePodQOS`).
pub fn qos_class(spec: &Obj) -> &'static str {
    let mut requests = BTreeMap::new();
    let mut limits = BTreeMap::new();
    let mut guaranteed = true;
    let whole = object(spec, "resources");
    if !spec.contains_key("resources") {
        for c in list(spec, "containers").iter().chain(list(spec, "initContainers")) {
            guaranteed &= add(object(as_obj(c), "resources"), &mut requests, &mut limits);
        }
    } else {
        guaranteed = add(whole, &mut requests, &mut limits);
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    if guaranteed && requests == limits { "Guaranteed" } else { "Burstable" }
}

type Amounts<'a> = BTreeMap<&'a str, Quantity>;

/// Adds the requests and limits of one container (or pod); true when it has limits for both CPU and memory.
fn add<'a>(resources: &'a Obj, requests: &mut Amounts<'a>, limits: &mut Amounts<'a>) -> bool {
    let mut limited = 0;
    for (key, sums) in [("requests", requests), ("limits", limits)] {
        for name in ["cpu", "memory"] {
            let amount: Option<Quantity> =
                object(resources, key).get(name).and_then(Value::as_str).and_then(|t| t.parse().ok());
            let Some(amount) = amount.filter(|q| q.signum() > 0) else { continue };
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(amount);
            limited += usize::from(key == "limits");
        }
    }
    limited == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_without_observed_generations_takes_none_away() {
        let condition = |kind: &str, observed: i64| match observed {
            0 => json!({"type": kind, "status": "True"}),
            observed => json!({"type": kind, "status": "True", "observedGeneration": observed}),
        };
        let pod = |status: Value| as_obj(&json!({"metadata": {}, "status": status})).clone();
        let old = pod(json!({
            "qosClass": "Burstable", "observedGeneration": 2,
            "conditions": [condition("Ready", 2), condition("Ready", 3), condition("Other", 0)],
        }));
        let mut new = pod(json!({
            "conditions": [condition("Other", 0), condition("Ready", 4), condition("Ready", 0), condition("New", 0)],
        }));
        status(&old, &mut new);
        let wanted = json!({
            "qosClass": "Burstable", "observedGeneration": 2,
            "conditions": [condition("Other", 0), condition("Ready", 4), condition("Ready", 3), condition("New", 0)],
        });
        assert_eq!(new["status"], wanted);
        let mut new = pod(json!({"qosClass": "Guaranteed", "observedGeneration": 5}));
        status(&old, &mut new);
        assert_eq!(new["status"], json!({"qosClass": "Guaranteed", "observedGeneration": 5}));
    }
}
