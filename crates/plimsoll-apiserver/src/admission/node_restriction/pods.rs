//! Pods of a node: it makes mirror pods, and deletes, evicts and reports on those that it runs.

use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::go::go_quote;
use serde_json::Value;

use super::super::service_account::{MIRROR, has_config_maps, has_secrets};
use super::{Operation, Request};

/// Volumes that show nothing of the API (`HasAPIObjectReference`).
const PLAIN: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];

/// Volumes that do, and what they are refused as.
const REFERRING: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];

/// Sources of projected volumes that do.
const PROJECTED: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

pub fn check(r: &Request<'_>, subresource: &str) -> Result<(), ApiError> {
    let node = go_quote(r.node);
    let runs_elsewhere = |pod: &Value| pod["spec"]["nodeName"] != r.node;
    match (subresource, r.operation) {
        ("", Operation::Create) => create(r),
        ("", Operation::Delete) => {
            if runs_elsewhere(&r.pod(&r.w.name)?) {
                return r
                    .refuse(&format!("node {node} can only delete pods with spec.nodeName set to itself"));
            }
            Ok(())
        }
        ("", other) => r.refuse(&format!(
            "unexpected operation {}, node {node} can only create and delete mirror pods",
            go_quote(other.name())
        )),
        ("status", Operation::Update) => status(r),
        ("status", _) => r.unexpected(),
        ("eviction", Operation::Create) => {
            if runs_elsewhere(&r.pod(&r.w.name)?) {
                let node = r.node;
                return r
                    .refuse(&format!("node {node} can only evict pods with spec.nodeName set to itself"));
            }
            Ok(())
        }
        ("eviction", other) => r.refuse(&format!("unexpected operation {}", other.name())),
        (other, _) => r.refuse(&format!(
            "unexpected pod subresource {}, only 'status' and 'eviction' are allowed",
            go_quote(other)
        )),
    }
}

/// `admitPodCreate`.
fn create(r: &Request<'_>) -> Result<(), ApiError> {
    let (pod, node) = (r.object, go_quote(r.node));
    if pod["metadata"]["annotations"][MIRROR].is_null() {
        let mirror = go_quote(MIRROR);
        return r.refuse(&format!(
            "pod does not have {mirror} annotation, node {node} can only create mirror pods"
        ));
    }
    if pod["spec"]["nodeName"] != r.node {
        return r.refuse(&format!("node {node} can only create pods with spec.nodeName set to itself"));
    }
    let owners = pod["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let owner = match owners {
        [owner] => owner,
        [] => {
            let why = "can only create pods with an owner reference set to itself";
            return r.refuse(&format!("node {node} {why}"));
        }
        _ => {
            let why = "can only create pods with a single owner reference set to itself";
            return r.refuse(&format!("node {node} {why}"));
        }
    };
    if owner["apiVersion"] != "v1" || owner["kind"] != "Node" || owner["name"] != r.node {
        return r.refuse(&format!("node {node} can only create pods with an owner reference set to itself"));
    }
    if owner["controller"] != true {
        let why = "can only create pods with a controller owner reference set to itself";
        return r.refuse(&format!("node {node} {why}"));
    }
    if owner["blockOwnerDeletion"] == true {
        return r.refuse(&format!("node {node} must not set blockOwnerDeletion on an owner reference"));
    }
    let known = r.find("/nodes", "", r.node).ok_or_else(|| ApiError::not_found("", "node", r.node))?;
    let uid = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let (given, uid) = (uid(&owner["uid"]), uid(&known["metadata"]["uid"]));
    if given != uid {
        return r.refuse(&format!("node {} UID mismatch: expected {given} got {uid}", r.node));
    }
    match referred(&pod["spec"], pod) {
        Ok(None) => Ok(()),
        Ok(Some(what)) => r.refuse(&format!("node {node} can not create pods that reference {what}")),
        Err(why) => r.refuse(&format!("error checking mirror pod for API references: {why}")),
    }
}

/// The objects that a pod refers to, in words.
fn referred(spec: &Value, pod: &Value) -> Result<Option<&'static str>, String> {
    if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Ok(Some("serviceaccounts"));
    }
    if has_secrets(pod) {
        return Ok(Some("secrets"));
    }
    if has_config_maps(pod) {
        return Ok(Some("configmaps"));
    }
    if spec["resourceClaims"].as_array().is_some_and(|claims| !claims.is_empty()) {
        return Ok(Some("resourceclaims"));
    }
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        if PLAIN.iter().any(|kind| !volume[kind].is_null()) {
            continue;
        }
        if let Some((_, what)) = REFERRING.iter().find(|(kind, _)| !volume[kind].is_null()) {
            return Ok(Some(*what));
        }
        let name = go_quote(volume["name"].as_str().unwrap_or(""));
        let Some(sources) = volume["projected"]["sources"].as_array() else {
            return Err(format!("unknown volume type for volume  {name}"));
        };
        for source in sources {
            if let Some((_, what)) = PROJECTED.iter().find(|(kind, _)| !source[kind].is_null()) {
                return Ok(Some(*what));
            }
            if source["downwardAPI"].is_null() {
                return Err(format!("unknown source for projected volume {name}"));
            }
        }
    }
    Ok(None)
}

/// `admitPodStatus`.
fn status(r: &Request<'_>) -> Result<(), ApiError> {
    let (new, old, node) = (r.object, r.old, go_quote(r.node));
    if old["spec"]["nodeName"] != r.node {
        let why = "can only update pod status for pods with spec.nodeName set to itself";
        return r.refuse(&format!("node {node} {why}"));
    }
    let labels = |pod: &Value| pod["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    if labels(new) != labels(old) {
        return r.refuse(&format!("node {node} cannot update labels through pod status"));
    }
    let claims = |pod: &Value| {
        let all = pod["status"]["resourceClaimStatuses"].as_array().cloned().unwrap_or_default();
        all.iter().map(|c| (c["name"].clone(), c["resourceClaimName"].clone())).collect::<Vec<_>>()
    };
    if claims(new) != claims(old) {
        return r.refuse(&format!("node {node} cannot update resource claim statues"));
    }
    let extended = |pod: &Value| pod["status"]["extendedResourceClaimStatus"].clone();
    if extended(new) != extended(old) {
        return r.refuse(&format!("node {node} cannot update extended resource claim status"));
    }
    Ok(())
}
