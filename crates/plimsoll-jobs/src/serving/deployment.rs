//! Deployments, framework `deployment` (Kueue `pkg/controller/jobs/deployment`): each pod has a workload of its own.

use plimsoll_api::json;
use plimsoll_api::resource::DEPLOYMENTS;
use serde_json::{Value, json};

use super::{QUEUE_LABELS, changes, off, shared_rules, suspends};
use crate::integration::Integration;
use crate::webhook::review::{Review, Validation, default_queue};
use crate::webhook::validation::ErrorList;
use crate::{Env, config, names};

/// The registration of Deployments.
pub const INTEGRATION: Integration = Integration {
    framework: config::DEPLOYMENT,
    resource: DEPLOYMENTS,
    validating_webhook: "vdeployment.kb.io",
    defaults_updates: true,
    default,
    validate,
    reconcile: None,
};

/// Copies queue and priority class to the pod template, with the annotation by which the pod webhook gates its pods (Kueue
/// `deployment_webhook.go`).
fn default(review: &Review<'_>, object: &mut Value, env: Env<'_>) {
    if !super::applies(config::DEPLOYMENT, review, env) {
        return;
    }
    default_queue(review, object, env);
    if !suspends(review, object, env) {
        return;
    }
    let template = ["spec", "template", "metadata"];
    let at = |kind: &'static str, key: &'static str| [template[0], template[1], template[2], kind, key];
    json::set(object, &at("annotations", names::SUSPENDING_PARENT), json!(config::DEPLOYMENT));
    json::set(object, &at("labels", names::MANAGED), json!("true"));
    for label in QUEUE_LABELS {
        let value = json::label(object, label).to_owned();
        if !value.is_empty() {
            json::set(object, &at("labels", label), json!(value));
        }
    }
}

fn validate(review: &Review<'_>, object: &Value, env: Env<'_>) -> Validation {
    if let Some(validation) = off(&INTEGRATION, object, env) {
        return validation;
    }
    let mut errors = ErrorList::default();
    shared_rules(&INTEGRATION, object, env, &mut errors);
    changes(review, object, &mut errors);
    Validation::of(errors)
}
