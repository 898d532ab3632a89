//! NodeDeclaredFeatures: features of the kubelet that a pod needs (spec section 5.11).

use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{Actions, Change, Interest, Payload, Resource};
use crate::framework::{FilterState, Incoming, Plugin, PluginId, PreFilter, Status};
use plimsoll_state::intern::Sym;

const REASON: &str = "node(s) didn't match Pod's required features";

/// The plugin.
#[derive(Debug)]
pub(crate) struct NodeDeclaredFeatures;

/// Needed features; `None`: no node has ever declared it.
#[derive(Debug)]
struct State(Vec<Option<Sym>>);

impl Plugin for NodeDeclaredFeatures {
    fn id(&self) -> PluginId {
        PluginId::NodeDeclaredFeatures
    }

    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming) -> PreFilter {
        let needed = &pod.shape.spec.features;
        if needed.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::go(State(needed.iter().map(|f| cluster.strings.get(f)).collect()))
    }

    fn interests(&self) -> &'static [Interest] {
        const {
            &[
                Interest::hinted(Resource::Node, Actions::ADD.or(Actions::NODE_DECLARED_FEATURE)),
                Interest::hinted(Resource::Pod, Actions::UPDATE),
            ]
        }
    }

    fn hint(&self, _cluster: &Cluster, pod: PodId, change: &Change) -> bool {
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
        Status::unresolvable(PluginId::NodeDeclaredFeatures, REASON)
    }
}
