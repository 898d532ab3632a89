//! NodeName: `spec.nodeName` (spec section 5.3).

use crate::cluster::{Cluster, NodeId};
use crate::events::{Actions, Interest, Resource};
use crate::framework::{FilterState, Incoming, Plugin, PluginId, PreFilter, Status};
use plimsoll_state::intern::Sym;

const REASON: &str = "node(s) didn't match the requested node name";

/// The plugin.
#[derive(Debug)]
pub(crate) struct NodeName;

#[derive(Debug)]
struct State(Sym);

impl Plugin for NodeName {
    fn id(&self) -> PluginId {
        PluginId::NodeName
    }

    fn is_local(&self, _cluster: &Cluster, pod: &Incoming) -> bool {
        pod.node_name.is_none()
    }

    fn pre_filter(&self, _cluster: &Cluster, pod: &Incoming) -> PreFilter {
        pod.node_name.map_or(PreFilter::Skip, |name| PreFilter::go(State(name)))
    }

    fn interests(&self) -> &'static [Interest] {
        const { &[Interest::always(Resource::Node, Actions::ADD)] }
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
        Status::unresolvable(PluginId::NodeName, REASON)
    }
}
