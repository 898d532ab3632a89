//! TaintToleration: taints that the pod tolerates, or better avoids (upstream
//! `plugins/tainttoleration/taint_toleration.go`).

use super::scoring::normalize_by_max;
use crate::cluster::spec::{Spec, Taint};
use crate::cluster::{Cluster, NodeId, NodeInfo, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload};
use crate::framework::{
    CycleState, ExtensionPoint, FilterState, Incoming, Normalization, Plugin, PreFilterResult, Registration,
    ScoreState, Status,
};
use plimsoll_state::model::TaintEffect;
use std::sync::Arc;

const REASON: &str = "node(s) had untolerated taint(s)";

/// The plugin.
#[derive(Debug)]
pub(crate) struct TaintToleration;

#[derive(Debug)]
struct State(Arc<Spec>);

/// Whether the node has a taint that keeps the pod away.
pub(super) fn is_kept_away(spec: &Spec, node: &NodeInfo) -> bool {
    node.taints.iter().any(|t| t.effect != TaintEffect::PreferNoSchedule && !spec.tolerates(t))
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new(
        "TaintToleration",
        &[ExtensionPoint::Filter, ExtensionPoint::PreScore, ExtensionPoint::Score],
        |_, _| Box::new(TaintToleration),
    )
    .by_default(3)
}

impl Plugin for TaintToleration {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_filter(&self, _cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        PreFilterResult::go(State(Arc::clone(&pod.shape.spec)))
    }

    fn pre_score(
        &self,
        _cluster: &Cluster,
        pod: &Incoming,
        _feasible: &[NodeId],
        _state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        Some(Box::new(State(Arc::clone(&pod.shape.spec))))
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
                let spec = &cluster.shape(pod).spec;
                old.as_ref().is_none_or(|o| is_kept_away(spec, o)) && !is_kept_away(spec, new)
            }
            Payload::Pod { id, .. } => *id == pod,
            Payload::Node { .. } | Payload::Object(_) => false,
        }
    }
}

impl FilterState for State {
    fn is_fixed(&self) -> bool {
        true
    }

    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        if is_kept_away(&self.0, &cluster.nodes[node].info) {
            return Status::unresolvable(REASON);
        }
        Status::success()
    }
}

impl ScoreState for State {
    fn is_fixed(&self) -> bool {
        true
    }

    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let tolerated = |t: &Taint| self.0.tolerations.iter().any(|o| o.is_soft() && o.tolerates(t));
        let taints = cluster.nodes[node].info.taints.iter();
        let soft = taints.filter(|t| t.effect == TaintEffect::PreferNoSchedule && !tolerated(t));
        i64::try_from(soft.count()).unwrap_or(i64::MAX)
    }

    fn normalization(&self) -> Normalization {
        Normalization::ByMax { reverse: true }
    }

    fn normalize_score(&self, _cluster: &Cluster, _nodes: &[NodeId], scores: &mut [i64]) {
        normalize_by_max(scores, true);
    }
}
