//! Writes what a pod needs before it is bound: devices for its claims, volumes for its volume claims
//! (PreBind of kube-scheduler's DynamicResources and VolumeBinding), a claim for its extended resources.

use plimsoll_scheduler::{DeviceGrant, ExtendedClaim, PodRef, Preparation};
use plimsoll_state::model::AllocatedDevice;
use serde_json::{Value, json};

use crate::api::{Api, Error, PODS, PatchKind, Resource};
use crate::json::{self, uid, version};

const CLAIMS: Resource =
    Resource { api_version: "resource.k8s.io/v1", plural: "resourceclaims", kind: "ResourceClaim" };
const VOLUMES: Resource =
    Resource { api_version: "v1", plural: "persistentvolumes", kind: "PersistentVolume" };
const VOLUME_CLAIMS: Resource =
    Resource { api_version: "v1", plural: "persistentvolumeclaims", kind: "PersistentVolumeClaim" };
/// Keeps a claim with devices from being deleted.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Tries of a read-modify-write that others keep changing.
const CONFLICTS: u32 = 8;

/// Writes everything, in upstream's order: devices, then volumes, then claims to provision.
///
/// # Errors
/// The first write that failed; what was written before stays and is found again by the next attempt.
pub(crate) async fn write(api: &Api, pod: &PodRef, node: &str, what: &Preparation) -> Result<(), String> {
    for grant in &what.devices {
        give(api, pod, node, grant).await?;
    }
    if let Some(claim) = &what.extended {
        extended(api, pod, node, claim).await.map_err(|e| e.to_string())?;
    }
    for ((namespace, name), volume) in &what.bindings {
        let claim = api.get(VOLUME_CLAIMS, namespace, name).await.map_err(|e| e.to_string())?;
        let patch = json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                "uid": uid(&claim), "resourceVersion": version(&claim),
            }},
        });
        let done = api.patch(VOLUMES, "", volume, "", PatchKind::Merge, &patch).await;
        done.map_err(|e| e.to_string())?;
    }
    for (namespace, name) in &what.provisions {
        let patch = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": node}}});
        let done = api.patch(VOLUME_CLAIMS, namespace, name, "", PatchKind::Merge, &patch).await;
        done.map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Allocates a claim if it has devices to get, and reserves it for the pod.
async fn give(api: &Api, pod: &PodRef, node: &str, grant: &DeviceGrant) -> Result<(), String> {
    for _ in 0..CONFLICTS {
        match try_give(api, pod, node, grant).await {
            Ok(()) => return Ok(()),
            Err(e) if e.is_conflict() => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    Err(format!("claim {}/{} keeps changing", grant.namespace, grant.name))
}

async fn try_give(api: &Api, pod: &PodRef, node: &str, grant: &DeviceGrant) -> Result<(), Error> {
    let (namespace, name) = (&grant.namespace, &grant.name);
    let mut claim = api.get(CLAIMS, namespace, name).await?;
    let mut finalizers: Vec<Value> = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !grant.is_reservation() && !finalizers.iter().any(|f| f == FINALIZER) {
        finalizers.push(FINALIZER.into());
        let meta = json!({
            "uid": grant.uid, "resourceVersion": version(&claim), "finalizers": finalizers,
        });
        let patch = json!({"metadata": meta});
        claim = api.patch(CLAIMS, namespace, name, "", PatchKind::Merge, &patch).await?;
    }
    let mut reserved: Vec<Value> = claim["status"]["reservedFor"].as_array().cloned().unwrap_or_default();
    if !reserved.iter().any(|r| r["uid"] == *pod.uid) {
        reserved.push(json!({"resource": "pods", "name": pod.name, "uid": pod.uid}));
    }
    let mut status = json!({"reservedFor": reserved});
    if !grant.is_reservation() {
        status["allocation"] = allocation(&grant.devices, node);
    }
    let meta = json!({"uid": grant.uid, "resourceVersion": version(&claim)});
    let patch = json!({"metadata": meta, "status": status});
    api.patch(CLAIMS, namespace, name, "status", PatchKind::Merge, &patch).await?;
    Ok(())
}

/// Creates the claim for the extended resources of a pod with its devices, and names it in the pod's status (KEP-5004).
/// When that fails halfway, the claim is deleted again.
async fn extended(api: &Api, pod: &PodRef, node: &str, claim: &ExtendedClaim) -> Result<(), Error> {
    for name in &claim.stale {
        delete(api, &pod.namespace, name).await?;
    }
    let made = api.create(CLAIMS, &extended_claim(pod, claim)).await?;
    let name = json::name(&made);
    let done = give_extended(api, pod, node, claim, &made).await;
    if done.is_err()
        && let Err(error) = delete(api, &pod.namespace, name).await
    {
        tracing::warn!(claim = name, %error, "deleting a claim for extended resources failed");
    }
    done
}

fn extended_claim(pod: &PodRef, claim: &ExtendedClaim) -> Value {
    let request = |(name, class, count): &(String, String, i64)| {
        json!({"name": name, "exactly": {
            "deviceClassName": class, "allocationMode": "ExactCount", "count": count}})
    };
    let requests: Vec<Value> = claim.requests.iter().map(request).collect();
    json!({
        "apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind,
        "metadata": {
            "namespace": pod.namespace, "generateName": format!("{}-extended-resources-", pod.name),
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "finalizers": [FINALIZER],
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": true}],
        },
        "spec": {"devices": {"requests": requests}},
    })
}

async fn give_extended(
    api: &Api,
    pod: &PodRef,
    node: &str,
    claim: &ExtendedClaim,
    made: &Value,
) -> Result<(), Error> {
    let patch = json!({
        "metadata": {"uid": uid(made), "resourceVersion": version(made)},
        "status": {
            "allocation": allocation(&claim.devices, node),
            "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}],
        },
    });
    api.patch(CLAIMS, &pod.namespace, json::name(made), "status", PatchKind::Merge, &patch).await?;
    let mapping = |(container, resource, request): &(String, String, String)| json!({"containerName": container, "resourceName": resource, "requestName": request});
    let mappings: Vec<Value> = claim.mappings.iter().map(mapping).collect();
    let patch = json!({
        "metadata": {"uid": pod.uid},
        "status": {"extendedResourceClaimStatus": {
            "resourceClaimName": json::name(made), "requestMappings": mappings}},
    });
    api.patch(PODS, &pod.namespace, &pod.name, "status", PatchKind::Merge, &patch).await.map(drop)
}

/// Deletes a claim with its finalizer.
async fn delete(api: &Api, namespace: &str, name: &str) -> Result<(), Error> {
    let patch = json!({"metadata": {"finalizers": null}});
    let done = match api.patch(CLAIMS, namespace, name, "", PatchKind::Merge, &patch).await {
        Ok(claim) => api.delete(CLAIMS, namespace, name, uid(&claim), None).await.map(drop),
        Err(e) => Err(e),
    };
    done.or_else(|e| if e.is_not_found() { Ok(()) } else { Err(e) })
}

fn allocation(devices: &[AllocatedDevice], node: &str) -> Value {
    let result = |d: &AllocatedDevice| {
        let mut out = json!({"request": d.request, "driver": d.driver, "pool": d.pool, "device": d.device});
        if d.admin {
            out["adminAccess"] = true.into();
        }
        out
    };
    let results: Vec<Value> = devices.iter().map(result).collect();
    json!({
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
        }]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_names_devices_and_node() {
        let device = AllocatedDevice {
            request: "x".into(),
            driver: "d".into(),
            pool: "p".into(),
            device: "0".into(),
            admin: false,
        };
        let got = allocation(&[device], "n1");
        let want = json!([{"request": "x", "driver": "d", "pool": "p", "device": "0"}]);
        assert_eq!(got["devices"]["results"], want);
        let values = got.pointer("/nodeSelector/nodeSelectorTerms/0/matchFields/0/values");
        assert_eq!(values, Some(&json!(["n1"])));
    }
}
