//! Rules that all kinds of jobs share (Kueue `pkg/controller/jobframework/validation.go`), in Kueue's order.

use plimsoll_api::json;
use plimsoll_api::resource::Resource;
use serde_json::Value;

use super::admission_gates;
use super::review::{Review, has_default_queue};
use super::validation::{
    ErrorList, annotation_path, atoi, depends_on, identifier, identifier_path, label_path, name_label,
    named_window, priority_class,
};
use crate::{Env, names};

/// What the rules have to know of a kind of job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobRules {
    /// The kind, as refusals cite it.
    pub resource: Resource,
    /// Whether a job may name a workload that its user created (Kueue `supportedPrebuiltWlJobGVKs`).
    pub takes_prebuilt: bool,
    /// Whether a job may grow and shrink while it runs (Kueue `supportedElasticJobGVKs`).
    pub elastic: bool,
}

impl JobRules {
    /// Rules for a created job, and in some webhooks for the new state of an updated one (`ValidateJobOnCreate`).
    pub fn on_create(self, job: &Value, env: Env<'_>, errors: &mut ErrorList) {
        name_label(job, names::QUEUE, errors);
        self.prebuilt(job, env, errors);
        maximum_time(job, errors);
        if !self.elastic {
            not_elastic(self.resource, job, env, errors);
        }
        admission_gates::validate(job, None, errors);
        own(job, errors);
    }

    /// Rules for what changes (`ValidateJobOnUpdate`); `suspended`: before and after.
    pub fn on_update(
        self,
        review: &Review<'_>,
        (old, new): (&Value, &Value),
        suspended: (bool, bool),
        env: Env<'_>,
        errors: &mut ErrorList,
    ) {
        let (was, is) = suspended;
        let identifiers = env.objects.identifiers();
        let path = label_path(names::QUEUE);
        let (before, after) = (json::label(old, names::QUEUE), json::label(new, names::QUEUE));
        if !is {
            errors.immutable(&path, after, before);
        }
        if after.is_empty() && !before.is_empty() && has_default_queue(review, env.objects) {
            errors.invalid(&path, "", "queue-name must not be empty in namespace with default queue");
        }
        if is || env.is_elastic(old) {
            self.prebuilt(new, env, errors);
        } else {
            let path = identifier_path(new, names::PREBUILT, identifiers);
            errors.immutable(&path, identifiers.prebuilt_of(new), identifiers.prebuilt_of(old));
        }
        if !was || !is {
            let key = names::MAX_EXEC_TIME;
            errors.immutable(&label_path(key), json::label(new, key), json::label(old, key));
        }
        priority_class(is, old, new, errors);
        errors.immutable(&annotation_path(names::ELASTIC), env.is_elastic(new), env.is_elastic(old));
        admission_gates::validate(new, Some(old), errors);
        own(new, errors);
    }

    fn prebuilt(self, job: &Value, env: Env<'_>, errors: &mut ErrorList) {
        let identifiers = env.objects.identifiers();
        identifier(job, names::PREBUILT, identifiers, errors);
        if !self.takes_prebuilt && !identifiers.prebuilt_of(job).is_empty() {
            let path = identifier_path(job, names::PREBUILT, identifiers);
            errors.forbidden(&path, &format!("Is not supported for {:?}", kind_of(self.resource)));
        }
    }
}

/// The label that bounds the time of a job has a positive number.
fn maximum_time(job: &Value, errors: &mut ErrorList) {
    let Some(text) = json::label_opt(job, names::MAX_EXEC_TIME) else { return };
    let path = label_path(names::MAX_EXEC_TIME);
    match atoi(text) {
        Err(detail) => errors.invalid(&path, text, &detail),
        Ok(n) if n <= 0 => errors.invalid(&path, n, "should be greater than 0"),
        Ok(_) => {}
    }
}

/// A kind whose jobs can't be elastic (`ValidateElasticJobAnnotation`).
pub(crate) fn not_elastic(resource: Resource, job: &Value, env: Env<'_>, errors: &mut ErrorList) {
    if env.is_elastic(job) {
        let detail = format!("elastic job is not supported for {:?}", kind_of(resource));
        errors.forbidden(&annotation_path(names::ELASTIC), &detail);
    }
}

/// A kind as Go shows it (`GroupVersionKind.String`).
fn kind_of(Resource { api_version, kind, .. }: Resource) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// Rules for annotations that Kueue does not have.
pub(crate) fn own(job: &Value, errors: &mut ErrorList) {
    depends_on(job, errors);
    named_window(job, errors);
}
