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

use super::framework::{Registration, Registry};

pub use fit::{FitArgs, ResourceWeight, StrategyKind};
#[cfg(test)]
pub(crate) use priority_sort::PrioritySort;

impl Registry {
    /// The plugins of kube-scheduler (upstream `NewInTreeRegistry` in `framework/plugins/registry.go`). Each file says
    /// what there is to know of its plugin.
    pub fn in_tree() -> Self {
        Self::of(IN_TREE.map(|registration| registration()).into())
    }
}

/// All plugins, in the order of upstream's default list (`apis/config/v1/default_plugins.go`).
const IN_TREE: [fn() -> Registration; 23] = [
    scheduling_gates::registration,
    priority_sort::registration,
    node_unschedulable::registration,
    node_name::registration,
    taint_toleration::registration,
    node_affinity::registration,
    node_ports::registration,
    fit::registration,
    volume_restrictions::registration,
    volume_limits::registration,
    volume_binding::registration,
    volume_zone::registration,
    spread::registration,
    inter_pod_affinity::registration,
    dynamic_resources::registration,
    default_preemption::registration,
    balanced::registration,
    image_locality::registration,
    default_binder::registration,
    declared_features::registration,
    gang::registration,
    topology_placement::registration,
    pod_group_pods_count::registration,
];
