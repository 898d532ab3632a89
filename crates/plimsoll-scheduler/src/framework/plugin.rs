//! The traits that plugins implement (upstream `staging/src/k8s.io/kube-scheduler/framework/interface.go`).
//!
//! A plugin is made once per profile. For a scheduling cycle it makes state objects for the two points that run per
//! node: a [`FilterState`] in PreFilter, a [`ScoreState`] in PreScore. What later points need is in [`CycleState`].

use super::{
    Code, Counts, CycleState, ExtensionPoint, PermitResult, Placement, PodGroupAssignments, PodGroupView,
    Status, WaitingPods,
};
use crate::DeviceGrant;
use crate::PreBindWork;
use crate::cluster::{Cluster, NodeId, PodId, Shape};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource};
use plimsoll_state::intern::Sym;
use plimsoll_state::time::{Duration, Time};
use std::cmp::Reverse;
use std::fmt::Debug;
use std::sync::Arc;

/// The pod that is being scheduled.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Its number, for [`Cluster::pod`].
    pub id: PodId,
    /// Its shape.
    pub(crate) shape: Arc<Shape>,
    /// `spec.nodeName`, for NodeName; a queued pod never has one.
    pub(crate) node_name: Option<Sym>,
}

impl Incoming {
    /// A pod of the cluster.
    pub(crate) fn new(cluster: &Cluster, id: PodId) -> Self {
        Self { id, shape: Arc::clone(cluster.shape(id)), node_name: None }
    }
}

/// Outcome of PreFilter.
#[derive(Debug)]
pub enum PreFilterResult {
    /// Nothing to filter for this pod.
    Skip,
    /// The pod is rejected.
    Reject(Status),
    /// Go on with this state.
    Go {
        /// Names of the only nodes that can pass; `None`: all.
        nodes: Option<Vec<Sym>>,
        /// What Filter needs.
        state: Box<dyn FilterState>,
    },
}

impl PreFilterResult {
    /// Go on with all nodes.
    pub fn go(state: impl FilterState + 'static) -> Self {
        Self::Go { nodes: None, state: Box::new(state) }
    }
}

/// A pod that is counted on the node chosen for it, until it is bound there.
#[derive(Clone, Copy, Debug)]
pub struct AssumedPod<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) state: &'a CycleState,
    pub(crate) pod: PodId,
    pub(crate) node: NodeId,
    /// Whether its attempt is measured.
    pub(crate) measured: bool,
}

impl<'a> AssumedPod<'a> {
    /// The cluster, the pod counted on its node.
    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    /// What the plugins wrote in this cycle; empty when the pod is local for every plugin, see
    /// [`Plugin::is_local`].
    pub fn state(&self) -> &'a CycleState {
        self.state
    }

    /// The pod.
    pub fn pod(&self) -> PodId {
        self.pod
    }

    /// The node.
    pub fn node(&self) -> NodeId {
        self.node
    }
}

/// Outcome of PreBind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreBindResult {
    /// The pod may be bound as far as this plugin goes.
    Success,
    /// The plugin is asked again when volume claims change and before later decisions, until the time is up.
    Wait {
        /// How long to wait at most, from the beginning of PreBind on.
        timeout: Duration,
        /// What is waited for, as in `binding volumes: context deadline exceeded`.
        operation: &'static str,
    },
    /// The pod is not bound.
    Reject(Status),
}

/// How a plugin is asked that answers outside of the process, see [`Action::Extend`](crate::Action::Extend).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteCall {
    /// Its number in [`Config::extenders`](crate::Config::extenders).
    pub extender: usize,
    /// Its name in messages.
    pub name: Arc<str>,
    /// How long it may take to answer.
    pub timeout: Duration,
    /// Whether pods are scheduled without it when it fails.
    pub ignorable: bool,
    /// Factor of its scores.
    pub weight: i64,
}

/// Outcome of Bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindResult {
    /// Another plugin binds the pod.
    Skip,
    /// `pods/binding` is to be created.
    CreateBinding,
    /// The plugin binds the pod outside of the process.
    Remote(RemoteCall),
    /// The pod is not bound.
    Reject(Status),
}

