//! The plan of a reconcile: writes in order, and the helpers that make them.

use std::time::Duration;

use plimsoll_api::event::{EventRecord, ObjectReference};
use plimsoll_api::json;
use plimsoll_api::resource::Resource;
use serde_json::Value;

/// End of the names of the controllers that report Events of job integrations (Kueue `jobframework/setup.go`).
pub const JOB_CONTROLLER: &str = "-kueue-controller";

/// Reporting controller of Events of Kueue's workload controller (`WorkloadControllerName`).
pub(crate) const WORKLOAD_CONTROLLER: &str = "kueue-workload-controller";

/// Reason of Events with what pending admission checks say.
pub const UPDATED_ADMISSION_CHECK: &str = "UpdatedAdmissionCheck";

/// An object to create for an admission check of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckObject {
    /// Resource.
    pub resource: Resource,
    /// The object.
    pub object: Value,
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub workload: String,
    /// The check.
    pub check: String,
}

/// What a reconcile wants to have done, in this order. The rest is dropped after the first write that fails; the next
/// reconcile plans it again from what the watches show then.
pub type Plan = Vec<Write>;

/// One write of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Creates an object.
    Create(Resource, Value),
    /// JSON merge patch of an object, or of its subresource.
    Patch {
        /// Resource.
        resource: Resource,
        /// Namespace, empty for cluster scope.
        namespace: String,
        /// Name.
        name: String,
        /// Subresource, or empty.
        subresource: &'static str,
        /// The patch, with the resourceVersion that it was computed from where a later version must not be patched.
        body: Value,
    },
    /// Deletes the object with this UID.
    Delete {
        /// Resource.
        resource: Resource,
        /// Namespace, empty for cluster scope.
        namespace: String,
        /// Name.
        name: String,
        /// UID.
        uid: String,
        /// Grace period in seconds; `None`: that of the object.
        grace_seconds: Option<i64>,
    },
    /// The rest of the plan is carried out only if the object with this UID is gone, which the API server is asked: the
    /// watch may not have shown it yet.
    IfGone {
        /// Resource.
        resource: Resource,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// UID.
        uid: String,
    },
    /// The rest of the plan is carried out only if the object is still of this version, which the API server is asked: the
    /// watch may be behind, and what follows can't be taken back.
    IfUnchanged {
        /// Resource.
        resource: Resource,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// resourceVersion.
        version: String,
    },
    /// Reports to the engine that an evicted workload has no running pods, so that its quota can be released.
    WorkloadStopped {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// Whether it stands for one pod, which was deleted.
        ended: bool,
    },
    /// Records an Event.
    Event(Box<EventRecord>),
    /// Creates an object that an admission check needs. A refusal becomes the check's message
    /// ([`crate::provisioning::creation_failed`]).
    CreateForCheck(Box<CheckObject>),
    /// Reconciles the same key again after this time: an object that was looked up is missing, or a deadline is ahead.
    RequeueAfter(Duration),
}

/// The controller that reports the Events of the integration of a kind: the name of its framework, and [`JOB_CONTROLLER`].
pub(crate) fn job_controller(api_version: &str, kind: &str) -> String {
    let kind = kind.to_lowercase();
    match api_version.split_once('/') {
        None | Some(("apps", _)) => format!("{kind}{JOB_CONTROLLER}"),
        Some((group, _)) => format!("{group}/{kind}{JOB_CONTROLLER}"),
    }
}

/// An Event of its integration on one object.
pub fn event(resource: Resource, object: &Value, warning: bool, reason: &str, message: &str) -> Write {
    Write::Event(Box::new(record(resource, object, warning, reason, message)))
}

/// [`event`], to change what differs.
pub(crate) fn record(
    resource: Resource,
    object: &Value,
    warning: bool,
    reason: &str,
    message: &str,
) -> EventRecord {
    EventRecord {
        regarding: reference(resource, object),
        warning,
        reason: reason.to_owned(),
        action: reason.to_owned(),
        message: message.to_owned(),
        reporting_controller: job_controller(resource.api_version, resource.kind).into(),
        reporting_instance: String::new(),
    }
}

/// A reference to an object of `resource`. Items of lists have neither kind nor version.
pub(crate) fn reference(resource: Resource, object: &Value) -> ObjectReference {
    let mut reference = ObjectReference::of(object);
    reference.api_version = resource.api_version.to_owned();
    reference.kind = resource.kind.to_owned();
    reference
}

/// The merge patch (RFC 7386) that turns `old` into `new`; `None` when they are equal.
pub fn merge_diff(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let mut out = serde_json::Map::new();
            for key in a.keys().filter(|k| !b.contains_key(*k)) {
                out.insert(key.clone(), Value::Null);
            }
            for (key, value) in b {
                match a.get(key) {
                    Some(before) => {
                        if let Some(change) = merge_diff(before, value) {
                            out.insert(key.clone(), change);
                        }
                    }
                    None if value.is_null() => {}
                    None => {
                        out.insert(key.clone(), value.clone());
                    }
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        _ => (old != new).then(|| new.clone()),
    }
}

/// A patch from `old` to `new` that fails when the object has changed since; `None` when they are equal.
pub fn patch(resource: Resource, old: &Value, new: &Value) -> Option<Write> {
    let mut body = merge_diff(old, new)?;
    json::set(&mut body, &["metadata", "resourceVersion"], json::version(old).into());
    json::set(&mut body, &["metadata", "uid"], json::uid(old).into());
    Some(Write::Patch {
        resource,
        namespace: json::namespace(old).to_owned(),
        name: json::name(old).to_owned(),
        subresource: "",
        body,
    })
}

/// A patch of `status` that fails when the object has changed since.
pub fn patch_status(resource: Resource, object: &Value, status: &Value) -> Write {
    let metadata = serde_json::json!({"resourceVersion": json::version(object), "uid": json::uid(object)});
    Write::Patch {
        resource,
        namespace: json::namespace(object).to_owned(),
        name: json::name(object).to_owned(),
        subresource: "status",
        body: serde_json::json!({"metadata": metadata, "status": status}),
    }
}

/// A patch that removes `finalizer`; `None` when it is not there.
pub fn remove_finalizer(resource: Resource, object: &Value, finalizer: &str) -> Option<Write> {
    if !json::has_finalizer(object, finalizer) {
        return None;
    }
    let left = json::list(object, &["metadata", "finalizers"]).iter().filter(|f| **f != finalizer).cloned();
    let mut new = object.clone();
    json::set(&mut new, &["metadata", "finalizers"], Value::Array(left.collect()));
    patch(resource, object, &new)
}

/// Deletes `object`, and no other one of its name.
pub fn delete(resource: Resource, object: &Value) -> Write {
    delete_within(resource, object, None)
}

/// [`delete`] with a grace period in seconds; `None`: that of the object.
pub fn delete_within(resource: Resource, object: &Value, grace_seconds: Option<i64>) -> Write {
    Write::Delete {
        resource,
        namespace: json::namespace(object).to_owned(),
        name: json::name(object).to_owned(),
        uid: json::uid(object).to_owned(),
        grace_seconds,
    }
}
