//! Placement: which node each pod runs on.

mod message;

use crate::model::{LabelSelector, Node, Pod, StringMap};
use crate::time::Time;

/// Configuration of placement.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Seed of the generator that breaks ties between equally good nodes.
    pub seed: u64,
}

/// Objects other than nodes and pods that placement looks at.
#[derive(Clone, Debug)]
pub enum ClusterObject {
    /// A namespace and its labels, for namespace selectors of pod affinity.
    Namespace {
        /// Name.
        name: String,
        /// Labels.
        labels: StringMap,
    },
    /// A Service, for default spreading.
    Service {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// `spec.selector`.
        selector: StringMap,
    },
    /// A ReplicationController, ReplicaSet or StatefulSet, for default spreading.
    Workload {
        /// Kind.
        kind: String,
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// UID.
        uid: String,
        /// `spec.selector`.
        selector: LabelSelector,
    },
}

/// What the outside tells placement.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node was seen for the first time or changed.
    NodeUpsert(Box<Node>),
    /// The node of this name is gone.
    NodeDelete(String),
    /// A pod was seen for the first time or changed.
    PodUpsert(Box<Pod>),
    /// The pod of this UID is gone.
    PodDelete(String),
    /// Another object was seen or changed.
    ObjectUpsert(Box<ClusterObject>),
    /// Another object is gone: kind, namespace (empty for cluster scope), name.
    ObjectDelete(String, String, String),
    /// The write of [`Action::Bind`] for this pod UID succeeded. The watch will confirm it too.
    Bound(String),
    /// The write of [`Action::Bind`] failed.
    BindFailed {
        /// UID of the pod.
        uid: String,
        /// What the API server said.
        message: String,
    },
}

/// A Kubernetes event to be recorded about a pod or workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether it is a `Warning`; otherwise `Normal`.
    pub warning: bool,
    /// Reason, such as `FailedScheduling`.
    pub reason: &'static str,
    /// Action, such as `Scheduling`.
    pub action: &'static str,
    /// Text.
    pub message: String,
}

/// Names a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef {
    /// UID.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// What placement asks the outside to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create `pods/binding`. Answered by [`Event::Bound`] or [`Event::BindFailed`].
    Bind {
        /// The pod.
        pod: PodRef,
        /// The chosen node.
        node: String,
    },
    /// Set the condition `PodScheduled=False` and, when given, `status.nominatedNodeName`.
    Unschedulable {
        /// The pod.
        pod: PodRef,
        /// Condition reason: `Unschedulable` or `SchedulerError`.
        reason: &'static str,
        /// Full message.
        message: String,
        /// `Some("")` clears the nomination, `None` leaves it.
        nominated_node: Option<String>,
    },
    /// Delete a pod to make room, first marking it with condition `DisruptionTarget`.
    Preempt {
        /// The victim.
        victim: PodRef,
        /// The pod that needs the room.
        preemptor: PodRef,
        /// Message of the condition and of the event on the victim.
        message: String,
    },
    /// Record an event about a pod.
    Record {
        /// The pod.
        pod: PodRef,
        /// What happened.
        note: Note,
    },
}

/// The placement half of the engine.
#[derive(Debug)]
pub struct Placement {
    _config: Config,
}

impl Placement {
    /// Placement with no objects.
    pub fn new(config: Config) -> Self {
        Self { _config: config }
    }

    /// Takes one event into the ground and derived state. Decides nothing.
    pub fn absorb(&mut self, _now: Time, _event: Event) {}

    /// Decides, with bounded work.
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
