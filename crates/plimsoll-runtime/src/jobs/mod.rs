//! Job integrations: from a job to its Workload, and from the Workload's admission back to the job.
//!
//! [`reconcile`] is Kueue's generic reconcile (spec section 4.3) as a pure function of what the cache shows: it
//! returns writes and does nothing itself. What differs between kinds of jobs is behind [`Integration`]:
//! [`batch`] for `batch/v1` Jobs, [`pod`] for single plain pods, [`group`] for pod groups. [`control`] feeds it.

pub mod batch;
pub mod control;
pub mod elastic;
pub mod group;
pub mod in_use;
mod multikueue;
mod orphan;
pub mod pod;
pub mod podset;
pub mod provision;
mod reconcile;
mod retain;
pub mod rules;
mod ungate;
pub mod workload;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_state::Time;
use serde_json::Value;

use crate::api::Resource;
use crate::cache::Cache;
use crate::json;
use crate::notes::{Note, Subject};
pub use reconcile::reconcile;

/// Labels, annotations, gates and finalizers of Kueue (spec section 4.1).
pub mod names {
    /// Label: LocalQueue of a job.
    pub const QUEUE: &str = "kueue.x-k8s.io/queue-name";
    /// Label: WorkloadPriorityClass of a job.
    pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
    /// Label: how long the workload may run.
    pub const MAX_EXEC_TIME: &str = "kueue.x-k8s.io/max-exec-time-seconds";
    /// Label or annotation: Workload made by somebody else.
    pub const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";
    /// Label on pods that a queue manages, and their finalizer.
    pub const MANAGED: &str = "kueue.x-k8s.io/managed";
    /// Finalizer of workloads, flavors and cluster queues.
    pub const IN_USE: &str = "kueue.x-k8s.io/resource-in-use";
    /// Scheduling gate of pods that wait for admission.
    pub const GATE: &str = "kueue.x-k8s.io/admission";
    /// Annotation on jobs that may grow and shrink while they run, and on their workloads.
    pub const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
    /// Scheduling gate of pods of elastic jobs.
    pub const ELASTIC_GATE: &str = "kueue.x-k8s.io/elastic-job";
    /// Annotation on workloads and pods of elastic jobs: name of the first slice.
    pub const SLICE: &str = "kueue.x-k8s.io/workload-slice-name";
    /// Scheduling gate of pods that wait for their topology domain.
    pub const TOPOLOGY_GATE: &str = "kueue.x-k8s.io/topology";
    /// Label: podset of a pod.
    pub const PODSET: &str = "kueue.x-k8s.io/podset";
    /// Label: ClusterQueue of a pod.
    pub const CLUSTER_QUEUE: &str = "kueue.x-k8s.io/cluster-queue-name";
    /// Label: LocalQueue of a pod.
    pub const LOCAL_QUEUE: &str = "kueue.x-k8s.io/local-queue-name";
    /// Annotation: Workload of a pod.
    pub const WORKLOAD: &str = "kueue.x-k8s.io/workload";
    /// Label: UID of the job of a Workload.
    pub const JOB_UID: &str = "kueue.x-k8s.io/job-uid";
    /// Annotation: number of pods in a group.
    pub const GROUP_COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";
    /// Annotation: the group is admitted from its first pod on.
    pub const GROUP_FAST: &str = "kueue.x-k8s.io/pod-group-fast-admission";
    /// Annotation: the group never finishes by itself.
    pub const GROUP_SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
    /// Annotation: failed pods of the group are not replaced when `false`.
    pub const RETRIABLE: &str = "kueue.x-k8s.io/retriable-in-group";
    /// Annotation: role of a pod in its group.
    pub const ROLE_HASH: &str = "kueue.x-k8s.io/role-hash";
    /// Annotation on workloads of groups.
    pub const IS_GROUP: &str = "kueue.x-k8s.io/is-group-workload";
    /// Annotation: kind of the parent that suspends the pod.
    pub const SUSPENDING_PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
    /// Annotation on a Job while it is being stopped.
    pub const STOPPING: &str = "kueue.x-k8s.io/stopping";
    /// Annotation: fewer pods are acceptable down to this.
    pub const MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
    /// Annotation: completions follow parallelism.
    pub const SYNC_COMPLETIONS: &str = "kueue.x-k8s.io/job-completions-equal-parallelism";
    /// Annotation: nothing is queued until all names here are removed.
    pub const GATED_BY: &str = "kueue.x-k8s.io/admission-gated-by";
    /// Prefix of annotations copied for provisioning requests.
    pub const PROVREQ: &str = "provreq.kueue.x-k8s.io/";
    /// LocalQueue that applies to jobs without the label, where it exists.
    pub const DEFAULT_QUEUE: &str = "default";
}

/// Who reports events of job integrations.
pub const REPORTER: &str = "kueue-job-controller";

