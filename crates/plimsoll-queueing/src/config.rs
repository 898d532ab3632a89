//! Configuration of queueing: the parts of Kueue's configuration file that decide something.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::policy::WorkloadPolicy;
use plimsoll_state::DeviceSelector;
use plimsoll_state::model::LabelSelector;
use plimsoll_state::time::Duration;

/// Configuration of queueing.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Fair sharing between ClusterQueues of a cohort; `None`: off.
    pub fair_sharing: Option<FairSharing>,
    /// Fair sharing between LocalQueues of a ClusterQueue; `None`: off.
    pub admission_fair_sharing: Option<AdmissionFairSharing>,
    /// Resource name prefixes that are not counted.
    pub exclude_resource_prefixes: Vec<String>,
    /// Resources counted as others, at most one entry per input.
    pub transformations: Vec<Transformation>,
    /// `quotaCheckStrategy: IgnoreUndeclared`: resources that a ClusterQueue doesn't cover are not counted.
    pub ignore_undeclared: bool,
    /// `requeuingStrategy.timestamp: Creation`: a workload evicted because its pods were not ready keeps
    /// its place by creation time.
    pub order_by_creation: bool,
    /// Supervision of pod readiness; `None`: off.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// Mapping from DeviceClass to quota resource (`resources.deviceClassMappings`).
    pub device_mappings: Vec<DeviceMapping>,
    /// Evaluates device selectors; without one, claims with selectors can't be charged.
    pub device_selector: Option<Arc<dyn DeviceSelector>>,
    /// Whether nodes are watched for failures, as Kueue's node controller does: all nodes, and all pods of admitted
    /// workloads, are known before anything is decided.
    pub watch_nodes: bool,
    /// Least time between two writes of why the same workload waits: where the reason changes with everything that
    /// happens, or alternates between flavors, the latest is written then. Zero, as in Kueue: none.
    pub explain_every: Duration,
    /// Joint admission: how many pods may be placed past a workload that waits for nodes before it claims some, as a multiple of
    /// its own pods; those of a lower priority count that many times. Zero: it claims them at once. [`OVERTAKING`] unless
    /// there is a reason.
    pub overtaking: usize,
    /// LocalQueues with metrics.
    pub local_queue_metrics: LocalQueueMetrics,
    /// Labels that metrics have besides Kueue's.
    pub custom_labels: Vec<CustomLabel>,
    /// Feature gates that decide something.
    pub gates: Gates,
    /// This process leads a shard of the cluster, and is told of its trees of cohorts only: of a QuotaLoan it takes the side of cohorts
    /// that it knows. Without it, it leads all trees, and a cohort that it does not know does not exist.
    pub shard: bool,
    /// Rules about workloads; `None`: Kueue's alone.
    pub policy: Option<Arc<dyn WorkloadPolicy>>,
}

/// The usual [`Config::overtaking`]: with it gangs rarely have to claim nodes, and none starves.
pub const OVERTAKING: usize = 4;

/// The usual [`Config::explain_every`].
pub const EXPLAIN_EVERY: Duration = Duration::from_seconds(1);

/// Which LocalQueues have metrics (`metrics.localQueueMetrics`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LocalQueueMetrics {
    /// All.
    #[default]
    All,
    /// Those with these labels.
    Matching(LabelSelector),
    /// None.
    Disabled,
}

/// A label of metrics whose value an object has in its metadata (`metrics.customLabels`, Kueue KEP-7066).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomLabel {
    /// Name, to which `custom_` is prepended.
    pub name: String,
    /// The kind of object.
    pub source: LabelSource,
    /// Whether the value is an annotation, and not a label.
    pub annotation: bool,
    /// Key of the label or annotation.
    pub key: String,
    /// Values that are told apart; empty: all.
    pub tracked: Vec<String>,
}

/// The kind of object that a custom label is about, in the order in which metrics have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LabelSource {
    /// A ClusterQueue.
    ClusterQueue,
    /// A cohort.
    Cohort,
    /// A LocalQueue.
    LocalQueue,
    /// A Workload.
    Workload,
}

/// Stands for values that are not told apart.
const UNTRACKED: &str = "kueue.x-k8s.io/_UNTRACKED_VALUE_";

impl CustomLabel {
    /// The label's value for an object that has this under the key; nothing is the empty string.
    pub fn value(&self, found: Option<&str>) -> String {
        let value = found.unwrap_or_default();
        if self.tracked.is_empty() || self.tracked.iter().any(|t| t == value) {
            value.replace(char::is_control, " ")
        } else {
            UNTRACKED.to_owned()
        }
    }
}

