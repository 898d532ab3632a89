//! NodeDeclaredFeatures: features of the kubelet that a pod needs (KEP-5328, upstream
//! `plugins/nodedeclaredfeatures/nodedeclaredfeatures.go`).

use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    CycleState, ExtensionPoint, FilterState, Incoming, Plugin, PreFilterResult, Registration, Status,
};
use plimsoll_state::intern::Sym;

const REASON: &str = "node(s) didn't match Pod's required features";

/// The plugin.
#[derive(Debug)]
pub(crate) struct NodeDeclaredFeatures;

/// Needed features; `None`: no node has ever declared it.
#[derive(Debug)]
struct State(Vec<Option<Sym>>);

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("NodeDeclaredFeatures", &[ExtensionPoint::PreFilter, ExtensionPoint::Filter], |_, _| {
        Box::new(NodeDeclaredFeatures)
    })
    .by_default(0)
}

impl Plugin for NodeDeclaredFeatures {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        let needed = &pod.shape.spec.features;
        if needed.is_empty() {
            return PreFilterResult::Skip;
        }
        PreFilterResult::go(State(needed.iter().map(|f| cluster.strings.get(f)).collect()))
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(
                    EventResource::Node,
                    ActionType::ADD.or(ActionType::NODE_DECLARED_FEATURE),
                ),
                ClusterEventWithHint::hinted(EventResource::Pod, ActionType::UPDATE),
            ]
        }
    }

    fn queueing_hint(&self, _cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        match &change.payload {
            Payload::Node { old, new: Some(new), .. } => {
                old.as_ref().is_none_or(|o| o.features != new.features)
            }
            Payload::Pod { id, old: Some(old), new: Some(new) } => {
                *id == pod && old.shape.spec.features != new.shape.spec.features
            }
            Payload::Node { .. } | Payload::Pod { .. } | Payload::Object(_) => false,
        }
    }
}

impl FilterState for State {
    fn is_fixed(&self) -> bool {
        true
    }

    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let declared = &cluster.nodes[node].info.features;
        if self.0.iter().all(|f| f.is_some_and(|f| declared.contains(&f))) {
            return Status::success();
        }
        Status::unresolvable(REASON)
    }
}
