//! Plain pods and pod groups (Kueue KEP-976).

use serde_json::{Value, json};

use super::rules::{self, Errors, annotation_path, atoi, label_path};
use super::{Operation, Review};
use crate::cache::{Cache, GROUP, Kind, group_of};
use crate::jobs::names;
use crate::jobs::pod::suspended;
use crate::json;

const INDEX_LABEL: &str = "kueue.x-k8s.io/pod-group-pod-index";
const INDEX_SOURCE: &str = "kueue.x-k8s.io/pod-group-pod-index-label";

/// A managed pod is born gated, labelled and with our finalizer.
pub(super) fn default(review: &Review<'_>, pod: &mut Value, cache: &Cache) {
    if json::annotation(pod, names::SUSPENDING_PARENT).is_none() {
        let rules = cache.rules();
        if !rules.pods
            || !rules.manage_namespace(cache, review.namespace)
            || super::owner_is_managed(review, pod, cache)
        {
            return;
        }
        super::default_queue(review, pod, cache);
        if !rules.manage(pod) {
            return;
        }
    }
    json::set(pod, &["metadata", "labels", names::MANAGED], json!("true"));
    add(pod, &["metadata", "finalizers"], json!(names::MANAGED));
    add(pod, &["spec", "schedulingGates"], json!({"name": names::GATE}));
    // No gate can be added later, and whether the flavor has a topology is known only on admission.
    if crate::jobs::podset::topology_request(pod, None).is_some() {
        add(pod, &["spec", "schedulingGates"], json!({"name": names::TOPOLOGY_GATE}));
    }
    if let Some(label) = json::annotation(pod, INDEX_SOURCE).map(str::to_owned) {
        let index = json::label(pod, &label).to_owned();
        json::set(pod, &["metadata", "labels", INDEX_LABEL], json!(index));
    }
    if !group_of(pod).is_empty() && json::annotation(pod, names::ROLE_HASH).is_none() {
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

pub(super) fn validate(
    review: &Review<'_>,
    pod: &Value,
    cache: &Cache,
    warnings: &mut Vec<String>,
) -> Errors {
    let mut errors = Errors::default();
    // Finalizers must be removable from a pod that is going, whatever else is wrong with it.
    if json::deleting(pod) && review.operation == Operation::Update {
        return errors;
    }
    rules::create(pod, &mut errors);
    if cache.rules().elastic_jobs && json::annotation(pod, names::ELASTIC) == Some("true") {
        let detail = "elastic job is not supported for \"/v1, Kind=Pod\"";
        errors.forbidden(&annotation_path(names::ELASTIC), detail);
    }
    rules::topology(pod, "metadata", &mut errors);
    if let Some(name) = json::label_opt(pod, names::PREBUILT)
        && name != group_of(pod)
    {
        let detail = "prebuilt workload name and pod group name must be equal";
        errors.invalid(&label_path(names::PREBUILT), name, detail);
    }
    if json::label_opt(pod, names::MANAGED).is_some_and(|v| v != "true") {
        errors.forbidden(&label_path(names::MANAGED), "managed label value can only be 'true'");
    }
    group(pod, &mut errors);
    if let Some(old) = review.old.filter(|_| review.operation == Operation::Update) {
        let default = cache.get(Kind::LocalQueue, review.namespace, names::DEFAULT_QUEUE).is_some();
        rules::update(old, pod, (suspended(old), suspended(pod)), default, &mut errors);
        change(old, pod, &mut errors);
    }
    if json::label(pod, names::MANAGED) == "true"
        && json::annotation(pod, names::SUSPENDING_PARENT).is_none()
        && super::owner_is_managed(review, pod, cache)
    {
        let label = names::MANAGED;
        warnings.push(format!(
            "pod owner is managed by kueue, label '{label}=true' might lead to unexpected behaviour"
        ));
    }
    errors
}

fn change(old: &Value, pod: &Value, errors: &mut Errors) {
    if !group_of(old).is_empty() {
        errors.immutable(&label_path(GROUP), group_of(pod), group_of(old));
    }
    if !suspended(old) {
        let role = |p: &Value| json::annotation(p, names::ROLE_HASH).unwrap_or_default().to_owned();
        errors.immutable(&annotation_path(names::ROLE_HASH), role(pod), role(old));
    }
    let unretriable = |p: &Value| json::annotation(p, names::RETRIABLE) == Some("false");
    if !group_of(pod).is_empty() && unretriable(old) && !unretriable(pod) {
        let detail = "unretriable pod group can't be converted to retriable";
        errors.forbidden(&annotation_path(names::RETRIABLE), detail);
    }
}

/// Group and total count come together, and the count is a positive number.
fn group(pod: &Value, errors: &mut Errors) {
    let key = names::GROUP_COUNT;
    let count = json::annotation(pod, key);
    let both = format!("both the '{key}' annotation and the '{GROUP}' label should be set");
    if group_of(pod).is_empty() {
        if count.is_some() {
            errors.required(&label_path(GROUP), &both);
        }
        return;
    }
    rules::name_label(pod, GROUP, errors);
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
