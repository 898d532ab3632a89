//! Kueue's objects as the engine knows them: parsed, defaulted, without what decides nothing.

use plimsoll_state::model::{LabelSelector, PodSpec, Resources, StringMap, Taint, Toleration};
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
    /// What doesn't fit is parked and others go first.
    #[default]
    BestEffortFifo,
    /// What doesn't fit blocks the queue.
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

/// Whom a ClusterQueue may preempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreemptionRules {
    /// In its cohort: 0 `Never`, 1 `LowerPriority`, 2 `Any`.
    pub reclaim_within_cohort: u8,
    /// In itself: 0 `Never`, 1 `LowerPriority`, 2 `LowerOrNewerEqualPriority`.
    pub within_cluster_queue: u8,
    /// In its cohort while borrowing.
    pub borrow_within_cohort: BorrowWithinCohort,
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
    /// Labels of the object.
    pub labels: StringMap,
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
}

/// Namespace and name of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl std::fmt::Display for WorkloadKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a podset wants of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TopologyRequest {
    /// All pods in one domain of this level.
    pub required: Option<String>,
    /// Preferably in one domain of this level.
    pub preferred: Option<String>,
    /// Anywhere.
    pub unconstrained: bool,
    /// Podsets with the same group name are placed together.
    pub group: Option<String>,
    /// Slice layers, coarse to fine: (level, pods per slice).
    pub slices: Vec<(String, i32)>,
}

/// Equal pods of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodSet {
    /// Name.
    pub name: String,
    /// How many.
    pub count: i32,
    /// Fewer are acceptable down to this.
    pub min_count: Option<i32>,
    /// Scheduling-relevant part of the pod template.
    pub spec: PodSpec,
    /// Labels of the pod template.
    pub labels: StringMap,
    /// Topology request.
    pub topology: Option<TopologyRequest>,
}

/// A condition of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Condition {
    /// Type, one of [`super::cond`] where queueing cares.
    pub kind: String,
    /// Whether the status is `True`.
    pub status: bool,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// When the status last changed.
    pub transition: Time,
    /// Generation of the object it speaks of; 0: unknown.
    pub observed_generation: i64,
}

/// Finished pods whose quota is free again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReclaimablePod {
    /// Podset.
    pub name: String,
    /// How many.
    pub count: i32,
}

/// When a workload may be queued again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequeueState {
    /// How often it was requeued.
    pub count: i32,
    /// Not before this time.
    pub requeue_at: Option<Time>,
}

/// A placement: pods per topology domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyAssignment {
    /// Node labels of the levels stored, coarse to fine.
    pub levels: Vec<String>,
    /// Values of those labels and the number of pods there, sorted by values.
    pub domains: Vec<(Vec<String>, i32)>,
}

/// Where a placement is that had to wait for admission checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delayed {
    /// It is to be found once all checks are ready.
    Pending,
    /// It was found.
    Ready,
}

/// What a podset got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetAssignment {
    /// Podset.
    pub name: String,
    /// Flavor by resource, sorted by resource.
    pub flavors: Vec<(String, String)>,
    /// Total for the podset.
    pub resource_usage: Resources,
    /// Number of pods admitted.
    pub count: i32,
    /// Placement, for topology aware flavors.
    pub topology: Option<TopologyAssignment>,
    /// `delayedTopologyRequest`.
    pub delayed: Option<Delayed>,
}

/// `status.admission`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// ClusterQueue that gave the quota.
    pub cluster_queue: String,
    /// One entry per podset, in that order.
    pub assignments: Vec<PodSetAssignment>,
}

/// State of an admission check of a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckState {
    /// Not answered yet.
    #[default]
    Pending,
    /// Passed.
    Ready,
    /// Failed for now; the workload goes back to the queue.
    Retry,
    /// Failed for good.
    Rejected,
}

impl CheckState {
    /// As in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Ready => "Ready",
            Self::Retry => "Retry",
            Self::Rejected => "Rejected",
        }
    }
}

/// An entry of `status.admissionChecks`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionCheckState {
    /// Name of the check.
    pub name: String,
    /// Its answer.
    pub state: CheckState,
    /// Its words.
    pub message: String,
    /// When the state last changed.
    pub transition: Time,
    /// Seconds to wait before the next try, for `Retry`.
    pub requeue_after_seconds: Option<i32>,
    /// How often it answered `Retry`.
    pub retry_count: Option<i32>,
    /// What it wants changed in the pods, as far as that decides where they may run.
    pub updates: Vec<PodSetUpdate>,
}

/// An entry of `podSetUpdates` of an admission check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSetUpdate {
    /// Podset.
    pub name: String,
    /// Added to its node selector.
    pub node_selector: StringMap,
    /// Added to its tolerations.
    pub tolerations: Vec<Toleration>,
}

/// An entry of `status.schedulingStats.evictions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionCount {
    /// Reason of the evictions.
    pub reason: String,
    /// Underlying cause, possibly empty.
    pub cause: String,
    /// How many.
    pub count: i32,
}

/// The status of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadStatus {
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// The reservation.
    pub admission: Option<Box<Admission>>,
    /// Pods that are done.
    pub reclaimable: Vec<ReclaimablePod>,
    /// When it may be queued again.
    pub requeue_state: Option<RequeueState>,
    /// Admission checks.
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What the last attempt computed: (podset, amounts).
    pub resource_requests: Vec<(String, Resources)>,
    /// How often it was evicted, by reason.
    pub evictions: Vec<EvictionCount>,
    /// Seconds it was admitted before the present admission.
    pub past_execution_seconds: Option<i32>,
    /// Nodes of its placement that have to be replaced.
    pub unhealthy_nodes: Vec<String>,
    /// Where its preemption gates are.
    pub preemption_gates: Vec<PreemptionGateState>,
}

