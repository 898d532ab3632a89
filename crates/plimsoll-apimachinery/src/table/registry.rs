//! The columns of each kind.

use std::cmp::Ordering;

use jiff::Timestamp;
use serde_json::Value;

use super::cell::Ctx;
use super::columns::{Column, b, i, n, s, w};
use super::{core, others, pod, workloads};
use crate::gvk::Gvk;

/// The printer of a built-in kind.
pub struct Printer {
    /// Columns.
    pub columns: &'static [Column],
    cells: fn(&Value, Ctx) -> Vec<Value>,
}

impl Printer {
    /// Cells of one object.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        (self.cells)(object, Ctx { now })
    }
}

const NAME: Column = n("Name");
const AGE: Column = s("Age");

/// The printer of a built-in kind; `None`: the default columns.
pub fn printer(gvk: &Gvk) -> Option<Printer> {
    let make = |columns: &'static [Column], cells| Some(Printer { columns, cells });
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("" | "events.k8s.io", "Event") => make(EVENT, core::event),
        ("", kind) => core_group(kind),
        ("apps" | "batch" | "policy" | "scheduling.k8s.io" | "autoscaling", kind) => workload(kind),
        ("networking.k8s.io" | "discovery.k8s.io" | "flowcontrol.apiserver.k8s.io", kind) => network(kind),
        (group, kind) if group.ends_with(".k8s.io") => other(kind),
        _ => None,
    }
}

/// The order of rows, where it is not that of the list.
pub fn order(gvk: &Gvk) -> Option<fn(&Value, &Value) -> Ordering> {
    let flow_schemas = gvk.group == "flowcontrol.apiserver.k8s.io" && gvk.kind == "FlowSchema";
    flow_schemas.then_some(core::flow_schema_order)
}

const EVENT: &[Column] = &[
    s("Last Seen"),
    s("Type"),
    s("Reason"),
    s("Object"),
    w("Subobject"),
    w("Source"),
    s("Message"),
    w("First Seen"),
    w("Count"),
    Column { name: "Name", kind: "string", format: "name", priority: 1 },
];
const POD: &[Column] = &[
    NAME,
    s("Ready"),
    s("Status"),
    s("Restarts"),
    AGE,
    w("IP"),
    w("Node"),
    w("Nominated Node"),
    w("Readiness Gates"),
];
const NODE: &[Column] = &[
    NAME,
    s("Status"),
    s("Roles"),
    AGE,
    s("Version"),
    w("Internal-IP"),
    w("External-IP"),
    w("OS-Image"),
    w("Kernel-Version"),
    w("Container-Runtime"),
];
const SERVICE: &[Column] =
    &[NAME, s("Type"), s("Cluster-IP"), s("External-IP"), s("Port(s)"), AGE, w("Selector")];
const VOLUME: &[Column] = &[
    NAME,
    s("Capacity"),
    s("Access Modes"),
    s("Reclaim Policy"),
    s("Status"),
    s("Claim"),
    s("StorageClass"),
    s("VolumeAttributesClass"),
    s("Reason"),
    AGE,
    w("VolumeMode"),
];
const CLAIM: &[Column] = &[
    NAME,
    s("Status"),
    s("Volume"),
    s("Capacity"),
    s("Access Modes"),
    s("StorageClass"),
    s("VolumeAttributesClass"),
    AGE,
    w("VolumeMode"),
];

