//! Defaults and validation of pods (Kueue `pkg/controller/jobs/pod/pod_webhook.go`).

use plimsoll_api::json;
use plimsoll_api::resource::PODS;
use serde_json::{Value, json};

use super::suspended;
use crate::config::POD;
use crate::pod_view::{GROUP, Identifiers};
use crate::webhook::job_rules::JobRules;
use crate::webhook::review::{Operation, Review, Validation, default_queue, owner_is_managed};
use crate::webhook::topology;
use crate::webhook::validation::{self, ErrorList, annotation_path, atoi, identifier_path, label_path};
use crate::{Env, names, serving};

const INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index";
const INDEX_SOURCE: &str = "kueue.x-k8s.io/pod-group-pod-index-label";

/// A managed pod is created gated, labelled and with Kueue's finalizer.
pub(super) fn default(review: &Review<'_>, pod: &mut Value, env: Env<'_>) {
    if json::annotation(pod, names::SUSPENDING_PARENT).is_none() {
        let config = env.config;
        if !config.has_framework(POD)
            || !config.manages_namespace(env.objects, review.namespace)
            || owner_is_managed(review, pod, env)
        {
            return;
        }
        default_queue(review, pod, env);
        if !config.manages(pod) {
            return;
        }
    }
    // Pods of sets join a group when they are there. A finalizer would keep their successors, which have their names, away.
    if !serving::joins_later(pod) {
        json::set(pod, &["metadata", "labels", names::MANAGED], json!("true"));
        add(pod, &["metadata", "finalizers"], json!(names::MANAGED));
    }
    add(pod, &["spec", "schedulingGates"], json!({"name": names::GATE}));
    // No gate can be added later, and whether the flavor has a topology is known only on admission: also pods that ask for none
    // may get a place in one.
    add(pod, &["spec", "schedulingGates"], json!({"name": names::TOPOLOGY_GATE}));
    if let Some(label) = json::annotation(pod, INDEX_SOURCE).map(str::to_owned) {
        let index = json::label(pod, &label).to_owned();
        json::set(pod, &["metadata", "labels", INDEX_LABEL], json!(index));
    }
    let later = serving::joins_later(pod) && env.objects.identifiers().group_of(pod).is_empty();
    if !later && json::annotation(pod, names::ROLE_HASH).is_none() {
        let hash = plimsoll_api::kueue::role_hash(&pod["spec"]);
        json::set(pod, &["metadata", "annotations", names::ROLE_HASH], json!(hash));
    }
}

fn add(object: &mut Value, path: &[&str], item: Value) {
    let mut list = json::list(object, path).to_vec();
    if !list.contains(&item) {
        list.push(item);
        json::set(object, path, Value::Array(list));
    }
}

pub(super) fn validate(review: &Review<'_>, pod: &Value, env: Env<'_>) -> Validation {
    const RULES: JobRules = JobRules { resource: PODS, takes_prebuilt: true, elastic: false };
    let mut errors = ErrorList::default();
    // Finalizers must be removable from an invalid pod that is being deleted.
    if json::deleting(pod) && review.operation == Operation::Update {
        return Validation::of(errors);
    }
    let identifiers = env.objects.identifiers();
    let old = review.old.filter(|_| review.operation == Operation::Update);
    if let Some(old) = old {
        let suspended = (suspended(old), suspended(pod));
        RULES.on_update(review, (old, pod), suspended, env, &mut errors);
    } else {
        RULES.on_create(pod, env, &mut errors);
    }
    if json::label_opt(pod, names::MANAGED).is_some_and(|v| v != "true") {
        errors.forbidden(&label_path(names::MANAGED), "managed label value can only be 'true'");
    }
    group(pod, identifiers, &mut errors);
    topology::topology(pod, "metadata", &mut errors);
    let (prebuilt, of) = (identifiers.prebuilt_of(pod), identifiers.group_of(pod));
    if !prebuilt.is_empty() && !of.is_empty() && prebuilt != of {
        let detail = "prebuilt workload and pod group should be equal";
        errors.invalid(&identifier_path(pod, names::PREBUILT, identifiers), prebuilt, detail);
    }
    if let Some(old) = old {
        change(old, pod, identifiers, &mut errors);
    }
    let mut warnings = Vec::new();
    if json::label(pod, names::MANAGED) == "true"
        && json::annotation(pod, names::SUSPENDING_PARENT).is_none()
        && owner_is_managed(review, pod, env)
    {
        let label = names::MANAGED;
        warnings.push(format!(
            "pod owner is managed by kueue, label '{label}=true' might lead to unexpected behaviour"
        ));
    }
    Validation { errors, warnings }
}

fn change(old: &Value, pod: &Value, identifiers: Identifiers, errors: &mut ErrorList) {
    let (before, after) = (identifiers.group_of(old), identifiers.group_of(pod));
    if !before.is_empty() {
        errors.immutable(&identifier_path(pod, GROUP, identifiers), after, before);
    }
    if !suspended(old) {
        let role = |p: &Value| json::annotation(p, names::ROLE_HASH).unwrap_or_default().to_owned();
        errors.immutable(&annotation_path(names::ROLE_HASH), role(pod), role(old));
    }
    let unretriable = |p: &Value| json::annotation(p, names::RETRIABLE) == Some("false");
    if !after.is_empty() && unretriable(old) && !unretriable(pod) {
        let detail = "unretriable pod group can't be converted to retriable";
        errors.forbidden(&annotation_path(names::RETRIABLE), detail);
    }
}

/// Group and total count come together, and the count is a positive number.
fn group(pod: &Value, identifiers: Identifiers, errors: &mut ErrorList) {
    let key = names::GROUP_COUNT;
    let count = json::annotation(pod, key);
    let path = identifier_path(pod, GROUP, identifiers);
    let form = if identifiers.prefers_annotation(pod, GROUP) { "annotation" } else { "label" };
    let both = format!("both the '{key}' annotation and the '{GROUP}' {form} should be set");
    if identifiers.group_of(pod).is_empty() {
        if count.is_some() {
            errors.required(&path, &both);
        }
        return;
    }
    validation::identifier(pod, GROUP, identifiers, errors);
    let Some(text) = count else {
        return errors.required(&annotation_path(key), &both);
    };
    match atoi(text) {
        Err(detail) => errors.invalid(&annotation_path(key), text, &detail),
        Ok(n) if n < 1 => {
            let detail = format!(
                "incorrect annotation value '{key}={text}': group total count should be greater than zero"
            );
            errors.invalid(&annotation_path(key), text, &detail);
        }
        Ok(_) => {}
    }
}
