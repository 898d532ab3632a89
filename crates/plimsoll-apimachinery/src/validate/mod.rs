//! Validation of built-in kinds (upstream: `pkg/apis/*/validation`): the same errors with the same fields and
//! texts, in the same order where upstream's order is fixed.
//!
//! Custom resources are validated by their schemas, see the CRD module; here only their metadata is checked.

pub(crate) mod address;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod checks;
mod claim;
mod client;
mod conditions;
mod config;
mod core;
mod cron;
mod deprecated;
mod endpoints;
mod event;
mod flow;
pub(crate) mod golang;
mod match_conditions;
mod meta;
mod misc;
mod network_policy;
mod networking;
mod node;
mod objects;
mod path;
mod pod;
mod policy;
mod quota;
mod rbac;
mod resource;
mod resources;
mod selector;
mod service;
mod source;
mod storage;
pub(crate) mod url;
mod volume;
mod warnings;
mod webhook;

use serde_json::Value;

use crate::error::FieldError;
use crate::kinds::Kind;
use crate::obj::Obj;

pub use address::endpoint_address;
pub(crate) use checks::{dns_1035_label, dns_subdomain, is_subdomain};
pub(crate) use pod::APP_ARMOR;
pub use warnings::{status_warnings, warnings};

use path::{Errors, Path};

type Check = fn(&Obj, &mut Errors);
type Compare = fn(&Obj, &Obj, &mut Errors);

/// Validates a new object, which is decoded, defaulted and prepared.
pub fn validate_create(kind: &Kind, object: &Value) -> Vec<FieldError> {
    let Some(o) = object.as_object() else { return Vec::new() };
    let mut errors = Errors::default();
    if kind.custom.is_some() {
        meta::create(kind, o, &mut errors);
    } else if matches!(kind.gvk.kind.as_str(), "Event" | "PodDisruptionBudget") {
        if kind.gvk.kind == "Event" {
            event::create(kind, o, &mut errors);
        } else {
            misc::disruption_budget(o, &mut errors);
        }
        if errors.0.is_empty() {
            // The old API of events and the strategy of budgets have not checked it.
            meta::generic(kind.namespaced, o, &mut errors);
        }
        return errors.0;
    } else {
        meta::create(kind, o, &mut errors);
        if let Some(check) = new_of(kind) {
            check(o, &mut errors);
        } else if let Some(check) = check_of(kind) {
            check(o, &mut errors);
        }
    }
    if errors.0.is_empty() {
        meta::generic_names(o, &mut errors);
    }
    errors.0
}

/// Validates labels or annotations (`field`) at a path of two fields.
pub(crate) fn pairs(field: &str, values: &Obj, parent: &str, name: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let parent = Path::new(parent);
    match field {
        "labels" => meta::labels(values, &parent.field(name), &mut errors),
        _ => meta::annotations(values, &parent.field(name), &mut errors),
    }
    errors.0
}

/// Validates a new version of an object, written through a subresource (empty: the object itself).
pub fn validate_update(kind: &Kind, subresource: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return Vec::new() };
    let mut errors = Errors::default();
    meta::updated(kind, subresource, old, new, &mut errors);
    if kind.custom.is_some() {
        return errors.0;
    }
    let key = (kind.gvk.group.as_str(), kind.gvk.kind.as_str());
    match subresource {
        "" if key == ("apps", "DaemonSet") => {
            // Upstream checks this change first.
            apps::selector_update(old, new, &mut errors);
            apps::daemon_set(new, &mut errors);
        }
        "" => {
            for _ in 0..checks_on_update(kind) {
                if let Some(check) = check_of(kind) {
                    check(new, &mut errors);
                }
            }
            if let Some(compare) = compare_of(kind) {
                compare(old, new, &mut errors);
            }
        }
        "status" => {
            if let Some(compare) = status_of(kind) {
                compare(old, new, &mut errors);
            }
        }
        "ephemeralcontainers" if key == ("", "Pod") => pod::ephemeral_containers(old, new, &mut errors),
        "resize" if key == ("", "Pod") => pod::resize(old, new, &mut errors),
        "approval" if key == ("certificates.k8s.io", "CertificateSigningRequest") => {
            certificates::approval(old, new, &mut errors);
        }
        "finalize" if key == ("", "Namespace") => core::namespace_finalizers(new, &mut errors),
        _ => {}
    }
    errors.0
}

/// Validates metadata of a resource inside another one; `path` is that of the metadata.
pub(crate) fn object_meta(meta: &Obj, path: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    meta::embedded(meta, &Path::new(path), &mut errors);
    errors.0
}

