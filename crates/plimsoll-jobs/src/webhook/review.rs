//! An admission request and its validation, and what the webhooks of all kinds of jobs share.

use std::borrow::Cow;

use plimsoll_api::json;
use serde_json::Value;

use super::validation::ErrorList;
use crate::store::{Kind, ObjectStore};
use crate::{Env, ancestors, names};

/// The operation of an admission request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An object is created.
    Create,
    /// It is updated.
    Update,
    /// It is deleted.
    Delete,
}

/// An admission request, apart from the object itself.
#[derive(Clone, Copy, Debug)]
pub struct Review<'a> {
    /// Group, empty for the core group.
    pub group: &'a str,
    /// Plural.
    pub plural: &'a str,
    /// The operation.
    pub operation: Operation,
    /// Namespace, empty for cluster scope.
    pub namespace: &'a str,
    /// The object before an update or deletion.
    pub old: Option<&'a Value>,
}

/// A refusal: 403 `Forbidden`, worded as the API server words it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("admission webhook \"{webhook}\" denied the request: {message}")]
pub struct Denied {
    /// Name of the webhook, such as `vjob.kb.io`.
    pub webhook: Cow<'static, str>,
    /// The field errors, as one message.
    pub message: String,
}

/// The result of a validation.
#[derive(Debug, Default)]
pub struct Validation {
    /// Field errors; any refuses the request.
    pub(crate) errors: ErrorList,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
}

impl Validation {
    /// Errors without warnings.
    pub(crate) fn of(errors: ErrorList) -> Self {
        Self { errors, warnings: Vec::new() }
    }
}

/// Sets the namespace's default queue on an object without a queue, and the default priority class on one without a class, with a
/// queue or without, where they exist (Kueue KEP-2936, KEP-10765). Objects that jobs own get neither, nor do those that are being
/// deleted. Without a queue an object gets the class when it is made only: Kueue refuses updates of running Deployments and sets from
/// when there is such a class, since none may be added then.
pub(crate) fn default_queue(review: &Review<'_>, object: &mut Value, env: Env<'_>) {
    let has = |object: &Value, label: &str| json::label_opt(object, label).is_some_and(|v| !v.is_empty());
    if json::deleting(object) || ancestors::owner_may_be_queued(object, env) {
        return;
    }
    if !has(object, names::QUEUE) && has_default_queue(review, env.objects) {
        json::set(object, &["metadata", "labels", names::QUEUE], names::DEFAULT_QUEUE.into());
    }
    if env.config.webhook_gates.default_priority_class
        && (review.operation == Operation::Create || has(object, names::QUEUE))
        && !has(object, names::PRIORITY_CLASS)
        && env.objects.get(Kind::WorkloadPriorityClass, "", "default").is_some()
    {
        json::set(object, &["metadata", "labels", names::PRIORITY_CLASS], "default".into());
    }
}

/// Whether the namespace of a request has a default queue.
pub(crate) fn has_default_queue(review: &Review<'_>, objects: &ObjectStore) -> bool {
    objects.get(Kind::LocalQueue, review.namespace, names::DEFAULT_QUEUE).is_some()
}

/// Whether a queued job owns `object`, itself or through other jobs, so that the object is not queued. An owner that is not
/// known does not count: an object that is queued in vain waits, one that is not queued uses quota that it does not have.
pub(crate) fn owner_is_managed(review: &Review<'_>, object: &Value, env: Env<'_>) -> bool {
    matches!(ancestors::managed(object, review.namespace, env), ancestors::Ancestor::Managed(_))
}
