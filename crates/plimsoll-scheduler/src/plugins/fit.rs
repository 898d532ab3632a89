//! NodeResourcesFit: enough cpu, memory and everything else (upstream `plugins/noderesources/fit.go`).

mod args;

use super::scoring::MAX_SCORE;
use crate::cluster::amounts::{Amounts, is_scalar};
use crate::cluster::node::{CPU, EPHEMERAL, MEMORY, PODS};
use crate::cluster::objects::ObjectChange;
use crate::cluster::spec::Spec;
use crate::cluster::{Cluster, NodeId, NodeInfo, PodId};
use crate::events::{ActionType, ClusterEvent, ClusterEventWithHint, EventResource, Payload, PodSnapshot};
use crate::framework::{
    Code, CycleState, ExtensionPoint, FilterState, Incoming, Normalization, Plugin, PreFilterResult, Reason,
    Registration, ScoreState, Status,
};
use plimsoll_state::intern::{Interner, Sym};
use plimsoll_state::model::is_extended_resource;
use plimsoll_state::slab::Id;
use smallvec::SmallVec;
use std::sync::Arc;

pub use args::{FitArgs, ResourceWeight, StrategyKind};

/// Name of the plugin.
const NAME: &str = "NodeResourcesFit";

/// Where the amount of a resource is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResourceKind {
    Cpu,
    Memory,
    Ephemeral,
    Scalar(Sym),
    /// A name that nodes don't count.
    Unknown,
}

impl ResourceKind {
    pub(super) fn new(name: &str, strings: &mut Interner) -> Self {
        match name {
            "cpu" => Self::Cpu,
            "memory" => Self::Memory,
            "ephemeral-storage" => Self::Ephemeral,
            other if is_scalar(other) => Self::Scalar(strings.intern(other)),
            _ => Self::Unknown,
        }
    }

    pub(super) fn of(self, amounts: &Amounts) -> i64 {
        match self {
            Self::Cpu => amounts.cpu,
            Self::Memory => amounts.memory,
            Self::Ephemeral => amounts.ephemeral,
            Self::Scalar(name) => amounts.scalar(name),
            Self::Unknown => 0,
        }
    }

    pub(super) fn is_scalar(self) -> bool {
        matches!(self, Self::Scalar(_))
    }

    /// Allocatable and requested on a node; with `nonzero`, cpu and memory with defaults.
    pub(super) fn on_node(self, cluster: &Cluster, node: NodeId, nonzero: bool) -> (i64, i64) {
        let c = &cluster.columns;
        let n = node.index();
        let column = |r: usize| (c.alloc[r][n], c.used[r][n]);
        match self {
            Self::Cpu if nonzero => (c.alloc[CPU][n], c.nonzero[0][n]),
            Self::Memory if nonzero => (c.alloc[MEMORY][n], c.nonzero[1][n]),
            Self::Cpu => column(CPU),
            Self::Memory => column(MEMORY),
            Self::Ephemeral => column(EPHEMERAL),
            Self::Scalar(name) => cluster.nodes[node].scalar(name),
            Self::Unknown => (0, 0),
        }
    }
}

#[derive(Debug)]
struct Strategy {
    kind: StrategyKind,
    resources: Vec<(ResourceKind, i64)>,
    /// Utilization and score, the score already scaled to 0..=100.
    shape: Vec<(i64, i64)>,
}

impl Strategy {
    fn score(&self, cluster: &Cluster, node: NodeId, wanted: &Amounts) -> i64 {
        let (mut sum, mut weights) = (0i64, 0i64);
        for (resource, weight) in &self.resources {
            let amount = resource.of(wanted);
            if amount == 0 && resource.is_scalar() {
                continue;
            }
            let (alloc, used) = resource.on_node(cluster, node, true);
            if alloc == 0 {
                continue;
            }
            let score = self.one(used.saturating_add(amount), alloc);
            if score == 0 && self.kind == StrategyKind::RequestedToCapacityRatio {
                continue;
            }
            sum += score * weight;
            weights += weight;
        }
        if weights == 0 {
            return 0;
        }
        match self.kind {
            // Rounded half away from zero; both are positive.
            StrategyKind::RequestedToCapacityRatio => (2 * sum + weights) / (2 * weights),
            StrategyKind::LeastAllocated | StrategyKind::MostAllocated => sum / weights,
        }
    }

    /// Score of one resource: `used` of `alloc`, which is not 0.
    fn one(&self, used: i64, alloc: i64) -> i64 {
        match self.kind {
            StrategyKind::LeastAllocated if used > alloc => 0,
            StrategyKind::LeastAllocated => (alloc - used).saturating_mul(MAX_SCORE) / alloc,
            StrategyKind::MostAllocated => used.min(alloc).saturating_mul(MAX_SCORE) / alloc,
            StrategyKind::RequestedToCapacityRatio if used > alloc => self.at_utilization(100),
            StrategyKind::RequestedToCapacityRatio => self.at_utilization(used.saturating_mul(100) / alloc),
        }
    }

