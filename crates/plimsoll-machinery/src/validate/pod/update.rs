//! What may change of a pod (`ValidatePodUpdate` and its like).

use serde_json::Value;

use super::super::checks;
use super::super::path::{Errors, Path};
use crate::obj::{Obj, as_obj, child, children, has, int, list, object, text};

const MUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// An update of the pod itself.
pub(in super::super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    images(before, after, &path, errors);
    if errors.0.iter().any(|e| e.detail.starts_with("pod updates may not add")) {
        return;
    }
    deadline(before, after, &path, errors);
    added_tolerations(before, after, &path, errors);
    let at = path.field("schedulingGates");
    let known = list(before, "schedulingGates");
    for (i, gate) in list(after, "schedulingGates").iter().enumerate() {
        if !known.iter().any(|g| g["name"] == gate["name"]) {
            let name = text(as_obj(gate), "name");
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.forbidden(&at.index(i).field("name"), &detail);
        }
    }
    let mut munged = after.clone();
    accept_mutable(before, &mut munged);
    let gated = !known.is_empty();
    if gated {
        gated_changes(before, after, &mut munged, &path, errors);
    }
    if munged != *before {
        errors.forbidden(&path, MUTABLE);
    }
}

fn images(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) {
    for (key, what) in [("containers", "containers"), ("initContainers", "init containers")] {
        let at = path.field(key);
        if list(before, key).len() != list(after, key).len() {
            errors.forbidden(&at, &format!("pod updates may not add or remove {what}"));
            return;
        }
    }
    for key in ["containers", "initContainers"] {
        let at = path.field(key);
        for (i, c) in list(after, key).iter().map(as_obj).enumerate() {
            let image = text(c, "image");
            let here = at.index(i);
            if image.is_empty() {
                errors.required(&here.field("image"), "");
            } else if image.trim() != image {
                errors.invalid(&here.field("image"), image, "must not have leading or trailing whitespace");
            }
        }
    }
}

fn deadline(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("activeDeadlineSeconds");
    match (int(before, "activeDeadlineSeconds"), int(after, "activeDeadlineSeconds")) {
        (was, Some(is)) => {
            if !(0..=i64::from(i32::MAX)).contains(&is) {
                errors.invalid(&at, is, "must be between 0 and 2147483647, inclusive");
            } else if was.is_some_and(|was| was < is) {
                errors.invalid(&at, is, "must be less than or equal to previous value");
            }
        }
        (Some(_), None) => {
            errors.invalid(&at, Value::Null, "must not update from a positive integer to nil value");
        }
        (None, None) => {}
    }
}

/// Tolerations may be added; those that are there may only get other seconds.
fn added_tolerations(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let strip = |t: &Value| {
        let mut t = as_obj(t).clone();
        t.remove("tolerationSeconds");
        t
    };
    let now: Vec<Obj> = list(after, "tolerations").iter().map(strip).collect();
    let lost = list(before, "tolerations").iter().any(|t| !now.contains(&strip(t)));
    if lost {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden(&path.field("tolerations"), detail);
    }
}

/// Puts back what may change.
fn accept_mutable(before: &Obj, munged: &mut Obj) {
    for key in ["containers", "initContainers"] {
        let images: Vec<Value> =
            list(before, key).iter().map(|c| c.get("image").cloned().unwrap_or_default()).collect();
        for (c, image) in children(munged, key).zip(images) {
            c.insert("image".to_owned(), image);
        }
    }
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        match before.get(key) {
            Some(value) => munged.insert(key.to_owned(), value.clone()),
            None => munged.remove(key),
        };
    }
    if int(before, "terminationGracePeriodSeconds").is_some_and(|s| s < 0)
        && int(munged, "terminationGracePeriodSeconds") == Some(1)
    {
        munged.insert(
            "terminationGracePeriodSeconds".to_owned(),
            before["terminationGracePeriodSeconds"].clone(),
        );
    }
}

/// A gated pod may be narrowed: node selectors and required terms may be added.
fn gated_changes(before: &Obj, after: &Obj, munged: &mut Obj, path: &Path<'_>, errors: &mut Errors) {
    let (was, is) = (object(before, "nodeSelector"), object(after, "nodeSelector"));
    if was != is {
        if was.iter().any(|(key, value)| is.get(key) != Some(value)) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            errors.invalid(&path.field("nodeSelector"), Value::Object(is.clone()), detail);
        }
        match before.get("nodeSelector") {
            Some(value) => munged.insert("nodeSelector".to_owned(), value.clone()),
            None => munged.remove("nodeSelector"),
        };
    }
    let node = |spec: &Obj| object(object(spec, "affinity"), "nodeAffinity").clone();
    if node(before) == node(after) {
        return;
    }
    node_affinity(&node(before), &node(after), path, errors);
    // The affinity of nodes was dealt with: the rest of the affinity has to be the same.
    let was = before.get("affinity").cloned();
    let mut is = munged.get("affinity").cloned().unwrap_or_else(|| Value::Object(Obj::new()));
    if let Some(is) = is.as_object_mut() {
        match was.as_ref().and_then(|w| w.get("nodeAffinity")) {
            Some(value) => is.insert("nodeAffinity".to_owned(), value.clone()),
            None => is.remove("nodeAffinity"),
        };
    }
    let empty = is.as_object().is_some_and(Obj::is_empty);
    match (was, empty) {
        (None, true) => munged.remove("affinity"),
        _ => munged.insert("affinity".to_owned(), is),
    };
}

