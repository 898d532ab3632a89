//! NodeRestriction (`plugin/pkg/admission/noderestriction`): kubelets change their own node, its pods, lease, CSINode and
//! slices, and nothing else.

mod labels;
mod pods;
mod tokens;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::go::go_quote;
use rcgen::{CertificateSigningRequestParams, DnType, DnValue};
use serde_json::Value;

use super::{Operation, forbidden, resource_group};
use crate::auth::User;
use crate::store::Key;
use crate::write::Write;

const USER: &str = "system:node:";
const GROUP: &str = "system:nodes";
const LEASES: &str = "kube-node-lease";
const SIGNERS: [&str; 2] = ["kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"];

/// The node that a user is, if it is one (`nodeidentifier`).
fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(USER).filter(|_| user.is_in(GROUP))
}

/// A write of a node, as the checks see it.
struct Request<'a> {
    w: &'a Write,
    /// The node that asks.
    node: &'a str,
    /// The new state; null for a deletion.
    object: &'a Value,
    /// The state before.
    old: &'a Value,
    operation: Operation,
}

impl Request<'_> {
    fn refuse(&self, why: &str) -> Result<(), ApiError> {
        Err(forbidden(self.w, self.object, why))
    }

    fn unexpected(&self) -> Result<(), ApiError> {
        self.refuse(&format!("unexpected operation {}", go_quote(self.operation.name())))
    }

    /// The object of a resource in the namespace of the request, if it is there.
    fn find(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.w.server.store().latest(&Key::new(resource, namespace, name))?.value().ok()
    }

    /// The pod of this name; upstream's listers name it in the singular where it is missing.
    fn pod(&self, name: &str) -> Result<Value, ApiError> {
        let pod = self.find("/pods", &self.w.namespace, name);
        pod.ok_or_else(|| ApiError::not_found("", "pod", name))
    }
}

