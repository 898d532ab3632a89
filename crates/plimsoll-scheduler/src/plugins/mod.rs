//! The plugins, one file each (upstream `pkg/scheduler/framework/plugins`).

mod balanced;
mod declared_features;
mod default_binder;
mod default_preemption;
mod dynamic_resources;
mod extended_resources;
mod fit;
mod gang;
mod image_locality;
pub(crate) mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod pod_group_pods_count;
pub(crate) mod preemption;
mod priority_sort;
mod scheduling_gates;
mod scoring;
mod spread;
mod taint_toleration;
mod topology_placement;
mod volume_binding;
mod volume_limits;
mod volume_restrictions;
mod volume_zone;
mod volumes;

use super::args::Args;
use super::framework::{ExtensionPoint, Handle, Plugin, Registration, Registry};
use ExtensionPoint as P;

#[cfg(test)]
pub(crate) use priority_sort::PrioritySort;

/// A registration whose factory makes `$plugin`, with `$args` and `$handle` in scope.
macro_rules! plugin {
    ($name:literal, [$($point:ident),+], |$args:ident, $handle:ident| $plugin:expr) => {
        Registration::new(
            $name,
            &[$(P::$point),+],
            |$args: &Args, $handle: &mut Handle<'_>| -> Box<dyn Plugin> { Box::new($plugin) },
        )
    };
    ($name:literal, [$($point:ident),+], $plugin:expr) => {
        plugin!($name, [$($point),+], |_args, _handle| $plugin)
    };
}

impl Registry {
    /// The plugins of kube-scheduler (upstream `NewInTreeRegistry` in `framework/plugins/registry.go`).
    pub fn in_tree() -> Self {
        Self::of(in_tree())
    }
}

/// All plugins, in the order of upstream's default list.
fn in_tree() -> Vec<Registration> {
    vec![
        plugin!("SchedulingGates", [PreEnqueue], scheduling_gates::SchedulingGates),
        plugin!("PrioritySort", [QueueSort], priority_sort::PrioritySort),
        plugin!("NodeUnschedulable", [Filter], |_args, handle| {
            node_unschedulable::NodeUnschedulable::new(handle.strings())
        }),
        plugin!("NodeName", [Filter], node_name::NodeName),
        plugin!("TaintToleration", [Filter, PreScore, Score], taint_toleration::TaintToleration),
        plugin!("NodeAffinity", [PreFilter, Filter, PreScore, Score], |args, handle| {
            node_affinity::NodeAffinity::new(args, handle.strings())
        }),
        plugin!("NodePorts", [PreFilter, Filter], node_ports::NodePorts),
        plugin!("NodeResourcesFit", [PreFilter, Filter, PreScore, Score], |args, handle| {
            fit::Fit::new(&args.fit, handle.strings())
        }),
        plugin!("VolumeRestrictions", [PreFilter, Filter], volume_restrictions::VolumeRestrictions),
        plugin!("NodeVolumeLimits", [PreFilter, Filter], volume_limits::VolumeLimits),
        plugin!("VolumeBinding", [PreFilter, Filter, Reserve, PreBind], |args, _handle| {
            volume_binding::VolumeBinding::new(args)
        }),
        plugin!("VolumeZone", [PreFilter, Filter], |_args, handle| {
            volume_zone::VolumeZone::new(handle.strings())
        }),
        plugin!("PodTopologySpread", [PreFilter, Filter, PreScore, Score], |args, handle| {
            spread::PodTopologySpread::new(&args.spread, handle.strings())
        }),
        plugin!("InterPodAffinity", [PreFilter, Filter, PreScore, Score], |args, _handle| {
            inter_pod_affinity::InterPodAffinity::new(&args.inter_pod_affinity)
        }),
        plugin!(
            "DynamicResources",
            [PreEnqueue, PreFilter, Filter, PostFilter, Score, Reserve, PreBind],
            dynamic_resources::DynamicResources
        ),
        plugin!("DefaultPreemption", [PreEnqueue, PostFilter], |args, _handle| {
            default_preemption::DefaultPreemption::new(&args.preemption)
        }),
        plugin!("NodeResourcesBalancedAllocation", [PreScore, Score], |args, handle| {
            balanced::Balanced::new(args, handle.strings())
        }),
        plugin!("ImageLocality", [Score], image_locality::ImageLocality),
        plugin!("DefaultBinder", [Bind], default_binder::DefaultBinder),
        plugin!("NodeDeclaredFeatures", [PreFilter, Filter], declared_features::NodeDeclaredFeatures),
        plugin!("GangScheduling", [PreEnqueue, Permit], |_args, handle| gang::GangScheduling(
            handle.plugin()
        )),
        plugin!(
            "TopologyPlacementGenerator",
            [PlacementGenerate],
            topology_placement::TopologyPlacementGenerator
        ),
        plugin!("PodGroupPodsCount", [PlacementScore], pod_group_pods_count::PodGroupPodsCount),
    ]
}
