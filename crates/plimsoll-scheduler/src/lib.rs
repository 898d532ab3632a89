//! Scheduler: which node each pod runs on.

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

mod allocate;
mod answers;
pub mod args;
mod bind;
mod bounded;
mod claims;
mod cluster;
mod cycle;
mod decide;
mod dry_runs;
mod evaluate;
mod events;
mod extend;
mod extender;
mod flush;
pub mod framework;
mod freed;
mod group_cycle;
mod handle;
mod handle_objects;
mod hints;
mod in_flight;
mod joint;
mod message;
mod metrics;
mod node_reservations;
mod permit;
mod plugins;
mod post_filter;
mod pre_bind;
mod queue;
mod ranked;
mod rebuild;
mod record;
mod reload;
mod requeue;
mod runner;
mod sweep;
mod victims;
mod work;

pub use evaluate::{NodeScore, Rejection, Verdict, Victims};
pub use extender::{Extender, ExtenderAnswer, ExtenderCall, ExtenderTls, ExtenderVictims};
pub use framework::{
    Code, ExtensionPoint, FeatureGates, PluginRef, PluginSet, Profile, ProfileError, Registration, Registry,
    UserPlugins, UserSet,
};
pub use hints::Seen;
pub use metrics::{
    Durations, ExtensionPointRun, Measurements, PluginEvaluations, PluginExecution, Stopwatch,
};
pub use plugins::{FitArgs, ResourceWeight, StrategyKind};
pub use queue::{Backoff, QueueCounts};
pub use record::{FailureReason, PodEvent, RecordCause};
pub use work::{AllocationTerms, DeviceGrant, ExtendedClaim, PreBindWork};

use cluster::{Cluster, PodId};
use plimsoll_state::Answer;
use plimsoll_state::DeviceSelector;
use plimsoll_state::intern::Map;
use plimsoll_state::reservation::{DryRunId, ReservationId};
use plimsoll_state::rng::Rng;
use plimsoll_state::slab::Slab;
use plimsoll_state::time::{Duration, Time};
use queue::Queue;
use runner::Runner;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// Configuration of placement.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of the generator that breaks ties between equally good nodes.
    pub seed: u64,
    /// Profiles; pods of other schedulers are only counted.
    pub profiles: Vec<Profile>,
    /// Waits after failed attempts.
    pub backoff: Backoff,
    /// How long an unschedulable pod waits for an event before it is tried anyway.
    pub max_in_unschedulable: Duration,
    /// Most decisions in one step.
    pub decisions_per_step: usize,
    /// Most nodes that a step looks at to rank them, about a hundred nanoseconds to a microsecond each.
    pub looks_per_step: usize,
    /// HTTP extenders, in the order of their use: those that can be ignored come last.
    pub extenders: Vec<Extender>,
    /// Evaluates device selectors; without one, claims with selectors can't be allocated.
    pub device_selector: Option<Arc<dyn DeviceSelector>>,
    /// Measures extension points and plugins; without one, nothing is measured. Decisions don't depend on it.
    pub stopwatch: Option<Arc<dyn Stopwatch>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            seed: 0,
            profiles: vec![Profile::default()],
            backoff: Backoff::default(),
            max_in_unschedulable: Duration::from_seconds(300),
            decisions_per_step: 1024,
            looks_per_step: 3 << 12,
            extenders: Vec::new(),
            device_selector: None,
            stopwatch: None,
        }
    }
}

