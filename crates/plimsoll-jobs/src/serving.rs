//! Deployments and StatefulSets, frameworks `deployment` and `statefulset` (Kueue `pkg/controller/jobs/deployment`,
//! `.../statefulset`): their pods are queued one by one.

use plimsoll_api::json;
use plimsoll_api::resource::{DEPLOYMENTS, STATEFUL_SETS};
use serde_json::{Value, json};

use crate::config;
use crate::integration::Integration;
use crate::webhook::admission_gates;
use crate::webhook::review::{Review, Validation, default_queue, owner_is_managed};
use crate::webhook::validation::{self, ErrorList, label_path};
use crate::{Env, names};

/// The registration of Deployments.
pub const DEPLOYMENT: Integration = Integration {
    framework: config::DEPLOYMENT,
    resource: DEPLOYMENTS,
    validating_webhook: "vdeployment.kb.io",
    defaults_updates: true,
    default: |review, object, env| default(DEPLOYMENT.framework, review, object, env),
    validate: |review, object, env| validate(DEPLOYMENT.framework, review, object, env),
    reconcile: None,
};

/// The registration of StatefulSets.
pub const STATEFUL_SET: Integration = Integration {
    framework: config::STATEFUL_SET,
    resource: STATEFUL_SETS,
    validating_webhook: "vstatefulset.kb.io",
    defaults_updates: true,
    default: |review, object, env| default(STATEFUL_SET.framework, review, object, env),
    validate: |review, object, env| validate(STATEFUL_SET.framework, review, object, env),
    reconcile: None,
};

/// Copies queue and priority class to the pod template, with the annotation by which the pod webhook gates its pods (Kueue
/// `deployment_webhook.go`).
fn default(framework: &str, review: &Review<'_>, object: &mut Value, env: Env<'_>) {
    let config = env.config;
    if !config.has_framework(framework) || !config.manages_namespace(env.objects, review.namespace) {
        return;
    }
    default_queue(review, object, env);
    if !config.manages(object) || owner_is_managed(review, object, env) {
        return;
    }
    let template = ["spec", "template", "metadata"];
    let at = |kind: &'static str, key: &'static str| [template[0], template[1], template[2], kind, key];
    json::set(object, &at("annotations", names::SUSPENDING_PARENT), json!(framework));
    json::set(object, &at("labels", names::MANAGED), json!("true"));
    for label in [names::QUEUE, names::PRIORITY_CLASS] {
        let value = json::label(object, label).to_owned();
        if !value.is_empty() {
            json::set(object, &at("labels", label), json!(value));
        }
    }
}

fn validate(framework: &str, review: &Review<'_>, object: &Value, env: Env<'_>) -> Validation {
    let (mut errors, mut warnings) = (ErrorList::default(), Vec::new());
    validation::on_create(object, &mut errors);
    admission_gates::validate(object, review.old, &mut errors);
    let label = |o: &Value, key: &str| json::label(o, key).to_owned();
    let queue = label(object, names::QUEUE);
    if let Some(old) = review.old {
        let runs = json::int(old, &["status", "readyReplicas"]).unwrap_or(0) > 0;
        if runs || queue.is_empty() {
            errors.immutable(&label_path(names::QUEUE), queue.clone(), label(old, names::QUEUE));
        }
        let (before, after) = (label(old, names::PRIORITY_CLASS), label(object, names::PRIORITY_CLASS));
        if runs && before.is_empty() != after.is_empty() {
            errors.immutable(&label_path(names::PRIORITY_CLASS), after, before);
        }
    }
    let queue_label = names::QUEUE;
    if !queue.is_empty() && !env.config.has_framework(framework) {
        warnings.push(format!(
            "label '{queue_label}' has no effect here: '{framework}' is not among integrations.frameworks, so pods run without quota"
        ));
    } else if !queue.is_empty() && framework == STATEFUL_SET.framework {
        warnings.push(format!(
            "label '{queue_label}': pods of a StatefulSet are admitted one by one, not as a group"
        ));
    }
    Validation { errors, warnings }
}
