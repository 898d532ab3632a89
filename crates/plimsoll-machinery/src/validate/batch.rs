//! batch/v1.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::apps::shown_labels;
use super::path::{Errors, IMMUTABLE, Path};
use super::{checks, cron, golang, pod, selector};
use crate::decode::go_quote;
use crate::obj::{Obj, as_obj, child, children, flag, has, int, list, object, text};

/// Most pods of an indexed job at a time.
const MAX_INDEXED: i64 = 100_000;

/// batch/v1 Job.
pub(super) fn job(job: &Obj, errors: &mut Errors) {
    let spec = object(job, "spec");
    let path = Path::new("spec");
    generated_selector(job, errors);
    job_spec(spec, &path, errors);
    let indexed = text(spec, "completionMode") == "Indexed";
    if indexed && let Some(completions) = int(spec, "completions").filter(|n| *n > 0) {
        let name = text(object(job, "metadata"), "name");
        let last = format!("{name}-{}", completions - 1);
        if !checks::dns_label(&last).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {last}");
            errors.invalid(&Path::new("metadata").field("name"), name, &detail);
        }
    }
}

/// A generated selector selects the labels that were generated (`ValidateGeneratedSelector`).
fn generated_selector(job: &Obj, errors: &mut Errors) {
    let spec = object(job, "spec");
    if flag(spec, "manualSelector") || !has(spec, "selector") {
        return;
    }
    let meta = object(job, "metadata");
    let (uid, name) = (text(meta, "uid"), text(meta, "name"));
    if uid.is_empty() {
        errors.required(&Path::new("metadata").field("uid"), "");
    }
    let labels = object(object(object(spec, "template"), "metadata"), "labels");
    let expected: [(&str, &str); 4] = [
        ("controller-uid", uid),
        ("job-name", name),
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name),
    ];
    let (root, at, here) = (Path::new("spec"), "template", "metadata");
    let template = root.field(at);
    let metadata = template.field(here);
    let label_path = metadata.field("labels");
    for (key, value) in expected {
        let detail = format!("must be '{value}'");
        match labels.get(key).and_then(Value::as_str) {
            None => errors.required(&label_path.key(key), &detail),
            Some(found) if found != value => {
                errors.invalid(&label_path.key(key), shown_labels(labels), &detail);
            }
            Some(_) => {}
        }
    }
    let generated: Obj = expected.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    let chosen = object(spec, "selector");
    if selector::is_usable(chosen) && !selector::matches(chosen, &generated) {
        let detail = "`selector` not auto-generated";
        errors.invalid_text(&root.field("selector"), selector::shown(chosen), detail);
    }
}

/// `ValidateJobSpec`.
fn job_spec(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    unselected(spec, path, errors);
    let at = path.field("selector");
    let chosen = spec.get("selector").and_then(Value::as_object);
    match chosen {
        None => errors.required(&at, ""),
        Some(chosen) => selector::label_selector(chosen, &at, errors),
    }
    if chosen.is_none_or(selector::is_usable) {
        let labels = object(object(object(spec, "template"), "metadata"), "labels");
        if !chosen.is_some_and(|chosen| selector::matches(chosen, labels)) {
            let template = path.field("template");
            let metadata = template.field("metadata");
            let detail = "`selector` does not match template `labels`";
            errors.invalid(&metadata.field("labels"), shown_labels(labels), detail);
        }
    }
}

