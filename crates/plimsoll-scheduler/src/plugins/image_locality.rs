//! ImageLocality: nodes that have the images already (upstream
//! `plugins/imagelocality/image_locality.go`).

use plimsoll_state::cast::whole;

use super::scoring::MAX_SCORE;
use crate::cluster::spec::Spec;
use crate::cluster::{Cluster, NodeId};
use crate::framework::{
    CycleState, ExtensionPoint, Incoming, Normalization, Plugin, Registration, ScoreState,
};
use std::sync::Arc;

const MIB: i64 = 1024 * 1024;
const MIN_THRESHOLD: i64 = 23 * MIB;
const MAX_CONTAINER_THRESHOLD: i64 = 1000 * MIB;

/// The plugin.
#[derive(Debug)]
pub(crate) struct ImageLocality;

#[derive(Debug)]
struct State(Arc<Spec>);

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::new("ImageLocality", &[ExtensionPoint::Score], |_, _| Box::new(ImageLocality)).by_default(1)
}

impl Plugin for ImageLocality {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
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
}

impl ScoreState for State {
    fn is_fixed(&self) -> bool {
        true
    }

    fn normalization(&self) -> Normalization {
        Normalization::None
    }

    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let info = &cluster.nodes[node].info;
        if info.images.is_empty() {
            return 0;
        }
        let total = cluster.node_count as f64;
        let mut sum: i64 = 0;
        for name in &self.0.images {
            let Some(size) = info.image_size(*name) else { continue };
            let having = cluster.image_nodes.get(name).copied().unwrap_or(0);
            sum = sum.saturating_add(whole(size as f64 * (f64::from(having) / total)));
        }
        let containers = i64::try_from(self.0.container_images).unwrap_or(i64::MAX);
        let max = MAX_CONTAINER_THRESHOLD.saturating_mul(containers).max(MIN_THRESHOLD + 1);
        MAX_SCORE * (sum.clamp(MIN_THRESHOLD, max) - MIN_THRESHOLD) / (max - MIN_THRESHOLD)
    }
}