/// An answer to an [`Action`].
#[derive(Clone, Debug)]
pub enum Event {
    /// The write of [`Action::Bind`] for this pod UID succeeded. The watch will confirm it too.
    Bound(String),
    /// The writes of [`Action::Prepare`] for this pod UID are done.
    Prepared(String),
    /// The answer to [`Action::Extend`].
    Extended {
        /// UID of the pod.
        uid: String,
        /// Number of the extender.
        extender: usize,
        /// The call that is answered.
        call: u64,
        /// The answer of the extender, or why the call failed.
        answer: Result<ExtenderAnswer, String>,
    },
    /// The write of [`Action::Bind`] or [`Action::Prepare`] failed.
    BindFailed {
        /// UID of the pod.
        uid: String,
        /// Message of the API server.
        message: String,
    },
    /// What became of [`Action::Preempt`], [`Action::Unschedulable`], [`Action::Nominate`] or
    /// [`Action::ReleaseClaims`].
    Answered {
        /// The action.
        action: Box<Action>,
        /// What became of it.
        answer: Answer,
    },
    /// Replaces the profiles before the next cycle, see [`Scheduler::reload_problem`]. No action is answered.
    Reload(Vec<Profile>),
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
    /// Write what the pod needs before it is bound. Answered by [`Event::Prepared`] or [`Event::BindFailed`];
    /// [`Action::Bind`] follows when the volumes are bound.
    Prepare {
        /// The pod.
        pod: PodRef,
        /// The chosen node.
        node: String,
        /// What to write.
        what: Box<PreBindWork>,
    },
    /// Ask an extender. Answered by [`Event::Extended`], in any case.
    Extend {
        /// The pod.
        pod: PodRef,
        /// Number of the extender in [`Config::extenders`].
        extender: usize,
        /// To be repeated in the answer.
        call: u64,
        /// The question.
        what: ExtenderCall,
    },
    /// Set the condition `PodScheduled=False` and, when given, `status.nominatedNodeName`. Answered by
    /// [`Event::Answered`].
    Unschedulable {
        /// The pod.
        pod: PodRef,
        /// Condition reason.
        reason: FailureReason,
        /// Full message.
        message: String,
        /// `Some("")` clears the nomination, `None` leaves it.
        nominated_node: Option<String>,
        /// The condition was `False` before, so that its `lastTransitionTime` stays (`UpdatePodCondition` in
        /// `pkg/api/v1/pod/util.go`).
        again: bool,
        /// Generation of the pod that could not be scheduled, for `observedGeneration`.
        generation: i64,
    },
    /// Set `status.nominatedNodeName`: a more important pod took the place, or the pod waits before it is bound. Answered by
    /// [`Event::Answered`].
    Nominate {
        /// The pod.
        pod: PodRef,
        /// The node; empty: none.
        node: String,
    },
    /// Take a pod that is not bound out of `status.reservedFor` of claims; `deallocate`: and take away their devices, where no
    /// other pod uses them. Answered by [`Event::Answered`].
    ReleaseClaims {
        /// The pod.
        pod: PodRef,
        /// The claims, with what they have been allocated.
        claims: Vec<DeviceGrant>,
        /// Whether they are to be deallocated.
        deallocate: bool,
    },
    /// Delete a victim of preemption, first marking it with condition `DisruptionTarget`. Answered by [`Event::Answered`].
    Preempt {
        /// The victim.
        victim: PodRef,
        /// The pod that needs the capacity.
        preemptor: PodRef,
        /// Message of the condition.
        message: String,
        /// What is recorded about the victim when it is deleted.
        event: Box<PodEvent>,
        /// Generation of the victim, for `observedGeneration` of the condition.
        generation: i64,
    },
    /// Record an event about a pod.
    Record {
        /// The pod.
        pod: PodRef,
        /// What happened.
        cause: RecordCause,
        /// The event, as `cause` says it.
        event: PodEvent,
    },
}

/// The placement half of the engine.
#[derive(Debug)]
pub struct Scheduler {
    config: Config,
    cluster: Cluster,
    /// The profiles, then those before a reload whose pods are still assumed.
    runners: Vec<Runner>,
    /// Which plugins have registered for an event, of those that have come.
    registered: Map<(events::EventResource, events::ActionType), Arc<[framework::PluginId]>>,
    queue: Queue,
    ranks: ranked::Ranks,
    rng: Rng,
    /// Pods with work for PreBind, or waiting in it.
    pre_binding: pre_bind::InPreBind,
    /// Nodes reserved for pods to come, assumed pods and nominated pods.
    reservations: node_reservations::NodeReservations,
    /// How many placeholders were ever made, for their UIDs.
    placeholders: u64,
    /// Reservations that are preempted.
    preempted_reservations: Vec<ReservationId>,
    /// Whether there may be more capacity than before, since this was last asked.
    freed: bool,
    /// Whether pods came to nodes, since this was last asked.
    pods_came: bool,
    /// How often there was more capacity.
    capacity_version: u64,
    /// Where there was.
    freed_nodes: freed::FreedNodes,
    /// The same for the capacity of nodes without the pods of workloads.
    whole_version: u64,
    /// How often a node came or changed.
    node_version: u64,
    /// Pods that may be created, placed for a decision of joint admission.
    dry_runs: Slab<DryRunId, dry_runs::DryRun>,
    /// Pods of workloads taken off their nodes for a decision of joint admission.
    removed: victims::Removed,
    /// The cycle that waits for extenders.
    extending: Option<extend::Extending>,
    calls: extend::Calls,
    /// Events for pods that are in their cycle.
    in_flight_events: Map<PodId, in_flight::InFlightEvents>,
    /// Pods that wait at Permit.
    waiting: framework::WaitingPods,
    /// Position in the log of changes when plugins last looked at them.
    reviewed: u64,
    /// Pods placed so far in the cycle of a pod group.
    group_cycle: BTreeSet<PodId>,
    /// Victims whose PreBind is ended instead of deleting them.
    cancelled: Vec<PodId>,
    /// Profiles that replace the present ones before the next cycle.
    pending_reload: Option<Vec<Profile>>,
    /// How often profiles were replaced.
    reloads: u64,
    /// Where the next search for feasible nodes starts.
    next_start: usize,
    /// Writes that failed and have to be repeated.
    repeats: answers::Repeats,
    sweeps: sweep::Sweeps,
    /// Actions found while events are handled.
    outbox: Vec<Action>,
    now: Time,
    counters: metrics::Counters,
    /// What was measured; `None`: nothing is.
    recorder: Option<Rc<metrics::MetricsRecorder>>,
    /// Whether the present attempt is measured.
    measuring: bool,
}

