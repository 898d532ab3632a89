//! Kueue's objects as the engine knows them: parsed, defaulted, without what decides nothing.

mod amounts;
mod preemption_config;
mod shared_list;
mod workload;

pub use amounts::Amounts;
pub(crate) use preemption_config::PreemptorKey;
pub use preemption_config::{
    NumericComparison, NumericLabel, PreemptionCandidates, PreemptionConfig, PreemptionRule, PreemptionScope,
    PreemptionTrigger, PriorityClassNames, PriorityComparison,
};
pub(crate) use workload::REPLACED;
pub use workload::{
    Admission, AdmissionCheckState, CheckState, Condition, Delayed, Dependency, EvictionCount, Outcome,
    PodSet, PodSetAssignment, PodSetUpdate, PodSets, PreemptionGateState, ReclaimablePod, RequeueState,
    TargetKind, TopologyAssignment, TopologyRequest, Workload, WorkloadStatus,
};

pub use plimsoll_state::model::WorkloadKey;
use plimsoll_state::model::{LabelSelector, Node, Resources, StringMap, Taint, Toleration};
use plimsoll_state::time::Time;

/// Whether a queue takes and keeps workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopPolicy {
    /// Works.
    #[default]
    None,
    /// No new reservations.
    Hold,
    /// No new reservations, and the present ones are evicted.
    HoldAndDrain,
}

/// Order and requeueing in a ClusterQueue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueingStrategy {
    /// A workload that doesn't fit is inadmissible, and others go first.
    #[default]
    BestEffortFifo,
    /// A workload that doesn't fit blocks the queue.
    StrictFifo,
}

/// Quota of one resource of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceQuota {
    /// Resource name.
    pub resource: String,
    /// Guaranteed amount, at least 0.
    pub nominal: i64,
    /// How much may be borrowed; `None`: everything.
    pub borrowing_limit: Option<i64>,
    /// How much may be lent; `None`: everything.
    pub lending_limit: Option<i64>,
}

/// Quotas of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// Flavor name.
    pub flavor: String,
    /// One entry per covered resource, in that order.
    pub resources: Vec<ResourceQuota>,
}

/// Resources that are given out together, and the flavors they come in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceGroup {
    /// Resource names.
    pub covered: Vec<String>,
    /// Flavors in the order in which they are tried.
    pub flavors: Vec<FlavorQuotas>,
}

/// Which of two flavors is better when neither simply fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlavorPreference {
    /// Rather borrow.
    #[default]
    BorrowingOverPreemption,
    /// Rather preempt.
    PreemptionOverBorrowing,
}

/// When the search among flavors stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlavorFungibility {
    /// `whenCanBorrow: TryNextFlavor`; default false (`MayStopSearch`).
    pub try_next_when_can_borrow: bool,
    /// `whenCanPreempt: TryNextFlavor`, the default.
    pub try_next_when_can_preempt: bool,
    /// Preference between the rest.
    pub preference: FlavorPreference,
}

impl Default for FlavorFungibility {
    fn default() -> Self {
        Self {
            try_next_when_can_borrow: false,
            try_next_when_can_preempt: true,
            preference: FlavorPreference::default(),
        }
    }
}

/// Preemption of others while borrowing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BorrowWithinCohort {
    /// `policy: LowerPriority`; default `Never`.
    pub lower_priority: bool,
    /// Only workloads up to this priority.
    pub max_priority_threshold: Option<i32>,
}

/// Which workloads may be preempted (Kueue `PreemptionPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionPolicy {
    /// None.
    #[default]
    Never,
    /// Those of lower priority.
    LowerPriority,
    /// Those of lower priority, and those of equal priority that were queued later.
    LowerOrNewerEqualPriority,
    /// All.
    Any,
}

/// Which workloads a ClusterQueue may preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptionRules {
    /// In its cohort: `Never`, `LowerPriority` or `Any`.
    pub reclaim_within_cohort: PreemptionPolicy,
    /// In itself: `Never`, `LowerPriority` or `LowerOrNewerEqualPriority`.
    pub within_cluster_queue: PreemptionPolicy,
    /// In its cohort while borrowing.
    pub borrow_within_cohort: BorrowWithinCohort,
}

/// How workloads that are admitted by variants move between flavors (`spec.concurrentAdmissionPolicy.migration`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlavorMigration {
    /// `mode: RetainFirstAdmission`; default `TryPreferredFlavors`.
    pub retains_first: bool,
    /// The last of the flavors to which an admitted workload moves; `None`: every one that is before its own.
    pub last_acceptable: Option<String>,
}

/// Why the leader of a shard admits nothing in a tree of cohorts that it knows (`docs/scale.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardStop {
    /// Objects of the tree have the labels of several shards: these, and objects that have them.
    Conflict(String),
    /// The tree is to be given to another shard. Until then loans end here.
    Leaves(String),
    /// Not all of the tree is led by this shard, or not everything was seen yet.
    Waits(String),
}

