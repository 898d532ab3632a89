//! Defaults and validation of the kinds that are tables (Kueue `pkg/controller/jobframework/{base_webhook,defaults,validation}.go`).

use plimsoll_api::json;
use plimsoll_api::resource::Resource;
use serde_json::{Value, json};

use super::{JobKind, PodTemplate, TABLES, is_suspended};
use crate::multikueue::default_managed_by;
use crate::pod_view::Identifiers;
use crate::webhook::admission_gates;
use crate::webhook::pod_sets::{self, PodSetAt};
use crate::webhook::review::{
    Operation, Review, Validation, default_queue, has_default_queue, owner_is_managed,
};
use crate::webhook::validation::{self, ErrorList, annotation_path, identifier_path};
use crate::{Env, elastic, names};

fn of_review(review: &Review<'_>) -> Option<&'static JobKind> {
    TABLES.into_iter().find(|table| table.kind.has_resource(review.group, review.plural))
}

/// A queued job is created suspended.
pub(super) fn default(review: &Review<'_>, job: &mut Value, env: Env<'_>) {
    let Some(table) = of_review(review).filter(|t| env.config.has_framework(t.kind.framework())) else {
        return;
    };
    if env.config.manages_namespace(env.objects, review.namespace) {
        suspend(review, job, table.suspend, env);
        default_managed_by(table.kind.preferred(), review.namespace, job, env);
        (table.default)(job);
        // The cluster of a queued job is not queued itself, and its pods wait at the gate all the same.
        if table.elastic.is_some_and(|e| e.gated) && env.config.manages(job) && env.is_elastic(job) {
            gate(job, &(table.templates)(job));
        }
    }
}

/// Adds the scheduling gate of elastic jobs to the templates (Kueue `GateTemplate`).
fn gate(job: &mut Value, templates: &[PodTemplate]) {
    let gate = json!({"name": names::ELASTIC_GATE});
    for template in templates {
        let Some(template) = job.pointer_mut(&template.pointer) else { continue };
        let mut gates = json::list(template, &["spec", "schedulingGates"]).to_vec();
        if !gates.contains(&gate) {
            gates.push(gate.clone());
            json::set(template, &["spec", "schedulingGates"], Value::Array(gates));
        }
    }
}

/// Gives a created job its queue, and suspends it when it is queued.
pub(super) fn suspend(review: &Review<'_>, job: &mut Value, flag: &[&str], env: Env<'_>) {
    default_queue(review, job, env);
    if env.config.manages(job) && !owner_is_managed(review, job, env) && !json::flag(job, flag) {
        json::set(job, flag, json!(true));
    }
}

pub(super) fn validate(review: &Review<'_>, job: &Value, env: Env<'_>) -> Validation {
    let mut errors = ErrorList::default();
    let Some(table) = of_review(review).filter(|t| env.config.has_framework(t.kind.framework())) else {
        return Validation::of(errors);
    };
    let old = updated(review);
    let was_queued = |old: &Value| env.config.webhook_gates.validates_ray_updates && env.config.manages(old);
    if table.keeps_queue_name && old.is_some_and(|old| !was_queued(old) && !env.config.manages(job)) {
        return Validation::of(errors);
    }
    if let Some(old) = old {
        change(review, (old, job), (is_suspended(table, old), is_suspended(table, job)), env, &mut errors);
    }
    let elastic = env.is_elastic(job);
    if env.config.manages(job) && !(table.validate)(job, elastic, &mut errors) {
        return Validation::of(errors);
    }
    let unsupported = (elastic && table.elastic.is_none()).then_some(table.kind.preferred());
    let identifiers = env.objects.identifiers();
    whole(review, job, unsupported, identifiers, &mut errors);
    if !table.takes_prebuilt && !identifiers.prebuilt_of(job).is_empty() {
        let Resource { api_version, kind, .. } = table.kind.preferred();
        let path = identifier_path(job, names::PREBUILT, identifiers);
        errors.forbidden(&path, &format!("Is not supported for \"{api_version}, Kind={kind}\""));
    }
    elastic::validate_strategy(job, env, &mut errors);
    topology(job, &(table.templates)(job), table.groups, &mut errors);
    Validation::of(errors)
}

/// The object before an update.
pub(super) fn updated<'a>(review: &Review<'a>) -> Option<&'a Value> {
    review.old.filter(|_| review.operation == Operation::Update)
}

/// Rules for what changes, from `old` to `job`; `suspended`: before and after.
pub(super) fn change(
    review: &Review<'_>,
    (old, job): (&Value, &Value),
    suspended: (bool, bool),
    env: Env<'_>,
    errors: &mut ErrorList,
) {
    let default = has_default_queue(review, env.objects);
    validation::on_update(old, job, suspended, default, env, errors);
    errors.immutable(&annotation_path(names::ELASTIC), env.is_elastic(job), env.is_elastic(old));
}

/// Rules for each state of a job; `unsupported`: its kind, if it is an elastic job of one that has none.
pub(super) fn whole(
    review: &Review<'_>,
    job: &Value,
    unsupported: Option<Resource>,
    identifiers: Identifiers,
    errors: &mut ErrorList,
) {
    validation::on_create(job, identifiers, errors);
    if let Some(resource) = unsupported {
        let detail =
            format!("elastic job is not supported for \"{}, Kind={}\"", resource.api_version, resource.kind);
        errors.forbidden(&annotation_path(names::ELASTIC), &detail);
    }
    admission_gates::validate(job, review.old, errors);
}

/// Topology annotations of the templates (Kueue `tas_validation.go`).
pub(super) fn topology(job: &Value, templates: &[PodTemplate], groups: bool, errors: &mut ErrorList) {
    let rows: Vec<(&PodTemplate, String)> =
        templates.iter().filter(|at| !at.field.is_empty()).map(|at| (at, at.metadata())).collect();
    let present = rows.iter().filter_map(|(at, metadata)| {
        // One that is made by default has no annotations.
        let template = if at.pointer.is_empty() { at.of(job) } else { job.pointer(&at.pointer) };
        Some(PodSetAt { metadata, count: at.count, template: template? })
    });
    pod_sets::topology(&present.collect::<Vec<_>>(), groups, errors);
}