impl Scheduler {
    fn set_now(&mut self, now: Time) {
        self.now = now;
        self.cluster.now = now;
    }

    /// Placement with no objects.
    pub fn new(config: Config) -> Self {
        let mut cluster = Cluster::default();
        cluster.objects.devices.selector = config.device_selector.clone();
        let runners = Runner::all(&config.profiles, &config.extenders, &mut cluster.strings, None);
        let plugins = runners.first().map_or(0, |r| r.names.len());
        let sort = runners.first().and_then(Runner::queue_sort);
        // Plugins keep the names that they look for.
        cluster.strings.pin();
        cluster.sources.keep = Runner::read_objects(&runners);
        cluster.sources.keys = Runner::node_annotations(&runners);
        Self {
            queue: Queue::new(config.backoff, config.max_in_unschedulable, plugins, sort),
            ranks: ranked::Ranks::new(config.looks_per_step),
            rng: Rng::new(config.seed),
            cluster,
            pre_binding: pre_bind::InPreBind::default(),
            reservations: node_reservations::NodeReservations::default(),
            placeholders: 0,
            preempted_reservations: Vec::new(),
            freed: false,
            pods_came: false,
            capacity_version: 0,
            freed_nodes: freed::FreedNodes::default(),
            whole_version: 0,
            node_version: 0,
            dry_runs: Slab::default(),
            removed: victims::Removed::default(),
            extending: None,
            calls: extend::Calls::default(),
            in_flight_events: Map::default(),
            waiting: framework::WaitingPods::default(),
            reviewed: 0,
            group_cycle: BTreeSet::new(),
            cancelled: Vec::new(),
            pending_reload: None,
            reloads: 0,
            next_start: 0,
            runners,
            registered: Map::default(),
            repeats: answers::Repeats::default(),
            sweeps: sweep::Sweeps::default(),
            outbox: Vec::new(),
            now: Time::default(),
            counters: metrics::Counters::default(),
            recorder: metrics::MetricsRecorder::of(&config),
            measuring: false,
            config,
        }
    }

    /// When there is something to do without a new event.
    pub fn next_wake(&self) -> Option<Time> {
        if !self.outbox.is_empty() {
            return Some(self.now);
        }
        // While a cycle waits for extenders, nothing is taken from the queue.
        let queue = match self.extender_deadline() {
            Some(deadline) => Some(deadline),
            None => self.queue.next_wake(self.now),
        };
        let others = [
            self.next_pre_bind_deadline(),
            self.reservations.next_expiry(),
            self.waiting.next_deadline(),
            self.repeats.next(),
        ];
        std::iter::once(queue).chain(others).flatten().min()
    }

    /// How many pods are in which part of the queue.
    pub fn queue_counts(&self) -> QueueCounts {
        self.queue.counts()
    }

    /// How many strings are kept: names, labels and the like of what there is, and garbage in proportion.
    pub fn strings(&self) -> usize {
        self.cluster.strings.len()
    }

    /// Looks at all nodes for every pod instead of keeping ranks. The decisions are the same; for comparisons.
    pub fn without_ranks(mut self) -> Self {
        self.ranks.off = true;
        self
    }

    fn profile_of(&self, id: PodId) -> Option<usize> {
        let name = self.cluster.shape(id).spec.scheduler;
        self.runners.iter().position(|r| r.name == name)
    }

    fn pod_ref(&self, id: PodId) -> PodRef {
        let pod = &self.cluster.pods[id];
        PodRef {
            uid: String::from(&*pod.uid),
            namespace: self.cluster.strings.text(self.cluster.shape(id).namespace).to_owned(),
            name: String::from(&*pod.name),
        }
    }

    /// Rebuilds derived state and compares. Without debug assertions it does nothing and is not compiled.
    ///
    /// # Panics
    /// When they differ.
    pub fn check(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        self.queue.check();
        self.cluster.check();
        self.reservations.check(&self.cluster);
        self.check_dry_runs();
        self.check_waiting();
        let held = |id| self.cluster.is_held_for_preemption(id);
        assert!(self.queue.sleepers().into_iter().all(held), "no event finds a pod that is not held");
    }

    /// As [`Scheduler::check`], with the ranks, which are brought up to date first.
    ///
    /// # Panics
    /// When they differ from ranks made afresh.
    pub fn check_ranks(&mut self) {
        self.check();
        self.ranks.check(&self.runners, &mut self.cluster);
    }
}

#[cfg(test)]
mod answers_tests;
#[cfg(test)]
mod nomination_tests;
#[cfg(test)]
mod profile_tests;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
