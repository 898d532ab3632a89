//! Claims for devices: allocated and reserved before a pod is bound, released when it is not bound after all (PreBind,
//! Unreserve and PostFilter of kube-scheduler's plugin DynamicResources).
//!
//! A write that may have been carried out though it was not answered is found out about, however long that takes: devices
//! that a claim may have must not be given to another one.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_engine::{Action, Event};
use plimsoll_scheduler::{Action as SchedulerAction, DeviceGrant, PodRef};
use plimsoll_state::model::{AllocatedDevice, ClusterObject};
use plimsoll_state::{Answer, ObjectEvent};
use serde_json::{Value, json};

use super::allocation::allocation;
use super::{BACKOFF, CONFLICTS, Outcome, Response, Step, answered, retry, retry_write, send};
use crate::json;
use crate::request::{PatchKind, Request};
use crate::resource::{DEVICE_CLAIMS, PODS};

/// Keeps a claim with devices from being deleted.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Continues with the claim as written, or why it could not be.
pub(super) type Then = Box<dyn FnOnce(Result<Value, String>) -> Step + Send>;

/// A claim as written, for the scheduler: its next decision knows that (upstream's `AssumeClaimAfterAPICall`).
pub(super) fn written(claim: &Value) -> Option<Event> {
    let bytes = serde_json::to_vec(claim).ok()?;
    let object = crate::convert::cluster_object(DEVICE_CLAIMS.kind, &bytes).ok()??;
    let ClusterObject::DeviceClaim(claim) = object else { return None };
    Some(Event::Object(ObjectEvent::ClaimWritten(Box::new(claim))))
}

/// A grant that is being written.
struct Granting {
    pod: PodRef,
    grant: DeviceGrant,
    /// Conflicts that are still resolved.
    left: u32,
    /// Version of the claim that a write named of which it isn't known whether it was carried out.
    doubt: Option<String>,
    /// Pause before the claim is read again after a write of which that isn't known.
    pause: Duration,
    then: Then,
}

/// Allocates a claim if it has devices to get, and reserves it for the pod. On a conflict the claim is read again.
pub(super) fn grant(pod: PodRef, grant: DeviceGrant, then: Then) -> Step {
    Granting { pod, grant, left: CONFLICTS, doubt: None, pause: BACKOFF.0, then }.read()
}

impl Granting {
    /// Ends with this failure, unless the claim may be written nevertheless: then it is read again.
    fn fail(self, why: String) -> Step {
        if self.doubt.is_some() {
            return Step::Wait(BACKOFF.1, Box::new(move || Self { left: CONFLICTS, ..self }.read()));
        }
        (self.then)(Err(why))
    }

    fn read(self) -> Step {
        let (namespace, name) = (&self.grant.namespace, &self.grant.name);
        if self.left == 0 {
            let why = format!("claim {namespace}/{name} keeps changing");
            return self.fail(why);
        }
        let request = match self.doubt {
            None => Request::get(DEVICE_CLAIMS, namespace, name),
            // A 404 may come from a proxy.
            Some(_) => Request::find(DEVICE_CLAIMS, namespace, name),
        };
        send(request, move |response| match response {
            Ok(claim) => self.decide(&claim),
            Err(e) => self.fail(e.to_string()),
        })
    }

    fn decide(mut self, claim: &Value) -> Step {
        // In doubt, nothing but a write of the same version can still be carried out.
        self.doubt = self.doubt.take().filter(|version| json::version(claim) == version.as_str());
        if let Some(what) = overtaken(&self.pod, &self.grant, claim) {
            let why =
                format!("claim {}/{} got {what} in the meantime", self.grant.namespace, self.grant.name);
            self.doubt = None;
            return self.fail(why);
        }
        let finalizers = json::list(claim, &["metadata", "finalizers"]);
        let reserved = is_reserved(&self.pod, claim);
        if reserved && claim["status"]["allocation"].is_object() {
            return (self.then)(Ok(claim.clone()));
        }
        if self.grant.is_reservation() || finalizers.iter().any(|f| f == FINALIZER) {
            return self.reserve(claim);
        }
        let mut finalizers = finalizers.to_vec();
        finalizers.push(FINALIZER.into());
        let body = json!({"metadata": {
            "uid": self.grant.uid, "resourceVersion": json::version(claim), "finalizers": finalizers,
        }});
        let (namespace, name) = (&self.grant.namespace, &self.grant.name);
        let request = Request::patch(DEVICE_CLAIMS, namespace, name, "", PatchKind::Merge, body);
        send(request, move |response| match response {
            Ok(claim) => self.reserve(&claim),
            Err(e) if e.is_conflict() => Self { left: self.left - 1, ..self }.read(),
            Err(e) => self.fail(e.to_string()),
        })
    }

