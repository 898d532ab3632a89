//! Defaults and validation of the kinds that are tables (Kueue `pkg/controller/jobframework/{base_webhook,defaults,validation}.go`).

use std::collections::BTreeMap;

use plimsoll_api::json;
use serde_json::{Value, json};

use super::{JobKind, PodTemplate, TABLES, is_suspended};
use crate::webhook::admission_gates;
use crate::webhook::review::{
    Operation, Review, Validation, default_queue, has_default_queue, owner_is_managed,
};
use crate::webhook::validation::{self, ErrorList, annotation_path};
use crate::{Env, names};

const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

fn of_review(review: &Review<'_>) -> Option<&'static JobKind> {
    TABLES.into_iter().find(|table| {
        let resource = table.kind.preferred();
        resource.group() == review.group && resource.plural == review.plural
    })
}

/// A queued job is created suspended.
pub(super) fn default(review: &Review<'_>, job: &mut Value, env: Env<'_>) {
    let Some(table) = of_review(review) else { return };
    let Env { objects, config, .. } = env;
    if !config.has_framework(table.kind.framework()) || !config.manages_namespace(objects, review.namespace) {
        return;
    }
    default_queue(review, job, env);
    if config.manages(job) && !owner_is_managed(review, job, env) && !is_suspended(table, job) {
        json::set(job, table.suspend, json!(true));
    }
    (table.default)(job);
}

pub(super) fn validate(review: &Review<'_>, job: &Value, env: Env<'_>) -> Validation {
    let mut errors = ErrorList::default();
    let Some(table) = of_review(review).filter(|t| env.config.has_framework(t.kind.framework())) else {
        return Validation::of(errors);
    };
    let old = review.old.filter(|_| review.operation == Operation::Update);
    if table.keeps_queue_name && old.is_some_and(|old| !env.config.manages(old) && !env.config.manages(job)) {
        return Validation::of(errors);
    }
    if let Some(old) = old {
        let suspended = (is_suspended(table, old), is_suspended(table, job));
        let default = has_default_queue(review, env.objects);
        validation::on_update(old, job, suspended, default, &mut errors);
        errors.immutable(&annotation_path(names::ELASTIC), env.is_elastic(job), env.is_elastic(old));
    }
    if env.config.manages(job) && !(table.validate)(job, &mut errors) {
        return Validation::of(errors);
    }
    validation::on_create(job, &mut errors);
    if env.is_elastic(job) {
        let resource = table.kind.preferred();
        let detail =
            format!("elastic job is not supported for \"{}, Kind={}\"", resource.api_version, resource.kind);
        errors.forbidden(&annotation_path(names::ELASTIC), &detail);
    }
    admission_gates::validate(job, review.old, &mut errors);
    topology(table, job, &mut errors);
    Validation::of(errors)
}

/// Topology annotations of the templates (Kueue `tas_validation.go`).
fn topology(table: &JobKind, job: &Value, errors: &mut ErrorList) {
    let templates = (table.templates)(job);
    let validated: Vec<(&PodTemplate, &Value)> = templates
        .iter()
        .filter(|at| !at.field.is_empty())
        .filter_map(|at| Some((at, job.pointer(&at.pointer)?)))
        .collect();
    for (at, template) in &validated {
        validation::topology(template, &format!("{}.metadata", at.field), errors);
        let size = json::annotation(template, SLICE_SIZE);
        if let Some(size) = size.filter(|s| s.parse().is_ok_and(|n: i64| n > at.count)) {
            let detail = format!("must not be greater than pod set count {}", at.count);
            errors.invalid(&format!("{}[{SLICE_SIZE}]", annotations(at)), size, &detail);
        }
    }
    let mut groups: BTreeMap<&str, Vec<(&PodTemplate, &Value)>> = BTreeMap::new();
    for (at, template) in validated.into_iter().filter(|_| table.groups) {
        let placed = [REQUIRED, PREFERRED].iter().any(|mode| json::annotation(template, mode).is_some());
        if let Some(name) = json::annotation(template, GROUP).filter(|_| placed) {
            groups.entry(name).or_default().push((at, template));
        }
    }
    for (name, members) in groups {
        group(name, &members, errors);
    }
}

fn annotations(at: &PodTemplate) -> String {
    format!("{}.metadata.annotations", at.field)
}

/// A group has two podsets, one of them of a single pod, at the same level (Kueue `ValidatePodSetGroupingTopology`).
fn group(name: &str, members: &[(&PodTemplate, &Value)], errors: &mut ErrorList) {
    let path = |at: &PodTemplate| format!("{}[{GROUP}]", annotations(at));
    let [(first, a), (second, b)] = members else {
        let count = members.len();
        let detail = format!("can only define groups of exactly 2 pod sets, got: {count} pod set(s)");
        members.iter().for_each(|(at, _)| errors.invalid(&path(at), name, &detail));
        return;
    };
    if first.count != 1 && second.count != 1 {
        let detail = format!(
            "can only define groups where at least one pod set has only 1 replica, got: {} replica(s) and {} replica(s) \
             in the group",
            first.count, second.count
        );
        errors.invalid(&path(first), name, &detail);
        errors.invalid(&path(second), name, &detail);
    }
    let same = |mode: &str| json::annotation(a, mode) == json::annotation(b, mode);
    if !same(REQUIRED) || !same(PREFERRED) {
        for (at, other) in [(first, second), (second, first)] {
            let detail = format!(
                "must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{}' in group '{name}'",
                annotations(other)
            );
            errors.invalid_whole(&annotations(at), &detail);
        }
    }
}
