//! Admission webhooks as functions of a review and the last seen objects: defaults and validation of jobs, of Kueue's own
//! kinds (Kueue `pkg/webhooks`) and of ours.
//!
//! `plimsoll up` calls them in process; `plimsoll run` serves the same functions over HTTPS.

pub(crate) mod admission_gates;
pub(crate) mod job_rules;
pub(crate) mod kueue;
pub(crate) mod pod_sets;
pub(crate) mod review;
#[cfg(test)]
mod tests;
pub(crate) mod topology;
pub(crate) mod validation;
mod workload;

use std::borrow::Cow;

use plimsoll_api::webhooks::Target;
use serde_json::Value;

pub use self::kueue::objects_without_effect;
pub use self::review::{Denied, Operation, Review, Validation};
use crate::kinds::declared;
use crate::{Env, ObjectStore, integrations};

/// Whether a mutating webhook handles this resource, or a validating one. `subresource` is empty for the object itself; of
/// subresources only the status of Workloads is validated.
pub fn concerns(group: &str, plural: &str, subresource: &str, mutates: bool) -> bool {
    match subresource {
        "" => {
            integrations::of_resource(group, plural).is_some()
                || (group, plural) == ("plimsoll.dev", "runwindows")
                || group == "kueue.x-k8s.io" && kueue::PLURALS.contains(&plural)
        }
        "status" => !mutates && (group, plural) == ("kueue.x-k8s.io", "workloads"),
        _ => false,
    }
}

/// [`concerns`] for kinds that JobKinds declare.
pub fn concerns_declared(group: &str, plural: &str, subresource: &str, objects: &ObjectStore) -> bool {
    subresource.is_empty() && objects.declaration_of(group, plural).is_some()
}

/// What webhooks look at of the kinds that JobKinds declare.
pub fn declared_targets(objects: &ObjectStore) -> Vec<Target> {
    objects.declared_kinds().map(|custom| Target::declared(custom.preferred(), custom.framework())).collect()
}

/// Changes an object as Kueue's mutating webhooks do: a created object, and an updated one of a kind whose pods follow
/// its queue.
pub fn mutate(review: &Review<'_>, object: &mut Value, env: Env<'_>) {
    if let Some(integration) = integrations::of_resource(review.group, review.plural) {
        let applies = match review.operation {
            Operation::Create => true,
            Operation::Update => integration.defaults_updates,
            Operation::Delete => false,
        };
        if applies {
            (integration.default)(review, object, env);
        }
    } else if review.group == "kueue.x-k8s.io" && review.operation == Operation::Create {
        kueue::default(review, object);
    } else if review.operation == Operation::Create {
        declared::default(review, object, env);
    }
}

/// Validates an object as Kueue's validating webhooks do. Returns warnings.
///
/// # Errors
/// The field errors, in Kueue's words.
pub fn validate(review: &Review<'_>, object: &Value, env: Env<'_>) -> Result<Vec<String>, Denied> {
    if review.operation == Operation::Delete {
        return Ok(Vec::new());
    }
    let (webhook, validation): (Cow<'static, str>, Validation) =
        match integrations::of_resource(review.group, review.plural) {
            Some(integration) => {
                (integration.validating_webhook.into(), (integration.validate)(review, object, env))
            }
            None => match (review.group, review.plural) {
                ("kueue.x-k8s.io", _) => {
                    let (webhook, validation) = kueue::validate(review, object, env);
                    (webhook.into(), validation)
                }
                ("plimsoll.dev", "runwindows") => {
                    ("vrunwindow.kb.io".into(), Validation::of(validation::run_window(object)))
                }
                _ => match declared::validate(review, object, env) {
                    Some((webhook, validation)) => (webhook.into(), validation),
                    None => return Ok(Vec::new()),
                },
            },
        };
    match validation.errors.into_message() {
        None => Ok(validation.warnings),
        Some(message) => Err(Denied { webhook, message }),
    }
}
