//! What is written for a pod before it is bound: devices for its claims, volumes for its volume claims (PreBind of
//! kube-scheduler's plugins DynamicResources and VolumeBinding), a claim for its extended resources (KEP-5004).

use std::collections::VecDeque;

use plimsoll_engine::Event;
use plimsoll_scheduler::{DeviceGrant, Event as SchedulerEvent, ExtendedClaim, PodRef, PreBindWork};
use serde_json::{Value, json};

use super::allocation::allocation;
use super::claims::{self, FINALIZER};
use super::volumes::{self, Then, done};
use super::{BACKOFF, Outcome, Step, send};
use crate::json;
use crate::request::{Error, PatchKind, Request};
use crate::resource::{DEVICE_CLAIMS, PODS};

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
    next(pod, node, writes, Vec::new())
}

/// `known`: what the scheduler is to know of claims before the answer, whatever that is.
fn next(pod: PodRef, node: String, mut writes: VecDeque<Write>, mut known: Vec<Event>) -> Step {
    let Some(write) = writes.pop_front() else {
        known.push(Event::Scheduler(SchedulerEvent::Prepared(pod.uid)));
        return Step::Done(Box::new(Outcome { answers: known, ..Outcome::default() }));
    };
    let (of, on) = (pod.clone(), node.clone());
    let then = move |result: Result<Option<Event>, String>| match result {
        Ok(claim) => {
            known.extend(claim);
            next(pod, node, writes, known)
        }
        Err(message) => {
            known.push(Event::Scheduler(SchedulerEvent::BindFailed { uid: pod.uid, message }));
            Step::Done(Box::new(Outcome { answers: known, ..Outcome::default() }))
        }
    };
    match write {
        Write::Grant(grant) => {
            claims::grant(of, grant, Box::new(|result| then(result.map(|c| claims::written(&c)))))
        }
        Write::Extended(claim) => extended(of, claim, plain(then)),
        Write::Volume(claim, volume) => volumes::bind(claim, volume, plain(then)),
        Write::Provision(claim) => volumes::provision(claim, on, plain(then)),
    }
}

/// Continues a write of which the scheduler needs to know nothing but how it ended.
fn plain(then: impl FnOnce(Result<Option<Event>, String>) -> Step + Send + 'static) -> Then {
    Box::new(|result| then(result.map(|()| None)))
}

/// Deletes the claims of earlier attempts, creates the claim for the extended resources of a pod with its devices, and names
/// it in the pod's status. When that fails halfway, the claim is deleted.
fn extended(pod: PodRef, mut claim: ExtendedClaim, then: Then) -> Step {
    if !claim.stale.is_empty() {
        let stale = claim.stale.remove(0);
        let namespace = pod.namespace.clone();
        return delete(
            namespace,
            stale,
            Box::new(move |result| match result {
                Ok(()) => extended(pod, claim, then),
                Err(e) => then(Err(e.to_string())),
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
            Err(e) => delete_surely(namespace, name, e, then),
        });
        allocate_extended(pod, claim, &made, then)
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

fn allocate_extended(pod: PodRef, claim: ExtendedClaim, made: &Value, then: Then) -> Step {
    let name = json::name(made).to_owned();
    let body = json!({
        "metadata": {"uid": json::uid(made), "resourceVersion": json::version(made)},
        "status": {
            "allocation": allocation(made, &claim.devices, &claim.terms),
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

/// Deletes a claim that may have its devices, and then fails with `why`: before that, no other claim gets them. A claim that the
/// API server refuses to delete is left to the next attempt.
fn delete_surely(namespace: String, name: String, why: String, then: Then) -> Step {
    let again = (namespace.clone(), name.clone());
    delete(
        namespace,
        name,
        Box::new(move |result| match result {
            Err(e) if e.is_transient() || e.may_be_done() || e.is_conflict() => {
                Step::Wait(BACKOFF.1, Box::new(move || delete_surely(again.0, again.1, why, then)))
            }
            Ok(()) | Err(_) => then(Err(why)),
        }),
    )
}

/// Deletes a claim with its finalizer; one that does not exist is deleted already.
fn delete(namespace: String, name: String, then: Box<dyn FnOnce(Result<(), Error>) -> Step + Send>) -> Step {
    let gone = |response: Result<Value, Error>| match response {
        Err(e) if !e.is_not_found() => Err(e),
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