    /// Piecewise linear interpolation in integers.
    fn at_utilization(&self, u: i64) -> i64 {
        let mut before: Option<(i64, i64)> = None;
        for (x, y) in &self.shape {
            if u <= *x {
                return match before {
                    None => *y,
                    Some((px, py)) => py + (y - py) * (u - px) / (x - px),
                };
            }
            before = Some((*x, *y));
        }
        before.map_or(0, |(_, y)| y)
    }
}

/// The plugin with its arguments.
#[derive(Debug)]
pub(crate) struct Fit {
    ignored: Arc<Ignored>,
    strategy: Arc<Strategy>,
}

#[derive(Debug)]
struct Ignored {
    resources: Vec<String>,
    groups: Vec<String>,
}

impl Ignored {
    fn has(&self, name: &str) -> bool {
        is_extended_resource(name)
            && (self.resources.iter().any(|r| r == name)
                || name.split_once('/').is_some_and(|(g, _)| self.groups.iter().any(|x| x == g)))
    }
}

#[derive(Debug)]
struct Filter {
    spec: Arc<Spec>,
    ignored: SmallVec<[Sym; 1]>,
}

#[derive(Debug)]
struct Score {
    spec: Arc<Spec>,
    strategy: Arc<Strategy>,
}

impl Fit {
    pub(crate) fn new(args: &FitArgs, strings: &mut Interner) -> Self {
        Self {
            ignored: Arc::new(Ignored {
                resources: args.ignored_resources.clone(),
                groups: args.ignored_resource_groups.clone(),
            }),
            strategy: Arc::new(Strategy {
                kind: args.strategy,
                resources: args
                    .resources
                    .iter()
                    .map(|r| (ResourceKind::new(&r.name, strings), r.weight.max(1)))
                    .collect(),
                shape: args.shape.iter().map(|(x, y)| (*x, *y * 10)).collect(),
            }),
        }
    }

    fn ignored(&self, cluster: &Cluster, spec: &Spec) -> SmallVec<[Sym; 1]> {
        let names = spec.requests.scalars.iter().map(|(name, _)| *name);
        names.filter(|n| self.ignored.has(cluster.strings.text(*n))).collect()
    }

    /// Whether the pod fits the node when nothing else is on it.
    fn fits_empty(&self, cluster: &Cluster, spec: &Spec, node: &NodeInfo) -> bool {
        let r = &spec.requests;
        let ignored = self.ignored(cluster, spec);
        node.alloc[PODS] >= 1
            && (r.cpu == 0 || r.cpu <= node.alloc[CPU])
            && (r.memory == 0 || r.memory <= node.alloc[MEMORY])
            && (r.ephemeral == 0 || r.ephemeral <= node.alloc[EPHEMERAL])
            && r.scalars.iter().all(|(name, want)| {
                *want == 0 || ignored.contains(name) || *want <= scalar_alloc(node, *name)
            })
    }
}

fn scalar_alloc(node: &NodeInfo, name: Sym) -> i64 {
    node.scalars.iter().find(|(n, _)| *n == name).map_or(0, |(_, a)| *a)
}

/// Whether a node offers more pods, or more of something the pod asks for.
fn offers_more(spec: &Spec, old: &NodeInfo, new: &NodeInfo) -> bool {
    let r = &spec.requests;
    let more = |i: usize| new.alloc[i] > old.alloc[i];
    more(PODS)
        || (r.cpu > 0 && more(CPU))
        || (r.memory > 0 && more(MEMORY))
        || (r.ephemeral > 0 && more(EPHEMERAL))
        || r.scalars
            .iter()
            .any(|(name, want)| *want > 0 && scalar_alloc(new, *name) > scalar_alloc(old, *name))
}

/// Whether a placed pod gave back something the pod asks for.
fn frees(spec: &Spec, old: &PodSnapshot, new: &PodSnapshot) -> bool {
    let (r, old, new) = (&spec.requests, &old.usage.requests, &new.usage.requests);
    (r.cpu > 0 && old.cpu > new.cpu)
        || (r.memory > 0 && old.memory > new.memory)
        || (r.ephemeral > 0 && old.ephemeral > new.ephemeral)
        || r.scalars.iter().any(|(name, want)| *want > 0 && old.scalar(*name) > new.scalar(*name))
}

/// How the plugin is registered.
pub(super) fn registration() -> Registration {
    Registration::with_args_of(
        NAME,
        &[ExtensionPoint::PreFilter, ExtensionPoint::Filter, ExtensionPoint::PreScore, ExtensionPoint::Score],
        |args: &FitArgs, handle| Box::new(Fit::new(args, handle.strings())),
    )
    .by_default(1)
}

