//! apps/v1 and the older `ReplicationController`.

mod daemon_set;
mod stateful_set;
mod status;

use serde_json::Value;

use super::path::{Errors, IMMUTABLE, Path};
use super::{checks, golang, pod, selector};
use crate::obj::{Obj, has, int, object, text};

pub(super) use daemon_set::daemon_set;
pub(super) use stateful_set::{new_stateful_set, stateful_set, stateful_set_update};
pub(super) use status::{daemon_set_status, deployment_status, replica_set_status, stateful_set_status};

/// apps/v1 Deployment.
pub(super) fn deployment(o: &Obj, errors: &mut Errors) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    errors.non_negative(&path.field("replicas"), int(spec, "replicas"));
    selected_template(spec, "deployment", &path, errors);
    strategy(object(spec, "strategy"), &path.field("strategy"), errors);
    for key in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        errors.non_negative(&path.field(key), int(spec, key));
    }
    let ready = int(spec, "minReadySeconds").unwrap_or(0);
    if let Some(seconds) = int(spec, "progressDeadlineSeconds").filter(|s| *s <= ready) {
        errors.invalid(
            &path.field("progressDeadlineSeconds"),
            seconds,
            "must be greater than minReadySeconds",
        );
    }
}

/// apps/v1 `ReplicaSet`.
pub(super) fn replica_set(o: &Obj, errors: &mut Errors) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    errors.non_negative(&path.field("replicas"), int(spec, "replicas"));
    errors.non_negative(&path.field("minReadySeconds"), int(spec, "minReadySeconds"));
    selected_template(spec, "deployment", &path, errors);
}

/// The selector, which must not be empty.
fn selector_of<'a>(spec: &'a Obj, what: &str, path: &Path<'_>, errors: &mut Errors) -> Option<&'a Obj> {
    let Some(chosen) = spec.get("selector").and_then(Value::as_object) else {
        errors.required(path, "");
        return None;
    };
    selector::label_selector(chosen, path, errors);
    if selector::is_empty(chosen) {
        let detail = format!("empty selector is invalid for {what}");
        errors.invalid_text(path, selector::shown(chosen), &detail);
    }
    Some(chosen)
}

/// The selector, and the template it has to match.
fn selected_template(spec: &Obj, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("selector");
    let chosen = selector_of(spec, what, &at, errors);
    if let Some(chosen) = chosen.filter(|s| !selector::is_usable(s)) {
        errors.invalid_text(&at, selector::shown(chosen), "invalid label selector");
        return;
    }
    let template = object(spec, "template");
    let here = path.field("template");
    let empty = chosen.is_some_and(selector::is_empty);
    if !empty {
        matches(chosen, template, &here, errors);
    }
    pod::template(template, &here, errors);
    always_restarted(template, "ReplicaSet", &here, errors);
}

/// The template's labels match; a missing selector matches nothing.
fn matches(chosen: Option<&Obj>, template: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let labels = object(object(template, "metadata"), "labels");
    if !chosen.is_some_and(|chosen| selector::matches(chosen, labels)) {
        let metadata = path.field("metadata");
        errors.invalid(
            &metadata.field("labels"),
            shown_labels(labels),
            "`selector` does not match template `labels`",
        );
    }
}

/// Labels as Go prints them: none is `null`.
pub(super) fn shown_labels(labels: &Obj) -> Value {
    if labels.is_empty() { Value::Null } else { Value::Object(labels.clone()) }
}

/// Pods of controllers run until they are deleted.
fn always_restarted(template: &Obj, what: &str, path: &Path<'_>, errors: &mut Errors) {
    let spec = object(template, "spec");
    let at = path.field("spec");
    let policy = text(spec, "restartPolicy");
    if policy != "Always" {
        errors.not_supported(&at.field("restartPolicy"), policy, &["Always"]);
    }
    if has(spec, "activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {what} is not Supported");
        errors.forbidden(&at.field("activeDeadlineSeconds"), &detail);
    }
}

