//! What pods and workloads of pods say of themselves: group, workload, slices, gates, end.

use plimsoll_api::json;
use serde_json::Value;

use crate::names;

/// Label or annotation that makes a pod a member of a group (Kueue KEP-976).
pub const GROUP: &str = "kueue.x-k8s.io/pod-group-name";

/// Name of the pod's group, from the annotation (gate WorkloadIdentifierAnnotations) or the label.
pub fn group_of(pod: &Value) -> &str {
    identifier(pod, GROUP)
}

/// Name of the workload that a user created for a job, or empty (Kueue `PrebuiltWorkloadNameFor`).
pub fn prebuilt_of(job: &Value) -> &str {
    identifier(job, names::PREBUILT)
}

fn identifier<'a>(object: &'a Value, key: &str) -> &'a str {
    let annotation = json::annotation(object, key).filter(|v| !v.is_empty());
    annotation.unwrap_or_else(|| json::label(object, key))
}

/// Name of the workload that the pod was admitted with; empty when it was not.
pub fn workload_of(pod: &Value) -> &str {
    json::annotation(pod, names::WORKLOAD).unwrap_or_default()
}

/// Name of the first slice of the elastic job that a pod belongs to, or empty.
pub fn slice_of(pod: &Value) -> &str {
    json::annotation(pod, names::SLICE).unwrap_or_default()
}

/// Whether the pod has ended.
pub fn ended(pod: &Value) -> bool {
    matches!(json::text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

/// Whether the pod is being deleted and may be deleted forcefully (Kueue `podEligibleForTermination`).
pub fn awaits_forceful_deletion(pod: &Value) -> bool {
    json::deleting(pod) && json::annotation(pod, names::SAFE_TO_FORCEFULLY_DELETE) == Some("true")
}

/// Whether the pod has been deleted without a grace period: only finalizers hold it.
pub fn force_deleted(pod: &Value) -> bool {
    json::deleting(pod) && json::int(pod, &["metadata", "deletionGracePeriodSeconds"]) == Some(0)
}

/// Whether the pod has this scheduling gate.
pub fn has_gate(pod: &Value, gate: &str) -> bool {
    json::list(pod, &["spec", "schedulingGates"]).iter().any(|g| g["name"] == gate)
}

/// Name of the first of the workload slices of an elastic job, by which its pods refer to all of them.
pub fn first_slice(wl: &Value) -> &str {
    json::annotation(wl, names::SLICE).unwrap_or_else(|| json::name(wl))
}
