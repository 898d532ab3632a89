//! NodePorts: host ports (spec section 5.3).

use crate::cluster::ports::conflict;
use crate::cluster::spec::Spec;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{Actions, Change, Interest, Payload, Resource};
use crate::framework::{FilterState, Incoming, Plugin, PluginId, PreFilter, Status};
use std::sync::Arc;

const REASON: &str = "node(s) didn't have free ports for the requested pod ports";

/// The plugin.
#[derive(Debug)]
pub(crate) struct NodePorts;

#[derive(Debug)]
struct State(Arc<Spec>);

impl Plugin for NodePorts {
    fn id(&self) -> PluginId {
        PluginId::NodePorts
    }

    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_filter(&self, _cluster: &Cluster, pod: &Incoming) -> PreFilter {
        if pod.shape.spec.ports.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::go(State(Arc::clone(&pod.shape.spec)))
    }

    fn interests(&self) -> &'static [Interest] {
        const {
            &[
                Interest::hinted(Resource::AssignedPod, Actions::DELETE),
                Interest::always(Resource::Node, Actions::ADD),
            ]
        }
    }

    fn hint(&self, cluster: &Cluster, pod: PodId, change: &Change) -> bool {
        match &change.payload {
            Payload::Pod { old: Some(old), new: None, .. } => {
                (old.node.is_some() || old.nominated)
                    && conflict(&cluster.shape(pod).spec.ports, &old.shape.spec.ports)
            }
            Payload::Node { .. } => true,
            Payload::Pod { .. } | Payload::Object(_) => false,
        }
    }
}

impl FilterState for State {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        if conflict(&self.0.ports, &cluster.nodes[node].ports) {
            return Status::unschedulable(PluginId::NodePorts, REASON);
        }
        Status::success()
    }
}