/// A candidate for preemption: a node, and the pods to delete there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// Pods to delete, most important first.
    pub victims: Vec<PodId>,
    /// How many of them are protected by an exhausted budget.
    pub violations: i64,
    pub(crate) rank: CandidateRank,
}

/// What makes one candidate better than another, smaller being better: violated budgets, highest priority of a
/// victim, sum of priorities, number of victims, and the later the earliest start of the most important ones
/// (upstream `pickOneNodeForPreemption`).
pub(crate) type CandidateRank = (i64, i32, i64, usize, Reverse<Time>);

/// Outcome of a dry run of preemption on one node.
pub type DryRun = Result<Arc<Candidate>, Status>;

/// Outcome of PostFilter.
#[derive(Clone, Debug)]
pub enum PostFilterResult {
    /// Candidates for preemption, at least one. No other plugin is called.
    Candidates(Vec<Arc<Candidate>>),
    /// The plugin can't help; the next one is called.
    Unschedulable {
        /// Why, for the message.
        text: String,
        /// Whether the nomination of the pod ends.
        clear_nomination: bool,
    },
    /// The plugin failed, for this reason; no other plugin is called.
    Error(String),
}

/// What PostFilter plugins can ask and do (framework `Handle` and `PodNominator`).
pub trait PostFilterHandle {
    /// The cluster.
    fn cluster(&self) -> &Cluster;

    /// The pod that no node can take.
    fn pod(&self) -> &Incoming;

    /// What plugins wrote in this cycle.
    fn state(&self) -> &CycleState;

    /// Nodes whose rejection preemption may resolve (`NodeToStatusReader.NodesForStatusCode`).
    fn nodes(&self) -> &[NodeId];

    /// The verdict on the node to which the pod is nominated.
    fn nominated_verdict(&self) -> Option<Code>;

    /// How many candidates are enough, and from which node on to search, for these minima; evaluation without effect
    /// wants all (upstream `GetOffsetAndNumCandidates`).
    fn offset_and_candidates(&mut self, percentage: u32, absolute: u32) -> (usize, usize);

    /// Counts a pod on a node, for Filter (`RunPreFilterExtensionAddPod`). The plugin undoes it before it returns.
    fn add_pod(&mut self, pod: PodId, node: NodeId);

    /// Takes a pod off its node, for Filter (`RunPreFilterExtensionRemovePod`). The plugin undoes it before it returns.
    fn remove_pod(&mut self, pod: PodId);

    /// A candidate with these victims, whose deletion violates `violations` disruption budgets.
    fn candidate(&self, node: NodeId, victims: Vec<PodId>, violations: i64) -> Arc<Candidate>;

    /// Filter, with the pods nominated to the node (`RunFilterPluginsWithNominatedPods`).
    fn filter(&mut self, node: NodeId) -> Status;

    /// Deallocates a claim of the pod, unless something has changed meanwhile.
    fn deallocate(&mut self, claim: DeviceGrant);

    /// Counts an attempt to preempt (`scheduler_preemption_attempts_total`); not in evaluation without effect.
    fn count_preemption(&mut self);

    /// The outcomes of earlier dry runs that still hold, by number of the node; shorter than the number of nodes where
    /// there are none.
    fn known(&self) -> &[Option<DryRun>];

    /// Keeps the outcome of a dry run until the node changes.
    fn remember(&mut self, node: NodeId, outcome: &DryRun);
}

/// Place of a pod in the active queue: smaller is earlier; pods with equal keys are in order of arrival.
pub type SortKey = (i64, i64);

/// What QueueSort knows about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedPod {
    /// Priority.
    pub priority: i32,
    /// When it entered the queue, after its last attempt.
    pub timestamp: Time,
}

/// What a plugin knows about the incoming pod while it filters.
pub trait FilterState: Debug {
    /// Filter: whether the pod can run on the node.
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status;

