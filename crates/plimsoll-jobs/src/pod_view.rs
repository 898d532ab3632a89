//! What pods and workloads of pods say of themselves: group, workload, slices, gates, end.

use plimsoll_api::json;
use serde_json::Value;

use crate::names;

/// Label or annotation that makes a pod a member of a group (Kueue KEP-976).
pub const GROUP: &str = "kueue.x-k8s.io/pod-group-name";

/// Longest value of a label, in bytes.
const LABEL_VALUE: usize = 63;

/// Where the names of a pod's group and of a job's workload are (Kueue's gate WorkloadIdentifierAnnotations).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Identifiers {
    /// In annotations, or in labels where there is no annotation.
    #[default]
    Annotations,
    /// In labels. The name of a workload that no label can have is in an annotation.
    Labels,
}

impl Identifiers {
    /// Name of the pod's group, or empty (Kueue `GetPodGroupName`).
    pub fn group_of(self, pod: &Value) -> &str {
        let annotation =
            if self.prefers_annotation(pod, GROUP) { json::annotation(pod, GROUP) } else { None };
        annotation.unwrap_or_else(|| json::label(pod, GROUP))
    }

    /// Name of the workload that a user created for a job, or empty (Kueue `PrebuiltWorkloadNameFor`).
    pub fn prebuilt_of(self, job: &Value) -> &str {
        let (label, annotation) = (json::label(job, names::PREBUILT), json::annotation(job, names::PREBUILT));
        let long = annotation.filter(|name| name.len() > LABEL_VALUE);
        match self {
            Self::Annotations => annotation.filter(|name| !name.is_empty()).unwrap_or(label),
            Self::Labels if label.is_empty() => long.unwrap_or_default(),
            Self::Labels => label,
        }
    }

    /// Whether the annotation with an identifier counts, instead of the label with this key.
    pub fn prefers_annotation(self, object: &Value, key: &str) -> bool {
        let length = json::annotation(object, key).map_or(0, str::len);
        match self {
            Self::Annotations => length > 0,
            Self::Labels => key == names::PREBUILT && length > LABEL_VALUE,
        }
    }

    /// Writes the name of a pod's group, or of a job's workload (Kueue `SetPodGroupName`, `SetPrebuiltWorkloadName`).
    pub fn set(self, object: &mut Value, key: &str, name: &str) {
        let long = key == names::PREBUILT && name.len() > LABEL_VALUE;
        let map = if self == Self::Annotations || long { "annotations" } else { "labels" };
        json::set(object, &["metadata", map, key], name.into());
    }
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
