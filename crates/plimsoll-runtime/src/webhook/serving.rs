//! Deployments and StatefulSets (Kueue's frameworks `deployment` and `statefulset`): their pods are queued one by one.

use serde_json::{Value, json};

use super::Review;
use super::rules::{self, Errors, label_path};
use crate::cache::Cache;
use crate::jobs::names;
use crate::jobs::rules::Rules;
use crate::json;

/// The framework of a kind, and whether it is on.
fn framework(plural: &str, rules: &Rules) -> (&'static str, bool) {
    match plural {
        "statefulsets" => ("statefulset", rules.stateful_sets),
        _ => ("deployment", rules.deployments),
    }
}

/// The queue and the priority class go to the pod template, with the mark that has our pod webhook gate its pods
/// (Kueue's deployment webhook).
pub(super) fn default(review: &Review<'_>, object: &mut Value, cache: &Cache) {
    let rules = cache.rules();
    let (name, on) = framework(review.plural, rules);
    if !on || !rules.manage_namespace(cache, review.namespace) {
        return;
    }
    super::default_queue(review, object, cache);
    if !rules.manage(object) || super::owner_is_managed(review, object, cache) {
        return;
    }
    let template = ["spec", "template", "metadata"];
    let at = |kind: &'static str, key: &'static str| [template[0], template[1], template[2], kind, key];
    json::set(object, &at("annotations", names::SUSPENDING_PARENT), json!(name));
    json::set(object, &at("labels", names::MANAGED), json!("true"));
    for label in [names::QUEUE, names::PRIORITY_CLASS] {
        let value = json::label(object, label).to_owned();
        if !value.is_empty() {
            json::set(object, &at("labels", label), json!(value));
        }
    }
}

pub(super) fn validate(
    review: &Review<'_>,
    object: &Value,
    cache: &Cache,
    warnings: &mut Vec<String>,
) -> Errors {
    let mut errors = Errors::default();
    rules::create(object, &mut errors);
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
    let (name, on) = framework(review.plural, cache.rules());
    let queue_label = names::QUEUE;
    if !queue.is_empty() && !on {
        warnings.push(format!(
            "label '{queue_label}' has no effect here: '{name}' is not among integrations.frameworks, so pods run without quota"
        ));
    } else if !queue.is_empty() && name == "statefulset" {
        warnings.push(format!(
            "label '{queue_label}': pods of a StatefulSet are admitted one by one, not as a group"
        ));
    }
    errors
}