impl Config {
    /// That of `plimsoll run` without a file, which is what benchmarks measure: Kueue's defaults, and Plimsoll's own.
    pub fn usual() -> Self {
        Self {
            wait_for_pods_ready: Some(WaitForPodsReady::default()),
            watch_nodes: true,
            explain_every: EXPLAIN_EVERY,
            overtaking: OVERTAKING,
            ..Self::default()
        }
    }

    /// Whether no workload is admitted while the pods of another one are awaited.
    pub(crate) fn blocks_admission(&self) -> bool {
        self.wait_for_pods_ready.as_ref().is_some_and(|w| w.block_admission)
    }

    /// Resources that count counters or capacities of devices: bytes, so that their amounts are written in binary form
    /// (Kueue `CounterBasedResourceNames`, `CapacityBasedResourceNames`).
    pub fn byte_counters(&self) -> impl Iterator<Item = &str> {
        let on = self.gates.device_quota;
        let has_sources = |m: &&DeviceMapping| !m.counters.is_empty() || !m.capacities.is_empty();
        self.device_mappings.iter().filter(move |m| on && has_sources(m)).map(|m| &*m.resource)
    }

    /// Whether the resource is one of [`Config::byte_counters`].
    pub(crate) fn counts_bytes(&self, resource: &str) -> bool {
        self.byte_counters().any(|r| r == resource)
    }
}

/// Counts devices of some classes as a resource (Kueue KEP-2941).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceMapping {
    /// The resource.
    pub resource: String,
    /// DeviceClasses.
    pub classes: Vec<String>,
    /// Counters whose amounts count instead of the number of devices.
    pub counters: Vec<DeviceSource>,
    /// Capacities whose shares count instead of the number of devices.
    pub capacities: Vec<DeviceSource>,
}

/// A counter of partitionable devices, or a capacity of devices that are shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSource {
    /// Name of the counter, in any counter set; or of the capacity.
    pub name: String,
    /// Driver that publishes the devices.
    pub driver: String,
    /// CEL expression for the devices that count.
    pub selector: String,
}

/// A rule that must hold for a preemption under fair sharing (Kueue KEP-1714).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairStrategy {
    /// The preemptor's share with the workload is at most the victim's without it.
    LessThanOrEqualToFinalShare,
    /// The preemptor's share with the workload is less than the victim's now.
    LessThanInitialShare,
}

/// Fair sharing between ClusterQueues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairSharing {
    /// Rules, tried in this order; one or two.
    pub strategies: Vec<FairStrategy>,
}

impl Default for FairSharing {
    fn default() -> Self {
        Self {
            strategies: vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare],
        }
    }
}

/// Fair sharing between LocalQueues (Kueue KEP-4136).
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionFairSharing {
    /// Time after which past usage counts half; zero: past usage is forgotten at once.
    pub half_life: Duration,
    /// How often usage is sampled.
    pub sampling: Duration,
    /// Weight per resource; 1 where missing.
    pub weights: BTreeMap<String, f64>,
}

/// Counts one resource as others (Kueue KEP-2937).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transformation {
    /// Resource in the pod spec.
    pub input: String,
    /// `strategy: Replace`: the input itself is not counted.
    pub replace: bool,
    /// The input is first multiplied by this other resource of the pod, if the pod asks for it.
    pub multiply_by: Option<String>,
    /// Outputs and their factor in billionths.
    pub outputs: Vec<(String, i128)>,
}

/// Supervision of pod readiness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitForPodsReady {
    /// How long pods may take to get ready after admission.
    pub timeout: Duration,
    /// How long they may take to get ready again; `None`: for ever.
    pub recovery_timeout: Option<Duration>,
    /// No workload is admitted while an admitted one is not ready.
    pub block_admission: bool,
    /// After this many requeues the workload is deactivated; `None`: never.
    pub backoff_limit: Option<i32>,
    /// Wait before the first requeue.
    pub backoff_base: Duration,
    /// Longest wait before a requeue.
    pub backoff_max: Duration,
}

impl Default for WaitForPodsReady {
    /// Kueue's without a configuration file (`defaults.go`).
    fn default() -> Self {
        let timeout = Duration::from_seconds(1800);
        Self {
            timeout,
            recovery_timeout: Some(timeout),
            block_admission: false,
            backoff_limit: None,
            backoff_base: Duration::from_seconds(60),
            backoff_max: Duration::from_seconds(3600),
        }
    }
}