/// A job's spec without its selector, as in a job template (`validateJobSpec`).
fn unselected(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    for key in counts {
        errors.non_negative(&path.field(key), int(spec, key));
    }
    if has(spec, "maxFailedIndexes") && !has(spec, "backoffLimitPerIndex") {
        errors.required(&path.field("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if let Some(manager) = spec.get("managedBy").and_then(Value::as_str) {
        let at = path.field("managedBy");
        domain_prefixed(manager, &at, errors);
        if manager.len() > 63 {
            errors.too_long(&at, 63);
        }
    }
    completion_mode(spec, path, errors);
    if let Some(policy) = spec.get("podFailurePolicy").and_then(Value::as_object) {
        failure_policy(policy, spec, &path.field("podFailurePolicy"), errors);
    }
    if let Some(policy) = spec.get("successPolicy").and_then(Value::as_object) {
        success_policy(policy, spec, &path.field("successPolicy"), errors);
    }
    if let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) {
        let at = path.field("podReplacementPolicy");
        let allowed: &[&str] =
            if has(spec, "podFailurePolicy") { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
        errors.one_of(&at, policy, allowed);
    }
    let template = path.field("template");
    pod::template(object(spec, "template"), &template, errors);
    let pod_path = template.field("spec");
    let at = pod_path.field("restartPolicy");
    let policy = text(object(object(spec, "template"), "spec"), "restartPolicy");
    match policy {
        "" | "Always" => errors.required(&at, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if has(spec, "podFailurePolicy") => {
            errors.invalid(&at, policy, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        "OnFailure" | "Never" => {}
        other => errors.not_supported(&at, other, &["OnFailure", "Never"]),
    }
}

/// `IsDomainPrefixedPath`.
pub(super) fn domain_prefixed(text: &str, path: &Path<'_>, errors: &mut Errors) {
    const PATH: &str = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
    if text.is_empty() {
        errors.required(path, "");
        return;
    }
    let Some((domain, rest)) = text.split_once('/').filter(|(d, p)| !d.is_empty() && !p.is_empty()) else {
        errors.invalid(path, text, "must be a domain-prefixed path (such as \"acme.io/foo\")");
        return;
    };
    errors.invalid_all(path, domain, &checks::dns_subdomain(domain));
    if !rest.bytes().all(|c| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c)) {
        errors.invalid(path, rest, PATH);
    }
}

fn completion_mode(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let mode = spec.get("completionMode").and_then(Value::as_str);
    if let Some(mode) = mode {
        errors.one_of(&path.field("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    match mode {
        Some("Indexed") => indexed(spec, path, errors),
        None | Some("NonIndexed") => {
            for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(value) = int(spec, key) {
                    errors.invalid(&path.field(key), value, "requires indexed completion mode");
                }
            }
        }
        Some(_) => {}
    }
}

fn indexed(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    let completions = int(spec, "completions");
    let parallelism = int(spec, "parallelism");
    let failed = int(spec, "maxFailedIndexes");
    let at = path.field("maxFailedIndexes");
    if completions.is_none() {
        errors.required(&path.field("completions"), "when completion mode is Indexed");
    }
    if let Some(parallelism) = parallelism.filter(|p| *p > MAX_INDEXED) {
        let detail = "must be less than or equal to 100000 when completion mode is Indexed";
        errors.invalid(&path.field("parallelism"), parallelism, detail);
    }
    if let (Some(failed), Some(all)) = (failed, completions)
        && failed > all
    {
        errors.invalid(&at, failed, "must be less than or equal to completions");
    }
    if let Some(failed) = failed.filter(|f| *f > MAX_INDEXED) {
        errors.invalid(&at, failed, "must be less than or equal to 100000");
    }
    if completions.is_some_and(|n| n > MAX_INDEXED) && has(spec, "backoffLimitPerIndex") {
        per_index_limits(failed, parallelism, path, errors);
    }
}

/// Jobs with very many indexes have to be modest about failures.
fn per_index_limits(failed: Option<i64>, parallelism: Option<i64>, path: &Path<'_>, errors: &mut Errors) {
    const MAX: i64 = 10_000;
    const DETAIL: &str = "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index";
    let at = path.field("maxFailedIndexes");
    if failed.is_none() {
        errors.required(&at, "must be specified when completions is above 100000");
    }
    if let Some(parallelism) = parallelism.filter(|p| *p > MAX) {
        errors.invalid(&path.field("parallelism"), parallelism, DETAIL);
    }
    if let Some(failed) = failed.filter(|f| *f > MAX) {
        errors.invalid(&at, failed, DETAIL);
    }
}

fn failure_policy(policy: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
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

fn success_policy(policy: &Obj, spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
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

/// How many indexes a text like `0,2-4` names.
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

/// What may change of a job.
pub(super) fn job_update(old: &Obj, new: &Obj, errors: &mut Errors) {
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

/// Templates are fixed, but for what queueing changes while a job is suspended and has no pods
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
    let stopped = !has(status, "startTime") || super::job_status::is_true(status, "Suspended");
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

/// Puts back what may change of a suspended job's template.
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
    copy(old_spec, spec, &["nodeSelector", "tolerations", "schedulingGates", "resources"]);
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

/// batch/v1 `CronJob`.
pub(super) fn cron_job(cron_job: &Obj, errors: &mut Errors) {
    let spec = object(cron_job, "spec");
    let path = Path::new("spec");
    let schedule = text(spec, "schedule");
    let at = path.field("schedule");
    if schedule.is_empty() {
        errors.required(&at, "");
    } else {
        if let Err(why) = cron::check(schedule) {
            errors.invalid(&at, schedule, &why);
        }
        if schedule.contains("TZ") {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.invalid(&at, schedule, detail);
        }
    }
    errors.non_negative(&path.field("startingDeadlineSeconds"), int(spec, "startingDeadlineSeconds"));
    if let Some(zone) = spec.get("timeZone").and_then(Value::as_str) {
        time_zone(zone, &path.field("timeZone"), errors);
    }
    let at = path.field("concurrencyPolicy");
    errors.choice(&at, text(spec, "concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
    let template = path.field("jobTemplate");
    let job = object(object(spec, "jobTemplate"), "spec");
    let here = template.field("spec");
    unselected(job, &here, errors);
    if let Some(chosen) = job.get("selector").and_then(Value::as_object) {
        let detail = "`selector` will be auto-generated";
        errors.invalid_text(&here.field("selector"), selector::shown(chosen), detail);
    }
    if flag(job, "manualSelector") {
        errors.not_supported(&here.field("manualSelector"), true, &["nil", "false"]);
    }
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.non_negative(&path.field(key), int(spec, key));
    }
    let name = text(object(cron_job, "metadata"), "name");
    if name.len() > 52 {
        errors.invalid(&Path::new("metadata").field("name"), name, "must be no more than 52 characters");
    }
}

fn time_zone(zone: &str, path: &Path<'_>, errors: &mut Errors) {
    if zone.is_empty() {
        errors.invalid(path, zone, "timeZone must be nil or non-empty string");
        return;
    }
    let named = |part: &str| {
        (1..=14).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b))
            && !matches!(part, "." | "..")
            && !part.starts_with('-')
    };
    if !zone.split('/').all(named) {
        errors.invalid(path, zone, &format!("unknown time zone {zone}"));
        return;
    }
    if zone.eq_ignore_ascii_case("local") {
        errors.invalid(
            path,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
    if !cron::is_zone(zone) {
        errors.invalid(path, zone, &format!("unknown time zone {zone}"));
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
}
