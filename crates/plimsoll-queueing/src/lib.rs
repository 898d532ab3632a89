//! Queueing: whether a workload may start.
//!
//! Ground state is what the API said: queues, cohorts, flavors, namespaces, workloads. Derived state is the
//! quota tree with its usage, the queues of waiting workloads, and the sets of those that hold quota.
//! A write is assumed when its action is emitted (the *effective* object); when it fails, the effective
//! object falls back to what the API reported and everything derived follows.

// Decisions are the same on every machine and after every change: no lossy conversions, no hash order, no variant that
// falls through.
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss,
        clippy::iter_over_hash_type,
        clippy::wildcard_enum_match_arm
    )
)]

mod account;
mod admission_fair_sharing;
mod amount;
mod answers;
mod bounded;
mod check;
mod concurrent_admission;
pub mod cond;
mod conditions;
mod config;
mod cycle;
mod dependencies;
mod dra;
mod due;
mod effective;
mod events;
mod explain;
mod forecast;
mod format;
mod handle;
mod ids;
mod joint;
#[cfg(test)]
mod limits_tests;
mod loans;
mod metrics;
mod model;
mod partial_preemption;
mod pending;
mod phase;
mod pod_sets;
mod policy;
mod preemption_gates;
mod preemption_rounds;
#[cfg(test)]
mod preemptor_tests;
#[cfg(test)]
mod properties;
mod quota;
mod reconcile;
mod report;
mod requests;
mod reserved_nodes;
mod rules;
mod run_windows;
mod settle;
mod simulate;
mod slices;
mod state;
mod tables;
mod tas;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tree;
mod update;
mod visibility;

pub use config::{
    AdmissionFairSharing, Config, CustomLabel, DeviceMapping, DeviceSource, EXPLAIN_EVERY, FairSharing,
    FairStrategy, Gates, LabelSource, LocalQueueMetrics, OVERTAKING, Transformation, WaitForPodsReady,
};
pub use dependencies::DEPENDENCIES_MET;
pub use dra::{ClaimCount, ClaimRequest, ClaimTemplate, QuotaDeviceClass};
pub use events::{KubernetesEvent, RecordCause, Reporter, WorkloadEvent};
pub use forecast::Forecast;
pub use joint::NodeReservations;
pub use loans::{LOAN_FINALIZER, LoanChange, LoanPhase, LoanUpdate, LoanedResource, QuotaLoan};
pub use metrics::{MetricFamily, MetricKind, MetricSample, MetricValue};
pub use model::{
    Admission, AdmissionCheck, AdmissionCheckState, Amounts, BorrowWithinCohort, CheckState, ClusterQueue,
    Cohort, Condition, Delayed, Dependency, EvictionCount, FlavorFungibility, FlavorMigration,
    FlavorPreference, FlavorQuotas, LimitRange, LimitRangeItem, LocalQueue, NumericComparison, NumericLabel,
    Outcome, PodSet, PodSetAssignment, PodSetUpdate, PodSets, PreemptionCandidates, PreemptionConfig,
    PreemptionGateState, PreemptionPolicy, PreemptionRule, PreemptionRules, PreemptionScope,
    PreemptionTrigger, PriorityClassNames, PriorityComparison, QueueingStrategy, ReclaimablePod,
    RequeueState, ResourceFlavor, ResourceGroup, ResourceQuota, ShardStop, StopPolicy, TargetKind, Topology,
    TopologyAssignment, TopologyRequest, Workload, WorkloadKey, WorkloadStatus,
};
pub use policy::{Policies, Ruling, WorkloadPolicy};
pub use report::{QueueStatus, QuotaCell, QuotaNode, ResourceUsage, Waiting};
pub use run_windows::{Calendar, Chosen, Hours, OUTSIDE, RunWindow, RunWindowStatus};
pub use update::WorkloadUpdate;
pub use visibility::{Page, PendingWorkload, QueueName};

use std::collections::BTreeMap;
use std::sync::Arc;

use bounded::Bounded;
use cycle::{SecondPasses, Strategies};
use dependencies::Dependencies;
use dra::Devices;
use due::{DueCycle, QUEUES_PER_CYCLE, Trees};
use ids::{ClusterQueueId, Ids, LocalQueueId, WorkloadId};
use loans::Loans;
use metrics::{CustomLabels, Metrics};
use pod_sets::SchedulingHashes;
use quota::QuotaReservations;
use run_windows::RunWindows;
use slices::Slices;
use state::{ClusterQueueState, LocalQueueState, WorkloadInfo};
use tables::{Dirty, JointAdmission, NamedTable, Objects, Timers, Workloads};
use tas::Tas;
use tree::{NodeId, Share, Tree};