fn core_group(kind: &str) -> Option<Printer> {
    let make = |columns: &'static [Column], cells| Some(Printer { columns, cells });
    match kind {
        "Pod" => make(POD, pod::cells),
        "Node" => make(NODE, core::node),
        "Namespace" => make(const { &[NAME, s("Status"), AGE] }, core::namespace),
        "Service" => make(SERVICE, core::service),
        "ConfigMap" => make(const { &[NAME, s("Data"), AGE] }, core::config_map),
        "Secret" => make(const { &[NAME, s("Type"), s("Data"), AGE] }, core::secret),
        "ServiceAccount" => make(const { &[NAME, AGE] }, others::name_and_age),
        "PersistentVolume" => make(VOLUME, core::volume),
        "PersistentVolumeClaim" => make(CLAIM, core::claim),
        "ResourceQuota" => make(const { &[NAME, s("Request"), s("Limit"), AGE] }, core::quota),
        "PodTemplate" => {
            make(const { &[NAME, s("Containers"), s("Images"), s("Pod Labels")] }, workloads::pod_template)
        }
        "ReplicationController" => make(REPLICAS, workloads::replica_set),
        "ComponentStatus" => {
            make(const { &[NAME, s("Status"), s("Message"), s("Error")] }, core::component_status)
        }
        "Endpoints" => make(const { &[NAME, s("Endpoints"), AGE] }, core::endpoints),
        _ => None,
    }
}

const REPLICAS: &[Column] =
    &[NAME, i("Desired"), i("Current"), i("Ready"), AGE, w("Containers"), w("Images"), w("Selector")];
const DEPLOYMENT: &[Column] =
    &[NAME, s("Ready"), s("Up-to-date"), s("Available"), AGE, w("Containers"), w("Images"), w("Selector")];
const DAEMON_SET: &[Column] = &[
    NAME,
    i("Desired"),
    i("Current"),
    i("Ready"),
    i("Up-to-date"),
    i("Available"),
    s("Node Selector"),
    AGE,
    w("Containers"),
    w("Images"),
    w("Selector"),
];
const JOB: &[Column] =
    &[NAME, s("Status"), s("Completions"), s("Duration"), AGE, w("Containers"), w("Images"), w("Selector")];
const CRON_JOB: &[Column] = &[
    NAME,
    s("Schedule"),
    s("Timezone"),
    b("Suspend"),
    i("Active"),
    s("Last Schedule"),
    AGE,
    w("Containers"),
    w("Images"),
    w("Selector"),
];
const AUTOSCALER: &[Column] =
    &[NAME, s("Reference"), s("Targets"), s("MinPods"), s("MaxPods"), s("Replicas"), AGE];
const BUDGET: &[Column] = &[NAME, s("Min Available"), s("Max Unavailable"), i("Allowed Disruptions"), AGE];

fn workload(kind: &str) -> Option<Printer> {
    let make = |columns: &'static [Column], cells| Some(Printer { columns, cells });
    match kind {
        "Deployment" => make(DEPLOYMENT, workloads::deployment),
        "ReplicaSet" => make(REPLICAS, workloads::replica_set),
        "StatefulSet" => {
            make(const { &[NAME, s("Ready"), AGE, w("Containers"), w("Images")] }, workloads::stateful_set)
        }
        "DaemonSet" => make(DAEMON_SET, workloads::daemon_set),
        "ControllerRevision" => {
            make(const { &[NAME, s("Controller"), s("Revision"), AGE] }, workloads::controller_revision)
        }
        "Job" => make(JOB, workloads::job),
        "CronJob" => make(CRON_JOB, workloads::cron_job),
        "PodDisruptionBudget" => make(BUDGET, workloads::disruption_budget),
        "PriorityClass" => make(
            const { &[NAME, i("Value"), b("Global-Default"), AGE, s("PreemptionPolicy")] },
            workloads::priority_class,
        ),
        "Scale" => make(const { &[NAME, i("Desired"), i("Available"), AGE] }, workloads::scale),
        "HorizontalPodAutoscaler" => make(AUTOSCALER, workloads::autoscaler),
        _ => None,
    }
}

const PRIORITY_LEVEL: &[Column] =
    &[NAME, s("Type"), s("NominalConcurrencyShares"), s("Queues"), s("HandSize"), s("QueueLengthLimit"), AGE];
const FLOW_SCHEMA: &[Column] =
    &[NAME, s("PriorityLevel"), s("MatchingPrecedence"), s("DistinguisherMethod"), AGE, s("MissingPL")];