/// Refuses what a node may not do, if the user is one.
///
/// # Errors
/// 403 with upstream's words; 404 for a pod or a node that isn't there.
pub fn check(w: &Write, object: &Value, old: Option<&Value>, operation: Operation) -> Result<(), ApiError> {
    let Some(node) = node_of(&w.user).filter(|_| operation != Operation::Connect) else { return Ok(()) };
    let r = Request { w, node, object, old: old.unwrap_or(&Value::Null), operation };
    if node.is_empty() {
        return r.refuse(&format!("could not determine node from user {}", go_quote(&w.user.name)));
    }
    match (resource_group(w), w.kind.plural.as_str(), w.subresource.as_str()) {
        ("" | "policy", "pods", subresource) => pods::check(&r, subresource),
        ("", "nodes", _) => own_node(&r),
        ("", "persistentvolumeclaims", "status") => claim_status(&r),
        ("", "persistentvolumeclaims", _) => r.refuse("may only update PVC status"),
        ("" | "authentication.k8s.io", "serviceaccounts", "token") if operation == Operation::Create => {
            tokens::check(&r)
        }
        ("certificates.k8s.io", "podcertificaterequests", _) => {
            r.refuse("PodCertificateRequest feature gate is disabled")
        }
        ("coordination.k8s.io", "leases", _) if w.namespace != LEASES => {
            r.refuse(&format!("can only access leases in the {} system namespace", go_quote(LEASES)))
        }
        ("coordination.k8s.io", "leases", _) if w.name != node => {
            r.refuse("can only access node lease with the same name as the requesting node")
        }
        ("storage.k8s.io", "csinodes", _) if w.name != node => {
            r.refuse("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => slice(&r),
        ("certificates.k8s.io", "certificatesigningrequests", _) if operation == Operation::Create => {
            certificate(&r)
        }
        _ => Ok(()),
    }
}

/// `admitNode`.
fn own_node(r: &Request<'_>) -> Result<(), ApiError> {
    let Request { w, node, object, old, operation } = r;
    if w.name != *node {
        let why = format!("node {} is not allowed to modify node {}", go_quote(node), go_quote(&w.name));
        return r.refuse(&why);
    }
    let source = &object["spec"]["configSource"];
    match operation {
        Operation::Create if !source.is_null() => r.refuse(&format!(
            "node {} is not allowed to create pods with a non-nil configSource",
            go_quote(node)
        )),
        Operation::Create => {
            let wrong = labels::forbidden(object, &Value::Null);
            if wrong.is_empty() {
                return Ok(());
            }
            let (node, wrong) = (go_quote(node), wrong.join(", "));
            r.refuse(&format!("node {node} is not allowed to set the following labels: {wrong}"))
        }
        Operation::Update => {
            let node = go_quote(node);
            if !source.is_null() && *source != old["spec"]["configSource"] {
                let why = "is not allowed to update configSource to a new non-nil configSource";
                return r.refuse(&format!("node {node} {why}"));
            }
            if !same_list(&object["spec"]["taints"], &old["spec"]["taints"]) {
                return r.refuse(&format!("node {node} is not allowed to modify taints"));
            }
            let owners = |o: &'_ Value| o["metadata"]["ownerReferences"].clone();
            if !same_list(&owners(object), &owners(old)) {
                return r.refuse(&format!("node {node} is not allowed to modify ownerReferences"));
            }
            let wrong = labels::forbidden(object, old);
            if wrong.is_empty() {
                return Ok(());
            }
            r.refuse(&format!("is not allowed to modify labels: {}", wrong.join(", ")))
        }
        _ => Ok(()),
    }
}

/// Whether two lists are the same; none is as good as an empty one.
fn same_list(a: &Value, b: &Value) -> bool {
    let list = |v: &'_ Value| v.as_array().cloned().unwrap_or_default();
    list(a) == list(b)
}

/// `admitPVCStatus`: what a kubelet says of a volume that it resizes.
fn claim_status(r: &Request<'_>) -> Result<(), ApiError> {
    if r.operation != Operation::Update {
        return r.unexpected();
    }
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        for (part, fields) in [
            ("metadata", &["resourceVersion", "managedFields"][..]),
            ("status", &["capacity", "conditions", "allocatedResourceStatuses", "allocatedResources"][..]),
        ] {
            if let Some(part) = claim.get_mut(part).and_then(Value::as_object_mut) {
                fields.iter().for_each(|field| drop(part.remove(*field)));
            }
        }
        claim
    };
    if rest(r.object) == rest(r.old) {
        return Ok(());
    }
    let node = go_quote(r.node);
    r.refuse(&format!(
        "node {node} is not allowed to update fields other than status.quantity and status.conditions"
    ))
}

/// `admitResourceSlice`.
fn slice(r: &Request<'_>) -> Result<(), ApiError> {
    let (slice, verb) = match r.operation {
        Operation::Create => (r.object, "create"),
        Operation::Delete => (r.old, "delete"),
        _ => return Ok(()),
    };
    if slice["spec"]["nodeName"] == r.node {
        return Ok(());
    }
    r.refuse(&format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
}

/// `admitCSR`: a certificate for a kubelet is for the one that asks.
fn certificate(r: &Request<'_>) -> Result<(), ApiError> {
    let spec = &r.object["spec"];
    if !SIGNERS.iter().any(|signer| spec["signerName"] == *signer) {
        return Ok(());
    }
    let name = match common_name(spec["request"].as_str().unwrap_or("")) {
        Ok(name) => name,
        Err(why) => return r.refuse(&format!("unable to parse csr: {why}")),
    };
    let wanted = format!("{USER}{}", r.node);
    if name == wanted { Ok(()) } else { r.refuse(&format!("can only create a node CSR with CN={wanted}")) }
}

/// The common name that a request in PEM, in base64 as `[]byte` is in JSON, asks for.
fn common_name(request: &str) -> Result<String, String> {
    let pem = BASE64_STANDARD.decode(request).map_err(|e| e.to_string())?;
    let pem = String::from_utf8(pem).map_err(|e| e.to_string())?;
    let request = CertificateSigningRequestParams::from_pem(&pem).map_err(|e| e.to_string())?;
    Ok(match request.params.distinguished_name.get(&DnType::CommonName) {
        Some(DnValue::Utf8String(name)) => name.clone(),
        Some(DnValue::PrintableString(name)) => name.as_str().to_owned(),
        Some(DnValue::Ia5String(name)) => name.as_str().to_owned(),
        _ => String::new(),
    })
}
