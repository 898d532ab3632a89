//! What our admission webhooks do, as functions of a review and the cache (Kueue's `pkg/webhooks` and the
//! webhooks of `pkg/controller/jobs`).
//!
//! `plimsoll up` calls them in process; `plimsoll run` serves the same functions over HTTPS (`serve.rs`).

pub mod certs;
mod job;
mod kueue;
mod pod;
mod register;
pub mod review;
mod rules;
pub mod serve;
mod serving;

#[cfg(test)]
mod tests;

pub use kueue::{MULTIKUEUE, without_effect};
use serde_json::Value;

use crate::cache::{Cache, Kind};
use crate::jobs::names;
use crate::json;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An object is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
}

/// What a webhook is asked about, apart from the object itself.
#[derive(Clone, Copy, Debug)]
pub struct Review<'a> {
    /// Group, empty for the core group.
    pub group: &'a str,
    /// Plural.
    pub plural: &'a str,
    /// What is being done.
    pub operation: Operation,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    /// State before, for updates and deletions.
    pub old: Option<&'a Value>,
}

/// A refusal: 403 `Forbidden`, worded as the API server words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("admission webhook \"{webhook}\" denied the request: {message}")]
pub struct Denied {
    /// Name of the webhook, such as `vjob.kb.io`.
    pub webhook: &'static str,
    /// Why.
    pub message: String,
}

/// Whether any of our webhooks wants to see this resource; subresources never.
pub fn concerns(group: &str, plural: &str) -> bool {
    matches!(
        (group, plural),
        ("batch", "jobs")
            | ("", "pods")
            | ("apps", "deployments" | "statefulsets")
            | ("plimsoll.dev", "runwindows")
            | (
                "kueue.x-k8s.io",
                "clusterqueues"
                    | "resourceflavors"
                    | "workloads"
                    | "cohorts"
                    | "admissionchecks"
                    | "multikueueconfigs"
                    | "multikueueclusters"
            )
    )
}

/// Changes an object as Kueue's mutating webhooks do: a new one, and a changed one whose pods follow its queue.
pub fn mutate(review: &Review<'_>, object: &mut Value, cache: &Cache) {
    match review.operation {
        Operation::Create => {}
        Operation::Update if review.group == "apps" => {}
        Operation::Update | Operation::Delete => return,
    }
    match (review.group, review.plural) {
        ("apps", _) => serving::default(review, object, cache),
        ("batch", "jobs") => job::default(review, object, cache),
        ("", "pods") => pod::default(review, object, cache),
        ("kueue.x-k8s.io", _) => kueue::default(review, object),
        _ => {}
    }
}

/// Refuses what Kueue's validating webhooks refuse; gives warnings otherwise.
///
/// # Errors
/// What is wrong, in Kueue's words.
pub fn validate(review: &Review<'_>, object: &Value, cache: &Cache) -> Result<Vec<String>, Denied> {
    if review.operation == Operation::Delete {
        return Ok(Vec::new());
    }
    let mut warnings = Vec::new();
    let (webhook, errors) = match (review.group, review.plural) {
        ("batch", "jobs") => ("vjob.kb.io", job::validate(review, object, cache)),
        ("", "pods") => ("vpod.kb.io", pod::validate(review, object, cache, &mut warnings)),
        ("apps", "deployments") => {
            ("vdeployment.kb.io", serving::validate(review, object, cache, &mut warnings))
        }
        ("apps", "statefulsets") => {
            ("vstatefulset.kb.io", serving::validate(review, object, cache, &mut warnings))
        }
        ("kueue.x-k8s.io", "clusterqueues") => {
            warnings.extend(kueue::without_effect(review.plural, object));
            ("vclusterqueue.kb.io", kueue::cluster_queue(object))
        }
        ("kueue.x-k8s.io", "admissionchecks" | "multikueueconfigs" | "multikueueclusters") => {
            warnings.extend(kueue::without_effect(review.plural, object));
            return Ok(warnings);
        }
        ("kueue.x-k8s.io", "cohorts") => ("vcohort.kb.io", kueue::cohort(object)),
        ("kueue.x-k8s.io", "resourceflavors") => ("vresourceflavor.kb.io", kueue::flavor(object)),
        ("kueue.x-k8s.io", "workloads") => {
            ("vworkload.kb.io", kueue::workload(object, review.old, cache.rules()))
        }
        ("plimsoll.dev", "runwindows") => ("vrunwindow.kb.io", rules::run_window(object)),
        _ => return Ok(warnings),
    };
    match errors.into_message() {
        None => Ok(warnings),
        Some(message) => Err(Denied { webhook, message }),
    }
}

/// Gives an object without a queue the namespace's default queue, and a queued one the default priority class,
/// where they exist (Kueue KEP-2936, KEP-10765).
fn default_queue(review: &Review<'_>, object: &mut Value, cache: &Cache) {
    let has = |object: &Value, label: &str| json::label_opt(object, label).is_some_and(|v| !v.is_empty());
    let default = || cache.get(Kind::LocalQueue, review.namespace, names::DEFAULT_QUEUE);
    if !has(object, names::QUEUE) && default().is_some() {
        json::set(object, &["metadata", "labels", names::QUEUE], names::DEFAULT_QUEUE.into());
    }
    if has(object, names::QUEUE)
        && !has(object, names::PRIORITY_CLASS)
        && cache.get(Kind::WorkloadPriorityClass, "", "default").is_some()
    {
        json::set(object, &["metadata", "labels", names::PRIORITY_CLASS], "default".into());
    }
}

/// Whether a Job that owns `object` is managed by a queue, so that the object itself is not.
fn owner_is_managed(review: &Review<'_>, object: &Value, cache: &Cache) -> bool {
    let Some(owner) = json::controller(object) else { return false };
    if json::text(owner, &["kind"]) != "Job" || !json::text(owner, &["apiVersion"]).starts_with("batch/") {
        return false;
    }
    let job = cache.get(Kind::Job, review.namespace, json::text(owner, &["name"]));
    job.is_some_and(|j| {
        json::uid(&j) == json::text(owner, &["uid"]) && cache.rules().jobs && cache.rules().manage(&j)
    })
}
