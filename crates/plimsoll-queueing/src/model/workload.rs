//! Workloads: what they ask for, and their status.

use super::amounts::Amounts;
use super::shared_list::SharedList;
use plimsoll_state::model::{PodSpec, StringMap, Toleration, WorkloadKey};
use plimsoll_state::time::Time;

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

/// The podsets of a workload, shared by all workloads that have equal ones.
pub type PodSets = SharedList<PodSet>;

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
    /// Type, one of [`crate::cond`] where queueing cares.
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
    pub resource_usage: Amounts,
    /// Number of pods admitted.
    pub count: i32,
    /// Placement, for topology aware flavors.
    pub topology: Option<TopologyAssignment>,
    /// `delayedTopologyRequest`.
    pub delayed: Option<Delayed>,
    /// `reclaimTargetCount`: to how many pods the job is asked to shrink (Kueue KEP-975).
    pub reclaim_target: Option<i32>,
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

/// Reason of the condition Finished of a slice whose replacement was admitted (Kueue KEP-77).
pub(crate) const REPLACED: &str = "WorkloadSliceReplaced";

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
    pub resource_requests: Vec<(String, Amounts)>,
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
    /// Whether the workload ended because another slice replaced it, which tells nothing about the end of its job.
    pub(crate) fn was_replaced(&self) -> bool {
        self.condition(crate::cond::FINISHED).is_some_and(|c| c.status && c.reason == REPLACED)
    }

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
    /// Whether it may be asked to shrink instead of being preempted (annotation `partial-preemption`, Kueue KEP-975).
    pub partial_preemption: bool,
    /// The workload that this one takes the place of (annotation `workload-slice-replacement-for`, Kueue KEP-77).
    pub replaces: Option<WorkloadKey>,
    /// The first slice of its elastic job, whose name all pods of the job bear (annotation `workload-slice-name`); empty: none.
    pub first_slice: String,
    /// Whether variants are admitted in its place, one for each flavor (label `concurrent-admission-parent`, Kueue KEP-8691).
    pub has_variants: bool,
    /// UID of the workload of which it is a variant, possibly empty.
    pub variant_of: String,
    /// The flavors that it may get (annotation `workload-allowed-resource-flavors`); `None`: all.
    pub allowed_flavors: Option<Vec<String>>,
    /// Names of the gates that keep it from preempting others while they are closed (`spec.preemptionGates`).
    pub preemption_gates: Vec<String>,
    /// Labels of the object, for rules of PreemptionConfigs; empty while the gate is off.
    pub labels: StringMap,
    /// Name of its priority class, possibly empty; for metrics and rules of PreemptionConfigs.
    pub priority_class: String,
    /// LocalQueue, possibly empty.
    pub queue: String,
    /// Values of the custom labels of metrics that count it ([`crate::Config::custom_labels`]).
    pub metric_labels: Vec<String>,
    /// `spec.active`.
    pub active: bool,
    /// `spec.maximumExecutionTimeSeconds`.
    pub max_execution_seconds: Option<i32>,
    /// Podsets.
    pub pod_sets: PodSets,
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
    /// The workload whose name its pods bear: that of the first slice, or its own.
    pub fn borne_by_pods(&self) -> WorkloadKey {
        let first = Some(&self.first_slice).filter(|f| !f.is_empty());
        WorkloadKey { namespace: self.key.namespace.clone(), name: first.unwrap_or(&self.key.name).clone() }
    }

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