    fn reserve(self, claim: &Value) -> Step {
        let mut reserved = json::list(claim, &["status", "reservedFor"]).to_vec();
        reserved.push(json!({"resource": "pods", "name": self.pod.name, "uid": self.pod.uid}));
        let mut status = json!({"reservedFor": reserved});
        if !self.grant.is_reservation() {
            status["allocation"] = allocation(claim, &self.grant.devices, &self.grant.terms);
        }
        let version = json::version(claim).to_owned();
        let body = json!({"metadata": {"uid": self.grant.uid, "resourceVersion": version}, "status": status});
        let (namespace, name) = (&self.grant.namespace, &self.grant.name);
        let request = Request::patch(DEVICE_CLAIMS, namespace, name, "status", PatchKind::Merge, body);
        send(request, move |response| match response {
            Ok(claim) => (self.then)(Ok(claim)),
            Err(e) if e.is_conflict() => Self { left: self.left - 1, ..self }.read(),
            Err(e) if e.may_be_done() => {
                let pause = self.pause;
                let next = Self { doubt: Some(version), pause: (pause * 2).min(BACKOFF.1), ..self };
                Step::Wait(pause, Box::new(move || next.read()))
            }
            Err(e) => self.fail(e.to_string()),
        })
    }
}

fn is_reserved(pod: &PodRef, claim: &Value) -> bool {
    json::list(claim, &["status", "reservedFor"]).iter().any(|r| r["uid"] == *pod.uid)
}

/// Whether a claim is allocated exactly these devices.
fn has(claim: &Value, devices: &[AllocatedDevice]) -> bool {
    let results = json::list(claim, &["status", "allocation", "devices", "results"]);
    let same = |r: &Value, d: &AllocatedDevice| {
        r["driver"] == *d.driver
            && r["pool"] == *d.pool
            && r["device"] == *d.device
            && r["request"] == *d.request
    };
    results.len() == devices.len() && results.iter().zip(devices).all(|(r, d)| same(r, d))
}

/// What has happened to a claim since it was decided on, where that decides against it (upstream
/// `plugins/dynamicresources/dynamicresources.go`, `bindClaim`; that a claim was made again, or got other devices, is noticed
/// here besides).
fn overtaken(pod: &PodRef, grant: &DeviceGrant, claim: &Value) -> Option<&'static str> {
    let allocated = claim["status"]["allocation"].is_object();
    if claim.is_null() || claim["metadata"]["deletionTimestamp"].is_string() {
        Some("deleted")
    } else if json::uid(claim) != grant.uid {
        Some("replaced by another of its name")
    } else if !grant.is_reservation() && allocated {
        // A write of this grant whose response was lost.
        (!(has(claim, &grant.devices) && is_reserved(pod, claim))).then_some("allocated elsewhere")
    } else if grant.is_reservation() && !allocated {
        Some("deallocated elsewhere")
    } else if grant.is_reservation() && !has(claim, &grant.allocated) {
        Some("allocated elsewhere")
    } else {
        None
    }
}

/// Claims that are being released.
struct Releasing {
    pod: PodRef,
    deallocate: bool,
    /// All claims, for the answer.
    all: Vec<DeviceGrant>,
    claims: VecDeque<DeviceGrant>,
    left: u32,
    /// What was written.
    written: Vec<Event>,
}

