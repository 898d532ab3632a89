//! Updates of a pod (`ValidatePodUpdate` and `ValidatePodEphemeralContainersUpdate`).

use serde_json::Value;

use super::super::golang;
use super::super::path::{Errors, Path};
use super::{annotations, container, diff, scheduling};
use crate::obj::{Obj, as_obj, children, int, list, object, text};

const MUTABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// An update of the pod itself, which is checked as a new one before (`ValidatePodUpdate`).
pub(in super::super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    annotations::update(old, new, &Path::new("metadata").field("annotations"), errors);
    let counted = images("containers", "containers", before, after, &path, errors)
        && images("initContainers", "containers", before, after, &path, errors);
    if !counted || !deadline(before, after, &path, errors) {
        return;
    }
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
        errors.forbidden(&path, &format!("{MUTABLE}\n{}", diff::changes(before, &munged)));
    }
}

/// `ValidateContainerUpdates`; false: there is nothing to compare.
fn images(key: &str, what: &str, before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) -> bool {
    let at = path.field(key);
    if list(before, key).len() != list(after, key).len() {
        errors.forbidden(&at, &format!("pod updates may not add or remove {what}"));
        return false;
    }
    for (i, c) in list(after, key).iter().map(as_obj).enumerate() {
        let here = at.index(i);
        if text(c, "image").is_empty() {
            errors.required(&here.field("image"), "");
        }
        container::trimmed_image(c, &here, errors);
    }
    true
}

/// A deadline may be set or reduced. False: the remaining checks don't run.
fn deadline(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) -> bool {
    let at = path.field("activeDeadlineSeconds");
    match (int(before, "activeDeadlineSeconds"), int(after, "activeDeadlineSeconds")) {
        (was, Some(is)) => {
            if !(0..=i64::from(i32::MAX)).contains(&is) {
                errors.invalid(&at, is, "must be between 0 and 2147483647, inclusive");
                return false;
            }
            if was.is_some_and(|was| was < is) {
                errors.invalid(&at, is, "must be less than or equal to previous value");
                return false;
            }
        }
        (Some(_), None) => {
            errors.invalid(&at, Value::Null, "must not update from a positive integer to nil value");
        }
        (None, None) => {}
    }
    true
}

/// Tolerations may be added; existing ones may only change their seconds.
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
        return;
    }
    scheduling::tolerations(list(after, "tolerations"), &path.field("tolerations"), errors);
}

/// Restores the mutable fields.
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
    const GRACE: &str = "terminationGracePeriodSeconds";
    if let Some(was) = int(before, GRACE).filter(|s| *s < 0 && int(munged, GRACE) == Some(1)) {
        munged.insert(GRACE.to_owned(), was.into());
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
    let [was, is] = [before, after].map(|spec| object(object(spec, "affinity"), "nodeAffinity"));
    if was == is {
        return;
    }
    node_affinity(was, is, path, errors);
    // Node affinity was checked before; the rest of the affinity is immutable.
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
    let [old, new] = [was, is].map(|a| list(object(a, REQUIRED), "nodeSelectorTerms"));
    if old.is_empty() {
        return;
    }
    if old.len() != new.len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        let shown = golang::shown("[]NodeSelectorTerm", object(is, REQUIRED).get("nodeSelectorTerms"));
        errors.invalid_text(&at, shown, detail);
        return;
    }
    for (i, (old, new)) in old.iter().zip(new).enumerate() {
        let (old, new) = (as_obj(old), as_obj(new));
        let kept = |key: &str| {
            let (a, b) = (list(old, key), list(new, key));
            b.len() >= a.len() && a.iter().zip(b).all(|(x, y)| x == y)
        };
        let empty = list(old, "matchExpressions").is_empty() && list(old, "matchFields").is_empty();
        if empty || !kept("matchExpressions") || !kept("matchFields") {
            let detail = "only additions are allowed (no mutations or deletions)";
            errors.invalid_text(&at.index(i), golang::structure("NodeSelectorTerm", new), detail);
        }
    }
}

/// An update through `ephemeralcontainers`.
pub(in super::super) fn ephemeral_containers(old: &Obj, new: &Obj, errors: &mut Errors) {
    super::whole(new, errors);
    annotations::update(old, new, &Path::new("metadata").field("annotations"), errors);
    if annotations::is_mirror(old) {
        errors.0.clear();
        errors.forbidden(&Path::new(""), "static pods do not support ephemeral containers");
        return;
    }
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