use plimsoll_state::Answer;
use plimsoll_state::model::{Resources, StringMap};
use plimsoll_state::slab::Id;

/// Input of queueing: changes of objects, and answers to actions.
#[derive(Clone, Debug)]
pub enum Event {
    /// A ClusterQueue was seen or changed.
    ClusterQueueUpsert(Box<ClusterQueue>),
    /// The ClusterQueue of this name is gone.
    ClusterQueueDelete(String),
    /// A Cohort was seen or changed.
    CohortUpsert(Box<Cohort>),
    /// The Cohort of this name is gone; it goes on to exist implicitly while something refers to it.
    CohortDelete(String),
    /// A LocalQueue was seen or changed.
    LocalQueueUpsert(Box<LocalQueue>),
    /// The LocalQueue (namespace, name) is gone.
    LocalQueueDelete(String, String),
    /// A ResourceFlavor was seen or changed.
    ResourceFlavorUpsert(Box<ResourceFlavor>),
    /// The ResourceFlavor of this name is gone.
    ResourceFlavorDelete(String),
    /// A namespace was seen or its labels changed.
    NamespaceUpsert(String, StringMap),
    /// A namespace is gone.
    NamespaceDelete(String),
    /// A LimitRange was seen or changed.
    LimitRangeUpsert(Box<LimitRange>),
    /// The LimitRange (namespace, name) is gone.
    LimitRangeDelete(String, String),
    /// A RuntimeClass was seen or changed: name and `overhead.podFixed`.
    RuntimeClassUpsert(String, Resources),
    /// The RuntimeClass of this name is gone.
    RuntimeClassDelete(String),
    /// An AdmissionCheck was seen or changed.
    AdmissionCheckUpsert(Box<AdmissionCheck>),
    /// The AdmissionCheck of this name is gone.
    AdmissionCheckDelete(String),
    /// A Topology was seen or changed.
    TopologyUpsert(Box<Topology>),
    /// The Topology of this name is gone.
    TopologyDelete(String),
    /// A PreemptionConfig was seen or changed.
    PreemptionConfigUpsert(Box<PreemptionConfig>),
    /// The PreemptionConfig of this name is gone.
    PreemptionConfigDelete(String),
    /// A RunWindow was seen or changed.
    RunWindowUpsert(Box<RunWindow>),
    /// The RunWindow of this name is gone.
    RunWindowDelete(String),
    /// A QuotaLoan was seen or changed.
    QuotaLoanUpsert(Box<QuotaLoan>),
    /// The QuotaLoan of this name is gone.
    QuotaLoanDelete(String),
    /// A ResourceClaimTemplate was seen or changed.
    ClaimTemplateUpsert(Box<ClaimTemplate>),
    /// The ResourceClaimTemplate (namespace, name) is gone.
    ClaimTemplateDelete(String, String),
    /// A DeviceClass was seen or changed.
    DeviceClassUpsert(Box<QuotaDeviceClass>),
    /// The DeviceClass of this name is gone.
    DeviceClassDelete(String),
    /// A ResourceSlice was seen or changed.
    ResourceSliceUpsert(Box<plimsoll_state::model::ResourceSlice>),
    /// The ResourceSlice of this name is gone.
    ResourceSliceDelete(String),
    /// The rules about workloads were replaced: other plugins, or the same with another configuration.
    PolicyReplaced(Option<Arc<dyn WorkloadPolicy>>),
    /// A Workload was seen or changed.
    WorkloadUpsert(Box<Workload>),
    /// A Workload is gone.
    WorkloadDelete(WorkloadKey),
    /// The job of an evicted workload has no active pods any more: its reservation may go. Repeating it
    /// does no harm; it is ignored for a workload that is not evicted or holds nothing.
    WorkloadStopped(WorkloadKey),
    /// The same where the one pod that the workload stands for was deleted: what replaces the pod has a workload of its own.
    WorkloadEnded(WorkloadKey),
    /// A write succeeded. Optional, but without it a write that was overwritten before the watch showed
    /// it is only noticed when the engine's own view differs.
    Written {
        /// The workload.
        key: WorkloadKey,
        /// [`WorkloadUpdate::id`].
        id: u64,
        /// Version of the object after the write.
        version: u64,
    },
    /// A write failed; the engine takes it back.
    WriteFailed {
        /// The workload.
        key: WorkloadKey,
        /// [`WorkloadUpdate::id`].
        id: u64,
        /// What the API server said.
        message: String,
    },
    /// What became of [`Action::DeactivateWorkload`], [`Action::FailPod`] or [`Action::UpdateLoan`].
    Answered {
        /// The action.
        action: Box<Action>,
        /// What became of it.
        answer: Answer,
    },
}

