//! The resource claim controller: claims made from templates, reservations of pods that are done taken out, claims
//! deallocated and deleted that no pod needs (Kubernetes `pkg/controller/resourceclaim/controller.go`). Each of its writes
//! comes some time after what it follows from; while faults last, some come later than others.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Cluster;
use crate::agenda::Event;
use crate::api::{Kind, Request, Style, deleting, list, name_of, text, uid};
use crate::dice::Draw;
use crate::network::Network;
use crate::scenario::Faults;
use crate::scenario::objects::NAMESPACE;

/// Annotation of claims made for a pod: which of its claims it is.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Keeps allocated claims until they are deallocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How often a write comes later than others while faults last, in thousandths.
const LATE: u32 = 200;

/// The controller.
#[derive(Debug, Default)]
pub struct Claims {
    /// Whether it will look.
    due: bool,
    /// Claims made so far.
    made: u32,
}

/// Whether a pod runs no more, and never will (upstream `isPodDone`).
fn is_done(pod: &Value) -> bool {
    matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
        || deleting(pod) && text(pod, &["spec", "nodeName"]).is_empty()
}

/// Name and UID of the pod that a claim was made for.
fn owning_pod(claim: &Value) -> Option<(&str, &str)> {
    let owners = list(claim, &["metadata", "ownerReferences"]).iter();
    let mut pods = owners.filter(|o| o["kind"] == "Pod" && o["controller"] == true);
    pods.next().map(|o| (text(o, &["name"]), text(o, &["uid"])))
}

/// The claims that a pod uses: the name in the pod's spec, and the claim's once it is known.
pub fn claims_of(pod: &Value) -> impl Iterator<Item = (&str, Option<&str>)> {
    let statuses = list(pod, &["status", "resourceClaimStatuses"]);
    list(pod, &["spec", "resourceClaims"]).iter().map(|claim| {
        let name = text(claim, &["name"]);
        let made = || statuses.iter().find(|s| s["name"] == name)?["resourceClaimName"].as_str();
        (name, claim["resourceClaimName"].as_str().or_else(made))
    })
}

