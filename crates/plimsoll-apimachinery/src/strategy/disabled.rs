//! Fields of pods that belong to features which are off by default are dropped (`DropDisabledPodFields`,
//! `DropDisabledTemplateFields`).

use serde_json::Value;

use crate::kinds::Kind;
use crate::obj::{Obj, child, children};

/// Drops them from a pod, or from the template of a workload.
pub(super) fn drop(kind: &Kind, o: &mut Obj) {
    if let Some(spec) = pod_spec(kind, o) {
        drop_from_spec(spec);
    }
    // MaxUnavailableStatefulSet
    if (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) == ("apps", "StatefulSet") {
        let strategy = child(o, "spec").and_then(|spec| child(spec, "updateStrategy"));
        if let Some(rolling) = strategy.and_then(|strategy| child(strategy, "rollingUpdate")) {
            rolling.remove("maxUnavailable");
        }
    }
}

/// The spec of a kind's pods.
fn pod_spec<'a>(kind: &Kind, o: &'a mut Obj) -> Option<&'a mut Obj> {
    let path: &[&str] = match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => &["spec"],
        ("", "PodTemplate") => &["template", "spec"],
        ("", "ReplicationController")
        | ("apps", "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet")
        | ("batch", "Job") => &["spec", "template", "spec"],
        ("batch", "CronJob") => &["spec", "jobTemplate", "spec", "template", "spec"],
        _ => return None,
    };
    path.iter().try_fold(o, |at, key| child(at, key))
}

fn drop_from_spec(spec: &mut Obj) {
    // GenericWorkload
    spec.remove("schedulingGroup");
    // ClusterTrustBundleProjection, PodCertificateRequest
    for volume in children(spec, "volumes") {
        let Some(projected) = child(volume, "projected") else { continue };
        for source in children(projected, "sources") {
            source.remove("clusterTrustBundle");
            source.remove("podCertificate");
        }
        // A field that Go always writes is `null` once stored.
        if projected.get("sources").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            projected.insert("sources".to_owned(), Value::Null);
        }
    }
    // ContainerStopSignals
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        for c in children(spec, key) {
            let Some(lifecycle) = child(c, "lifecycle") else { continue };
            if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
                c.remove("lifecycle");
            }
        }
    }
}
