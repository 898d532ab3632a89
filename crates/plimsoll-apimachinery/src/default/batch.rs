//! batch/v1.

use serde_json::Value;

use super::pod::template;
use crate::obj::{Obj, child, children, has, object, set, with_child};

/// batch/v1 Job.
pub(super) fn job(job: &mut Obj) {
    with_child(job, "spec", |spec| {
        if !has(spec, "completions") && !has(spec, "parallelism") {
            set(spec, "completions", 1);
        }
        set(spec, "parallelism", 1);
        let per_index = has(spec, "backoffLimitPerIndex");
        set(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
        set(spec, "completionMode", "NonIndexed");
        set(spec, "suspend", false);
        set(spec, "manualSelector", false);
        let failure_policy = has(spec, "podFailurePolicy");
        set(spec, "podReplacementPolicy", if failure_policy { "Failed" } else { "TerminatingOrFailed" });
        pod_failure_policy(spec);
        template(spec);
    });
    let labels = object(object(object(object(job, "spec"), "template"), "metadata"), "labels").clone();
    if !labels.is_empty() {
        with_child(job, "metadata", |meta| {
            if object(meta, "labels").is_empty() {
                meta.insert("labels".to_owned(), Value::Object(labels));
            }
        });
    }
}

/// batch/v1 `CronJob`.
pub(super) fn cron_job(cron: &mut Obj) {
    with_child(cron, "spec", |spec| {
        set(spec, "concurrencyPolicy", "Allow");
        set(spec, "suspend", false);
        set(spec, "successfulJobsHistoryLimit", 3);
        set(spec, "failedJobsHistoryLimit", 1);
        if let Some(job) = child(spec, "jobTemplate").and_then(|t| child(t, "spec")) {
            pod_failure_policy(job);
            template(job);
        }
    });
}

fn pod_failure_policy(spec: &mut Obj) {
    if let Some(policy) = child(spec, "podFailurePolicy") {
        for condition in children(policy, "rules").flat_map(|rule| children(rule, "onPodConditions")) {
            crate::obj::set_zero(condition, "status", "True");
        }
    }
}