fn patch(kind: Kind, object: &Value, status: bool, mut body: Value) -> Request {
    body["metadata"]["uid"] = object["metadata"]["uid"].clone();
    body["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
    Request::Patch { kind, name: name_of(object), status, style: Style::Merge, body }
}

impl Cluster {
    /// Something has changed that concerns claims.
    pub(super) fn look_at_claims(&mut self, network: &mut Network) {
        if !std::mem::replace(&mut self.claims.due, true) {
            let longest = if network.faults == Faults::default() { 20 } else { 200 };
            let wait = self.soon("claims", longest);
            network.agenda.after(wait, Event::Claims);
        }
    }

    /// The controller looks at everything.
    pub fn sync_claims(&mut self, network: &mut Network) {
        self.claims.due = false;
        let pods: Vec<Arc<Value>> = network.api.all(Kind::Pod).cloned().collect();
        let mut writes: Vec<Request> = Vec::new();
        for pod in
            pods.iter().filter(|p| p["spec"]["resourceClaims"].is_array() && !deleting(p) && !is_done(p))
        {
            self.sync_pod(pod, network, &mut writes);
        }
        for claim in network.api.all(Kind::ResourceClaim) {
            sync_claim(claim, network, &mut writes);
        }
        let mut late = false;
        for write in writes {
            self.looks += 1;
            let mut rng = self.dice.about("claim").of(self.looks).rng();
            if network.faults != Faults::default() && rng.chance(LATE) {
                late = true;
                continue;
            }
            let now = network.now();
            let _ = network.api.handle(write, now);
        }
        if late {
            self.look_at_claims(network);
        }
    }

    /// Makes the claims of a pod, names them in its status, and reserves them for a pod that was bound without
    /// (upstream `syncPod`).
    fn sync_pod(&mut self, pod: &Value, network: &Network, writes: &mut Vec<Request>) {
        let claim_named = |name: &str| network.api.get(Kind::ResourceClaim, NAMESPACE, name);
        let owned = |claim: &Value| owning_pod(claim).is_some_and(|(_, owner)| owner == uid(pod));
        let mut statuses = list(pod, &["status", "resourceClaimStatuses"]).to_vec();
        let before = statuses.len();
        for asked in list(pod, &["spec", "resourceClaims"]) {
            let Some(template) = asked["resourceClaimTemplateName"].as_str() else { continue };
            let name = text(asked, &["name"]);
            let known = statuses.iter().position(|s| s["name"] == name);
            let there = known.and_then(|at| claim_named(text(&statuses[at], &["resourceClaimName"])));
            if there.is_some_and(|c| owned(c)) {
                continue;
            }
            let mine = |c: &&Arc<Value>| owned(c) && c["metadata"]["annotations"][POD_CLAIM] == name;
            if let Some(claim) = network.api.all(Kind::ResourceClaim).find(mine) {
                let entry = json!({"name": name, "resourceClaimName": claim["metadata"]["name"]});
                match known {
                    Some(at) => statuses[at] = entry,
                    None => statuses.push(entry),
                }
            } else if let Some(template) = network.api.get(Kind::ClaimTemplate, NAMESPACE, template) {
                self.claims.made += 1;
                let generated = format!("{}-{name}-{}", name_of(pod).1, self.claims.made);
                let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"],
                    "uid": pod["metadata"]["uid"], "controller": true});
                let metadata = json!({"namespace": NAMESPACE, "name": generated,
                    "annotations": {POD_CLAIM: name}, "ownerReferences": [owner]});
                let claim = json!({"metadata": metadata, "spec": template["spec"]["spec"]});
                writes.push(Request::Create(Kind::ResourceClaim, claim));
            }
        }
        if statuses.len() > before || statuses != list(pod, &["status", "resourceClaimStatuses"]) {
            let body = json!({"status": {"resourceClaimStatuses": statuses}});
            writes.push(patch(Kind::Pod, pod, true, body));
        }
        if text(pod, &["spec", "nodeName"]).is_empty() || is_done(pod) {
            return;
        }
        for claim in claims_of(pod).filter_map(|(_, name)| claim_named(name?)) {
            let mut reserved = list(claim, &["status", "reservedFor"]).to_vec();
            if claim["status"]["allocation"].is_object() && !reserved.iter().any(|r| r["uid"] == uid(pod)) {
                reserved.push(json!({"resource": "pods", "name": pod["metadata"]["name"], "uid": uid(pod)}));
                let body = json!({"status": {"reservedFor": reserved}});
                writes.push(patch(Kind::ResourceClaim, claim, true, body));
            }
        }
    }
}

/// Takes out reservations of pods that are done, deallocates what no pod uses any more, and deletes what was made for a pod
/// that is done (upstream `syncClaim`; what belongs to a pod that is gone is the garbage collector's).
fn sync_claim(claim: &Value, network: &Network, writes: &mut Vec<Request>) {
    let pod_of = |name: &str, owner: &str| {
        network.api.get(Kind::Pod, NAMESPACE, name).filter(|p| uid(p) == owner && !is_done(p))
    };
    let all = list(claim, &["status", "reservedFor"]);
    let used = |r: &&Value| pod_of(text(r, &["name"]), text(r, &["uid"])).is_some();
    let remaining: Vec<&Value> = all.iter().filter(used).collect();
    let finalizers = list(claim, &["metadata", "finalizers"]);
    let protected = finalizers.iter().any(|f| f == FINALIZER);
    let allocated = claim["status"]["allocation"].is_object();
    let unused = remaining.is_empty();
    let leaves = protected && unused && deleting(claim);
    if remaining.len() < all.len() || leaves && allocated {
        let mut status = json!({"reservedFor": if unused { Value::Null } else { json!(remaining) }});
        if unused && protected {
            status["allocation"] = Value::Null;
        }
        writes.push(patch(Kind::ResourceClaim, claim, true, json!({"status": status})));
    } else if leaves {
        let left: Vec<&Value> = finalizers.iter().filter(|f| *f != FINALIZER).collect();
        writes.push(patch(Kind::ResourceClaim, claim, false, json!({"metadata": {"finalizers": left}})));
    }
    if let Some((name, owner)) = owning_pod(claim).filter(|_| unused && !deleting(claim))
        && pod_of(name, owner).is_none()
    {
        let uid = uid(claim).to_owned();
        writes.push(Request::Delete { kind: Kind::ResourceClaim, name: name_of(claim), uid, grace: None });
    }
}
