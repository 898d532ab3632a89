//! What is written for a pod before it is bound: devices for its claims, volumes for its volume claims (PreBind of
//! kube-scheduler's plugins DynamicResources and VolumeBinding), a claim for its extended resources (KEP-5004).

use std::collections::VecDeque;

use plimsoll_engine::Event;
use plimsoll_scheduler::{DeviceGrant, Event as SchedulerEvent, ExtendedClaim, PodRef, PreBindWork};
use plimsoll_state::model::AllocatedDevice;
use serde_json::{Value, json};

use super::pods::bind_failed;
use super::{CONFLICTS, Outcome, Step, send};
use crate::json;
use crate::request::{Error, PatchKind, Request};
use crate::resource::{DEVICE_CLAIMS, PODS, VOLUME_CLAIMS, VOLUMES};

/// Keeps a claim with devices from being deleted.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

type Then = Box<dyn FnOnce(Result<(), String>) -> Step + Send>;

/// One object to write.
enum Write {
    Grant(DeviceGrant),
    Extended(ExtendedClaim),
    /// A volume for a claim (namespace, name).
    Volume((String, String), String),
    /// A claim (namespace, name) that is to be provisioned.
    Provision((String, String)),
}

/// Writes everything, in upstream's order: devices, then volumes, then claims to provision. The first failure ends it; what
/// was written before stays, and the next attempt finds it.
pub(super) fn begin(pod: PodRef, node: String, what: PreBindWork) -> Step {
    let mut writes: VecDeque<Write> = what.devices.into_iter().map(Write::Grant).collect();
    writes.extend(what.extended.map(|claim| Write::Extended(*claim)));
    writes.extend(what.bindings.into_iter().map(|(claim, volume)| Write::Volume(claim, volume)));
    writes.extend(what.provisions.into_iter().map(Write::Provision));
    next(pod, node, writes)
}

fn next(pod: PodRef, node: String, mut writes: VecDeque<Write>) -> Step {
    let Some(write) = writes.pop_front() else {
        return Outcome::answer(Event::Scheduler(SchedulerEvent::Prepared(pod.uid)));
    };
    let (of, on) = (pod.clone(), node.clone());
    let then: Then = Box::new(move |result| match result {
        Ok(()) => next(pod, node, writes),
        Err(message) => bind_failed(pod.uid, message),
    });
    match write {
        Write::Grant(grant) => allocate(of, on, grant, CONFLICTS, then),
        Write::Extended(claim) => extended(of, on, claim, then),
        Write::Volume(claim, volume) => bind_volume(claim, volume, then),
        Write::Provision((namespace, name)) => {
            let body = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": on}}});
            let request = Request::patch(VOLUME_CLAIMS, &namespace, &name, "", PatchKind::Merge, body);
            send(request, move |response| then(done(response)))
        }
    }
}

fn done(response: Result<Value, Error>) -> Result<(), String> {
    response.map(drop).map_err(|e| e.to_string())
}

/// Names the claim in `spec.claimRef` of the volume.
fn bind_volume((namespace, name): (String, String), volume: String, then: Then) -> Step {
    send(Request::get(VOLUME_CLAIMS, &namespace, &name), move |response| {
        let claim = match response {
            Ok(claim) => claim,
            Err(e) => return then(Err(e.to_string())),
        };
        let body = json!({
            "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
            "spec": {"claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                "uid": json::uid(&claim), "resourceVersion": json::version(&claim),
            }},
        });
        let request = Request::patch(VOLUMES, "", &volume, "", PatchKind::Merge, body);
        send(request, move |response| then(done(response)))
    })
}

/// Allocates a claim if it has devices to get, and reserves it for the pod. On a conflict the claim is read again.
fn allocate(pod: PodRef, node: String, grant: DeviceGrant, left: u32, then: Then) -> Step {
    if left == 0 {
        return then(Err(format!("claim {}/{} keeps changing", grant.namespace, grant.name)));
    }
    send(Request::get(DEVICE_CLAIMS, &grant.namespace, &grant.name), move |response| {
        let claim = match response {
            Ok(claim) => claim,
            Err(e) => return then(Err(e.to_string())),
        };
        if let Some(what) = overtaken(&grant, &claim) {
            let message = format!("claim {}/{} got {what} in the meantime", grant.namespace, grant.name);
            return then(Err(message));
        }
        let mut finalizers: Vec<Value> = json::list(&claim, &["metadata", "finalizers"]).to_vec();
        if grant.is_reservation() || finalizers.iter().any(|f| f == FINALIZER) {
            return reserve(pod, node, grant, &claim, left, then);
        }
        finalizers.push(FINALIZER.into());
        let body = json!({"metadata": {
            "uid": grant.uid, "resourceVersion": json::version(&claim), "finalizers": finalizers,
        }});
        let (namespace, name) = (&grant.namespace, &grant.name);
        let request = Request::patch(DEVICE_CLAIMS, namespace, name, "", PatchKind::Merge, body);
        send(request, move |response| match response {
            Ok(claim) => reserve(pod, node, grant, &claim, left, then),
            Err(e) if e.is_conflict() => allocate(pod, node, grant, left - 1, then),
            Err(e) => then(Err(e.to_string())),
        })
    })
}

