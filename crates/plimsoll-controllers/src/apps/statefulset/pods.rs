//! The pods and claims of a StatefulSet.

use plimsoll_apimachinery::meta::controller_reference;
use serde_json::{Value, json};

use super::model::StatefulSet;
use crate::apps::revision::Revision;

/// Label with the name of a pod's revision.
pub const REVISION: &str = "controller-revision-hash";
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Name of the pod with an ordinal.
pub fn name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name)
}

fn claim_name(template: &Value, pod: &str) -> String {
    format!("{}-{pod}", template["metadata"]["name"].as_str().unwrap_or_default())
}

/// The pod with an ordinal, of a revision.
pub fn pod(set: &StatefulSet, revision: &Revision, ordinal: i32) -> Value {
    let template = revision.template();
    let name = name(set, ordinal);
    let mut metadata = json!({
        "name": name, "namespace": set.metadata.namespace,
        "ownerReferences": [controller_reference("apps/v1", "StatefulSet", &set.metadata)],
    });
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(key).filter(|v| !v.is_null()) {
            metadata[key] = value.clone();
        }
    }
    metadata["labels"][POD_NAME] = json!(name);
    metadata["labels"][POD_INDEX] = json!(ordinal.to_string());
    metadata["labels"][REVISION] = json!(revision.metadata.name);
    let mut spec = template["spec"].clone();
    spec["hostname"] = json!(name);
    if !set.spec.service_name.is_empty() {
        spec["subdomain"] = json!(set.spec.service_name);
    }
    let claims: Vec<Value> = set
        .spec
        .volume_claim_templates
        .iter()
        .map(|t| {
            json!({"name": t["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim_name(t, &name)}})
        })
        .collect();
    if !claims.is_empty() {
        let others = spec["volumes"].as_array().into_iter().flatten();
        let others: Vec<Value> =
            others.filter(|v| !claims.iter().any(|c| c["name"] == v["name"])).cloned().collect();
        spec["volumes"] = claims.into_iter().chain(others).collect();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// The claims of the pod with an ordinal. They outlive it.
pub fn claims(set: &StatefulSet, ordinal: i32) -> Vec<Value> {
    let pod = name(set, ordinal);
    let claim = |template: &Value| {
        let mut labels = template["metadata"]["labels"].clone();
        for (key, value) in &set.spec.selector.match_labels {
            labels[key] = json!(value);
        }
        let mut metadata = json!({"name": claim_name(template, &pod), "namespace": set.metadata.namespace, "labels": labels});
        if template["metadata"]["annotations"].is_object() {
            metadata["annotations"] = template["metadata"]["annotations"].clone();
        }
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"],
        })
    };
    set.spec.volume_claim_templates.iter().map(claim).collect()
}