/// A write that a reconcile asks for; writes of one reconcile are carried out in order, up to the first failure.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Create an object.
    Create(Resource, Value),
    /// JSON merge patch of an object, or of its subresource `sub` when not empty.
    Patch {
        /// Resource.
        resource: Resource,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// Subresource or empty.
        sub: &'static str,
        /// The patch, with the resourceVersion it was made from where that matters.
        body: Value,
    },
    /// Delete an object with this UID.
    Delete {
        /// Resource.
        resource: Resource,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// UID.
        uid: String,
    },
    /// Tell the engine that nothing of this evicted workload (namespace, name) runs any more.
    Stopped(String, String),
    /// Record an event.
    Note(Box<Note>),
    /// Create an object for a check of a workload; when that fails, the check says why.
    Provide(Box<provision::Order>),
    /// Look again after this time: something looked up is missing.
    Again(Duration),
}

/// What a reconcile may look at.
#[derive(Clone, Copy, Debug)]
pub struct Env<'a> {
    /// Last seen objects.
    pub cache: &'a Cache,
    /// Now.
    pub now: Time,
    /// Whether readiness of pods is supervised (`waitForPodsReady`).
    pub supervised: bool,
}

/// Workloads found for a job.
#[derive(Debug, Default)]
pub struct Found {
    /// The one that belongs to it.
    pub matching: Option<Arc<Value>>,
    /// Others that claim to.
    pub extra: Vec<Arc<Value>>,
    /// Writes that go with it.
    pub writes: Vec<Write>,
}

/// What differs between kinds of jobs.
pub trait Integration {
    /// The object that stands for the job: the Job, the pod, the first pod of a group.
    fn object(&self) -> &Value;
    /// Resource and kind of that object.
    fn resource(&self) -> Resource;
    /// Objects on which events are recorded.
    fn objects(&self) -> Vec<&Value> {
        vec![self.object()]
    }
    /// Whether it is held back.
    fn is_suspended(&self) -> bool;
    /// Whether stopping it was begun and not completed.
    fn is_stopping(&self) -> bool {
        false
    }
    /// Whether pods run that use quota.
    fn is_active(&self) -> bool;
    /// Message and success, once it is over.
    fn finished(&self) -> Option<(String, bool)>;
    /// Whether all its pods are ready or have succeeded.
    fn pods_ready(&self) -> bool;
    /// Pods that are done while others go on: (podset, count). `None`: not supported.
    fn reclaimable(&self) -> Option<Vec<(String, i64)>>;
    /// Its workloads among those in the cache.
    fn find(&self, env: Env<'_>) -> Found;
    /// The Workload to create (without priority), and writes that go before it.
    ///
    /// # Errors
    /// Why there can be none yet.
    fn compose(&self, env: Env<'_>) -> Result<(Vec<Write>, Value), Vec<Write>>;
    /// Lets it run with what was assigned.
    ///
    /// # Errors
    /// A conflict that no retry cures.
    fn start(&self, infos: &[podset::Info], message: &str) -> Result<Vec<Write>, String>;
    /// Holds it back again; empty when there is nothing to stop.
    fn stop(&self, workload: Option<&Value>, reason: &str, message: &str, now: Time) -> Vec<Write>;
    /// Releases what the integration holds on to, such as finalizers of pods.
    fn finalize(&self) -> Vec<Write> {
        Vec::new()
    }
    /// Conditions of the workload that only this kind has; `None` when they are right already.
    fn custom_conditions(&self, _workload: &Value, _env: Env<'_>) -> Option<Vec<Value>> {
        None
    }
    /// Whether changing the queue of a waiting job is followed.
    fn queue(&self) -> &str {
        json::label(self.object(), names::QUEUE)
    }
}

/// An event on every object of the job.
pub fn notes(job: &dyn Integration, warning: bool, reason: &str, message: &str) -> Vec<Write> {
    let resource = job.resource();
    job.objects().into_iter().map(|o| note(resource, o, warning, reason, message)).collect()
}

/// An event on one object.
pub fn note(resource: Resource, object: &Value, warning: bool, reason: &str, message: &str) -> Write {
    let mut subject = Subject::of(object);
    // Items of lists come without kind and version.
    subject.api_version = resource.api_version.to_owned();
    subject.kind = resource.kind.to_owned();
    Write::Note(Box::new(Note {
        subject,
        warning,
        reason: reason.to_owned(),
        action: reason.to_owned(),
        message: message.to_owned(),
        reporter: REPORTER,
        instance: String::new(),
    }))
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
        sub: "",
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
        sub: "status",
        body: serde_json::json!({"metadata": metadata, "status": status}),
    }
}

/// A patch that takes `finalizer` off, if it is there.
pub fn drop_finalizer(resource: Resource, object: &Value, finalizer: &str) -> Option<Write> {
    if !json::has_finalizer(object, finalizer) {
        return None;
    }
    let left = json::list(object, &["metadata", "finalizers"]).iter().filter(|f| **f != finalizer).cloned();
    let mut new = object.clone();
    json::set(&mut new, &["metadata", "finalizers"], Value::Array(left.collect()));
    patch(resource, object, &new)
}