    /// Another pod is being counted on a node (PreFilterExtensions.AddPod).
    fn add_pod(&mut self, _cluster: &Cluster, _other: PodId, _node: NodeId) {}

    /// Another pod is no longer counted on a node (PreFilterExtensions.RemovePod).
    fn remove_pod(&mut self, _cluster: &Cluster, _other: PodId, _node: NodeId) {}

    /// Whether the status depends only on the Node object.
    fn is_fixed(&self) -> bool {
        false
    }
}

/// How raw scores become scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Normalization {
    /// They are scores already.
    None,
    /// In proportion to the largest of the feasible nodes.
    ByMax {
        /// Small raw scores are good.
        reverse: bool,
    },
    /// In a way that only [`ScoreState::normalize_score`] knows.
    Other,
}

/// What a plugin knows about the incoming pod while it scores.
pub trait ScoreState: Debug {
    /// Score: the raw score of a feasible node.
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64;

    /// Whether the raw score depends only on the Node object.
    fn is_fixed(&self) -> bool {
        false
    }

    /// What [`ScoreState::normalize_score`] does.
    fn normalization(&self) -> Normalization {
        Normalization::Other
    }

    /// NormalizeScore: brings raw scores into 0..=100; the default leaves them.
    fn normalize_score(&self, _cluster: &Cluster, _nodes: &[NodeId], _scores: &mut [i64]) {}

    /// Why PreScore, Score or NormalizeScore failed, asked after them: the attempt ends with the error.
    fn failure(&self) -> Option<Status> {
        None
    }
}

