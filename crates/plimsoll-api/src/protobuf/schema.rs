//! Fields of Pods and Nodes in Kubernetes' protobuf encoding: number, JSON name and type of those that
//! [`crate::lean`] reads, after `k8s.io/api/core/v1/generated.proto` and
//! `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`. The numbers never change.

/// Type of a field.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Text,
    Bool,
    /// `int32` and `int64`.
    Int,
    /// `meta.v1.Time`; RFC 3339 in JSON.
    Time,
    /// `map<string, string>`.
    Texts,
    /// `map<string, resource.Quantity>`; strings in JSON.
    Quantities,
    Message(&'static Message),
    /// A message whose fields JSON has among those of the message around it.
    Inline(&'static Message),
}

/// A field of a message.
#[derive(Debug)]
pub struct Field {
    pub number: u32,
    pub name: &'static str,
    pub kind: Kind,
    pub repeated: bool,
}

/// A message by its fields.
#[derive(Debug)]
pub struct Message(&'static [Field]);

impl Message {
    pub fn field(&self, number: u32) -> Option<&'static Field> {
        self.0.iter().find(|f| f.number == number)
    }
}

const fn one(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, repeated: false }
}

const fn many(number: u32, name: &'static str, kind: Kind) -> Field {
    Field { number, name, kind, repeated: true }
}

/// Any object, for its metadata.
pub static OBJECT: Message = Message(&[one(1, "metadata", Kind::Message(&OBJECT_META))]);
/// A message of which only the presence counts.
static EMPTY: Message = Message(&[]);
pub static POD: Message = Message(&[
    one(1, "metadata", Kind::Message(&OBJECT_META)),
    one(2, "spec", Kind::Message(&POD_SPEC)),
    one(3, "status", Kind::Message(&POD_STATUS)),
]);
pub static NODE: Message = Message(&[
    one(1, "metadata", Kind::Message(&OBJECT_META)),
    one(2, "spec", Kind::Message(&NODE_SPEC)),
    one(3, "status", Kind::Message(&NODE_STATUS)),
]);
static OBJECT_META: Message = Message(&[
    one(1, "name", Kind::Text),
    one(3, "namespace", Kind::Text),
    one(5, "uid", Kind::Text),
    one(6, "resourceVersion", Kind::Text),
    one(7, "generation", Kind::Int),
    one(8, "creationTimestamp", Kind::Time),
    one(9, "deletionTimestamp", Kind::Time),
    one(11, "labels", Kind::Texts),
    one(12, "annotations", Kind::Texts),
    many(13, "ownerReferences", Kind::Message(&OWNER_REFERENCE)),
]);
static OWNER_REFERENCE: Message = Message(&[
    one(1, "kind", Kind::Text),
    one(3, "name", Kind::Text),
    one(4, "uid", Kind::Text),
    one(5, "apiVersion", Kind::Text),
    one(6, "controller", Kind::Bool),
]);
static POD_SPEC: Message = Message(&[
    many(1, "volumes", Kind::Message(&VOLUME)),
    many(2, "containers", Kind::Message(&CONTAINER)),
    one(7, "nodeSelector", Kind::Texts),
    one(10, "nodeName", Kind::Text),
    one(11, "hostNetwork", Kind::Bool),
    one(18, "affinity", Kind::Message(&AFFINITY)),
    one(19, "schedulerName", Kind::Text),
    many(20, "initContainers", Kind::Message(&CONTAINER)),
    many(22, "tolerations", Kind::Message(&TOLERATION)),
    one(24, "priorityClassName", Kind::Text),
    one(25, "priority", Kind::Int),
    one(29, "runtimeClassName", Kind::Text),
    one(31, "preemptionPolicy", Kind::Text),
    one(32, "overhead", Kind::Quantities),
    many(33, "topologySpreadConstraints", Kind::Message(&TOPOLOGY_SPREAD_CONSTRAINT)),
    one(37, "hostUsers", Kind::Bool),
    many(38, "schedulingGates", Kind::Message(&POD_SCHEDULING_GATE)),
    many(39, "resourceClaims", Kind::Message(&POD_RESOURCE_CLAIM)),
    one(40, "resources", Kind::Message(&RESOURCE_REQUIREMENTS)),
    one(43, "schedulingGroup", Kind::Message(&POD_SCHEDULING_GROUP)),
]);
static POD_SCHEDULING_GROUP: Message = Message(&[one(1, "podGroupName", Kind::Text)]);
static POD_SCHEDULING_GATE: Message = Message(&[one(1, "name", Kind::Text)]);
static RESOURCE_REQUIREMENTS: Message =
    Message(&[one(1, "limits", Kind::Quantities), one(2, "requests", Kind::Quantities)]);
