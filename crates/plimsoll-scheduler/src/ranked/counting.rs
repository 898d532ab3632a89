//! Counters of plugins for ranked pods, and scores that are scaled.

use crate::cluster::{Changed, Cluster, Moved, NodeId};
use crate::cycle::Scoring;
use crate::framework::{Place, Topology, Touched};
use crate::metrics::Metered;
use crate::runner::Layer;
use std::sync::Arc;

/// A score that is scaled by the largest raw score among feasible nodes. Raw scores are coordinates of classes.
#[derive(Debug)]
pub(super) struct Scaled {
    pub scoring: Scoring,
    pub reverse: bool,
}

impl Scaled {
    pub fn score(&self, raw: i64, max: i64) -> i64 {
        let scaled = if max == 0 { 0 } else { raw.saturating_mul(100) / max };
        i64::from(self.scoring.weight).saturating_mul(if self.reverse { 100 - scaled } else { scaled })
    }
}

/// Follows one change; false: everything must be counted afresh.
pub(super) fn recount(layer: &mut Layer, cluster: &Cluster, one: &Changed, touched: &mut Touched) -> bool {
    if one.taints && layer.counts.heeds_taints() {
        return false;
    }
    let there = || cluster.nodes.get(one.node).is_some_and(|n| n.exists);
    match &one.moved {
        Some(moved) if there() => layer.counts.pod(cluster, moved, one.node, touched),
        _ => true,
    }
}

/// Counts a node and the pods on it, to make counters.
pub(super) fn count_node(layers: &mut [Layer], cluster: &Cluster, id: NodeId) {
    let Some(node) = cluster.nodes.get(id).filter(|n| n.exists) else { return };
    layers.iter_mut().for_each(|layer| layer.counts.node(cluster, id));
    let mut touched = Touched::new();
    for pod in &node.pods {
        let deleting = cluster.pods[*pod].deleting;
        let moved = Moved { shape: Arc::clone(cluster.shape(*pod)), deleting, by: 1 };
        for layer in layers.iter_mut() {
            layer.counts.pod(cluster, &moved, id, &mut touched);
            touched.clear();
        }
    }
}

/// Everything is counted.
pub(super) fn settle(layers: &mut [Layer], cluster: &Cluster, topology: &mut Topology) {
    for layer in layers {
        layer.counts.settle(cluster, topology);
        let mut place = Place::new();
        if let Some((id, _)) = cluster.nodes.iter().find(|(_, n)| n.exists) {
            layer.counts.place(cluster, id, &mut place);
        }
        layer.width = place.len();
    }
}

/// The weighted sum of scores.
#[inline(always)]
pub(super) fn sum(list: &[Scoring], score: impl Fn(&Scoring) -> i64) -> i64 {
    list.iter().fold(0, |sum: i64, s| sum.saturating_add(score(s).saturating_mul(i64::from(s.weight))))
}

#[cold]
pub(super) fn measured_sum(meter: &Metered, cluster: &Cluster, node: NodeId, list: &[Scoring]) -> i64 {
    sum(list, |s| meter.score(s.plugin, || s.state.score(cluster, node)))
}
