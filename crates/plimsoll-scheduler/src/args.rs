//! Arguments of plugins, with upstream's defaults (upstream `pkg/scheduler/apis/config/v1/defaults.go`).

use plimsoll_state::model::{NodeAffinity, SpreadConstraint};
use std::collections::BTreeMap;

/// How NodeResourcesFit scores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrategyKind {
    /// Prefer empty nodes.
    #[default]
    LeastAllocated,
    /// Prefer full nodes.
    MostAllocated,
    /// Prefer by a function of the utilization.
    RequestedToCapacityRatio,
}

/// A resource and how much it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceWeight {
    /// Resource name.
    pub name: String,
    /// 1 to 100.
    pub weight: i64,
}

impl ResourceWeight {
    fn one(name: &str) -> Self {
        Self { name: name.to_owned(), weight: 1 }
    }
}

/// `NodeResourcesFitArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FitArgs {
    /// Extended resources that are not filtered.
    pub ignored_resources: Vec<String>,
    /// Prefixes (before `/`) of extended resources that are not filtered.
    pub ignored_resource_groups: Vec<String>,
    /// How to score.
    pub strategy: StrategyKind,
    /// What to score.
    pub resources: Vec<ResourceWeight>,
    /// For `RequestedToCapacityRatio`: (utilization 0..=100, score 0..=10), increasing.
    pub shape: Vec<(i64, i64)>,
}

impl Default for FitArgs {
    fn default() -> Self {
        Self {
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
            strategy: StrategyKind::default(),
            resources: vec![ResourceWeight::one("cpu"), ResourceWeight::one("memory")],
            shape: Vec::new(),
        }
    }
}

/// `InterPodAffinityArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterPodAffinityArgs {
    /// Score of required affinity terms of existing pods, 0 to 100.
    pub hard_pod_affinity_weight: i64,
    /// Leave out preferred terms of existing pods when the incoming pod has none.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

/// `DefaultPreemptionArgs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptionArgs {
    /// Share of nodes that are tried, in percent.
    pub min_candidate_nodes_percentage: u32,
    /// Number of nodes that are tried at least.
    pub min_candidate_nodes_absolute: u32,
}

/// `PodTopologySpreadArgs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpreadArgs {
    /// `List` constraints; `None`: `System`.
    pub default_constraints: Option<Vec<SpreadConstraint>>,
}

/// Arguments of all plugins of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// NodeResourcesFit.
    pub fit: FitArgs,
    /// NodeResourcesBalancedAllocation: resource names.
    pub balanced: Vec<String>,
    /// InterPodAffinity.
    pub inter_pod_affinity: InterPodAffinityArgs,
    /// NodeAffinity: affinity added to every pod's own.
    pub added_affinity: Option<NodeAffinity>,
    /// PodTopologySpread.
    pub spread: SpreadArgs,
    /// DefaultPreemption.
    pub preemption: PreemptionArgs,
    /// VolumeBinding: seconds to wait for volumes to be bound.
    pub bind_timeout_seconds: i64,
    /// DynamicResources: milliseconds that one node's allocation may take; 0: no limit.
    pub filter_timeout_millis: i64,
    /// Plugins that are not in-tree, by name: the JSON text of `pluginConfig[].args`.
    pub others: BTreeMap<String, String>,
}

impl Args {
    /// The JSON text of the arguments of a plugin that is not in-tree; `None`: the profile has none.
    pub fn of(&self, plugin: &str) -> Option<&str> {
        self.others.get(plugin).map(String::as_str)
    }
}

impl Default for Args {
    fn default() -> Self {
        Self {
            fit: FitArgs::default(),
            balanced: vec!["cpu".to_owned(), "memory".to_owned()],
            inter_pod_affinity: InterPodAffinityArgs {
                hard_pod_affinity_weight: 1,
                ignore_preferred_terms_of_existing_pods: false,
            },
            added_affinity: None,
            spread: SpreadArgs::default(),
            preemption: PreemptionArgs {
                min_candidate_nodes_percentage: 10,
                min_candidate_nodes_absolute: 100,
            },
            bind_timeout_seconds: 600,
            filter_timeout_millis: 10_000,
            others: BTreeMap::new(),
        }
    }
}
