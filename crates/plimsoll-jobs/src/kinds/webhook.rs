//! Defaults and validation of the kinds that are tables (Kueue `pkg/controller/jobframework/{base_webhook,defaults,validation}.go`).

use plimsoll_api::json;
use serde_json::{Value, json};

use super::{JobKind, TABLES, is_suspended};
use crate::webhook::admission_gates;
use crate::webhook::review::{
    Operation, Review, Validation, default_queue, has_default_queue, owner_is_managed,
};
use crate::webhook::validation::{self, ErrorList, annotation_path};
use crate::{Env, names};

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
    for at in (table.templates)(job).iter().filter(|at| !at.field.is_empty()) {
        if let Some(template) = job.pointer(&at.pointer) {
            validation::topology(template, &format!("{}.metadata", at.field), &mut errors);
        }
    }
    Validation::of(errors)
}