impl Event {
    /// Whether it is about one workload, not about what all of them share.
    pub(crate) const fn is_of_workload(&self) -> bool {
        matches!(
            self,
            Self::WorkloadUpsert(_)
                | Self::WorkloadDelete(_)
                | Self::WorkloadStopped(_)
                | Self::Written { .. }
                | Self::WriteFailed { .. }
                | Self::Answered { .. }
        )
    }
}

/// Scheduling cycles by their result, as Kueue counts admission attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionAttempts {
    /// Cycles that admitted a workload.
    pub success: u64,
    /// Cycles that admitted none.
    pub inadmissible: u64,
}

impl KubernetesEvent {
    /// Whether it is recorded on the job, too: why a job is kept out of its queue that Kueue would take in, so that
    /// `kubectl describe` of the job shows it. Kueue's own events stay on the workload.
    pub fn concerns_job(&self) -> bool {
        [dependencies::WAITING, "DependencyNeverMet", "DependencyCycle", run_windows::OUTSIDE]
            .contains(&&*self.reason)
    }
}

/// Output of queueing: writes and events to be carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write the status of a workload. Answered by [`Event::Written`] or [`Event::WriteFailed`].
    UpdateWorkload(Box<WorkloadUpdate>),
    /// Set `spec.active` of a workload to false. Answered by [`Event::Answered`].
    DeactivateWorkload {
        /// The workload.
        key: WorkloadKey,
        /// Its UID.
        uid: String,
    },
    /// End a pod that was sent to a node on which it can never start, so that its owner makes another one. Answered by
    /// [`Event::Answered`].
    FailPod {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// UID.
        uid: String,
    },
    /// Write to a QuotaLoan, or delete it. Answered by [`Event::Answered`].
    UpdateLoan(Box<LoanUpdate>),
    /// Record an event on a workload without writing its status.
    Record(Box<WorkloadEvent>),
    /// The status of a ClusterQueue changed.
    ClusterQueueStatus(String, Arc<QueueStatus>),
    /// The status of a LocalQueue (namespace, name) changed.
    LocalQueueStatus(String, String, Arc<QueueStatus>),
    /// `status.fairSharing.weightedShare` of a Cohort changed.
    CohortStatus(String, i64),
    /// The status of a RunWindow changed.
    RunWindowStatus(String, Box<RunWindowStatus>),
}

/// The queueing half of the engine.
#[derive(Debug)]
pub struct Queueing {
    config: Config,
    /// What decides in cycles, as configured.
    strategies: Strategies,
    ids: Ids,
    /// Objects that workloads and queues refer to.
    objects: Objects,
    cluster_queues: NamedTable<ClusterQueueId, String, ClusterQueueState>,
    /// By namespace and name.
    local_queues: NamedTable<LocalQueueId, (String, String), LocalQueueState>,
    workloads: Workloads,
    quota: QuotaReservations,
    scheduling_hashes: SchedulingHashes,
    tree: Tree,
    tree_dirty: bool,
    /// ClusterQueue of each leaf of the tree; leaves come first.
    leaves: Vec<ClusterQueueId>,
    /// ClusterQueues by tree.
    trees: Trees,
    tas: Tas,
    /// Claim templates, classes and devices.
    devices: Devices,
    /// When which workloads get a second pass.
    second: SecondPasses,
    dirty: Dirty,
    /// Rounds of changes per step; fewer in tests.
    rounds: usize,
    /// How much work a step does, and where the next one goes on.
    bounded: Bounded,
    cohort_shares: BTreeMap<String, i64>,
    timers: Timers,
    /// Where a cycle could find something it did not find last time.
    due: DueCycle,
    /// Whether every cycle looks at all heads; in tests, to compare with.
    looks_everywhere: bool,
    /// ClusterQueues after which a cycle looks at no further tree, and admissions after which it may break off; fewer in
    /// tests.
    queues_per_cycle: usize,
    /// Whether every head is nominated; in tests, to compare with.
    nominates_all: bool,
    /// Whether no cycle runs.
    held: bool,
    /// Cycles until now that admitted a workload, and cycles that did not.
    attempts: AdmissionAttempts,
    last_write: u64,
    metrics: Metrics,
    /// The workload that the last cycle would have admitted, had the pods of all admitted ones been ready.
    waits_for_pods: Option<WorkloadId>,
    dependencies: Dependencies,
    run_windows: RunWindows,
    loans: Loans,
    slices: Slices,
    joint: JointAdmission,
    out: Vec<Action>,
}

