//! Pods and pod templates.

use super::{
    AccessMode, EncodedObject, LabelSelector, NodeSelector, NodeSelectorTerm, OwnerRef, Resources, StringMap,
    Toleration,
};
use crate::time::Time;

/// Transport protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP, the default.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A container port; only those with a host port matter to placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerPort {
    /// Port on the host; 0: none.
    pub host_port: u16,
    /// Address on the host; empty means all.
    pub host_ip: String,
    /// Protocol.
    pub protocol: Protocol,
}

/// Restart policy of an init container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RestartPolicy {
    /// A sidecar when set on an init container.
    Always,
    /// Restarted when it failed.
    OnFailure,
    /// Never restarted.
    Never,
}

/// A container or init container.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Container {
    /// Name, unique in the pod.
    pub name: String,
    /// Image reference as written.
    pub image: String,
    /// Requested amounts.
    pub requests: Resources,
    /// Limits.
    pub limits: Resources,
    /// Ports.
    pub ports: Vec<ContainerPort>,
    /// Own restart policy; `Always` on an init container makes it a sidecar.
    pub restart_policy: Option<RestartPolicy>,
    /// Whether the container has restart rules with action `RestartAllContainers`.
    pub restarts_all_containers: bool,
}

/// A weighted preference for nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PreferredSchedulingTerm {
    /// 1 to 100.
    pub weight: i32,
    /// What is preferred.
    pub term: NodeSelectorTerm,
}

/// Affinity to nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeAffinity {
    /// Must match, when present.
    pub required: Option<NodeSelector>,
    /// Better if it matches.
    pub preferred: Vec<PreferredSchedulingTerm>,
}

/// A term of affinity or anti-affinity between pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodAffinityTerm {
    /// Selects the other pods; `None` matches none.
    pub selector: Option<LabelSelector>,
    /// Namespaces of the other pods, by name.
    pub namespaces: Vec<String>,
    /// Namespaces of the other pods, by label; `None`: not used.
    pub namespace_selector: Option<LabelSelector>,
    /// Node label that defines the domain.
    pub topology_key: String,
}

/// A weighted term.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WeightedPodAffinityTerm {
    /// 1 to 100.
    pub weight: i32,
    /// The term.
    pub term: PodAffinityTerm,
}

/// Affinity or anti-affinity to other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodAffinity {
    /// All must hold.
    pub required: Vec<PodAffinityTerm>,
    /// Better if they hold.
    pub preferred: Vec<WeightedPodAffinityTerm>,
}

/// All affinities of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Affinity {
    /// To nodes.
    pub node: Option<NodeAffinity>,
    /// To pods.
    pub pod: Option<PodAffinity>,
    /// Away from pods.
    pub anti: Option<PodAffinity>,
}

/// What happens when a spread constraint can't be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnsatisfiableAction {
    /// The pod waits.
    DoNotSchedule,
    /// The pod is placed as well as possible.
    ScheduleAnyway,
}

/// A topology spread constraint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadConstraint {
    /// Largest allowed difference between domains, at least 1.
    pub max_skew: i32,
    /// Node label that defines the domain.
    pub topology_key: String,
    /// Hard or soft.
    pub when_unsatisfiable: UnsatisfiableAction,
    /// Selects the pods that are counted; `None` matches none.
    pub selector: Option<LabelSelector>,
    /// Fewer domains than this count as a minimum of zero.
    pub min_domains: Option<i32>,
    /// Whether only nodes that match the pod's node affinity count (`Honor`, the default).
    pub honor_node_affinity: bool,
    /// Whether nodes with untolerated taints are left out (`Honor`; the default is `Ignore`).
    pub honor_node_taints: bool,
    /// Label keys whose values in the pod are added to the selector.
    pub match_label_keys: Vec<String>,
}

/// Whether a pod may preempt others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PreemptionPolicy {
    /// It may.
    #[default]
    PreemptLowerPriority,
    /// It may not.
    Never,
}

/// `ephemeral.volumeClaimTemplate.spec` of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeClaimTemplate {
    /// How it is mounted.
    pub access_modes: Vec<AccessMode>,
    /// Requested size; `None`: not given.
    pub request: Option<i64>,
    /// Storage class; `None`: the default one.
    pub storage_class: Option<String>,
    /// Attributes class, possibly empty.
    pub attributes_class: String,
    /// A block device instead of a file system.
    pub block: bool,
    /// Which volumes will do.
    pub selector: Option<LabelSelector>,
}

impl VolumeSource {
    /// Whether it is a PersistentVolumeClaim, or one is made for it.
    #[must_use]
    pub const fn is_claim(&self) -> bool {
        matches!(self, Self::Claim { .. } | Self::Ephemeral(_))
    }
}

/// Where a volume comes from; only sources that decide something are kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VolumeSource {
    /// A PersistentVolumeClaim of the pod's namespace.
    Claim {
        /// Name of the claim.
        name: String,
        /// Mounted read-only.
        read_only: bool,
    },
    /// A generic ephemeral volume; its claim is named `<pod>-<volume>`. With what the claim is made from, where that was
    /// read.
    Ephemeral(Option<Box<VolumeClaimTemplate>>),
    /// An inline CSI volume.
    Csi {
        /// Driver name.
        driver: String,
    },
    /// A GCE persistent disk.
    GcePersistentDisk {
        /// Disk name.
        name: String,
        /// Mounted read-only.
        read_only: bool,
    },
    /// An AWS EBS volume.
    AwsElasticBlockStore {
        /// Volume id.
        id: String,
        /// Mounted read-only.
        read_only: bool,
    },
    /// An iSCSI target.
    Iscsi {
        /// Qualified name of the target.
        iqn: String,
        /// Mounted read-only.
        read_only: bool,
    },
    /// A RADOS block device.
    Rbd {
        /// Monitors.
        monitors: Vec<String>,
        /// Pool, `rbd` when not given.
        pool: String,
        /// Image.
        image: String,
        /// Mounted read-only.
        read_only: bool,
    },
    /// The content of an image.
    Image {
        /// Image reference as written.
        reference: String,
    },
}