fn node_affinity(was: &Obj, is: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let affinity = path.field("affinity");
    let node = affinity.field("nodeAffinity");
    let required = node.field(REQUIRED);
    let at = required.field("nodeSelectorTerms");
    let terms = |a: &Obj| list(object(a, REQUIRED), "nodeSelectorTerms").to_vec();
    let (old, new) = (terms(was), terms(is));
    if old.is_empty() {
        return;
    }
    if old.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        errors.invalid_text(&at, shown_terms(&new), detail);
        return;
    }
    for (i, (old, new)) in old.iter().zip(&new).enumerate() {
        let (old, new) = (as_obj(old), as_obj(new));
        let kept = |key: &str| {
            let (a, b) = (list(old, key), list(new, key));
            b.len() >= a.len() && a.iter().zip(b).all(|(x, y)| x == y)
        };
        let empty = list(old, "matchExpressions").is_empty() && list(old, "matchFields").is_empty();
        if empty || !kept("matchExpressions") || !kept("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid_text(
                &at.index(i),
                shown_terms(std::slice::from_ref(&Value::Object(new.clone()))),
                detail,
            );
        }
    }
}

/// Terms as Go prints them.
fn shown_terms(terms: &[Value]) -> String {
    if terms.is_empty() {
        return "null".to_owned();
    }
    let requirements = |list: &[Value]| {
        if list.is_empty() {
            return "null".to_owned();
        }
        let one = |e: &Value| {
            let values = e.get("values").filter(|v| v.as_array().is_some_and(|a| !a.is_empty()));
            format!(
                "{{\"Key\":{},\"Operator\":{},\"Values\":{}}}",
                e["key"],
                e["operator"],
                values.unwrap_or(&Value::Null)
            )
        };
        format!("[{}]", list.iter().map(one).collect::<Vec<_>>().join(","))
    };
    let one = |t: &Value| {
        let t = as_obj(t);
        format!(
            "{{\"MatchExpressions\":{},\"MatchFields\":{}}}",
            requirements(list(t, "matchExpressions")),
            requirements(list(t, "matchFields"))
        )
    };
    format!("[{}]", terms.iter().map(one).collect::<Vec<_>>().join(","))
}

/// An update of the status (`ValidatePodStatusUpdate`).
pub(in super::super) fn status(old: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    let (was, is) = (object(old, "status"), object(new, "status"));
    let name = text(is, "nominatedNodeName");
    if !name.is_empty() {
        errors.invalid_all(&path.field("nominatedNodeName"), name, &checks::dns_subdomain(name));
    }
    let ips = list(is, "podIPs");
    let at = path.field("podIPs");
    for (i, ip) in ips.iter().map(as_obj).enumerate() {
        let ip = text(ip, "ip");
        errors.invalid_all(&at.index(i), ip, &checks::ip(ip));
    }
    let restarts = text(object(new, "spec"), "restartPolicy");
    if restarts == "Always" {
        return;
    }
    let at = path.field("containerStatuses");
    for (i, status) in list(is, "containerStatuses").iter().map(as_obj).enumerate() {
        let before = list(was, "containerStatuses")
            .iter()
            .map(as_obj)
            .find(|s| text(s, "name") == text(status, "name"));
        let Some(before) = before else { continue };
        let ended = object(object(before, "state"), "terminated");
        let failed = int(ended, "exitCode").unwrap_or(0) != 0;
        let over = has(object(before, "state"), "terminated") && !(restarts == "OnFailure" && failed);
        if over && !has(object(status, "state"), "terminated") {
            let detail = "may not be transitioned to non-terminated state";
            errors.forbidden(&at.index(i).field("state"), detail);
        }
    }
}

/// An update through `ephemeralcontainers`.
pub(in super::super) fn ephemeral_containers(old: &Obj, new: &Obj, errors: &mut Errors) {
    super::pod_spec(object(new, "spec"), &Path::new("spec"), errors);
    let path = Path::new("spec");
    let at = path.field("ephemeralContainers");
    let after = list(object(new, "spec"), "ephemeralContainers");
    for c in list(object(old, "spec"), "ephemeralContainers") {
        match after.iter().find(|n| n["name"] == c["name"]) {
            None => {
                let detail = format!("existing ephemeral containers {} may not be removed\n", c["name"]);
                errors.forbidden(&at, &detail);
            }
            Some(n) if n != c => {
                let detail = format!("existing ephemeral containers {} may not be changed\n", c["name"]);
                errors.forbidden(&at, &detail);
            }
            Some(_) => {}
        }
    }
}

/// An update through `resize`: only CPU and memory of containers.
pub(in super::super) fn resize(old: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("spec");
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let class = crate::strategy::qos_class(after);
    if class != text(object(old, "status"), "qosClass") {
        errors.invalid(&path, class, "Pod QOS Class may not change as a result of resizing");
    }
    super::pod_spec(after, &path, errors);
    let mut munged = after.clone();
    for key in ["containers", "initContainers"] {
        for c in children(&mut munged, key) {
            let was = list(before, key).iter().map(as_obj).find(|b| text(b, "name") == text(c, "name"));
            let Some(was) = was else { continue };
            let sizes = object(was, "resources").clone();
            let resources = child(c, "resources");
            let Some(resources) = resources else { continue };
            for kind in ["limits", "requests"] {
                let (old_sizes, mut now) = (object(&sizes, kind), object(resources, kind).clone());
                for name in ["cpu", "memory"] {
                    match old_sizes.get(name) {
                        Some(value) => now.insert(name.to_owned(), value.clone()),
                        None => now.remove(name),
                    };
                }
                if now.is_empty() {
                    resources.remove(kind);
                } else {
                    resources.insert(kind.to_owned(), Value::Object(now));
                }
            }
            if let Some(policy) = was.get("resizePolicy") {
                c.insert("resizePolicy".to_owned(), policy.clone());
            } else {
                c.remove("resizePolicy");
            }
        }
    }
    if munged != *before {
        errors.forbidden(&path, "only cpu and memory resources are mutable");
    }
}