/// What has happened to a claim since it was decided on, where that decides against it (upstream
/// `plugins/dynamicresources/dynamicresources.go`, `bindClaim`).
fn overtaken(grant: &DeviceGrant, claim: &Value) -> Option<&'static str> {
    let allocated = claim["status"]["allocation"].is_object();
    if claim["metadata"]["deletionTimestamp"].is_string() {
        Some("deleted")
    } else if !grant.is_reservation() && allocated {
        Some("allocated elsewhere")
    } else if grant.is_reservation() && !allocated {
        Some("deallocated elsewhere")
    } else {
        None
    }
}

fn reserve(pod: PodRef, node: String, grant: DeviceGrant, claim: &Value, left: u32, then: Then) -> Step {
    let mut reserved: Vec<Value> = json::list(claim, &["status", "reservedFor"]).to_vec();
    if !reserved.iter().any(|r| r["uid"] == *pod.uid) {
        reserved.push(json!({"resource": "pods", "name": pod.name, "uid": pod.uid}));
    }
    let mut status = json!({"reservedFor": reserved});
    if !grant.is_reservation() {
        status["allocation"] = allocation(&grant.devices, &node);
    }
    let body = json!({
        "metadata": {"uid": grant.uid, "resourceVersion": json::version(claim)}, "status": status,
    });
    let (namespace, name) = (&grant.namespace, &grant.name);
    let request = Request::patch(DEVICE_CLAIMS, namespace, name, "status", PatchKind::Merge, body);
    send(request, move |response| match response {
        Ok(_) => then(Ok(())),
        Err(e) if e.is_conflict() => allocate(pod, node, grant, left - 1, then),
        Err(e) => then(Err(e.to_string())),
    })
}

/// Deletes the claims of earlier attempts, creates the claim for the extended resources of a pod with its devices, and names
/// it in the pod's status. When that fails halfway, the claim is deleted.
fn extended(pod: PodRef, node: String, mut claim: ExtendedClaim, then: Then) -> Step {
    if !claim.stale.is_empty() {
        let stale = claim.stale.remove(0);
        let namespace = pod.namespace.clone();
        return delete(
            namespace,
            stale,
            Box::new(move |result| match result {
                Ok(()) => extended(pod, node, claim, then),
                Err(e) => then(Err(e)),
            }),
        );
    }
    let request = Request::Create { resource: DEVICE_CLAIMS, object: extended_claim(&pod, &claim) };
    send(request, move |response| {
        let made = match response {
            Ok(made) => made,
            Err(e) => return then(Err(e.to_string())),
        };
        let (namespace, name) = (pod.namespace.clone(), json::name(&made).to_owned());
        let then: Then = Box::new(move |result| match result {
            Ok(()) => then(Ok(())),
            // The failure of the allocation is what counts; a claim that stays is stale for the next attempt.
            Err(e) => delete(namespace, name, Box::new(move |_| then(Err(e)))),
        });
        allocate_extended(pod, &node, claim, &made, then)
    })
}

fn extended_claim(pod: &PodRef, claim: &ExtendedClaim) -> Value {
    let request = |(name, class, count): &(String, String, i64)| {
        json!({"name": name, "exactly": {
            "deviceClassName": class, "allocationMode": "ExactCount", "count": count}})
    };
    let requests: Vec<Value> = claim.requests.iter().map(request).collect();
    json!({
        "apiVersion": DEVICE_CLAIMS.api_version, "kind": DEVICE_CLAIMS.kind,
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

fn allocate_extended(pod: PodRef, node: &str, claim: ExtendedClaim, made: &Value, then: Then) -> Step {
    let name = json::name(made).to_owned();
    let body = json!({
        "metadata": {"uid": json::uid(made), "resourceVersion": json::version(made)},
        "status": {
            "allocation": allocation(&claim.devices, node),
            "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid}],
        },
    });
    let request = Request::patch(DEVICE_CLAIMS, &pod.namespace, &name, "status", PatchKind::Merge, body);
    send(request, move |response| {
        if let Err(e) = response {
            return then(Err(e.to_string()));
        }
        let mapping = |(container, resource, request): &(String, String, String)| json!({"containerName": container, "resourceName": resource, "requestName": request});
        let mappings: Vec<Value> = claim.mappings.iter().map(mapping).collect();
        let body = json!({
            "metadata": {"uid": pod.uid},
            "status": {"extendedResourceClaimStatus": {"resourceClaimName": name, "requestMappings": mappings}},
        });
        let request = Request::patch(PODS, &pod.namespace, &pod.name, "status", PatchKind::Merge, body);
        send(request, move |response| then(done(response)))
    })
}

/// Deletes a claim with its finalizer; one that does not exist is deleted already.
fn delete(namespace: String, name: String, then: Then) -> Step {
    let gone = |response: Result<Value, Error>| match response {
        Err(e) if !e.is_not_found() => Err(e.to_string()),
        _ => Ok(()),
    };
    let body = json!({"metadata": {"finalizers": null}});
    let request = Request::patch(DEVICE_CLAIMS, &namespace, &name, "", PatchKind::Merge, body);
    send(request, move |response| match response {
        Ok(claim) => {
            let request = Request::delete(DEVICE_CLAIMS, &namespace, &name, json::uid(&claim));
            send(request, move |response| then(gone(response)))
        }
        failed => then(gone(failed)),
    })
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