/// Validates the client configuration of a conversion webhook; `path` is that of the configuration.
pub(crate) fn conversion_client(config: &Obj, path: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    client::config(config, &Path::new(path), &mut errors);
    errors.0
}

/// Validates addresses and families of a Service, before the server allocates missing ones.
pub fn service_addresses(old: Option<&Value>, new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if let Some(new) = new.as_object() {
        service::cluster_ips(new, old.and_then(Value::as_object), &mut errors);
    }
    errors.0
}

/// `ValidateNodeName`.
pub fn is_node_name(name: &str) -> bool {
    checks::dns_subdomain(name).is_empty()
}

/// Whether a service account can have this namespace and this name (`serviceaccount.SplitUsername`).
pub fn is_service_account(namespace: &str, name: &str) -> bool {
    checks::dns_label(namespace).is_empty() && checks::dns_subdomain(name).is_empty()
}

/// Validates a key such as `acme.io/foo` (`IsDomainPrefixedPath`).
pub fn domain_prefixed_path(field: &str, text: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    batch::domain_prefixed(text, &Path::new(field), &mut errors);
    errors.0
}

/// Group and kind as `Invalid` errors name them: events are one kind, of the core group, in both APIs.
pub fn named(kind: &Kind) -> (&str, &str) {
    let group = if kind.gvk.group == "events.k8s.io" { "" } else { &kind.gvk.group };
    (group, &kind.gvk.kind)
}

/// How often upstream validates a new version of an object as if it were new.
fn checks_on_update(kind: &Kind) -> usize {
    match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        // Their checks of the new object depend on the old one, or don't run again.
        ("", "Service" | "Event")
        | ("events.k8s.io", "Event")
        | ("resource.k8s.io", "ResourceClaim" | "ResourceSlice")
        | ("scheduling.k8s.io", "PriorityClass")
        | ("networking.k8s.io", "NetworkPolicy")
        | ("autoscaling", "HorizontalPodAutoscaler") => 0,
        ("", "PersistentVolume") => 2,
        _ => 1,
    }
}

/// The checks on create beyond those on update, metadata aside.
fn new_of(kind: &Kind) -> Option<Check> {
    Some(match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::create,
        ("apps", "StatefulSet") => apps::new_stateful_set,
        ("apps", "ControllerRevision") => apps::new_controller_revision,
        ("networking.k8s.io", "Ingress") => networking::new_ingress,
        _ => return None,
    })
}

/// The checks on create and update alike, metadata aside.
fn check_of(kind: &Kind) -> Option<Check> {
    Some(match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::whole,
        ("", "PodTemplate") => core::pod_template,
        ("", "Namespace") => core::namespace,
        ("", "Node") => node::node,
        ("", "Service") => service::service,
        ("", "Endpoints") => endpoints::endpoints,
        ("discovery.k8s.io", "EndpointSlice") => endpoints::slice,
        ("", "ConfigMap") => config::config_map,
        ("", "Secret") => config::secret,
        ("", "LimitRange") => quota::limit_range,
        ("", "ResourceQuota") => quota::resource_quota,
        ("", "PersistentVolume") => volume::volume,
        ("", "PersistentVolumeClaim") => claim::claim,
        ("", "ReplicationController") => apps::replication_controller,
        ("apps", "Deployment") => apps::deployment,
        ("apps", "ReplicaSet") => apps::replica_set,
        ("apps", "StatefulSet") => apps::stateful_set,
        ("apps", "DaemonSet") => apps::daemon_set,
        ("apps", "ControllerRevision") => apps::controller_revision,
        ("batch", "Job") => batch::job,
        ("batch", "CronJob") => batch::cron_job,
        ("policy", "PodDisruptionBudget") => misc::disruption_budget,
        ("scheduling.k8s.io", "PriorityClass") => misc::priority_class,
        ("coordination.k8s.io", "Lease") => misc::lease,
        ("node.k8s.io", "RuntimeClass") => misc::runtime_class,
        ("storage.k8s.io", "StorageClass") => storage::storage_class,
        ("storage.k8s.io", "CSINode") => storage::csi_node,
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver,
        ("storage.k8s.io", "VolumeAttachment") => storage::volume_attachment,
        ("storage.k8s.io", "CSIStorageCapacity") => storage::capacity,
        ("storage.k8s.io", "VolumeAttributesClass") => storage::attributes_class,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => flow::schema,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => flow::level,
        ("rbac.authorization.k8s.io", "Role") => rbac::role,
        ("rbac.authorization.k8s.io", "ClusterRole") => rbac::cluster_role,
        ("rbac.authorization.k8s.io", "RoleBinding") => rbac::role_binding,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => rbac::cluster_role_binding,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => policy::policy,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => policy::binding,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => webhook::configuration,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler,
        ("networking.k8s.io", "NetworkPolicy") => network_policy::network_policy,
        ("networking.k8s.io", "Ingress") => networking::ingress,
        ("networking.k8s.io", "IngressClass") => networking::ingress_class,
        ("resource.k8s.io", "ResourceClaim") => resource::claim,
        ("resource.k8s.io", "ResourceClaimTemplate") => resource::claim_template,
        ("resource.k8s.io", "DeviceClass") => resource::class,
        ("resource.k8s.io", "ResourceSlice") => resource::slice,
        _ => return None,
    })
}

