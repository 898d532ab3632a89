//! Defaults and validation of the kinds that are tables (Kueue `pkg/controller/jobframework/{base_webhook,defaults,validation}.go`).

use plimsoll_api::json;
use serde_json::{Value, json};

use super::{JobKind, PodTemplate, TABLES, Updates, is_suspended};
use crate::multikueue::default_managed_by;
use crate::webhook::job_rules::JobRules;
use crate::webhook::pod_sets::{self, PodSetAt};
use crate::webhook::review::{Operation, Review, Validation, default_queue, owner_is_managed};
use crate::webhook::validation::ErrorList;
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
    let (old, queued) = (updated(review), env.config.manages(job));
    let was_queued = |old: &Value| env.config.webhook_gates.validates_ray_updates && env.config.manages(old);
    if table.updates == Updates::WholeIfQueued && old.is_some_and(|old| !was_queued(old) && !queued) {
        return Validation::of(errors);
    }
    let rules = JobRules {
        resource: table.kind.preferred(),
        takes_prebuilt: table.takes_prebuilt,
        elastic: table.elastic.is_some(),
    };
    if let Some(old) = old {
        let suspended = (is_suspended(table, old), is_suspended(table, job));
        rules.on_update(review, (old, job), suspended, env, &mut errors);
    }
    if old.is_none() || table.updates != Updates::Changes {
        if queued && !(table.validate)(job, env.is_elastic(job), &mut errors) {
            return Validation::of(errors);
        }
        rules.on_create(job, env, &mut errors);
    }
    elastic::validate_strategy(job, env, &mut errors);
    topology(job, &(table.templates)(job), table.groups, &mut errors);
    Validation::of(errors)
}

/// The object before an update.
pub(super) fn updated<'a>(review: &Review<'a>) -> Option<&'a Value> {
    review.old.filter(|_| review.operation == Operation::Update)
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
