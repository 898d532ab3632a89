//! The status of a Job (`ValidateJobUpdateStatus`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::golang;
use super::super::path::{Errors, Path};
use super::policies::count_indexes;
use crate::obj::{Obj, as_obj, flag, has, int, list, object, text};

pub(super) fn is_true(status: &Obj, kind: &str) -> bool {
    list(status, "conditions")
        .iter()
        .map(as_obj)
        .any(|c| text(c, "type") == kind && text(c, "status") == "True")
}

fn is_false(status: &Obj, kind: &str) -> bool {
    list(status, "conditions")
        .iter()
        .map(as_obj)
        .any(|c| text(c, "type") == kind && text(c, "status") == "False")
}

fn finished(status: &Obj) -> bool {
    is_true(status, "Complete") || is_true(status, "Failed")
}

/// A job, its status before and the status it is to have.
struct Change<'a> {
    spec: &'a Obj,
    was: &'a Obj,
    is: &'a Obj,
}

impl Change<'_> {
    /// Whether one of these fields of the status differs.
    fn fields(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| {
            let value = |o: &Obj| o.get(*key).filter(|v| !v.is_null()).cloned();
            value(self.was) != value(self.is)
        })
    }

    /// Whether one of these conditions became true, or no longer is.
    fn conditions(&self, kinds: &[&str]) -> bool {
        kinds.iter().any(|kind| is_true(self.was, kind) != is_true(self.is, kind))
    }

    fn finished(&self) -> bool {
        finished(self.was) != finished(self.is)
    }
}

/// Update of a job's status. Most rules apply to changed values only (`getStatusValidationOptions`), because a valid
/// status may be behind its spec.
pub(in super::super) fn update(old: &Obj, new: &Obj, errors: &mut Errors) {
    let path = Path::new("status");
    let change = Change { spec: object(new, "spec"), was: object(old, "status"), is: object(new, "status") };
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.non_negative(&path.field(key), int(change.is, key));
    }
    uncounted(&change, &path, errors);
    numbers(&change, &path, errors);
    times(&change, &path, errors);
    indexes(&change, &path, errors);
    conditions(&change, &path, errors);
    changes(&change, &path, errors);
}

/// Pods that ended and were not counted yet.
fn uncounted(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let pods = object(change.is, "uncountedTerminatedPods");
    let at = path.field("uncountedTerminatedPods");
    let mut seen = BTreeSet::new();
    for key in ["succeeded", "failed"] {
        let here = at.field(key);
        for (i, uid) in list(pods, key).iter().map(|u| u.as_str().unwrap_or_default()).enumerate() {
            if uid.is_empty() {
                errors.invalid(&here.index(i), uid, "must not be empty");
            } else if seen.contains(uid) {
                errors.duplicate(&here.index(i), uid);
            }
            seen.insert(uid);
        }
    }
    let changed = change.finished() || change.fields(&["uncountedTerminatedPods"]);
    if changed && finished(change.is) && !seen.is_empty() {
        let shown = golang::structure("UncountedTerminatedPods", pods);
        errors.invalid_text(&at, shown, "must be empty for finished job");
    }
}

/// Indexes that completed or failed.
fn indexes(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (spec, is) = (change.spec, change.is);
    let (done, failed) = (text(is, "completedIndexes"), is.get("failedIndexes").and_then(Value::as_str));
    let (done_path, failed_path) = (path.field("completedIndexes"), path.field("failedIndexes"));
    let done_changed = text(change.was, "completedIndexes") != done;
    let failed_changed = change.fields(&["failedIndexes"]);
    let per_index = has(spec, "backoffLimitPerIndex");
    let completions = int(spec, "completions");
    if let Some(all) = completions {
        if let Err(why) = count_indexes(done, all)
            && done_changed
        {
            errors.invalid(&done_path, done, &format!("error parsing completedIndexes: {why}"));
        }
        if let Some(failed) = failed.filter(|_| per_index && failed_changed)
            && let Err(why) = count_indexes(failed, all)
        {
            errors.invalid(&failed_path, failed, &format!("error parsing failedIndexes: {why}"));
        }
    }
    if done_changed && text(spec, "completionMode") != "Indexed" && !done.is_empty() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(&done_path, done, detail);
    }
    let Some(failed) = failed else { return };
    if failed_changed && !per_index {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(&failed_path, failed, detail);
    }
    let overlap = completions.and_then(|all| first_in_both(done, failed, all));
    if let Some(index) = overlap.filter(|_| done_changed || failed_changed) {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.invalid(&failed_path, failed, &detail);
    }
}

/// The first index that is in both texts; parts that can't be read are passed over.
fn first_in_both(done: &str, failed: &str, completions: i64) -> Option<i64> {
    let ranges = |text: &str| -> Vec<(i64, i64)> {
        let readable =
            text.split(',').filter(|part| !part.is_empty() && count_indexes(part, completions).is_ok());
        readable
            .filter_map(|part| {
                let (first, last) = part.split_once('-').unwrap_or((part, part));
                Some((first.parse().ok()?, last.parse().ok()?))
            })
            .collect()
    };
    let (done, failed) = (ranges(done), ranges(failed));
    let (mut i, mut j) = (0, 0);
    while let (Some((a, b)), Some((c, d))) = (done.get(i), failed.get(j)) {
        if a <= d && c <= b {
            return Some(*a.max(c));
        }
        if a <= c {
            i += 1;
        } else {
            j += 1;
        }
    }
    None
}

