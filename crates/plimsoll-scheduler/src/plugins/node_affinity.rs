//! NodeAffinity: node selector, required and preferred node affinity, added affinity (upstream
//! `plugins/nodeaffinity/node_affinity.go`).

mod args;

use self::args::NodeAffinityArgs;
use super::scoring::normalize_by_max;
use crate::cluster::labels::NodeSelector;
use crate::cluster::spec::{PreferredNode, Spec, preferred_nodes};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    CycleState, ExtensionPoint, FilterState, Incoming, Normalization, Plugin, PreFilterResult, Registration,
    ScoreState, Status,
};
use plimsoll_state::intern::{Interner, Sym};
use std::sync::Arc;

const REASON_POD: &str = "node(s) didn't match Pod's node affinity/selector";
const REASON_ADDED: &str = "node(s) didn't match scheduler-enforced node affinity";
const REASON_CONFLICT: &str = "pod affinity terms conflict";

/// The plugin with its added affinity.
#[derive(Debug)]
pub(crate) struct NodeAffinity {
    required: Option<Arc<NodeSelector>>,
    preferred: Option<Arc<[PreferredNode]>>,
}

#[derive(Debug)]
struct Filter {
    added: Option<Arc<NodeSelector>>,
    spec: Arc<Spec>,
}

#[derive(Debug)]
struct Score {
    added: Option<Arc<[PreferredNode]>>,
    spec: Arc<Spec>,
}

impl NodeAffinity {
    pub(crate) fn new(args: &NodeAffinityArgs, strings: &mut Interner) -> Self {
        let added = args.added_affinity.as_ref();
        let required = added.and_then(|a| a.required.as_ref());
        let preferred = added.filter(|a| !a.preferred.is_empty());
        Self {
            required: required.map(|r| Arc::new(NodeSelector::new(r, strings))),
            preferred: preferred.map(|a| preferred_nodes(&a.preferred, strings).into()),
        }
    }

    fn accepts(&self, cluster: &Cluster, pod: PodId, name: Sym, node: &NodeInfo) -> bool {
        let strings = &cluster.strings;
        self.required.as_ref().is_none_or(|r| r.matches(name, &node.labels, strings))
            && cluster.shape(pod).spec.selects_node(name, &node.labels, strings)
    }
}

/// The only node names the required terms accept; `None`: not restricted by name.
fn node_names(required: &NodeSelector, strings: &Interner) -> Option<Vec<Sym>> {
    let mut all: Vec<Sym> = Vec::new();
    for term in &required.0 {
        all.append(&mut term.names(strings)?);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::with_args_of(
        "NodeAffinity",
        &[ExtensionPoint::PreFilter, ExtensionPoint::Filter, ExtensionPoint::PreScore, ExtensionPoint::Score],
        |args: &NodeAffinityArgs, handle| Box::new(NodeAffinity::new(args, handle.strings())),
    )
    .by_default(2)
}

impl Plugin for NodeAffinity {
    fn is_local(&self, cluster: &Cluster, pod: &Incoming) -> bool {
        // Terms that name nodes are better served by looking at those nodes only.
        let required = pod.shape.spec.node_required.as_ref();
        required.is_none_or(|r| node_names(r, &cluster.strings).is_none())
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        let spec = &pod.shape.spec;
        if spec.node_required.is_none() && self.required.is_none() && spec.node_selector.is_empty() {
            return PreFilterResult::Skip;
        }
        let state = Box::new(Filter { added: self.required.clone(), spec: Arc::clone(spec) });
        let required = spec.node_required.as_ref().filter(|r| !r.0.is_empty());
        let nodes = required.and_then(|r| node_names(r, &cluster.strings));
        if nodes.as_ref().is_some_and(Vec::is_empty) {
            return PreFilterResult::Reject(Status::unresolvable(REASON_CONFLICT));
        }
        PreFilterResult::Go { nodes, state }
    }

    fn pre_score(
        &self,
        _cluster: &Cluster,
        pod: &Incoming,
        _feasible: &[NodeId],
        _state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        let spec = &pod.shape.spec;
        if spec.node_preferred.is_empty() && self.preferred.is_none() {
            return None;
        }
        Some(Box::new(Score { added: self.preferred.clone(), spec: Arc::clone(spec) }))
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const { &[ClusterEventWithHint::hinted(EventResource::Node, ActionType::ADD.or(ActionType::NODE_LABEL))] }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        let Payload::Node { name, old, new: Some(new) } = &change.payload else { return false };
        self.accepts(cluster, pod, *name, new)
            && old.as_ref().is_none_or(|o| !self.accepts(cluster, pod, *name, o))
    }
}

impl FilterState for Filter {
    fn is_fixed(&self) -> bool {
        true
    }

    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let row = &cluster.nodes[node];
        let (name, labels) = (row.name, &row.info.labels);
        if self.added.as_ref().is_some_and(|a| !a.matches(name, labels, &cluster.strings)) {
            return Status::unresolvable(REASON_ADDED);
        }
        if !self.spec.selects_node(name, labels, &cluster.strings) {
            return Status::unresolvable(REASON_POD);
        }
        Status::success()
    }
}

impl ScoreState for Score {
    fn is_fixed(&self) -> bool {
        true
    }

    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let row = &cluster.nodes[node];
        let added = self.added.iter().flat_map(|a| a.iter());
        let all = added.chain(&self.spec.node_preferred);
        all.filter(|p| p.term.matches(row.name, &row.info.labels, &cluster.strings)).map(|p| p.weight).sum()
    }

    fn normalization(&self) -> Normalization {
        Normalization::ByMax { reverse: false }
    }

    fn normalize_score(&self, _cluster: &Cluster, _nodes: &[NodeId], scores: &mut [i64]) {
        normalize_by_max(scores, false);
    }
}
