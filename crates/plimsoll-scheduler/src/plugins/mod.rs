//! The plugins, one file each (spec section 5).

mod balanced;
mod declared_features;
mod default_preemption;
mod dynamic_resources;
mod fit;
mod gang;
mod image_locality;
mod inter_pod_affinity;
mod inter_pod_counts;
mod inter_pod_score;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod scheduling_gates;
mod scoring;
mod spread;
mod spread_counts;
mod spread_score;
mod taint_toleration;
mod volume_binding;
mod volume_limits;
mod volume_restrictions;
mod volume_zone;
mod volumes;

use super::args::Args;
use super::framework::{Plugin, PluginId};
use plimsoll_state::intern::Interner;

/// The plugin of this id with the profile's arguments; `None` for those that are part of the framework
/// itself (PrioritySort, DefaultBinder).
pub(crate) fn make(id: PluginId, args: &Args, strings: &mut Interner) -> Option<Box<dyn Plugin>> {
    Some(match id {
        PluginId::SchedulingGates => Box::new(scheduling_gates::SchedulingGates),
        PluginId::NodeUnschedulable => Box::new(node_unschedulable::NodeUnschedulable::new(strings)),
        PluginId::NodeName => Box::new(node_name::NodeName),
        PluginId::TaintToleration => Box::new(taint_toleration::TaintToleration),
        PluginId::NodeAffinity => Box::new(node_affinity::NodeAffinity::new(args, strings)),
        PluginId::NodePorts => Box::new(node_ports::NodePorts),
        PluginId::NodeResourcesFit => Box::new(fit::Fit::new(&args.fit, strings)),
        PluginId::NodeResourcesBalancedAllocation => Box::new(balanced::Balanced::new(args, strings)),
        PluginId::InterPodAffinity => {
            Box::new(inter_pod_affinity::InterPodAffinity::new(&args.inter_pod_affinity))
        }
        PluginId::PodTopologySpread => Box::new(spread::PodTopologySpread::new(&args.spread, strings)),
        PluginId::ImageLocality => Box::new(image_locality::ImageLocality),
        PluginId::NodeDeclaredFeatures => Box::new(declared_features::NodeDeclaredFeatures),
        PluginId::VolumeRestrictions => Box::new(volume_restrictions::VolumeRestrictions),
        PluginId::NodeVolumeLimits => Box::new(volume_limits::VolumeLimits),
        PluginId::VolumeBinding => Box::new(volume_binding::VolumeBinding),
        PluginId::VolumeZone => Box::new(volume_zone::VolumeZone::new(strings)),
        PluginId::DefaultPreemption => Box::new(default_preemption::DefaultPreemption),
        PluginId::DynamicResources => Box::new(dynamic_resources::DynamicResources),
        PluginId::GangScheduling => Box::new(gang::GangScheduling),
        PluginId::PrioritySort | PluginId::DefaultBinder | PluginId::Extender => return None,
        #[cfg(test)]
        PluginId::TestFirst | PluginId::TestSecond => return None,
    })
}

pub(crate) use dynamic_resources::State as DeviceState;
pub(crate) use dynamic_resources::post_filter as dynamic_resources_post_filter;
pub(crate) use volume_binding::{Plan as VolumePlan, State as VolumeState};