impl Queueing {
    /// Queueing with no objects.
    pub fn new(config: Config) -> Self {
        let mut ids = Ids::default();
        // The capacity for pods is looked up where nothing can be interned.
        ids.resource("pods");
        let custom = CustomLabels::new(&config.custom_labels);
        Self {
            strategies: Strategies::of(&config),
            config,
            ids,
            objects: Objects::default(),
            cluster_queues: NamedTable::default(),
            local_queues: NamedTable::default(),
            workloads: Workloads::default(),
            quota: QuotaReservations::default(),
            scheduling_hashes: SchedulingHashes::default(),
            tree: Tree::default(),
            tree_dirty: true,
            leaves: Vec::new(),
            trees: Trees::new(),
            tas: Tas::default(),
            devices: Devices::default(),
            second: SecondPasses::default(),
            dirty: Dirty::default(),
            rounds: reconcile::MAX_ROUNDS,
            bounded: Bounded::default(),
            cohort_shares: BTreeMap::new(),
            timers: Timers::default(),
            due: DueCycle::default(),
            looks_everywhere: false,
            queues_per_cycle: QUEUES_PER_CYCLE,
            nominates_all: false,
            held: false,
            attempts: AdmissionAttempts::default(),
            last_write: 0,
            metrics: Metrics::new(custom),
            waits_for_pods: None,
            dependencies: Dependencies::default(),
            run_windows: RunWindows::default(),
            loans: Loans::default(),
            slices: Slices::default(),
            joint: JointAdmission::default(),
            out: Vec::new(),
        }
    }

    /// Cycles until now that admitted a workload, and cycles that did not.
    pub fn attempts(&self) -> AdmissionAttempts {
        self.attempts
    }

    pub(crate) fn cq(&self, id: ClusterQueueId) -> &ClusterQueueState {
        self.cluster_queues.get(id)
    }

    pub(crate) fn cq_mut(&mut self, id: ClusterQueueId) -> &mut ClusterQueueState {
        self.cluster_queues.get_mut(id)
    }

    pub(crate) fn lq(&self, id: LocalQueueId) -> &LocalQueueState {
        self.local_queues.get(id)
    }

    pub(crate) fn lq_mut(&mut self, id: LocalQueueId) -> &mut LocalQueueState {
        self.local_queues.get_mut(id)
    }

    /// The workload, if it still exists.
    pub(crate) fn wl(&self, id: WorkloadId) -> Option<&WorkloadInfo> {
        self.workloads.get(id)
    }

    pub(crate) fn wl_mut(&mut self, id: WorkloadId) -> Option<&mut WorkloadInfo> {
        self.workloads.get_mut(id)
    }

    /// The share of a node of the tree with its present usage.
    pub(crate) fn share(&self, n: NodeId) -> Share {
        self.strategies.share.share(&self.tree, n)
    }

    /// The ClusterQueue at a leaf of the tree.
    pub(crate) fn cq_of_node(&self, n: NodeId) -> Option<ClusterQueueId> {
        self.leaves.get(n.index()).copied()
    }

    /// Whether the ClusterQueue's cohorts go round in a circle.
    pub(crate) fn in_cycle(&self, id: ClusterQueueId) -> bool {
        self.cq(id).node.is_some_and(|n| self.tree.node(n).cyclic)
    }

    /// Whether namespaces with these workloads may use the ClusterQueue.
    pub(crate) fn namespace_matches(&self, cq: ClusterQueueId, namespace: &str) -> bool {
        let selector = self.cq(cq).spec.as_ref().and_then(|s| s.namespace_selector.as_ref());
        match (self.objects.namespaces.get(namespace), selector) {
            (Some(labels), Some(selector)) => selector.matches(labels),
            _ => false,
        }
    }
}