static CONTAINER: Message = Message(&[
    one(1, "name", Kind::Text),
    one(2, "image", Kind::Text),
    many(6, "ports", Kind::Message(&CONTAINER_PORT)),
    one(8, "resources", Kind::Message(&RESOURCE_REQUIREMENTS)),
    one(24, "restartPolicy", Kind::Text),
    many(25, "restartPolicyRules", Kind::Message(&CONTAINER_RESTART_RULE)),
]);
static CONTAINER_RESTART_RULE: Message = Message(&[one(1, "action", Kind::Text)]);
static CONTAINER_PORT: Message =
    Message(&[one(2, "hostPort", Kind::Int), one(4, "protocol", Kind::Text), one(5, "hostIP", Kind::Text)]);
static AFFINITY: Message = Message(&[
    one(1, "nodeAffinity", Kind::Message(&NODE_AFFINITY)),
    one(2, "podAffinity", Kind::Message(&POD_AFFINITY)),
    one(3, "podAntiAffinity", Kind::Message(&POD_ANTI_AFFINITY)),
]);
static NODE_AFFINITY: Message = Message(&[
    one(1, "requiredDuringSchedulingIgnoredDuringExecution", Kind::Message(&NODE_SELECTOR)),
    many(2, "preferredDuringSchedulingIgnoredDuringExecution", Kind::Message(&PREFERRED_SCHEDULING_TERM)),
]);
static POD_AFFINITY: Message = Message(&[
    many(1, "requiredDuringSchedulingIgnoredDuringExecution", Kind::Message(&POD_AFFINITY_TERM)),
    many(2, "preferredDuringSchedulingIgnoredDuringExecution", Kind::Message(&WEIGHTED_POD_AFFINITY_TERM)),
]);
static POD_ANTI_AFFINITY: Message = Message(&[
    many(1, "requiredDuringSchedulingIgnoredDuringExecution", Kind::Message(&POD_AFFINITY_TERM)),
    many(2, "preferredDuringSchedulingIgnoredDuringExecution", Kind::Message(&WEIGHTED_POD_AFFINITY_TERM)),
]);
static PREFERRED_SCHEDULING_TERM: Message =
    Message(&[one(1, "weight", Kind::Int), one(2, "preference", Kind::Message(&NODE_SELECTOR_TERM))]);
static WEIGHTED_POD_AFFINITY_TERM: Message =
    Message(&[one(1, "weight", Kind::Int), one(2, "podAffinityTerm", Kind::Message(&POD_AFFINITY_TERM))]);
static POD_AFFINITY_TERM: Message = Message(&[
    one(1, "labelSelector", Kind::Message(&LABEL_SELECTOR)),
    many(2, "namespaces", Kind::Text),
    one(3, "topologyKey", Kind::Text),
    one(4, "namespaceSelector", Kind::Message(&LABEL_SELECTOR)),
]);
static TOLERATION: Message = Message(&[
    one(1, "key", Kind::Text),
    one(2, "operator", Kind::Text),
    one(3, "value", Kind::Text),
    one(4, "effect", Kind::Text),
    one(5, "tolerationSeconds", Kind::Int),
]);
static TOPOLOGY_SPREAD_CONSTRAINT: Message = Message(&[
    one(1, "maxSkew", Kind::Int),
    one(2, "topologyKey", Kind::Text),
    one(3, "whenUnsatisfiable", Kind::Text),
    one(4, "labelSelector", Kind::Message(&LABEL_SELECTOR)),
    one(5, "minDomains", Kind::Int),
    one(6, "nodeAffinityPolicy", Kind::Text),
    one(7, "nodeTaintsPolicy", Kind::Text),
    many(8, "matchLabelKeys", Kind::Text),
]);
static VOLUME_SOURCE: Message = Message(&[
    one(3, "gcePersistentDisk", Kind::Message(&GCE_PERSISTENT_DISK_VOLUME_SOURCE)),
    one(4, "awsElasticBlockStore", Kind::Message(&AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE)),
    one(8, "iscsi", Kind::Message(&ISCSI_VOLUME_SOURCE)),
    one(10, "persistentVolumeClaim", Kind::Message(&PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE)),
    one(11, "rbd", Kind::Message(&RBD_VOLUME_SOURCE)),
    one(28, "csi", Kind::Message(&CSI_VOLUME_SOURCE)),
    one(29, "ephemeral", Kind::Message(&EMPTY)),
    one(30, "image", Kind::Message(&IMAGE_VOLUME_SOURCE)),
]);
static PERSISTENT_VOLUME_CLAIM_VOLUME_SOURCE: Message =
    Message(&[one(1, "claimName", Kind::Text), one(2, "readOnly", Kind::Bool)]);
