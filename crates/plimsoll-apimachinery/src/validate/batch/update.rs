//! Update of a job.

use serde_json::Value;

use super::super::path::{Errors, IMMUTABLE, Path};
use super::super::{golang, selector};
use super::job_spec;
use crate::obj::{Obj, as_obj, child, children, flag, has, int, list, object, text};

/// Update of a job.
pub(in super::super) fn job_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let path = Path::new("spec");
    job_spec(after, &path, errors);
    completions_update(before, after, &path, errors);
    if before.get("selector") != after.get("selector") {
        let shown = after.get("selector").and_then(Value::as_object);
        let shown = shown.map_or_else(|| "null".to_owned(), selector::shown);
        errors.invalid_text(&path.field("selector"), shown, IMMUTABLE);
    }
    template_update(old, new, &path, errors);
    errors.immutable(&path.field("completionMode"), before, after, "completionMode");
    if before.get("podFailurePolicy") != after.get("podFailurePolicy") {
        let shown = golang::shown("*PodFailurePolicy", after.get("podFailurePolicy"));
        errors.invalid_text(&path.field("podFailurePolicy"), shown, IMMUTABLE);
    }
    for key in ["backoffLimitPerIndex", "managedBy", "successPolicy"] {
        errors.immutable(&path.field(key), before, after, key);
    }
}

/// The completions of an indexed job may change together with its parallelism.
fn completions_update(before: &Obj, after: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (was, is) = (before.get("completions"), after.get("completions"));
    if was == is {
        return;
    }
    let at = path.field("completions");
    if text(after, "completionMode") != "Indexed" {
        errors.immutable(&at, before, after, "completions");
    } else if let Some(value) = is.filter(|is| Some(*is) != after.get("parallelism")) {
        errors.invalid(&at, value.clone(), "can only be modified in tandem with spec.parallelism");
    }
}

/// Templates are immutable, except for the fields that queueing changes while a job is suspended and has no pods
/// (KEP-2926, KEP-5440; `shouldAllowMutablePodTemplate`).
fn template_update(old: &Obj, new: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    let was = object(before, "template");
    let mut is = object(after, "template").clone();
    if was == &is {
        return;
    }
    let suspended = flag(before, "suspend");
    let status = object(old, "status");
    // It stopped, or has never started.
    let stopped = !has(status, "startTime") || super::status::is_true(status, "Suspended");
    let idle = stopped && int(status, "active").unwrap_or(0) == 0;
    if suspended && idle {
        restore_template(was, &mut is);
    }
    if was != &is {
        let at = path.field("template");
        if suspended && idle {
            let shown = golang::structure("PodSpec", object(object(after, "template"), "spec"));
            errors.invalid_text(&at.field("spec"), shown, IMMUTABLE);
        } else {
            let shown = golang::structure("PodTemplateSpec", object(after, "template"));
            errors.invalid_text(&at, shown, IMMUTABLE);
        }
    }
}

/// Restores the mutable fields of a suspended job's template.
fn restore_template(was: &Obj, is: &mut Obj) {
    let copy = |from: &Obj, to: &mut Obj, keys: &[&str]| {
        for key in keys {
            match from.get(*key) {
                Some(value) => to.insert((*key).to_owned(), value.clone()),
                None => to.remove(*key),
            };
        }
    };
    if let Some(meta) = child(is, "metadata") {
        copy(object(was, "metadata"), meta, &["labels", "annotations"]);
    }
    let old_spec = object(was, "spec");
    let Some(spec) = child(is, "spec") else { return };
    // of resources those of containers only (`validatePodResourceUpdatesOnly`)
    copy(old_spec, spec, &["nodeSelector", "tolerations", "schedulingGates"]);
    let node = object(object(old_spec, "affinity"), "nodeAffinity").clone();
    let mut affinity = object(spec, "affinity").clone();
    if node.is_empty() {
        affinity.remove("nodeAffinity");
    } else {
        affinity.insert("nodeAffinity".to_owned(), Value::Object(node));
    }
    if affinity.is_empty() && !has(old_spec, "affinity") {
        spec.remove("affinity");
    } else {
        spec.insert("affinity".to_owned(), Value::Object(affinity));
    }
    for key in ["containers", "initContainers"] {
        let sizes: Vec<Obj> = list(old_spec, key).iter().map(|c| as_obj(c).clone()).collect();
        for c in children(spec, key) {
            if let Some(same) = sizes.iter().find(|s| text(s, "name") == text(c, "name")) {
                copy(same, c, &["resources"]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn templates_of_stopped_jobs_change_where_queueing_changes_them() {
        let job = |suspend: bool, status: Value, selector: &str| json!({"spec": {"suspend": suspend, "template": {"spec": {"nodeSelector": {"zone": selector}}}}, "status": status});
        let started = json!({"startTime": "2026-01-01T00:00:00Z"});
        let stopped = json!({"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Suspended", "status": "True"}]});
        let active = json!({"active": 1, "conditions": [{"type": "Suspended", "status": "True"}]});
        for (suspend, status, fine) in [
            (true, json!({}), true),
            (true, stopped.clone(), true),
            (true, started.clone(), false),
            (true, active, false),
            (false, stopped, false),
            (false, json!({}), false),
        ] {
            let (old, new) = (job(suspend, status.clone(), "a"), job(suspend, status.clone(), "b"));
            let mut errors = Errors::default();
            template_update(as_obj(&old), as_obj(&new), &Path::new("spec"), &mut errors);
            assert_eq!(errors.0.is_empty(), fine, "{suspend} {status}");
        }
    }

    #[test]
    fn resources_change_in_containers_only() {
        let job = |container: &str, pod: &str| {
            let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
            json!({"spec": {"suspend": true, "template": {"spec": {"resources": cpu(pod),
                "containers": [{"name": "c", "resources": cpu(container)}]}}}})
        };
        for (container, pod, fine) in [("2", "1", true), ("1", "2", false)] {
            let (old, new) = (job("1", "1"), job(container, pod));
            let mut errors = Errors::default();
            template_update(as_obj(&old), as_obj(&new), &Path::new("spec"), &mut errors);
            assert_eq!(errors.0.is_empty(), fine, "{container} {pod}");
        }
    }
}