/// A volume of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume {
    /// Name, unique in the pod.
    pub name: String,
    /// Source.
    pub source: VolumeSource,
}

/// Where a pod's device claim comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodClaimSource {
    /// A ResourceClaim of this name.
    Claim(String),
    /// A claim generated from a ResourceClaimTemplate of this name.
    Template(String),
}

/// A device claim of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodResourceClaim {
    /// Name, unique in the pod.
    pub name: String,
    /// Source.
    pub source: PodClaimSource,
}

/// The scheduling-relevant part of a pod spec or template.
///
/// Two pods with equal `PodSpec`, labels and namespace have the same *shape*.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSpec {
    /// Node the pod is bound to; empty while pending.
    pub node_name: String,
    /// Name of the profile.
    pub scheduler_name: String,
    /// Resolved priority.
    pub priority: i32,
    /// Name of the PriorityClass, possibly empty.
    pub priority_class_name: String,
    /// Whether it may preempt.
    pub preemption_policy: PreemptionPolicy,
    /// Labels a node must have.
    pub node_selector: StringMap,
    /// Affinities.
    pub affinity: Affinity,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Spread constraints.
    pub spread: Vec<SpreadConstraint>,
    /// App containers.
    pub containers: Vec<Container>,
    /// Init containers and sidecars, in order.
    pub init_containers: Vec<Container>,
    /// Overhead of the runtime class.
    pub overhead: Resources,
    /// RuntimeClass name, possibly empty.
    pub runtime_class_name: String,
    /// Pod-level requests, if set.
    pub pod_requests: Option<Resources>,
    /// Pod-level limits, if set.
    pub pod_limits: Option<Resources>,
    /// Names of scheduling gates.
    pub scheduling_gates: Vec<String>,
    /// Whether the pod uses the host's network.
    pub host_network: bool,
    /// `hostUsers`: `Some(false)` asks for a user namespace of its own.
    pub host_users: Option<bool>,
    /// Volumes whose source decides something.
    pub volumes: Vec<Volume>,
    /// Device claims.
    pub resource_claims: Vec<PodResourceClaim>,
}

/// Phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not all containers started yet.
    #[default]
    Pending,
    /// Running.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one badly.
    Failed,
}

impl Phase {
    /// Whether the pod has ended and uses nothing any more.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A pod condition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodCondition {
    /// Type, for example `PodScheduled`.
    pub kind: String,
    /// Whether the status is `True`.
    pub is_true: bool,
    /// Reason.
    pub reason: String,
}

/// Resources of a container as the kubelet reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerStatus {
    /// Container name.
    pub name: String,
    /// `allocatedResources`, if reported.
    pub allocated: Option<Resources>,
    /// `resources.requests`, if `resources` are reported.
    pub actuated: Option<Resources>,
}

/// The scheduling-relevant part of a pod's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodStatus {
    /// Phase.
    pub phase: Phase,
    /// Node chosen by a preemption, possibly empty.
    pub nominated_node_name: String,
    /// When the kubelet accepted it.
    pub start_time: Option<Time>,
    /// Conditions that decide something.
    pub conditions: Vec<PodCondition>,
    /// App containers' and init containers' resources.
    pub containers: Vec<ContainerStatus>,
    /// Pod-level `allocatedResources`, if reported.
    pub allocated: Option<Resources>,
    /// Pod-level `resources.requests`, if `resources` are reported.
    pub actuated: Option<Resources>,
    /// Names of generated device claims: (name in the pod, claim; `None`: none is needed).
    pub claim_statuses: Vec<(String, Option<String>)>,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// UID, the identity of a pod.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: StringMap,
    /// Owners.
    pub owners: Vec<OwnerRef>,
    /// Creation time.
    pub creation_time: Time,
    /// `metadata.generation`; 0: API servers before 1.33 count none.
    pub generation: i64,
    /// Workload it was admitted with (annotation `kueue.x-k8s.io/workload`), of elastic jobs the first slice (annotation
    /// `workload-slice-name`); possibly empty.
    pub workload: String,
    /// Podset of that workload (label `kueue.x-k8s.io/podset`), possibly empty.
    pub pod_set: String,
    /// PodGroup it belongs to (`spec.schedulingGroup.podGroupName`), empty for none. Not part of the spec here:
    /// pods of different groups are alike otherwise.
    pub group: String,
    /// Whether it has an annotation of Kueue's that asks for a topology.
    pub topology_aware: bool,
    /// Whether deletion has been asked for.
    pub deleting: bool,
    /// Scheduling-relevant spec.
    pub spec: PodSpec,
    /// Scheduling-relevant status.
    pub status: PodStatus,
    /// The whole object, for plugins that hand it on; `None`: it is not kept.
    pub encoded: Option<EncodedObject>,
}
