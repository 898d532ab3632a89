//! Defaults of built-in kinds (upstream: `pkg/apis/*/v1/defaults.go`), before admission and validation of every create,
//! update and apply.
//!
//! Functions expect objects in the form [`crate::decode`] gives them, where a field that is zero and not a
//! pointer is missing.

mod apps;
mod batch;
mod container;
mod core;
mod flow;
mod misc;
mod pod;
mod volume;

use serde_json::Value;

use crate::kinds::Kind;
use crate::obj::Obj;

pub(crate) use pod::{container_sums, is_pod_level};

type Defaulter = fn(&mut Obj);

/// Fills in the defaults of the object's kind. Custom resources have theirs in their schema, see the CRD module.
pub fn apply_defaults(kind: &Kind, object: &mut Value) {
    if kind.custom.is_some() {
        return;
    }
    if let (Some(defaulter), Some(object)) =
        (defaulter(&kind.gvk.group, &kind.gvk.version, &kind.gvk.kind), object.as_object_mut())
    {
        defaulter(object);
    }
}

fn defaulter(group: &str, version: &str, kind: &str) -> Option<Defaulter> {
    Some(match (group, kind) {
        ("", "Pod") => pod::pod,
        ("", "PodTemplate") => pod::pod_template,
        ("", "ReplicationController") => core::replication_controller,
        ("", "Service") => core::service,
        ("", "Secret") => core::secret,
        ("", "Namespace") => core::namespace,
        ("", "Node") => core::node,
        ("", "LimitRange") => core::limit_range,
        ("", "PersistentVolume") => volume::persistent_volume,
        ("", "PersistentVolumeClaim") => volume::persistent_volume_claim,
        ("", "Endpoints") => core::endpoints,
        ("apps", "Deployment") => apps::deployment,
        ("apps", "ReplicaSet") => apps::replica_set,
        ("apps", "StatefulSet") => apps::stateful_set,
        ("apps", "DaemonSet") => apps::daemon_set,
        ("batch", "Job") => batch::job,
        ("batch", "CronJob") => batch::cron_job,
        ("scheduling.k8s.io", "PriorityClass") => misc::priority_class,
        ("storage.k8s.io", "StorageClass") => misc::storage_class,
        ("storage.k8s.io", "CSIDriver") => misc::csi_driver,
        ("storage.k8s.io", "VolumeAttachment") => volume::attachment,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => misc::role_binding,
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => misc::mutating_webhooks,
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => misc::validating_webhooks,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy") => {
            misc::admission_policy
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => misc::admission_policy_binding,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => misc::custom_resource_definition,
        ("autoscaling", "HorizontalPodAutoscaler") if version == "v1" => misc::autoscaler_v1,
        ("autoscaling", "HorizontalPodAutoscaler") => misc::autoscaler,
        ("networking.k8s.io", "NetworkPolicy") => misc::network_policy,
        ("networking.k8s.io", "IngressClass") => misc::ingress_class,
        ("apiregistration.k8s.io", "APIService") => misc::api_service,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flow::flow_schema,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => flow::priority_level,
        ("discovery.k8s.io", "EndpointSlice") => misc::endpoint_slice,
        ("resource.k8s.io", "ResourceClaim") => misc::resource_claim,
        ("resource.k8s.io", "ResourceClaimTemplate") => misc::resource_claim_template,
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod tests;