/// A plugin of a profile. Its [`Registration`](super::Registration) names its extension points.
pub trait Plugin: Debug + Send + Sync {
    /// Whether for this pod Filter and Score depend on nothing but the node itself, the number of nodes and what
    /// counts as a change of epoch, and later points don't need [`CycleState`]; then results are kept from pod to pod.
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        false
    }

    /// Whether, for pods for which it is local, Filter and Score depend on the labels or the namespace of the pod: pods that
    /// differ in them share no results then.
    fn reads_pod_labels(&self) -> bool {
        false
    }

    /// Whether it keeps something that it repairs by [`Cluster::changes_since`]. What is tried on a node for a moment isn't in that
    /// log: for such a plugin the scheduler tries it on all nodes, in the log.
    fn follows_changes(&self) -> bool {
        false
    }

    /// Whether it reads [`NodeView::object`](super::NodeView::object) or [`PodView::object`](super::PodView::object). The
    /// scheduler keeps the objects then.
    fn reads_objects(&self) -> bool {
        false
    }

    /// Keys of the annotations of nodes that it reads ([`NodeView::annotation`](super::NodeView::annotation)): a change of one is
    /// a cluster event, and in the log of changes.
    fn reads_node_annotations(&self) -> &[String] {
        &[]
    }

    /// Whether what else its results depend on can be counted by topology domain, see [`Plugin::counts`].
    fn is_counted(&self) -> bool {
        false
    }

    /// Empty counters that give the same verdicts and scores as the states of a cycle; `None`: not for this pod.
    fn counts(&self, _cluster: &Cluster, _pod: &Incoming) -> Option<Box<dyn Counts>> {
        None
    }

    /// How the plugin is asked at this extension point when it answers outside of the process; `None`: its methods answer,
    /// or it has no interest in the pod. The scheduler asks such a plugin at Filter, Score and PostFilter after the others,
    /// and at Bind before them; the cycle takes several steps.
    fn remote(&self, _point: ExtensionPoint, _cluster: &Cluster, _pod: PodId) -> Option<RemoteCall> {
        None
    }

    /// PreEnqueue: `Some` keeps the pod out of the queue for that reason.
    fn pre_enqueue(&self, _cluster: &Cluster, _pod: PodId) -> Option<Status> {
        None
    }

    /// QueueSort: the place of a pod in the active queue, as a key instead of upstream's `Less`. The plugin of the first
    /// profile sorts the queue.
    fn queue_sort(&self, _pod: &QueuedPod) -> SortKey {
        (0, 0)
    }

    /// PreFilter, once per pod and cycle.
    fn pre_filter(&self, _cluster: &Cluster, _pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        PreFilterResult::Skip
    }

    /// PostFilter: what can be done for a pod that no node can take.
    fn post_filter(&self, _handle: &mut dyn PostFilterHandle) -> PostFilterResult {
        PostFilterResult::Unschedulable { text: String::new(), clear_nomination: false }
    }

    /// PreScore; `None` drops the plugin's score for this pod.
    fn pre_score(
        &self,
        _cluster: &Cluster,
        _pod: &Incoming,
        _feasible: &[NodeId],
        _state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        None
    }

    /// Reserve: what is to be written before the pod can be bound goes to `work`. Anything but success takes the pod off
    /// its node again.
    fn reserve(&self, _pod: &AssumedPod<'_>, _work: &mut PreBindWork) -> Status {
        Status::success()
    }

    /// What Reserve would give to a pod that does not exist yet (joint admission), of claims that will be made for it; called
    /// for pods with such claims only. Nothing of `work` is written.
    fn hold(&self, _pod: &AssumedPod<'_>, _work: &mut PreBindWork) {}

    /// Unreserve: the pod is taken off its node again. Called for all plugins, in reverse order, also for those
    /// whose Reserve was not reached. What they put into `work` is dropped by the framework.
    fn unreserve(&self, _pod: &AssumedPod<'_>, _waiting: &mut WaitingPods) {}

    /// Permit: whether the pod may be bound.
    fn permit(&self, _pod: &AssumedPod<'_>, _waiting: &mut WaitingPods) -> PermitResult {
        PermitResult::Allow
    }

    /// Pods wait on Permit, and nodes or pods have changed since the last call: the plugin may allow or reject the pods that it
    /// holds ([`WaitingPods::held_by`]). kube-scheduler's plugins do so from their informers.
    fn review(&self, _cluster: &Cluster, _waiting: &mut WaitingPods) {}

    /// PreBind: whether everything is there that the pod needs; `work` has been written.
    fn pre_bind(&self, _pod: &AssumedPod<'_>, _work: &PreBindWork) -> PreBindResult {
        PreBindResult::Success
    }

    /// Bind: how the pod is bound.
    fn bind(&self, _pod: &AssumedPod<'_>) -> BindResult {
        BindResult::Skip
    }

    /// PostBind: the pod is bound.
    fn post_bind(&self, _pod: &AssumedPod<'_>) {}

    /// PlacementGenerate: the sets of nodes within `all` in which a pod group is tried, which may overlap. The default
    /// tries it on all nodes.
    ///
    /// # Errors
    /// The status with which the group is rejected, or fails.
    fn generate_placements(
        &self,
        _group: &PodGroupView<'_>,
        all: Placement,
    ) -> Result<Vec<Placement>, Status> {
        Ok(vec![all])
    }

    /// PlacementScore: the raw score of a placement in which enough pods of the group find a node; more is better.
    ///
    /// # Errors
    /// The status with which the group fails.
    fn score_placement(
        &self,
        _group: &PodGroupView<'_>,
        _assignments: &PodGroupAssignments<'_>,
    ) -> Result<i64, Status> {
        Ok(0)
    }

    /// NormalizePlacementScore: brings raw scores of placements into 0..=100; the default leaves them.
    ///
    /// # Errors
    /// The status with which the group fails.
    fn normalize_placement_scores(
        &self,
        _group: &PodGroupView<'_>,
        _scores: &mut [i64],
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Events that may make a pod schedulable which this plugin rejected at PreEnqueue, PreFilter, Filter, Reserve or
    /// Permit. The default registers all events, as upstream's `defaultEnqueueExtension`; an empty list: none does.
    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const { &[ClusterEventWithHint::always(EventResource::Any, ActionType::ALL)] }
    }

    /// Queueing hint: whether this event may make the pod schedulable.
    fn queueing_hint(&self, _cluster: &Cluster, _pod: PodId, _event: &ClusterEvent) -> bool {
        true
    }
}
