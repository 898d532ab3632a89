//! NodePorts: host ports (upstream `plugins/nodeports/node_ports.go`).

use crate::cluster::ports::conflict;
use crate::cluster::spec::Spec;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreFilterResult, Registration, Status,
};
use std::sync::Arc;

const REASON: &str = "node(s) didn't have free ports for the requested pod ports";

/// The plugin.
#[derive(Debug)]
pub(crate) struct NodePorts;

#[derive(Debug)]
struct State(Arc<Spec>);

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("NodePorts", &[ExtensionPoint::PreFilter, ExtensionPoint::Filter], |_, _| {
        Box::new(NodePorts)
    })
    .by_default(0)
}

impl Plugin for NodePorts {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_filter(&self, _cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        if pod.shape.spec.ports.is_empty() {
            return PreFilterResult::Skip;
        }
        PreFilterResult::go(State(Arc::clone(&pod.shape.spec)))
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(EventResource::AssignedPod, ActionType::DELETE),
                ClusterEventWithHint::always(EventResource::Node, ActionType::ADD),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
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
            return Status::unschedulable(REASON);
        }
        Status::success()
    }
}
