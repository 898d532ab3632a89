//! Queueing: whether a workload may start.

mod model;

pub use model::{
    Admission, BorrowWithinCohort, ClusterQueue, Cohort, Condition, FlavorFungibility, FlavorPreference,
    FlavorQuotas, LocalQueue, PodSet, PodSetAssignment, PreemptionRules, QueueingStrategy, ReclaimablePod,
    RequeueState, ResourceFlavor, ResourceGroup, ResourceQuota, StopPolicy, TopologyRequest, Workload,
    WorkloadKey,
};

use crate::model::{Resources, StringMap};
use crate::time::Time;

/// Configuration of queueing.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Resource name prefixes that are not counted.
    pub exclude_resource_prefixes: Vec<String>,
}

/// What the outside tells queueing.
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
    /// A Workload was seen or changed.
    WorkloadUpsert(Box<Workload>),
    /// A Workload is gone.
    WorkloadDelete(WorkloadKey),
    /// The write of an action for this workload failed; the engine takes it back.
    WriteFailed {
        /// The workload.
        key: WorkloadKey,
        /// Its UID when the action was made.
        uid: String,
        /// What the API server said.
        message: String,
    },
}

/// Counts and usage of a queue, as in its status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Condition `Active`: status, reason, message.
    pub active: Option<(bool, String, String)>,
    /// Workloads that wait.
    pub pending: i32,
    /// Workloads that hold a reservation.
    pub reserving: i32,
    /// Workloads that are admitted.
    pub admitted: i32,
    /// Reserved per flavor: (flavor, resource, total, borrowed), in the order of the spec.
    pub reservation: Vec<(String, String, i64, i64)>,
    /// Used by admitted workloads, the same form.
    pub usage: Vec<(String, String, i64, i64)>,
    /// `status.fairSharing.weightedShare`, when fair sharing is on.
    pub weighted_share: Option<i64>,
}

/// What queueing asks the outside to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write the status of a workload: conditions to set (by type), and what else changed.
    /// One action is one write; a failure comes back as [`Event::WriteFailed`].
    UpdateWorkload {
        /// The workload.
        key: WorkloadKey,
        /// Its UID.
        uid: String,
        /// Conditions that change, with the transition time `now`.
        conditions: Vec<Condition>,
        /// `Some(Some)` sets `status.admission`, `Some(None)` clears it, `None` leaves it.
        admission: Option<Option<Box<Admission>>>,
        /// `Some` replaces `status.requeueState`.
        requeue_state: Option<Option<RequeueState>>,
        /// `Some` replaces `status.resourceRequests`: (podset, amounts), what the last attempt computed.
        resource_requests: Option<Vec<(String, Resources)>>,
        /// Events to record on the workload: (warning, reason, message).
        events: Vec<(bool, String, String)>,
    },
    /// The status of a ClusterQueue changed.
    ClusterQueueStatus(String, QueueStatus),
    /// The status of a LocalQueue (namespace, name) changed.
    LocalQueueStatus(String, String, QueueStatus),
}

/// The queueing half of the engine.
#[derive(Debug)]
pub struct Queueing {
    _config: Config,
}

impl Queueing {
    /// Queueing with no objects.
    pub fn new(config: Config) -> Self {
        Self { _config: config }
    }

    /// Takes one event into the ground and derived state. Decides nothing.
    pub fn absorb(&mut self, _now: Time, _event: Event) {}

    /// Runs at most one scheduling cycle.
    pub fn decide(&mut self, _now: Time, _emit: &mut dyn FnMut(Action)) {}

    /// When there is something to do without a new event.
    pub fn next_wake(&self) -> Option<Time> {
        None
    }

    /// Rebuilds derived state and compares.
    ///
    /// # Panics
    /// When they differ.
    pub fn check(&self) {}
}
