//! NodeResourcesBalancedAllocation: resources of a node used in the same proportion (upstream
//! `plugins/noderesources/balanced_allocation.go`).

use super::fit::ResourceKind;
use crate::args::{ArgsError, Fields, PluginArgs, valid};
use crate::cluster::spec::Spec;
use crate::cluster::{Cluster, NodeId};
use crate::framework::{
    CycleState, ExtensionPoint, Incoming, Normalization, Plugin, Registration, ScoreState,
};
use plimsoll_state::cast::whole;
use plimsoll_state::intern::Interner;
use smallvec::SmallVec;
use std::sync::Arc;

/// `NodeResourcesBalancedAllocationArgs` (upstream `ValidateNodeResourcesBalancedAllocationArgs` in
/// `apis/config/validation/validation_pluginargs.go`): names of the resources.
#[derive(Debug)]
struct BalancedArgs(Vec<String>);

impl Default for BalancedArgs {
    fn default() -> Self {
        Self(["cpu", "memory"].map(str::to_owned).into())
    }
}

impl PluginArgs for BalancedArgs {
    fn decode(fields: &mut dyn Fields) -> Result<Self, Vec<ArgsError>> {
        let resource = |fields: &mut dyn Fields| {
            (fields.string("name").unwrap_or_default(), fields.int64("weight").unwrap_or_default())
        };
        let list = fields.list("resources", resource).unwrap_or_default();
        if list.is_empty() {
            return Ok(Self::default());
        }
        let (mut names, mut errors) = (Vec::new(), Vec::new());
        for (i, (name, weight)) in list.into_iter().enumerate() {
            if !(0..=1).contains(&weight) {
                let text = format!("Invalid value: {weight}: must be 1");
                errors.push(ArgsError::new(format!("resources[{i}].weight"), text));
            }
            if names.contains(&name) {
                let text = format!("Duplicate value: {name:?}");
                errors.push(ArgsError::new(format!("resources[{i}].name"), text));
            }
            names.push(name);
        }
        valid(Self(names), errors)
    }
}

/// The plugin with the resources it scores.
#[derive(Debug)]
pub(crate) struct Balanced(Arc<[ResourceKind]>);

#[derive(Debug)]
struct State {
    resources: Arc<[ResourceKind]>,
    spec: Arc<Spec>,
}

impl Balanced {
    fn new(args: &BalancedArgs, strings: &mut Interner) -> Self {
        Self(args.0.iter().map(|r| ResourceKind::new(r, strings)).collect())
    }
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::with_args_of(
        "NodeResourcesBalancedAllocation",
        &[ExtensionPoint::PreScore, ExtensionPoint::Score],
        |args: &BalancedArgs, handle| Box::new(Balanced::new(args, handle.strings())),
    )
    .by_default(1)
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