/// An entry of `status.preemptionGates`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreemptionGateState {
    /// Name of the gate.
    pub name: String,
    /// Whether it lets preemption through.
    pub open: bool,
    /// When it last moved.
    pub transition: Time,
}

impl WorkloadStatus {
    /// The condition of this type, if there.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.kind == kind)
    }

    /// Whether the condition of this type is there and `True`.
    pub fn is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|c| c.status)
    }

    /// Whether a podset still has to get its placement (Kueue KEP-2724, delayed topology).
    pub fn awaits_topology(&self) -> bool {
        let assigned = self.admission.iter().flat_map(|a| &a.assignments);
        assigned.into_iter().any(|p| p.topology.is_none() && p.delayed == Some(Delayed::Pending))
    }

    /// Whether the condition of this type is there and not `True`.
    pub fn is_false(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|c| !c.status)
    }
}

/// A Workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Namespace and name.
    pub key: WorkloadKey,
    /// UID.
    pub uid: String,
    /// `metadata.resourceVersion` as a number; 0: unknown. An older version than the last seen is ignored.
    pub version: u64,
    /// `metadata.generation`.
    pub generation: i64,
    /// Creation time.
    pub creation: Time,
    /// Label `kueue.x-k8s.io/job-uid`, possibly empty; for preemption messages.
    pub job_uid: String,
    /// Resolved priority.
    pub priority: i32,
    /// Added to the priority (annotation `priority-boost`, Kueue KEP-7990); 0 while the gate is off.
    pub priority_boost: i32,
    /// The workload that this one takes the place of (annotation `workload-slice-replacement-for`, Kueue KEP-77).
    pub replaces: Option<WorkloadKey>,
    /// Names of the gates that keep it from preempting others while they are closed (`spec.preemptionGates`).
    pub preemption_gates: Vec<String>,
    /// Name of its priority class, possibly empty; for metrics.
    pub priority_class: String,
    /// LocalQueue, possibly empty.
    pub queue: String,
    /// `spec.active`.
    pub active: bool,
    /// `spec.maximumExecutionTimeSeconds`.
    pub max_execution_seconds: Option<i32>,
    /// Podsets.
    pub pod_sets: Vec<PodSet>,
    /// The annotation `admission-gated-by`, possibly empty.
    pub admission_gated_by: String,
    /// What has to come true before it may be queued.
    pub depends_on: Vec<Dependency>,
    /// What is wrong with the annotation that lists its dependencies, possibly empty.
    pub depends_invalid: String,
    /// The RunWindow that its annotation names, possibly empty.
    pub run_window: String,
    /// Kinds and names under which others may depend on it, besides its own name.
    pub answers_to: Vec<(TargetKind, String)>,
    /// Whether a single pod owns it, and no pod group: it can't outlive that pod.
    pub single_pod: bool,
    /// Whether deletion has been asked for.
    pub deleting: bool,
    /// Status.
    pub status: WorkloadStatus,
}

impl Workload {
    /// The priority that decides: the resolved one plus the boost.
    pub fn effective_priority(&self) -> i64 {
        i64::from(self.priority) + i64::from(self.priority_boost)
    }

    /// Whether a gate keeps it from preempting others. One without a state yet is closed.
    pub fn has_closed_gate(&self) -> bool {
        let open = |name: &String| self.status.preemption_gates.iter().any(|g| g.name == *name && g.open);
        !self.preemption_gates.iter().all(open)
    }
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

/// What a dependency is called after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKind {
    /// A Job.
    Job,
    /// A plain pod.
    Pod,
    /// A pod group.
    PodGroup,
    /// A Workload.
    Workload,
}

impl TargetKind {
    /// All kinds with the word they are written with.
    pub const WORDS: [(Self, &'static str); 4] =
        [(Self::Job, "job"), (Self::Pod, "pod"), (Self::PodGroup, "podgroup"), (Self::Workload, "workload")];
}

/// What has to happen to a dependency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It finished with success.
    #[default]
    Succeeded,
    /// It finished, one way or the other.
    Finished,
    /// It finished without success.
    Failed,
    /// Its pods are ready, or it has succeeded.
    Ready,
}

impl Outcome {
    /// All outcomes with the word they are written with.
    pub const WORDS: [(Self, &'static str); 4] = [
        (Self::Succeeded, "succeeded"),
        (Self::Finished, "finished"),
        (Self::Failed, "failed"),
        (Self::Ready, "ready"),
    ];
}

/// Something in the same namespace that a workload depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependency {
    /// Kind; `None`: whatever answers to the name.
    pub kind: Option<TargetKind>,
    /// Name.
    pub name: String,
    /// Outcome.
    pub outcome: Outcome,
}

impl std::fmt::Display for Dependency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some((_, word)) = TargetKind::WORDS.iter().find(|(k, _)| Some(*k) == self.kind) {
            write!(f, "{word}/")?;
        }
        let word = Outcome::WORDS.iter().find(|(o, _)| *o == self.outcome).map_or("", |(_, w)| w);
        write!(f, "{}:{word}", self.name)
    }
}
