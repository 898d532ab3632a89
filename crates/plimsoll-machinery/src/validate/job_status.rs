//! The status of a Job (`ValidateJobUpdateStatus`).

use super::path::{Errors, Path};
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

pub(super) fn is_true(status: &Obj, kind: &str) -> bool {
    list(status, "conditions")
        .iter()
        .map(as_obj)
        .any(|c| text(c, "type") == kind && text(c, "status") == "True")
}

fn finished(status: &Obj) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

/// A new status of a job.
pub(super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    let (was, is) = (object(old, "status"), object(new, "status"));
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.non_negative(&path.field(key), int(is, key));
    }
    numbers(new, is, &path, errors);
    times(is, &path, errors);
    conditions(is, &path, errors);
    changes(new, was, is, &path, errors);
}

fn numbers(job: &Obj, is: &Obj, path: &Path<'_>, errors: &mut Errors) {
    if finished(is) {
        for key in ["active", "terminating"] {
            if let Some(n) = int(is, key).filter(|n| *n > 0) {
                let detail = format!("{key}>0 is invalid for finished job");
                errors.invalid(&path.field(key), n, &detail);
            }
        }
    }
    let active = int(is, "active").unwrap_or(0);
    if let Some(ready) = int(is, "ready").filter(|ready| *ready > active) {
        errors.invalid(&path.field("ready"), ready, "cannot set more ready pods than active");
    }
    let indexed = text(object(job, "spec"), "completionMode") == "Indexed";
    if !indexed && !text(is, "completedIndexes").is_empty() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&path.field("completedIndexes"), text(is, "completedIndexes"), detail);
    }
}

fn times(is: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("completionTime");
    let complete = is_true(is, "Complete");
    let time = text(is, "completionTime");
    match (complete, time.is_empty()) {
        (true, true) => errors.required(&at, "completionTime is required for Complete jobs"),
        (false, false) => {
            errors.invalid(&at, time, "cannot set completionTime when there is no Complete=True condition");
        }
        _ => {}
    }
    let start = text(is, "startTime");
    if finished(is) && start.is_empty() {
        errors.required(&path.field("startTime"), "startTime is required for finished job");
    }
    if !time.is_empty() && !start.is_empty() && time < start {
        errors.invalid(&at, time, "completionTime cannot be set before startTime");
    }
}

/// Conditions that rule each other out, or need one another.
fn conditions(is: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("conditions");
    let has = |kind: &str| is_true(is, kind);
    if has("Complete") && has("Failed") {
        errors.invalid_unseen(&at, "cannot set Complete=True and Failed=true conditions");
    }
    if has("Complete") && has("FailureTarget") {
        errors.invalid_unseen(&at, "cannot set Complete=True and FailureTarget=true conditions");
    }
    if has("SuccessCriteriaMet") && has("Failed") {
        errors.invalid_unseen(&at, "cannot set SuccessCriteriaMet=True and Failed=true conditions");
    }
    if has("SuccessCriteriaMet") && has("FailureTarget") {
        errors.invalid_unseen(&at, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions");
    }
    if has("Failed") && !has("FailureTarget") {
        errors
            .invalid_unseen(&at, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if has("Complete") && !has("SuccessCriteriaMet") {
        errors.invalid_unseen(
            &at,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
    }
}

fn changes(new: &Obj, was: &Obj, is: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("conditions");
    for kind in ["Failed", "Complete", "FailureTarget", "SuccessCriteriaMet"] {
        if is_true(was, kind) && !is_true(is, kind) {
            let detail = match kind {
                "Failed" | "Complete" => format!("cannot disable the terminal {kind}=True condition"),
                _ => format!("cannot disable the {kind}=True condition"),
            };
            errors.invalid_unseen(&at, &detail);
        }
    }
    if finished(was) {
        for key in ["completionTime"] {
            if was.get(key) != is.get(key) && has(was, key) && has(is, key) {
                errors.invalid(&path.field(key), is[key].clone(), "field is immutable");
            }
        }
    }
    for key in ["succeeded", "failed"] {
        let (before, after) = (int(was, key).unwrap_or(0), int(is, key).unwrap_or(0));
        let resizable = key == "succeeded" && text(object(new, "spec"), "completionMode") == "Indexed";
        if after < before && !resizable {
            errors.invalid(&path.field(key), after, &format!("cannot decrease the {key} counter"));
        }
    }
    let unsuspended = !flag(object(new, "spec"), "suspend") && !is_true(was, "Suspended");
    if unsuspended && has(was, "startTime") && was.get("startTime") != is.get("startTime") {
        let value = is.get("startTime").cloned().unwrap_or_default();
        let detail = if value.is_null() {
            "cannot unset startTime for unsuspended job"
        } else {
            "field is immutable for unsuspended job once set"
        };
        if value.is_null() {
            errors.required(&path.field("startTime"), detail);
        } else {
            errors.invalid(&path.field("startTime"), value, detail);
        }
    }
}
