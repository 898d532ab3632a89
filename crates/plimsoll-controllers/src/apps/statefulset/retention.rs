//! Owners of the claims of a StatefulSet's pods, and so when they go (`updateClaimOwnerRefForSetAndPod` upstream).

use plimsoll_apimachinery::meta::controller_reference;
use serde_json::{Value, json};

use super::model::StatefulSet;
use crate::pod::Pod;

/// The owner that a claim of the pod with this ordinal should have; `None`: neither the set nor the pod.
fn owner(set: &StatefulSet, pod: &Pod, ordinal: i32) -> Option<Value> {
    let policy = &set.spec.persistent_volume_claim_retention_policy;
    if policy.when_scaled == "Delete" && !set.ordinals().contains(&ordinal) {
        return Some(controller_reference("v1", "Pod", &pod.metadata));
    }
    (policy.when_deleted == "Delete").then(|| controller_reference("apps/v1", "StatefulSet", &set.metadata))
}

fn names(reference: &Value, kind: &str, name: &str) -> bool {
    reference["kind"] == kind && reference["name"] == name
}

/// Whether a claim belongs to a set or pod of the same name from before, with which it will go (`hasStaleOwner`). `uid`: of
/// the pod, empty for one that isn't there yet.
pub fn is_stale(set: &StatefulSet, pod: &str, uid: &str, claim: &Value) -> bool {
    claim["metadata"]["ownerReferences"].as_array().into_iter().flatten().any(|r| {
        (names(r, "StatefulSet", &set.metadata.name) && r["uid"] != set.metadata.uid)
            || (names(r, "Pod", pod) && r["uid"] != uid)
    })
}

/// The owners of a claim as they should be; `None`: as they are. Claims with another controller, or that belong to a set
/// or pod of the same name from before, are left to them.
pub fn owners(set: &StatefulSet, pod: &Pod, ordinal: i32, claim: &Value) -> Option<Value> {
    let refs = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    if is_stale(set, &pod.metadata.name, &pod.metadata.uid, claim) {
        return None;
    }
    let is_set = |r: &Value| names(r, "StatefulSet", &set.metadata.name);
    let is_pod = |r: &Value| names(r, "Pod", &pod.metadata.name);
    let ours = |r: &Value| is_set(r) || is_pod(r);
    let foreign = refs.iter().any(|r| r["controller"] == true && !ours(r));
    let mut wanted: Vec<Value> = refs.iter().filter(|r| !ours(r)).cloned().collect();
    wanted.extend(owner(set, pod, ordinal).filter(|_| !foreign));
    (wanted != refs).then(|| json!(wanted))
}
