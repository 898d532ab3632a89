//! NodeUnschedulable: cordoned nodes (spec section 5.3).

use crate::cluster::spec::Taint;
use crate::cluster::{Cluster, NodeId, PodId};
use crate::events::{Actions, Change, Interest, Payload, Resource};
use crate::framework::{FilterState, Incoming, Plugin, PluginId, PreFilter, Status};
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

impl Plugin for NodeUnschedulable {
    fn id(&self) -> PluginId {
        PluginId::NodeUnschedulable
    }

    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_filter(&self, _cluster: &Cluster, pod: &Incoming) -> PreFilter {
        if pod.shape.spec.tolerates(&self.0) { PreFilter::Skip } else { PreFilter::go(State) }
    }

    fn interests(&self) -> &'static [Interest] {
        const {
            &[
                Interest::hinted(Resource::Node, Actions::ADD.or(Actions::NODE_TAINT)),
                Interest::hinted(Resource::Pod, Actions::POD_TOLERATION),
            ]
        }
    }

    fn hint(&self, cluster: &Cluster, pod: PodId, change: &Change) -> bool {
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
        Status::unresolvable(PluginId::NodeUnschedulable, REASON)
    }
}
