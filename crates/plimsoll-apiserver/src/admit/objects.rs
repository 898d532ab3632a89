//! Small plugins: TaintNodesByCondition, DefaultStorageClass, StorageObjectInUseProtection.

use serde_json::{Value, json};

use super::{Operation, subject};
use crate::pipeline::Write;
use crate::store::Store;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";

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
        || !claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].is_null()
    {
        return;
    }
    if let Some(class) = default_class(w.server.store())
        && claim["spec"].is_object()
    {
        claim["spec"]["storageClassName"] = json!(class);
    }
}

/// The storage class of claims that name none: of those marked as default the newest, then by name.
pub(crate) fn default_class(store: &Store) -> Option<String> {
    let classes = store.list("storage.k8s.io/storageclasses", None);
    let default = classes
        .iter()
        .filter_map(|r| r.value().ok())
        .filter(|c| {
            let annotations = &c["metadata"]["annotations"];
            annotations[DEFAULT_CLASS] == "true" || annotations[BETA_DEFAULT_CLASS] == "true"
        })
        .max_by_key(|c| {
            let text = |f: &str| c["metadata"][f].as_str().unwrap_or("").to_owned();
            (text("creationTimestamp"), std::cmp::Reverse(text("name")))
        });
    default?["metadata"]["name"].as_str().map(str::to_owned)
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