/// The checks of changes.
fn compare_of(kind: &Kind) -> Option<Compare> {
    Some(match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::update,
        ("", "Node") => node::update,
        ("", "Service") => service::update,
        ("", "Endpoints") => endpoints::endpoints_update,
        ("discovery.k8s.io", "EndpointSlice") => endpoints::slice_update,
        ("", "ConfigMap") => config::config_map_update,
        ("", "Secret") => config::secret_update,
        ("", "ResourceQuota") => quota::resource_quota_update,
        ("", "PersistentVolume") => volume::update,
        ("", "PersistentVolumeClaim") => claim::update,
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => apps::selector_update,
        ("apps", "StatefulSet") => apps::stateful_set_update,
        ("apps", "ControllerRevision") => apps::controller_revision_update,
        ("batch", "Job") => batch::job_update,
        ("scheduling.k8s.io", "PriorityClass") => misc::priority_class_update,
        ("node.k8s.io", "RuntimeClass") => misc::runtime_class_update,
        ("storage.k8s.io", "StorageClass") => storage::storage_class_update,
        ("storage.k8s.io", "CSIDriver") => storage::csi_driver_update,
        ("storage.k8s.io", "CSINode") => storage::csi_node_update,
        ("storage.k8s.io", "CSIStorageCapacity") => storage::capacity_update,
        ("storage.k8s.io", "VolumeAttributesClass") => storage::attributes_class_update,
        ("storage.k8s.io", "VolumeAttachment") => storage::volume_attachment_update,
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => rbac::binding_update,
        ("resource.k8s.io", "ResourceClaim") => resource::claim_update,
        ("resource.k8s.io", "ResourceClaimTemplate") => resource::claim_template_update,
        ("resource.k8s.io", "ResourceSlice") => resource::slice_update,
        ("", "Event") => event::update_old,
        ("events.k8s.io", "Event") => event::update,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler_update,
        ("networking.k8s.io", "NetworkPolicy") => network_policy::network_policy_update,
        ("networking.k8s.io", "IngressClass") => networking::ingress_class_update,
        ("certificates.k8s.io", "CertificateSigningRequest") => certificates::update,
        _ => return None,
    })
}

/// The checks of a status.
fn status_of(kind: &Kind) -> Option<Compare> {
    Some(match (kind.gvk.group.as_str(), kind.gvk.kind.as_str()) {
        ("", "Pod") => pod::status,
        ("", "Namespace") => core::namespace_status,
        ("", "PersistentVolumeClaim") => claim::status,
        ("storage.k8s.io", "VolumeAttachment") => storage::volume_attachment_status,
        ("", "Node") => node::update,
        ("", "Service") => service::status,
        ("", "ResourceQuota") => quota::resource_quota_status,
        ("batch", "Job") => batch::status_update,
        ("policy", "PodDisruptionBudget") => misc::disruption_budget_status,
        ("apps", "Deployment") => apps::deployment_status,
        ("apps", "ReplicaSet") | ("", "ReplicationController") => apps::replica_set_status,
        ("apps", "StatefulSet") => apps::stateful_set_status,
        ("apps", "DaemonSet") => apps::daemon_set_status,
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaling::autoscaler_status,
        ("networking.k8s.io", "Ingress") => networking::ingress_status,
        ("resource.k8s.io", "ResourceClaim") => resource::claim_status,
        ("certificates.k8s.io", "CertificateSigningRequest") => certificates::status,
        _ => return None,
    })
}

#[cfg(test)]
mod kinds_tests;
#[cfg(test)]
mod tests;