/// Feature gates that decide something in queueing, by Kueue's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `PartialAdmission`.
    pub partial_admission: bool,
    /// `FlavorFungibility`.
    pub flavor_fungibility: bool,
    /// `FlavorFungibilityPreserveScanProgress`.
    pub preserve_scan_progress: bool,
    /// `PrioritySortingWithinCohort`.
    pub priority_sorting_within_cohort: bool,
    /// `SchedulingEquivalenceHashing`.
    pub equivalence_hashing: bool,
    /// `RecomputeAssignmentUponPreemptionTargetsOverlap`.
    pub recompute_on_overlap: bool,
    /// `FairSharingPreemptWithinNominal`.
    pub fair_preempt_within_nominal: bool,
    /// `FairSharingPrioritizeNonBorrowing`.
    pub fair_prioritize_non_borrowing: bool,
    /// `FairSharingReevaluatePreemptionCandidates`: once own workloads are taken, candidates of other queues are looked at again.
    pub fair_reevaluate: bool,
    /// `UnadmittedWorkloadsExplicitStatus`.
    pub explicit_status: bool,
    /// `ReclaimablePods`.
    pub reclaimable_pods: bool,
    /// `TopologyAwareScheduling`.
    pub topology: bool,
    /// `TASProfileMixed`.
    pub tas_profile_mixed: bool,
    /// `TASRecomputeAssignmentWithinSchedulingCycle`.
    pub tas_recompute: bool,
    /// `TASFailedNodeReplacement`.
    pub replace_nodes: bool,
    /// `TASFailedNodeReplacementFailFast`.
    pub replace_fail_fast: bool,
    /// `TASReplaceNodeOnPodTermination`.
    pub replace_on_pod_termination: bool,
    /// `TASReplaceNodeOnNodeTaints`.
    pub replace_on_taints: bool,
    /// `TASReplaceNodeDueToNotReadyOverFixedTime`.
    pub replace_after_fixed_time: bool,
    /// `SkipReassignmentForPodOwnedWorkloads`.
    pub skip_reassignment_for_pods: bool,
    /// `TASRespectNodeAffinityPreferred`.
    pub tas_preferred_affinity: bool,
    /// `TASBalancedPlacement`.
    pub tas_balanced: bool,
    /// `SchedulerLibraryIntegration`: kube-scheduler's filters choose the nodes of a topology.
    pub scheduler_library: bool,
    /// `PrioritizePreemptorWorkloads`.
    pub prioritize_preemptors: bool,
    /// `ElasticJobsViaWorkloadSlices`.
    pub elastic_jobs: bool,
    /// `ElasticJobsViaWorkloadSlicesWithPartialReplicaScaleUp`: a slice that does not fit as a whole gets fewer pods.
    pub partial_scale_up: bool,
    /// `PartialPreemption`: workloads that allow it are asked to shrink instead of being preempted.
    pub partial_preemption: bool,
    /// `PriorityBoost`.
    pub priority_boost: bool,
    /// `MultiKueueOrchestratedPreemption`: preemption gates count, and each has a state.
    pub preemption_gates: bool,
    /// `ConcurrentAdmission`: variants and their preemption gates count.
    pub concurrent_admission: bool,
    /// `KueueDRAIntegration`: claims for devices count.
    pub device_quota: bool,
    /// `KueueDRARejectWorkloadsWhenDRADisabled`: with claims and without that, workloads wait.
    pub device_refusal: bool,
    /// `KueueDRAIntegrationExtendedResource`.
    pub device_extended: bool,
    /// `KueueDRAIntegrationPartitionableDevices`.
    pub device_counters: bool,
    /// `KueueDRAIntegrationConsumableCapacity`.
    pub device_capacities: bool,
    /// `ConfigurablePreemptions`: rules of PreemptionConfigs add candidates.
    pub configurable_preemptions: bool,
}

impl Default for Gates {
    /// Kueue's defaults (`pkg/features/kube_features.go`).
    fn default() -> Self {
        Self {
            partial_admission: true,
            flavor_fungibility: true,
            preserve_scan_progress: true,
            priority_sorting_within_cohort: true,
            equivalence_hashing: true,
            recompute_on_overlap: true,
            fair_preempt_within_nominal: true,
            fair_prioritize_non_borrowing: true,
            fair_reevaluate: false,
            explicit_status: false,
            reclaimable_pods: true,
            topology: true,
            tas_profile_mixed: true,
            tas_recompute: true,
            replace_nodes: true,
            replace_fail_fast: true,
            replace_on_pod_termination: true,
            replace_on_taints: true,
            replace_after_fixed_time: false,
            skip_reassignment_for_pods: true,
            tas_preferred_affinity: false,
            tas_balanced: false,
            scheduler_library: false,
            prioritize_preemptors: false,
            elastic_jobs: true,
            partial_scale_up: false,
            partial_preemption: false,
            priority_boost: false,
            preemption_gates: false,
            concurrent_admission: false,
            device_quota: true,
            device_refusal: true,
            device_extended: true,
            device_counters: true,
            device_capacities: false,
            configurable_preemptions: false,
        }
    }
}