/// Takes a pod out of the reservations of claims, unless it is bound; `deallocate`: and their devices, where no other pod has
/// reserved them (upstream's Unreserve and PostFilter).
pub(super) fn release(pod: PodRef, claims: Vec<DeviceGrant>, deallocate: bool) -> Step {
    let all = claims.clone();
    Releasing { pod, deallocate, all, claims: claims.into(), left: CONFLICTS, written: Vec::new() }.next()
}

impl Releasing {
    fn end(mut self, answer: Answer) -> Step {
        let Self { pod, deallocate, all: claims, .. } = self;
        let action = SchedulerAction::ReleaseClaims { pod, claims, deallocate };
        self.written.push(answered(Action::Scheduler(action), answer));
        Step::Done(Box::new(Outcome { answers: self.written, ..Outcome::default() }))
    }

    fn next(self) -> Step {
        let Some(claim) = self.claims.front() else { return self.end(Answer::Done) };
        if self.left == 0 {
            let why = format!("claim {}/{} keeps changing", claim.namespace, claim.name);
            return self.end(Answer::Failed(why));
        }
        retry(Request::get(DEVICE_CLAIMS, &claim.namespace, &claim.name), move |response| match response {
            // A 404 may come from a proxy, and nobody would release the claim then.
            Err(e) if e.is_not_found() => self.find(),
            response => self.decide(response),
        })
    }

    /// Whether the claim of which a read said that it is not there is in the list.
    fn find(self) -> Step {
        let Some(claim) = self.claims.front() else { return self.end(Answer::Done) };
        let request = Request::find(DEVICE_CLAIMS, &claim.namespace, &claim.name);
        retry(request, move |response| self.decide(response))
    }

    fn decide(self, response: Response) -> Step {
        match response {
            Ok(claim) if self.applies(&claim) => self.read_pod(claim),
            Ok(_) => self.skip(),
            Err(e) => self.end(Answer::Failed(e.to_string())),
        }
    }

    fn skip(mut self) -> Step {
        self.claims.pop_front();
        Self { left: CONFLICTS, ..self }.next()
    }

    /// Whether the claim is still as it was when this was decided.
    fn applies(&self, claim: &Value) -> bool {
        let Some(grant) = self.claims.front().filter(|g| json::uid(claim) == g.uid) else { return false };
        if !self.deallocate {
            return is_reserved(&self.pod, claim);
        }
        let reserved = json::list(claim, &["status", "reservedFor"]);
        has(claim, &grant.allocated)
            && claim["status"]["allocation"].is_object()
            && reserved.iter().all(|r| r["uid"] == *self.pod.uid)
    }

    /// A pod that is bound keeps its claims: its binding may have been carried out though it was not answered.
    fn read_pod(self, claim: Value) -> Step {
        retry(Request::get(PODS, &self.pod.namespace, &self.pod.name), move |response| match response {
            Ok(pod)
                if json::uid(&pod) == self.pod.uid && !json::text(&pod, &["spec", "nodeName"]).is_empty() =>
            {
                self.end(Answer::Superseded)
            }
            // The reservations of a pod that is gone are the resource claim controller's.
            Ok(_) => self.write(&claim),
            Err(e) => self.end(Answer::Failed(e.to_string())),
        })
    }

    fn write(mut self, claim: &Value) -> Step {
        let status = if self.deallocate {
            json!({"allocation": null, "reservedFor": null, "devices": null})
        } else {
            let mut reserved = json::list(claim, &["status", "reservedFor"]).to_vec();
            reserved.retain(|r| r["uid"] != *self.pod.uid);
            json!({"reservedFor": reserved})
        };
        let metadata = json!({"uid": json::uid(claim), "resourceVersion": json::version(claim)});
        let body = json!({"metadata": metadata, "status": status});
        let (namespace, name) = (json::namespace(claim), json::name(claim));
        let request = Request::patch(DEVICE_CLAIMS, namespace, name, "status", PatchKind::Merge, body);
        retry_write(request, move |response: Response, _| match response {
            Ok(claim) => {
                self.written.extend(written(&claim));
                self.skip()
            }
            Err(e) if e.is_conflict() => Self { left: self.left - 1, ..self }.next(),
            Err(e) => self.end(Answer::Failed(e.to_string())),
        })
    }
}