static CSI_VOLUME_SOURCE: Message = Message(&[one(1, "driver", Kind::Text)]);
static GCE_PERSISTENT_DISK_VOLUME_SOURCE: Message =
    Message(&[one(1, "pdName", Kind::Text), one(4, "readOnly", Kind::Bool)]);
static AWS_ELASTIC_BLOCK_STORE_VOLUME_SOURCE: Message =
    Message(&[one(1, "volumeID", Kind::Text), one(4, "readOnly", Kind::Bool)]);
static ISCSI_VOLUME_SOURCE: Message = Message(&[one(2, "iqn", Kind::Text), one(6, "readOnly", Kind::Bool)]);
static RBD_VOLUME_SOURCE: Message = Message(&[
    many(1, "monitors", Kind::Text),
    one(2, "image", Kind::Text),
    one(4, "pool", Kind::Text),
    one(8, "readOnly", Kind::Bool),
]);
static IMAGE_VOLUME_SOURCE: Message = Message(&[one(1, "reference", Kind::Text)]);
static VOLUME: Message =
    Message(&[one(1, "name", Kind::Text), one(2, "volumeSource", Kind::Inline(&VOLUME_SOURCE))]);
static POD_RESOURCE_CLAIM: Message = Message(&[
    one(1, "name", Kind::Text),
    one(3, "resourceClaimName", Kind::Text),
    one(4, "resourceClaimTemplateName", Kind::Text),
]);
static POD_RESOURCE_CLAIM_STATUS: Message =
    Message(&[one(1, "name", Kind::Text), one(2, "resourceClaimName", Kind::Text)]);
static POD_STATUS: Message = Message(&[
    one(1, "phase", Kind::Text),
    many(2, "conditions", Kind::Message(&POD_CONDITION)),
    one(7, "startTime", Kind::Time),
    many(8, "containerStatuses", Kind::Message(&CONTAINER_STATUS)),
    many(10, "initContainerStatuses", Kind::Message(&CONTAINER_STATUS)),
    one(11, "nominatedNodeName", Kind::Text),
    many(15, "resourceClaimStatuses", Kind::Message(&POD_RESOURCE_CLAIM_STATUS)),
    one(19, "allocatedResources", Kind::Quantities),
    one(20, "resources", Kind::Message(&RESOURCE_REQUIREMENTS)),
]);
static POD_CONDITION: Message = Message(&[
    one(1, "type", Kind::Text),
    one(2, "status", Kind::Text),
    one(4, "lastTransitionTime", Kind::Time),
    one(5, "reason", Kind::Text),
]);
static NODE_CONDITION: Message = Message(&[
    one(1, "type", Kind::Text),
    one(2, "status", Kind::Text),
    one(4, "lastTransitionTime", Kind::Time),
    one(5, "reason", Kind::Text),
]);
static CONTAINER_STATUS: Message = Message(&[
    one(1, "name", Kind::Text),
    one(10, "allocatedResources", Kind::Quantities),
    one(11, "resources", Kind::Message(&RESOURCE_REQUIREMENTS)),
]);
static LABEL_SELECTOR: Message = Message(&[
    one(1, "matchLabels", Kind::Texts),
    many(2, "matchExpressions", Kind::Message(&LABEL_SELECTOR_REQUIREMENT)),
]);
static LABEL_SELECTOR_REQUIREMENT: Message =
    Message(&[one(1, "key", Kind::Text), one(2, "operator", Kind::Text), many(3, "values", Kind::Text)]);
static NODE_SELECTOR_REQUIREMENT: Message =
    Message(&[one(1, "key", Kind::Text), one(2, "operator", Kind::Text), many(3, "values", Kind::Text)]);
static NODE_SELECTOR: Message = Message(&[many(1, "nodeSelectorTerms", Kind::Message(&NODE_SELECTOR_TERM))]);
static NODE_SELECTOR_TERM: Message = Message(&[
    many(1, "matchExpressions", Kind::Message(&NODE_SELECTOR_REQUIREMENT)),
    many(2, "matchFields", Kind::Message(&NODE_SELECTOR_REQUIREMENT)),
]);
static NODE_SPEC: Message =
    Message(&[one(4, "unschedulable", Kind::Bool), many(5, "taints", Kind::Message(&TAINT))]);
static TAINT: Message =
    Message(&[one(1, "key", Kind::Text), one(2, "value", Kind::Text), one(3, "effect", Kind::Text)]);
static NODE_STATUS: Message = Message(&[
    one(2, "allocatable", Kind::Quantities),
    many(4, "conditions", Kind::Message(&NODE_CONDITION)),
    many(8, "images", Kind::Message(&CONTAINER_IMAGE)),
    many(14, "declaredFeatures", Kind::Text),
]);
static CONTAINER_IMAGE: Message = Message(&[many(1, "names", Kind::Text), one(2, "sizeBytes", Kind::Int)]);
