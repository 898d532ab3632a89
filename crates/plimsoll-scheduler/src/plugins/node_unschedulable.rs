//! NodeUnschedulable: cordoned nodes (upstream `plugins/nodeunschedulable/node_unschedulable.go`).

use crate::cluster::spec::Taint;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreFilterResult, Registration, Status,
};
use plimsoll_state::intern::{Interner, Sym};
use plimsoll_state::model::TaintEffect;

const REASON: &str = "node(s) were unschedulable";

/// The plugin; knows the taint that stands for a cordon.
#[derive(Debug)]
pub(crate) struct NodeUnschedulable(Taint);

#[derive(Debug)]
struct State;

impl NodeUnschedulable {
    pub(crate) fn new(strings: &mut Interner) -> Self {
        let key = strings.intern("node.kubernetes.io/unschedulable");
        Self(Taint { key, value: Sym::EMPTY, effect: TaintEffect::NoSchedule })
    }
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("NodeUnschedulable", &[ExtensionPoint::Filter], |_, handle| {
        Box::new(NodeUnschedulable::new(handle.strings()))
    })
    .by_default(0)
}

impl Plugin for NodeUnschedulable {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_filter(&self, _cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        if pod.shape.spec.tolerates(&self.0) { PreFilterResult::Skip } else { PreFilterResult::go(State) }
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(EventResource::Node, ActionType::ADD.or(ActionType::NODE_TAINT)),
                ClusterEventWithHint::hinted(EventResource::Pod, ActionType::POD_TOLERATION),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        match &change.payload {
            Payload::Node { old, new: Some(new), .. } => {
                !new.unschedulable && old.as_ref().is_none_or(|o| o.unschedulable)
            }
            Payload::Pod { id, .. } => *id == pod && cluster.shape(pod).spec.tolerates(&self.0),
            Payload::Node { .. } | Payload::Object(_) => false,
        }
    }
}

impl FilterState for State {
    fn is_fixed(&self) -> bool {
        true
    }

    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        if !cluster.nodes[node].info.unschedulable {
            return Status::success();
        }
        Status::unresolvable(REASON)
    }
}