fn network(kind: &str) -> Option<Printer> {
    let make = |columns: &'static [Column], cells| Some(Printer { columns, cells });
    match kind {
        "Ingress" => {
            make(const { &[NAME, s("Class"), s("Hosts"), s("Address"), s("Ports"), AGE] }, core::ingress)
        }
        "IngressClass" => make(const { &[NAME, s("Controller"), s("Parameters"), AGE] }, core::ingress_class),
        "NetworkPolicy" => make(const { &[NAME, s("Pod-Selector"), AGE] }, core::network_policy),
        "EndpointSlice" => {
            make(const { &[NAME, s("AddressType"), s("Ports"), s("Endpoints"), AGE] }, core::endpoint_slice)
        }
        "IPAddress" => make(const { &[NAME, s("ParentRef")] }, core::ip_address),
        "ServiceCIDR" => make(const { &[NAME, s("CIDRs"), AGE] }, core::service_cidr),
        "FlowSchema" => make(FLOW_SCHEMA, core::flow_schema),
        "PriorityLevelConfiguration" => make(PRIORITY_LEVEL, core::priority_level),
        _ => None,
    }
}

const STORAGE_CLASS: &[Column] =
    &[NAME, s("Provisioner"), s("ReclaimPolicy"), s("VolumeBindingMode"), s("AllowVolumeExpansion"), AGE];
const CSI_DRIVER: &[Column] = &[
    NAME,
    b("AttachRequired"),
    b("PodInfoOnMount"),
    b("StorageCapacity"),
    s("TokenRequests"),
    b("RequiresRepublish"),
    s("Modes"),
    AGE,
];
const BINDING: &[Column] = &[NAME, s("Role"), AGE, w("Users"), w("Groups"), w("ServiceAccounts")];

fn other(kind: &str) -> Option<Printer> {
    let make = |columns: &'static [Column], cells| Some(Printer { columns, cells });
    match kind {
        "StorageClass" => make(STORAGE_CLASS, others::storage_class),
        "CSINode" => make(const { &[NAME, i("Drivers"), AGE] }, others::csi_node),
        "CSIDriver" => make(CSI_DRIVER, others::csi_driver),
        "VolumeAttachment" => make(
            const { &[NAME, n("Attacher"), s("PV"), s("Node"), b("Attached"), AGE] },
            others::volume_attachment,
        ),
        "VolumeAttributesClass" => {
            make(const { &[NAME, s("DriverName"), AGE] }, others::volume_attributes_class)
        }
        "Lease" => make(const { &[NAME, s("Holder"), AGE] }, others::lease),
        "RuntimeClass" => make(const { &[NAME, s("Handler"), AGE] }, others::runtime_class),
        "ResourceClaim" => make(const { &[NAME, s("State"), AGE] }, others::resource_claim),
        "ResourceClaimTemplate" | "DeviceClass" => make(const { &[NAME, AGE] }, others::name_and_age),
        "ResourceSlice" => {
            make(const { &[NAME, s("Node"), s("Driver"), s("Pool"), AGE] }, others::resource_slice)
        }
        "RoleBinding" | "ClusterRoleBinding" => make(BINDING, others::role_binding),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            make(const { &[NAME, i("Webhooks"), AGE] }, others::webhook_configuration)
        }
        "ValidatingAdmissionPolicy" => {
            make(const { &[NAME, i("Validations"), s("ParamKind"), AGE] }, others::validating_policy)
        }
        "MutatingAdmissionPolicy" => {
            make(const { &[NAME, i("Mutations"), s("ParamKind"), AGE] }, others::mutating_policy)
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            make(const { &[NAME, s("PolicyName"), s("ParamRef"), AGE] }, others::policy_binding)
        }
        "CertificateSigningRequest" => make(
            const { &[NAME, AGE, s("SignerName"), s("Requestor"), s("RequestedDuration"), s("Condition")] },
            others::signing_request,
        ),
        "APIService" => make(const { &[NAME, s("Service"), s("Available"), AGE] }, others::api_service),
        _ => None,
    }
}
