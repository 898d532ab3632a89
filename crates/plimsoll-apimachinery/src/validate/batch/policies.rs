//! Policies of jobs for failure and success.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::{checks, golang};
use crate::go::go_quote;
use crate::obj::{Obj, as_obj, has, int, list, object, text};

/// The failure policy of a job (`validatePodFailurePolicy`).
pub(super) fn failure(policy: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let rules = list(policy, "rules");
    let at = path.field("rules");
    if rules.len() > 20 {
        errors.too_many(&at, rules.len(), 20);
    }
    let pod = object(object(spec, "template"), "spec");
    let names: Vec<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|key| list(pod, key))
        .map(|c| text(as_obj(c), "name"))
        .collect();
    let per_index = has(spec, "backoffLimitPerIndex");
    for (i, rule) in rules.iter().map(as_obj).enumerate() {
        failure_rule(rule, &names, per_index, &at.index(i), errors);
    }
}

fn failure_rule(rule: &Obj, names: &[&str], per_index: bool, path: &Path<'_>, errors: &mut Errors) {
    let at = path.field("action");
    match text(rule, "action") {
        "" => errors.required(&at, r#"valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#),
        "FailIndex" if !per_index => {
            errors.invalid(&at, "FailIndex", "requires the backoffLimitPerIndex to be set");
        }
        action => errors.one_of(&at, action, &["Count", "FailIndex", "FailJob", "Ignore"]),
    }
    let codes = rule.get("onExitCodes").and_then(Value::as_object);
    let conditions = list(rule, "onPodConditions");
    if let Some(codes) = codes {
        exit_codes(codes, names, &path.field("onExitCodes"), errors);
    }
    let at = path.field("onPodConditions");
    if conditions.len() > 20 {
        errors.too_many(&at, conditions.len(), 20);
    }
    for (i, condition) in conditions.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let kind = text(condition, "type");
        errors.invalid_all(&here.field("type"), kind, &checks::qualified_name(kind));
        match text(condition, "status") {
            "" => errors.required(&here.field("status"), r#"valid values: ["False" "True" "Unknown"]"#),
            status => errors.one_of(&here.field("status"), status, &["False", "True", "Unknown"]),
        }
    }
    match (codes.is_some(), conditions.is_empty()) {
        (true, false) => {
            errors.invalid_unseen(path, "specifying both OnExitCodes and OnPodConditions is not supported");
        }
        (false, true) => {
            errors.invalid_unseen(path, "specifying one of OnExitCodes and OnPodConditions is required");
        }
        _ => {}
    }
}

fn exit_codes(codes: &Obj, names: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let operator = text(codes, "operator");
    let at = path.field("operator");
    match operator {
        "" => errors.required(&at, r#"valid values: ["In" "NotIn"]"#),
        operator => errors.one_of(&at, operator, &["In", "NotIn"]),
    }
    if let Some(name) = codes.get("containerName").and_then(Value::as_str)
        && !names.contains(&name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.field("containerName"), name, detail);
    }
    let values = list(codes, "values");
    let at = path.field("values");
    if values.is_empty() {
        let shown = codes.get("values").cloned().unwrap_or_default();
        errors.invalid(&at, shown, "at least one value is required");
    } else if values.len() > 255 {
        errors.too_many(&at, values.len(), 255);
    }
    let numbers: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let mut seen = BTreeSet::new();
    for (i, n) in numbers.iter().enumerate() {
        if operator == "In" && *n == 0 {
            errors.invalid(&at.index(i), *n, "must not be 0 for the In operator");
        }
        if !seen.insert(*n) {
            errors.duplicate(&at.index(i), *n);
        }
    }
    if !numbers.is_sorted() {
        errors.invalid(&at, Value::Array(values.to_vec()), "must be ordered");
    }
}

/// When a job has succeeded (`validateSuccessPolicy`).
pub(super) fn success(policy: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let rules = list(policy, "rules");
    if text(spec, "completionMode") != "Indexed" {
        let shown = golang::structure("SuccessPolicy", policy);
        errors.invalid_text(path, shown, "requires indexed completion mode");
        return;
    }
    let at = path.field("rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(&at, detail);
    } else if rules.len() > 20 {
        errors.too_many(&at, rules.len(), 20);
    }
    let completions = int(spec, "completions").unwrap_or(0);
    for (i, rule) in rules.iter().map(as_obj).enumerate() {
        let here = at.index(i);
        let indexes = rule.get("succeededIndexes").and_then(Value::as_str);
        if indexes.is_none() && !has(rule, "succeededCount") {
            errors.required(&here, "at least one of succeededCount or succeededIndexes must be specified");
        }
        let mut selected = None;
        if let Some(indexes) = indexes {
            if indexes.len() > 64 * 1024 {
                errors.too_long(&here.field("succeededIndexes"), 64 * 1024);
            }
            match count_indexes(indexes, completions) {
                Ok(n) => selected = Some(n),
                Err(why) => {
                    selected = Some(0);
                    let detail = format!("error parsing succeededIndexes: {why}");
                    errors.invalid(&here.field("succeededIndexes"), indexes, &detail);
                }
            }
        }
        if let Some(count) = int(rule, "succeededCount") {
            let at = here.field("succeededCount");
            errors.non_negative(&at, Some(count));
            if count > completions {
                let detail = format!(
                    "must be less than or equal to {completions} (the number of specified completions)"
                );
                errors.invalid(&at, count, &detail);
            }
            if let Some(n) = selected.filter(|n| count > *n) {
                let detail = format!(
                    "must be less than or equal to {n} (the number of indexes in the specified succeededIndexes field)"
                );
                errors.invalid(&at, count, &detail);
            }
        }
    }
}

/// The number of indexes in a text like `0,2-4`.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut previous: Option<i64> = None;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let ends: Vec<&str> = part.split('-').collect();
        if ends.len() > 2 {
            return Err(format!(
                "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
                go_quote(part)
            ));
        }
        let number = |t: &str| {
            let n: i64 = t
                .parse()
                .map_err(|_| format!("cannot convert string to integer for index: {}", go_quote(t)))?;
            if n >= completions { Err(format!("too large index: {}", go_quote(t))) } else { Ok(n) }
        };
        let first = number(ends.first().copied().unwrap_or_default())?;
        let last = match ends.get(1) {
            Some(end) => number(end)?,
            None => first,
        };
        if ends.len() == 2 && first >= last {
            return Err(format!("non-increasing order, previous: {first}, current: {last}"));
        }
        if let Some(previous) = previous.filter(|p| *p >= first) {
            return Err(format!("non-increasing order, previous: {previous}, current: {first}"));
        }
        total += last - first + 1;
        previous = Some(last);
    }
    Ok(total)
}
