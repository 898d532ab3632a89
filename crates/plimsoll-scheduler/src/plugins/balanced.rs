//! NodeResourcesBalancedAllocation: resources of a node used in the same proportion (upstream
//! `plugins/noderesources/balanced_allocation.go`).

use super::fit::ResourceKind;
use crate::args::Args;
use crate::cluster::spec::Spec;
use crate::cluster::{Cluster, NodeId};
use crate::framework::{CycleState, Incoming, Normalization, Plugin, ScoreState};
use plimsoll_state::cast::whole;
use plimsoll_state::intern::Interner;
use smallvec::SmallVec;
use std::sync::Arc;

/// The plugin with the resources it scores.
#[derive(Debug)]
pub(crate) struct Balanced(Arc<[ResourceKind]>);

#[derive(Debug)]
struct State {
    resources: Arc<[ResourceKind]>,
    spec: Arc<Spec>,
}

impl Balanced {
    pub(crate) fn new(args: &Args, strings: &mut Interner) -> Self {
        Self(args.balanced.iter().map(|r| ResourceKind::new(r, strings)).collect())
    }
}

impl Plugin for Balanced {
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
        let spec = &pod.shape.spec;
        if self.0.iter().all(|r| r.of(&spec.requests) == 0) {
            return None;
        }
        Some(Box::new(State { resources: Arc::clone(&self.0), spec: Arc::clone(spec) }))
    }
}

/// 100 for equal fractions, less the more they differ.
fn balance(fractions: &[f64]) -> i64 {
    let deviation = match fractions {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        more => {
            let n = more.len() as f64;
            let mean = more.iter().sum::<f64>() / n;
            (more.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / n).sqrt()
        }
    };
    whole((1.0 - deviation) * 100.0)
}

impl ScoreState for State {
    fn normalization(&self) -> Normalization {
        Normalization::None
    }

    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        let mut with: SmallVec<[f64; 4]> = SmallVec::new();
        let mut without: SmallVec<[f64; 4]> = SmallVec::new();
        for r in self.resources.iter() {
            let wanted = r.of(&self.spec.requests);
            if wanted == 0 && r.is_scalar() {
                continue;
            }
            let (alloc, used) = r.on_node(cluster, node, false);
            if alloc == 0 {
                continue;
            }
            let fraction = |amount: i64| (amount as f64 / alloc as f64).min(1.0);
            with.push(fraction(used.saturating_add(wanted)));
            without.push(fraction(used));
        }
        50 + (50 + balance(&with) - balance(&without)) / 2
    }
}

#[cfg(test)]
mod tests {
    use super::balance;

    #[test]
    fn equal_fractions_are_balanced() {
        assert_eq!(balance(&[]), 100);
        assert_eq!(balance(&[0.3, 0.3]), 100);
        assert_eq!(balance(&[0.0, 1.0]), 50);
        assert_eq!(balance(&[0.0, 0.5, 1.0]), 59);
    }
}
