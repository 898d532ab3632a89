//! The claims of a pod, and what may be wrong with them whatever the node.

use crate::cluster::devices::Claim;
use crate::cluster::{Cluster, PodId};
use crate::work::{AllocationTerms, DeviceGrant};
use plimsoll_state::model::{PodClaimSource, PodResourceClaim, ResourceClaim};
use std::sync::Arc;

/// The claims of a pod, or why they can't be used yet (upstream `foreachPodResourceClaim`).
pub(super) fn claims_of(cluster: &Cluster, pod: PodId) -> Result<Vec<Arc<Claim>>, String> {
    let shape = cluster.shape(pod);
    let list = &shape.spec.source.resource_claims;
    let mut out = Vec::with_capacity(list.len());
    let to_come = cluster.to_come.get(&pod);
    for c in list {
        if let Some(claim) = to_come.and_then(|t| t.device_claim(&c.name)) {
            out.push(claim.clone()?);
            continue;
        }
        let Some((name, generated)) = claim_name(cluster, pod, c)? else { continue };
        let namespace = cluster.strings.text(shape.namespace);
        let key = (shape.namespace, name);
        let Some(claim) = cluster.objects.devices.claims.get(&key) else {
            return Err(format!("could not find ResourceClaim \"{namespace}/{}\"", key.1));
        };
        if claim.raw.deleting {
            return Err(format!("resourceclaim {:?} is being deleted", claim.raw.name));
        }
        if generated && !is_for(cluster, pod, &claim.raw) {
            let name = &cluster.pods[pod].name;
            return Err(format!(
                "ResourceClaim {namespace}/{} was not created for Pod {namespace}/{name} (Pod is not owner)",
                key.1
            ));
        }
        out.push(Arc::clone(claim));
    }
    Ok(out)
}

/// Name of a claim and whether it was made for the pod; `None`: none is needed.
fn claim_name(cluster: &Cluster, pod: PodId, c: &PodResourceClaim) -> Result<Option<(String, bool)>, String> {
    match &c.source {
        PodClaimSource::Claim(name) => Ok(Some((name.clone(), false))),
        PodClaimSource::Template(_) => {
            let statuses = cluster.pods[pod].extra.as_ref().map_or(&[][..], |e| &e.claim_statuses);
            match statuses.iter().find(|(n, _)| **n == *c.name) {
                Some((_, name)) => Ok(name.as_ref().map(|n| (n.to_string(), true))),
                None => Err(format!("pod {:?}: ResourceClaim not created yet", cluster.pod_name(pod))),
            }
        }
    }
}

/// A claim and what it has been allocated.
pub(super) fn held(claim: &ResourceClaim) -> DeviceGrant {
    DeviceGrant {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        uid: claim.uid.clone(),
        devices: Vec::new(),
        terms: AllocationTerms::default(),
        allocated: claim.allocation.as_ref().map_or_else(Vec::new, |a| a.devices.clone()),
    }
}

fn is_for(cluster: &Cluster, pod: PodId, claim: &ResourceClaim) -> bool {
    let uid = &*cluster.pods[pod].uid;
    claim.owners.iter().any(|o| o.controller && o.uid == uid)
}

/// What is wrong with a request of the claim, whatever the node: it asks for nothing, or its class does not exist
/// (`PreFilter` in `plugins/dynamicresources/dynamicresources.go`).
pub(super) fn invalid_request(cluster: &Cluster, claim: &ResourceClaim) -> Option<String> {
    for r in &claim.requests {
        if r.alternatives.is_empty() {
            let (namespace, name) = (&claim.namespace, &claim.name);
            return Some(format!(
                "resource claim {namespace}/{name}, request {}: unknown request type",
                r.name
            ));
        }
        for a in &r.alternatives {
            let name = || r.full_name(a);
            if !cluster.objects.devices.classes.contains_key(&a.class) {
                return Some(format!("request {}: device class {} does not exist", name(), a.class));
            }
            if a.shares_capacity {
                return Some(format!(
                    "request {}: capacity: requests for a share of a device's capacity are not supported",
                    name()
                ));
            }
        }
    }
    None
}
