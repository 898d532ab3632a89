//! Variants of workloads, and parents that these are admitted for (Kueue KEP-8691, concurrent admission).

use plimsoll_queueing::FlavorMigration;
use serde_json::Value;

use crate::json;
use crate::resource::WORKLOADS;

/// Label of workloads that are admitted by variants, with the value `true`.
pub const PARENT: &str = "kueue.x-k8s.io/concurrent-admission-parent";
/// Annotation of variants: the flavors that they may get, separated by commas.
pub const ALLOWED_FLAVORS: &str = "kueue.x-k8s.io/workload-allowed-resource-flavors";
/// Gate that keeps a variant from preempting others until it is its turn among its siblings.
pub const PREEMPTION_GATE: &str = "kueue.x-k8s.io/concurrent-admission";

/// Whether a ClusterQueue admits its workloads by variants.
pub fn has_policy(cq: &Value) -> bool {
    cq["spec"]["concurrentAdmissionPolicy"].is_object()
}

/// Whether a workload with this metadata is admitted by variants.
pub fn is_parent(meta: &Value) -> bool {
    meta["labels"][PARENT] == "true"
}

/// The owner reference of a variant to its parent; `None`: it is no variant.
pub fn parent(meta: &Value) -> Option<&Value> {
    let mut owners = json::list(meta, &["ownerReferences"]).iter();
    owners.find(|o| o["kind"] == WORKLOADS.kind && o["apiVersion"] == WORKLOADS.api_version)
}

/// UID of the workload of which this one is a variant, or empty.
pub(super) fn parent_uid(meta: &Value) -> &str {
    parent(meta).map_or("", |owner| json::text(owner, &["uid"]))
}

/// The flavors that a variant may get (Kueue `csv.Parse`); `None`: all.
pub fn allowed_flavors(meta: &Value) -> Option<Vec<String>> {
    let listed = meta["annotations"][ALLOWED_FLAVORS].as_str()?;
    Some(listed.split(',').map(str::trim).filter(|f| !f.is_empty()).map(str::to_owned).collect())
}

/// `spec.concurrentAdmissionPolicy` of a ClusterQueue.
pub(super) fn flavor_migration(policy: &Value) -> Option<FlavorMigration> {
    let migration = &policy["migration"];
    let last = &migration["constraints"]["lastAcceptableFlavorName"];
    policy.is_object().then(|| FlavorMigration {
        retains_first: migration["mode"] == "RetainFirstAdmission",
        last_acceptable: last.as_str().map(str::to_owned),
    })
}