impl Plugin for Fit {
    fn is_local(&self, _cluster: &Cluster, _pod: &Incoming) -> bool {
        true
    }

    fn pre_filter(&self, cluster: &Cluster, pod: &Incoming, _state: &mut CycleState) -> PreFilterResult {
        let spec = Arc::clone(&pod.shape.spec);
        let ignored = self.ignored(cluster, &spec);
        PreFilterResult::go(Filter { spec, ignored })
    }

    fn pre_score(
        &self,
        _cluster: &Cluster,
        pod: &Incoming,
        _feasible: &[NodeId],
        _state: &CycleState,
    ) -> Option<Box<dyn ScoreState>> {
        Some(Box::new(Score { spec: Arc::clone(&pod.shape.spec), strategy: Arc::clone(&self.strategy) }))
    }

    fn events_to_register(&self) -> &[ClusterEventWithHint] {
        const {
            &[
                ClusterEventWithHint::hinted(
                    EventResource::Pod,
                    ActionType::DELETE.or(ActionType::POD_SCALE_DOWN),
                ),
                ClusterEventWithHint::hinted(
                    EventResource::Node,
                    ActionType::ADD.or(ActionType::NODE_ALLOCATABLE),
                ),
                ClusterEventWithHint::hinted(
                    EventResource::DeviceClass,
                    ActionType::ADD.or(ActionType::UPDATE),
                ),
            ]
        }
    }

    fn queueing_hint(&self, cluster: &Cluster, pod: PodId, change: &ClusterEvent) -> bool {
        let spec = &cluster.shape(pod).spec;
        match &change.payload {
            Payload::Pod { old: Some(old), new: None, .. } => old.node.is_some() || old.nominated,
            Payload::Pod { id, old: Some(old), new: Some(new) } => {
                *id == pod || (new.node.is_some() && frees(spec, old, new))
            }
            Payload::Node { old, new: Some(new), .. } => {
                self.fits_empty(cluster, spec, new) && old.as_ref().is_none_or(|o| offers_more(spec, o, new))
            }
            Payload::Object(ObjectChange::DeviceClass((_, Some(class)))) => {
                let resource = class.extended_resource.as_deref();
                let asked = |(name, _): &(Sym, i64)| resource == Some(cluster.strings.text(*name));
                spec.requests.scalars.iter().any(asked)
            }
            Payload::Node { .. } | Payload::Pod { .. } | Payload::Object(_) => false,
        }
    }
}

impl FilterState for Filter {
    fn filter(&self, cluster: &Cluster, node: NodeId) -> Status {
        let r = &self.spec.requests;
        let c = &cluster.columns;
        let mut reasons: SmallVec<[Reason; 1]> = SmallVec::new();
        let mut unresolvable = false;
        if c.free(PODS, node) < 1 {
            reasons.push(Reason::Text("Too many pods"));
        }
        if !r.is_nothing() {
            let columns = [
                (r.cpu, CPU, "Insufficient cpu"),
                (r.memory, MEMORY, "Insufficient memory"),
                (r.ephemeral, EPHEMERAL, "Insufficient ephemeral-storage"),
            ];
            for (want, column, text) in columns {
                if want > 0 && want > c.free(column, node) {
                    reasons.push(Reason::Text(text));
                    unresolvable |= want > c.alloc[column][node.index()];
                }
            }
            for (name, want) in &r.scalars {
                if *want == 0 || self.ignored.contains(name) {
                    continue;
                }
                let (alloc, used) = cluster.nodes[node].scalar(*name);
                if alloc == 0 && cluster.is_backed_by_devices(*name) {
                    continue;
                }
                if *want > alloc.saturating_sub(used) {
                    reasons.push(Reason::With("Insufficient {}", [*name, Sym::EMPTY]));
                    unresolvable |= *want > alloc;
                }
            }
        }
        if reasons.is_empty() {
            return Status::success();
        }
        let code = if unresolvable { Code::Unresolvable } else { Code::Unschedulable };
        Status { code, plugin: None, reasons }
    }
}

impl ScoreState for Score {
    fn normalization(&self) -> Normalization {
        Normalization::None
    }

    fn score(&self, cluster: &Cluster, node: NodeId) -> i64 {
        self.strategy.score(cluster, node, &self.spec.scored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_interpolate_in_integers() {
        let s = Strategy {
            kind: StrategyKind::RequestedToCapacityRatio,
            resources: Vec::new(),
            shape: vec![(10, 20), (50, 100), (90, 0)],
        };
        for (u, want) in [(0, 20), (10, 20), (30, 60), (50, 100), (70, 50), (100, 0)] {
            assert_eq!(s.at_utilization(u), want, "{u}");
        }
    }
}
