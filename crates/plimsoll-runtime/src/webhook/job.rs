//! `batch/v1` Jobs.

use serde_json::{Value, json};

use super::rules::{self, Errors, annotation_path, atoi};
use super::{Operation, Review};
use crate::cache::{Cache, Kind};
use crate::jobs::batch::{is_suspended, pods_count, sync_completions};
use crate::jobs::names;
use crate::json;

/// A managed Job is born suspended.
pub(super) fn default(review: &Review<'_>, job: &mut Value, cache: &Cache) {
    let rules = cache.rules();
    if !rules.jobs || !rules.manage_namespace(cache, review.namespace) {
        return;
    }
    super::default_queue(review, job, cache);
    if rules.manage(job) && !super::owner_is_managed(review, job, cache) {
        json::set(job, &["spec", "suspend"], json!(true));
    }
    if rules.manage(job) && elastic(job, cache) {
        let mut gates = json::list(job, &["spec", "template", "spec", "schedulingGates"]).to_vec();
        let gate = json!({"name": names::ELASTIC_GATE});
        if !gates.contains(&gate) {
            gates.push(gate);
            json::set(job, &["spec", "template", "spec", "schedulingGates"], Value::Array(gates));
        }
    }
}

fn elastic(job: &Value, cache: &Cache) -> bool {
    cache.rules().elastic_jobs && json::annotation(job, names::ELASTIC) == Some("true")
}

pub(super) fn validate(review: &Review<'_>, job: &Value, cache: &Cache) -> Errors {
    let mut errors = Errors::default();
    rules::create(job, &mut errors);
    topology(job, elastic(job, cache), &mut errors);
    let min = |j: &Value| json::annotation(j, names::MIN_PARALLELISM).map(str::to_owned);
    let old = review.old.filter(|_| review.operation == Operation::Update);
    if old.is_none_or(|old| min(old) != min(job)) {
        partial_admission(job, elastic(job, cache), &mut errors);
    }
    completions(job, &mut errors);
    if let Some(old) = old {
        let default = cache.get(Kind::LocalQueue, review.namespace, names::DEFAULT_QUEUE).is_some();
        rules::update(old, job, (is_suspended(old), is_suspended(job)), default, &mut errors);
        let (was, is) = (elastic(old, cache), elastic(job, cache));
        errors.immutable(&annotation_path(names::ELASTIC), is, was);
        running(old, job, &mut errors);
    }
    errors
}

/// Pods of an elastic job may only go anywhere.
fn topology(job: &Value, elastic: bool, errors: &mut Errors) {
    let template = &job["spec"]["template"];
    let mut found = Errors::default();
    rules::topology(template, "spec.template.metadata", &mut found);
    if elastic && found.is_empty() {
        let modes = [("required", "podset-required-topology"), ("preferred", "podset-preferred-topology")];
        let set = |key: &str| json::annotation(template, &format!("kueue.x-k8s.io/{key}")).is_some();
        if let Some((mode, key)) = modes.iter().find(|(_, key)| set(key)) {
            let detail = format!("{mode} topology is not supported with elastic jobs");
            found.forbidden(&format!("spec.template.metadata.annotations.kueue.x-k8s.io/{key}"), &detail);
        }
    }
    errors.extend(found);
}

fn partial_admission(job: &Value, elastic: bool, errors: &mut Errors) {
    let Some(text) = json::annotation(job, names::MIN_PARALLELISM) else { return };
    let path = annotation_path(names::MIN_PARALLELISM);
    match atoi(text) {
        Err(detail) => errors.invalid(&path, text, &detail),
        Ok(n) if n >= pods_count(job) || n <= 0 => {
            errors.invalid(&path, n, &format!("should be between 0 and {}", pods_count(job) - 1));
        }
        Ok(_) => {}
    }
    if elastic {
        errors.invalid(&path, text, "partial admission and elastic job cannot be used together");
    }
}

fn completions(job: &Value, errors: &mut Errors) {
    const BOOLEANS: [&str; 12] =
        ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"];
    let Some(text) = json::annotation(job, names::SYNC_COMPLETIONS) else { return };
    let path = annotation_path(names::SYNC_COMPLETIONS);
    if !BOOLEANS.contains(&text) {
        errors.invalid(
            &path,
            text,
            &format!("strconv.ParseBool: parsing {}: invalid syntax", Value::from(text)),
        );
    }
    if !sync_completions(job) {
        return;
    }
    if json::text(job, &["spec", "completionMode"]) != "Indexed" {
        errors.invalid(&path, text, "should not be enabled for NonIndexed jobs");
    }
    let number = |key: &str| json::int(job, &["spec", key]).unwrap_or(1);
    if number("parallelism") != number("completions") {
        let detail =
            format!("should be equal to parallelism when {} is annotation is true", names::SYNC_COMPLETIONS);
        errors.invalid("spec.completions", job["spec"]["completions"].clone(), &detail);
    }
}

/// What may not change once the job runs with fewer pods than it asked for.
fn running(old: &Value, new: &Value, errors: &mut Errors) {
    let number = |j: &Value| json::int(j, &["spec", "parallelism"]).unwrap_or(1);
    let partial = json::annotation(old, names::MIN_PARALLELISM).is_some();
    if partial && !json::flag(old, &["spec", "suspend"]) && number(old) != number(new) {
        let detail = "cannot change when partial admission is enabled and the job is not suspended";
        errors.forbidden("spec.parallelism", detail);
    }
    if !is_suspended(old) && !is_suspended(new) && sync_completions(old) != sync_completions(new) {
        let detail = "field is immutable while the job is not suspended";
        errors.forbidden(&annotation_path(names::SYNC_COMPLETIONS), detail);
    }
}