/// The strategy of a Deployment.
fn strategy(strategy: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("rollingUpdate");
    let rolling = strategy.get("rollingUpdate").and_then(Value::as_object);
    match (text(strategy, "type"), rolling) {
        ("Recreate", Some(_)) => {
            errors.forbidden(&at, "may not be specified when strategy `type` is 'Recreate'");
        }
        ("Recreate", None) => {}
        ("RollingUpdate", None) => errors.required(&at, "this should be defaulted and never be nil"),
        ("RollingUpdate", Some(rolling)) => {
            let (down, up) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            int_or_percent(down, &at.field("maxUnavailable"), errors);
            int_or_percent(up, &at.field("maxSurge"), errors);
            if amount(down) == 0 && amount(up) == 0 {
                let value = down.cloned().unwrap_or_default();
                errors.invalid(&at.field("maxUnavailable"), value, "may not be 0 when `maxSurge` is 0");
            }
            at_most_all(down, &at.field("maxUnavailable"), errors);
        }
        _ => {
            let shown = golang::structure("DeploymentStrategy", strategy);
            errors.not_supported_text(path, shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

/// `ValidatePositiveIntOrPercent`.
pub(super) fn int_or_percent(value: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Some(Value::String(text)) => errors.invalid_all(path, text, &checks::percent(text)),
        Some(value) => errors.non_negative(path, value.as_i64()),
        None => {}
    }
}

/// `IsNotMoreThan100Percent`.
pub(super) fn at_most_all(value: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    if let Some(Value::String(text)) = value
        && checks::percent(text).is_empty()
        && amount(value) > 100
    {
        errors.invalid(path, text.as_str(), "must not be greater than 100%");
    }
}

/// The number in an integer or percentage.
fn amount(value: Option<&Value>) -> i64 {
    match value {
        Some(Value::String(text)) if checks::percent(text).is_empty() => {
            text.trim_end_matches('%').parse().unwrap_or(0)
        }
        Some(Value::String(text)) => text.parse().unwrap_or(0),
        Some(value) => value.as_i64().unwrap_or(0),
        None => 0,
    }
}

/// Selectors of workloads are for good.
pub(super) fn selector_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let (before, after) = (object(old, "spec"), object(new, "spec"));
    if before.get("selector") != after.get("selector") {
        let path = Path::new("spec");
        let shown = after.get("selector").and_then(Value::as_object);
        let shown = shown.map_or_else(|| "null".to_owned(), selector::shown);
        errors.invalid_text(&path.field("selector"), shown, IMMUTABLE);
    }
}

/// core/v1 `ReplicationController`.
pub(super) fn replication_controller(o: &Obj, errors: &mut Errors) {
    let spec = object(o, "spec");
    let path = Path::new("spec");
    errors.non_negative(&path.field("minReadySeconds"), int(spec, "minReadySeconds"));
    let chosen = object(spec, "selector");
    if chosen.is_empty() {
        errors.required(&path.field("selector"), "");
    }
    errors.non_negative(&path.field("replicas"), int(spec, "replicas"));
    let here = path.field("template");
    if !has(spec, "template") {
        errors.required(&here, "");
        return;
    }
    let template = object(spec, "template");
    let labels = object(object(template, "metadata"), "labels");
    if chosen.iter().any(|(key, value)| labels.get(key) != Some(value)) {
        let metadata = here.field("metadata");
        errors.invalid(
            &metadata.field("labels"),
            shown_labels(labels),
            "`selector` does not match template `labels`",
        );
    }
    pod::template(template, &here, errors);
    always_restarted(template, "ReplicationController", &here, errors);
}

/// apps/v1 `ControllerRevision`.
pub(super) fn controller_revision(o: &Obj, errors: &mut Errors) {
    errors.non_negative(&Path::new("revision"), int(o, "revision"));
}

/// A new revision: its data is any object.
pub(super) fn new_controller_revision(o: &Obj, errors: &mut Errors) {
    controller_revision(o, errors);
    let path = Path::new("data");
    match o.get("data") {
        None | Some(Value::Null) => errors.required(&path, "data is mandatory"),
        Some(Value::Object(_)) => {}
        Some(_) => errors.required(&path, "data must be a valid JSON object"),
    }
}

/// The data of a revision is for good. Upstream compares its text, which a change of the number writes anew.
pub(super) fn controller_revision_update(old: &Obj, new: &Obj, errors: &mut Errors) {
    if old.get("data") != new.get("data") || old.get("revision") != new.get("revision") {
        errors.invalid(&Path::new("data"), new.get("data").cloned().unwrap_or_default(), IMMUTABLE);
    }
}
