//! NodeName: `spec.nodeName` (upstream `plugins/nodename/node_name.go`).

use crate::cluster::{Cluster, NodeId};
use crate::events::{ActionType, ClusterEventWithHint, EventResource};
use crate::framework::{
    CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreFilterResult, Registration, Status,
};
use plimsoll_state::intern::Sym;

const REASON: &str = "node(s) didn't match the requested node name";

/// The plugin.
#[derive(Debug)]
pub(crate) struct NodeName;

#[derive(Debug)]
struct State(Sym);

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("NodeName", &[ExtensionPoint::Filter], |_, _| Box::new(NodeName)).by_default(0)
}

impl Plugin for NodeName {
    fn is_local(&self, _cluster: &Cluster, pod: &Incoming) -> bool {
        pod.node_name.is_none()
    }

    fn pre_filter(&self, _cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        pod.node_name.map_or(PreFilterResult::Skip, |name| PreFilterResult::go(State(name)))
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const { &[ClusterEventWithHint::always(EventResource::Node, ActionType::ADD)] }
    }
}

impl FilterState for State {
    fn is_fixed(&self) -> bool {
        true
    }

    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        if cluster.nodes[node].name == self.0 {
            return Status::success();
        }
        Status::unresolvable(REASON)
    }
}
