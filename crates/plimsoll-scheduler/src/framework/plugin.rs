//! The traits that plugins implement.
//!
//! A plugin is made once per profile. For a scheduling cycle it makes state objects: a [`FilterState`] in
//! PreFilter, a [`ScoreState`] in PreScore. What upstream keeps in its CycleState lives in them, typed.

use super::{Counts, Permit, PluginId, Status, Waiting};
use crate::cluster::{Cluster, NodeId, PodId, Shape};
use crate::events::{Change, Interest};
use plimsoll_state::intern::Sym;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// The pod that is being scheduled.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Its row.
    pub id: PodId,
    /// Its shape.
    pub shape: Arc<Shape>,
    /// `spec.nodeName`, for NodeName; a queued pod never has one.
    pub node_name: Option<Sym>,
}

impl Incoming {
    /// A pod of the cluster.
    pub fn new(cluster: &Cluster, id: PodId) -> Self {
        Self { id, shape: Arc::clone(cluster.shape(id)), node_name: None }
    }
}

/// Outcome of PreFilter.
#[derive(Debug)]
pub enum PreFilter {
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

impl PreFilter {
    /// Go on with all nodes.
    pub fn go(state: impl FilterState + 'static) -> Self {
        Self::Go { nodes: None, state: Box::new(state) }
    }
}

/// What a plugin knows about the incoming pod while it filters.
pub trait FilterState: Debug {
    /// Filter: whether the pod can run on the node.
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status;

    /// Another pod is being counted on a node (PreFilterExtensions.AddPod).
    fn add_pod(&mut self, _cluster: &Cluster, _other: PodId, _node: NodeId) {}

    /// Another pod is no longer counted on a node (PreFilterExtensions.RemovePod).
    fn remove_pod(&mut self, _cluster: &Cluster, _other: PodId, _node: NodeId) {}

    /// Whether the verdict depends only on what the API says of the node.
    fn is_fixed(&self) -> bool {
        false
    }

    /// For plugins whose later points need what Filter found.
    fn as_any(&self) -> Option<&dyn Any> {
        None
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
    /// In a way that only [`ScoreState::normalize`] knows.
    Other,
}

/// What a plugin knows about the incoming pod while it scores.
pub trait ScoreState: Debug {
    /// The raw score of a feasible node.
    fn score(&self, cluster: &Cluster, node: NodeId) -> i64;

    /// Whether the raw score depends only on what the API says of the nodes.
    fn is_fixed(&self) -> bool {
        false
    }

    /// What [`ScoreState::normalize`] does.
    fn normalization(&self) -> Normalization {
        Normalization::Other
    }

    /// Brings raw scores into 0..=100; the default leaves them.
    fn normalize(&self, _cluster: &Cluster, _nodes: &[NodeId], _scores: &mut [i64]) {}
}

/// A plugin of a profile.
pub trait Plugin: Debug + Send + Sync {
    /// Who it is.
    fn id(&self) -> PluginId;

    /// Whether for this pod Filter and Score depend on nothing but the node itself, the number of nodes and what
    /// counts as a change of epoch; then results are kept from pod to pod.
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        false
    }

    /// Whether what else its results depend on can be counted by topology domain, see [`Plugin::counts`].
    fn is_counted(&self) -> bool {
        false
    }

    /// Empty counters that give the same verdicts and scores as the states of a cycle; `None`: not for this pod.
    fn counts(&self, _cluster: &Cluster, _pod: &Incoming) -> Option<Box<dyn Counts>> {
        None
    }

    /// PreEnqueue: `Some` keeps the pod out of the queue for that reason.
    fn pre_enqueue(&self, _cluster: &Cluster, _pod: PodId) -> Option<Status> {
        None
    }

    /// PreFilter.
    fn pre_filter(&self, _cluster: &Cluster, _pod: &Incoming) -> PreFilter {
        PreFilter::Skip
    }

    /// PreScore; `None` drops the plugin's score for this pod. `filter` is the plugin's own filter state.
    fn pre_score(
        &self,
        _cluster: &Cluster,
        _pod: &Incoming,
        _feasible: &[NodeId],
        _filter: Option<&dyn FilterState>,
    ) -> Option<Box<dyn ScoreState>> {
        None
    }

    /// Whether [`Plugin::reserve`] and [`Plugin::unreserve`] do anything.
    fn reserves(&self) -> bool {
        false
    }

    /// Reserve: the pod is counted on the node. Anything but success takes it back.
    fn reserve(&self, _cluster: &Cluster, _pod: PodId, _node: NodeId) -> Status {
        Status::success()
    }

    /// Unreserve: the pod is taken off the node again. Called for all plugins, in reverse order, also for those
    /// whose Reserve was not reached.
    fn unreserve(&self, _cluster: &Cluster, _waiting: &mut Waiting, _pod: PodId, _node: NodeId) {}

    /// Permit: whether the pod, counted on the node, may be bound.
    fn permit(&self, _cluster: &Cluster, _waiting: &mut Waiting, _pod: PodId, _node: NodeId) -> Permit {
        Permit::Allow
    }

    /// Events that may make a pod schedulable which this plugin rejected.
    fn interests(&self) -> &'static [Interest] {
        &[]
    }

    /// Queueing hint: whether this change may make the pod schedulable.
    fn hint(&self, _cluster: &Cluster, _pod: PodId, _change: &Change) -> bool {
        true
    }
}
