//! batch/v1.

mod policies;
mod status;
mod update;

use plimsoll_state::collect::InsertEach as _;
use serde_json::{Value, json};

use super::apps::shown_labels;
use super::path::{Errors, Path};
use super::{checks, cron, pod, selector};
use crate::obj::{Obj, flag, has, int, object, text};

pub(super) use status::update as status_update;
pub(super) use update::job_update;

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
    let generated: Obj = expected.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).insert_each();
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
        policies::failure(policy, spec, &path.field("podFailurePolicy"), errors);
    }
    if let Some(policy) = spec.get("successPolicy").and_then(Value::as_object) {
        policies::success(policy, spec, &path.field("successPolicy"), errors);
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
