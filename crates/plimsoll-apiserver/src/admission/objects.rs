//! Small plugins: TaintNodesByCondition, DefaultStorageClass, DefaultIngressClass, StorageObjectInUseProtection,
//! PersistentVolumeClaimResize.

use plimsoll_api::quantity::Quantity;
use plimsoll_apimachinery::ApiError;
use plimsoll_apimachinery::default_class::{default_ingress_class_name, default_storage_class_name};
use serde_json::{Value, json};

use super::{Operation, forbidden, subject};
use crate::store::Key;
use crate::write::Write;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// A new node is tainted until its controller knows better.
pub fn taint_new_node(w: &Write, node: &mut Value, operation: Operation) {
    if operation != Operation::Create || !subject(w).is("", "nodes") {
        return;
    }
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    if node["spec"].is_null() {
        node["spec"] = json!({});
    }
    match node["spec"]["taints"].as_array_mut() {
        Some(taints) => {
            let there = |t: &Value| t["key"] == NOT_READY && t["effect"] == "NoSchedule";
            if !taints.iter().any(there) {
                taints.push(taint);
            }
        }
        None => node["spec"]["taints"] = json!([taint]),
    }
}

/// A claim without a class gets the default one, if there is one (the newest, then by name).
pub fn default_storage_class(w: &Write, claim: &mut Value, operation: Operation) {
    let spec = &claim["spec"];
    if operation != Operation::Create
        || !subject(w).is("", "persistentvolumeclaims")
        || !spec["storageClassName"].is_null()
        || !claim["metadata"]["annotations"][BETA_STORAGE_CLASS].is_null()
    {
        return;
    }
    if let Some(class) = default_storage_class_name(w.server.store())
        && claim["spec"].is_object()
    {
        claim["spec"]["storageClassName"] = json!(class);
    }
}

/// A new Ingress without a class, by its field or the old annotation, gets the default one, if there is one.
pub fn default_ingress_class(w: &Write, ingress: &mut Value, operation: Operation) {
    if operation != Operation::Create
        || !subject(w).is("networking.k8s.io", "ingresses")
        || !ingress["spec"]["ingressClassName"].is_null()
        || !ingress["metadata"]["annotations"]["kubernetes.io/ingress.class"].is_null()
    {
        return;
    }
    let class = default_ingress_class_name(w.server.store());
    if let Some(class) = class
        && ingress["spec"].is_object()
    {
        ingress["spec"]["ingressClassName"] = json!(class);
    }
}

/// Only bound claims grow, and only those whose class lets them.
pub fn check_claim_resize(
    w: &Write,
    claim: &Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    let Some(old) = old.filter(|_| operation == Operation::Update) else { return Ok(()) };
    if !subject(w).is("", "persistentvolumeclaims") {
        return Ok(());
    }
    let size = |claim: &Value| {
        let text = claim["spec"]["resources"]["requests"]["storage"].as_str();
        text.and_then(|t| t.parse::<Quantity>().ok()).unwrap_or_default()
    };
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old["status"]["phase"] != "Bound" {
        return Err(forbidden(w, claim, "Only bound persistent volume claims can be expanded"));
    }
    let class = class_of(claim);
    let record = w.server.store().latest(&Key::new("storage.k8s.io/storageclasses", "", class));
    let allowed = !class.is_empty()
        && class == class_of(old)
        && record.and_then(|r| r.value().ok()).is_some_and(|c| c["allowVolumeExpansion"] == true);
    if allowed {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
               support resize";
    Err(forbidden(w, claim, why))
}

/// The class of a claim: that of the old annotation, if there is one.
fn class_of(claim: &Value) -> &str {
    let old = claim["metadata"]["annotations"][BETA_STORAGE_CLASS].as_str();
    old.or_else(|| claim["spec"]["storageClassName"].as_str()).unwrap_or("")
}

/// Claims and volumes are kept while in use.
pub fn protect_storage(w: &Write, object: &mut Value, operation: Operation) {
    let subject = subject(w);
    let finalizer = match (operation, subject.group, subject.plural, subject.subresource) {
        (Operation::Create, "", "persistentvolumeclaims", "") => "kubernetes.io/pvc-protection",
        (Operation::Create, "", "persistentvolumes", "") => "kubernetes.io/pv-protection",
        (Operation::Create, "storage.k8s.io", "volumeattributesclasses", "") => {
            "kubernetes.io/vac-protection"
        }
        _ => return,
    };
    match object["metadata"]["finalizers"].as_array_mut() {
        Some(list) => {
            if !list.iter().any(|f| f == finalizer) {
                list.push(json!(finalizer));
            }
        }
        None => object["metadata"]["finalizers"] = json!([finalizer]),
    }
}