/// A ClusterQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterQueue {
    /// Name.
    pub name: String,
    /// `metadata.generation`, for `observedGeneration`.
    pub generation: i64,
    /// Cohort, possibly empty.
    pub cohort: String,
    /// Values of the custom labels of its metrics ([`crate::Config::custom_labels`]).
    pub metric_labels: Vec<String>,
    /// Quotas.
    pub resource_groups: Vec<ResourceGroup>,
    /// Order and requeueing.
    pub strategy: QueueingStrategy,
    /// `None` matches no namespace.
    pub namespace_selector: Option<LabelSelector>,
    /// When the search among flavors stops.
    pub fungibility: FlavorFungibility,
    /// Whom it may preempt.
    pub preemption: PreemptionRules,
    /// Whether it is stopped.
    pub stop_policy: StopPolicy,
    /// Admission checks: (name, flavors; none means all).
    pub admission_checks: Vec<(String, Vec<String>)>,
    /// `spec.fairSharing.weight` in nano-units (1.0 = 10^9).
    pub fair_weight_nano: i64,
    /// `admissionMode: UsageBasedAdmissionFairSharing`.
    pub admission_fair_sharing: bool,
    /// `spec.concurrentAdmissionPolicy`: workloads are admitted by variants.
    pub concurrent_admission: Option<FlavorMigration>,
    /// Name of its PreemptionConfig (annotation `preemption-config-name`, Kueue KEP-13396), possibly empty; empty while the gate
    /// is off.
    pub preemption_config: String,
    /// Labels of the object.
    pub labels: StringMap,
    /// Why the shard of this process admits nothing in its tree of cohorts; `None`: it does.
    pub shard_stop: Option<ShardStop>,
    /// Whether deletion has been asked for.
    pub deleting: bool,
}

/// A Cohort.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cohort {
    /// Name.
    pub name: String,
    /// Parent, possibly empty.
    pub parent: String,
    /// Quota owned by the cohort itself.
    pub resource_groups: Vec<ResourceGroup>,
    /// `spec.fairSharing.weight` in nano-units (1.0 = 10^9).
    pub fair_weight_nano: i64,
    /// Values of the custom labels of its metrics ([`crate::Config::custom_labels`]).
    pub metric_labels: Vec<String>,
    /// Why the shard of this process admits nothing in its tree; `None`: it does.
    pub shard_stop: Option<ShardStop>,
}

/// A LocalQueue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalQueue {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its ClusterQueue.
    pub cluster_queue: String,
    /// Whether it is stopped.
    pub stop_policy: StopPolicy,
    /// `spec.fairSharing.weight` in nano-units (1.0 = 10^9).
    pub fair_weight_nano: i64,
    /// `status.fairSharing.admissionFairSharingStatus.consumedResources` in nano-units, and its time.
    pub consumed: Option<(Vec<(String, i128)>, Time)>,
    /// Labels of the object.
    pub labels: StringMap,
    /// Values of the custom labels of its metrics ([`crate::Config::custom_labels`]).
    pub metric_labels: Vec<String>,
    /// Whether deletion has been asked for.
    pub deleting: bool,
}

/// A ResourceFlavor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceFlavor {
    /// Name.
    pub name: String,
    /// Labels of its nodes.
    pub node_labels: StringMap,
    /// Taints of its nodes.
    pub node_taints: Vec<Taint>,
    /// Tolerations given to its pods.
    pub tolerations: Vec<Toleration>,
    /// Topology, possibly empty.
    pub topology: String,
    /// Labels of the object.
    pub labels: StringMap,
    /// Whether a cluster autoscaler adds nodes of it for pods that have none (annotation `plimsoll.dev/autoscaled`).
    pub autoscaled: bool,
    /// A node as the autoscaler adds them, with labels and taints of the flavor (annotation `plimsoll.dev/node-template`); `None`:
    /// it is not known what they look like.
    pub new_node: Option<Box<Node>>,
}

/// A LimitRange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitRange {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Limits of whole pods.
    pub pod: Option<LimitRangeItem>,
    /// Limits of each container.
    pub container: Option<LimitRangeItem>,
}

/// Limits of one type in a LimitRange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitRangeItem {
    /// Requests and limits must not be above.
    pub max: Resources,
    /// Requests and limits must not be below.
    pub min: Resources,
    /// Limits where none are given.
    pub default: Resources,
    /// Requests where none are given.
    pub default_request: Resources,
}

/// An AdmissionCheck.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionCheck {
    /// Name.
    pub name: String,
    /// Controller that answers it.
    pub controller: String,
    /// Whether its condition `Active` is `True`.
    pub active: bool,
}

/// A Topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Name.
    pub name: String,
    /// Node labels, coarse to fine.
    pub levels: Vec<String>,
}