fn numbers(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let is = change.is;
    for key in ["active", "terminating"] {
        let changed = change.finished() || change.fields(&[key]);
        if let Some(n) = int(is, key).filter(|n| *n > 0 && changed && finished(is)) {
            errors.invalid(&path.field(key), n, &format!("{key}>0 is invalid for finished job"));
        }
    }
    let active = int(is, "active").unwrap_or(0);
    let changed = change.fields(&["ready", "active"]);
    if let Some(ready) = int(is, "ready").filter(|ready| changed && *ready > active) {
        errors.invalid(&path.field("ready"), ready, "cannot set more ready pods than active");
    }
}

fn times(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let is = change.is;
    let at = path.field("completionTime");
    let (start, time) = (text(is, "startTime"), text(is, "completionTime"));
    if change.conditions(&["Complete"]) || change.fields(&["completionTime"]) {
        match (is_true(is, "Complete"), time.is_empty()) {
            (true, true) => errors.required(&at, "completionTime is required for Complete jobs"),
            (false, false) => {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                errors.invalid(&at, time, detail);
            }
            _ => {}
        }
    }
    let changed = change.fields(&["startTime", "completionTime"]);
    if changed && !time.is_empty() && !start.is_empty() && time < start {
        errors.invalid(&at, time, "must be equal to or after `startTime`");
    }
    let nothing = flag(change.spec, "suspend") && int(change.spec, "completions") == Some(0);
    let changed = change.finished() || change.fields(&["startTime"]);
    if changed && finished(is) && start.is_empty() && !nothing {
        errors.required(&path.field("startTime"), "startTime is required for finished job");
    }
}

/// Conditions that rule each other out, or need one another.
fn conditions(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("conditions");
    let has = |kind: &str| is_true(change.is, kind);
    let mut refuse = |wrong: bool, detail: &str| {
        if wrong {
            errors.invalid_unseen(&at, detail);
        }
    };
    let changed = |kinds: &[&str]| change.conditions(kinds);
    refuse(
        changed(&["Complete", "Failed"]) && has("Complete") && has("Failed"),
        "cannot set Complete=True and Failed=true conditions",
    );
    refuse(
        changed(&["Complete", "FailureTarget"]) && has("Complete") && has("FailureTarget"),
        "cannot set Complete=True and FailureTarget=true conditions",
    );
    refuse(
        (changed(&["Failed"]) || change.fields(&["failedIndexes"])) && has("Failed") && !has("FailureTarget"),
        "cannot set Failed=True condition without the FailureTarget=true condition",
    );
    refuse(
        changed(&["Complete", "SuccessCriteriaMet"]) && has("Complete") && !has("SuccessCriteriaMet"),
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
    );
    refuse(
        has("SuccessCriteriaMet") && has("Failed"),
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
    );
    refuse(
        has("SuccessCriteriaMet") && has("FailureTarget"),
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    );
    refuse(
        change.spec.contains_key("successPolicy") && has("Complete") && !has("SuccessCriteriaMet"),
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
    );
}

/// Changes that a status must not revert.
fn changes(change: &Change<'_>, path: &Path<'_>, errors: &mut Errors) {
    let (spec, was, is) = (change.spec, change.was, change.is);
    let at = path.field("conditions");
    let gone = |kind: &str| is_true(was, kind) && !is_true(is, kind);
    for kind in ["Failed", "Complete", "FailureTarget"].into_iter().filter(|kind| gone(kind)) {
        errors.invalid_unseen(&at, &format!("cannot disable the terminal {kind}=True condition"));
    }
    // Indexed jobs that may be scaled down lose indexes that succeeded.
    let resizable =
        text(spec, "completionMode") == "Indexed" && spec.get("completions") == spec.get("parallelism");
    for key in ["failed", "succeeded"] {
        let (before, after) = (int(was, key).unwrap_or(0), int(is, key).unwrap_or(0));
        if after < before && !(resizable && key == "succeeded") {
            errors.invalid(&path.field(key), after, &format!("cannot decrease the {key} counter"));
        }
    }
    let key = "completionTime";
    if has(was, key) && has(is, key) && change.fields(&[key]) {
        errors.invalid(&path.field(key), text(is, key), "field is immutable");
    }
    let resuming = is_true(was, "Suspended") && is_false(is, "Suspended");
    if has(was, "startTime") && change.fields(&["startTime"]) && !resuming && !flag(spec, "suspend") {
        let value = is.get("startTime").cloned().unwrap_or_default();
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid(&path.field("startTime"), value, detail);
    }
    if gone("SuccessCriteriaMet") {
        errors.invalid_unseen(&at, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is_true(was, "Complete") && !is_true(was, "SuccessCriteriaMet") && is_true(is, "SuccessCriteriaMet") {
        let detail = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.invalid_unseen(&at, detail);
    }
}
