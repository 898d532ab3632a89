//! DynamicResources: device claims (spec section 5.10).
//!
//! Pods without claims pass; pods with claims are refused until claims are taken in as objects.

use crate::place::cluster::{Cluster, NodeId};
use crate::place::framework::{FilterState, Incoming, Plugin, PluginId, PreFilter, ScoreState, Status};

/// The plugin.
#[derive(Debug)]
pub(crate) struct DynamicResources;

#[derive(Debug)]
struct Score;

impl Plugin for DynamicResources {
    fn id(&self) -> PluginId {
        PluginId::DynamicResources
    }

    fn pre_filter(&self, _cluster: &Cluster, pod: &Incoming) -> PreFilter {
        if pod.shape.spec.source.resource_claims.is_empty() {
            return PreFilter::Skip;
        }
        PreFilter::Reject(Status::unresolvable(self.id(), "device claims are not supported"))
    }

    fn pre_score(
        &self,
        _cluster: &Cluster,
        _pod: &Incoming,
        _feasible: &[NodeId],
        _filter: Option<&dyn FilterState>,
    ) -> Option<Box<dyn ScoreState>> {
        Some(Box::new(Score))
    }
}

impl ScoreState for Score {
    fn score(&self, _cluster: &Cluster, _node: NodeId) -> i64 {
        0
    }
}
