//! batch/v1 Job: the labels that tie pods to their job.

use serde_json::Value;

use crate::obj::{Obj, flag, object, set, text, with_child};

/// The label with the job's UID.
pub(crate) const UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// The label with the job's name.
pub(crate) const NAME_LABEL: &str = "batch.kubernetes.io/job-name";

/// Labels and selector of a new job, unless it brings its own (`manualSelector`).
pub(super) fn create(job: &mut Obj) {
    if flag(object(job, "spec"), "manualSelector") {
        return;
    }
    let meta = object(job, "metadata");
    let (uid, name) = (text(meta, "uid").to_owned(), text(meta, "name").to_owned());
    with_child(job, "spec", |spec| {
        with_child(spec, "template", |template| {
            with_child(template, "metadata", |meta| {
                with_child(meta, "labels", |labels| {
                    for (key, value) in [
                        ("job-name", &name),
                        (NAME_LABEL, &name),
                        ("controller-uid", &uid),
                        (UID_LABEL, &uid),
                    ] {
                        set(labels, key, value.clone());
                    }
                });
            });
        });
        with_child(spec, "selector", |selector| {
            with_child(selector, "matchLabels", |labels| set(labels, UID_LABEL, Value::String(uid)));
        });
    });
}
