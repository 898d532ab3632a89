//! Which resource, counters and capacities the configuration maps a DeviceClass to.

use crate::config::{Config, DeviceMapping, DeviceSource};

fn mappings_of<'a>(config: &'a Config, class: &'a str) -> impl Iterator<Item = &'a DeviceMapping> {
    config.device_mappings.iter().filter(move |m| m.classes.iter().any(|c| c == class))
}

/// The counters by which a class's devices are counted, each with the quota resource.
pub(super) fn counters_of<'a>(
    config: &'a Config,
    class: &'a str,
) -> impl Iterator<Item = (&'a str, &'a DeviceSource)> {
    let on = config.gates.device_counters;
    let mappings = mappings_of(config, class).filter(move |_| on);
    mappings.flat_map(|m| m.counters.iter().map(|c| (m.resource.as_str(), c)))
}

/// The capacities by whose shares a class's devices are counted, each with the quota resource.
pub(super) fn capacities_of<'a>(
    config: &'a Config,
    class: &'a str,
) -> impl Iterator<Item = (&'a str, &'a DeviceSource)> {
    let on = config.gates.device_capacities;
    let mappings = mappings_of(config, class).filter(move |_| on);
    mappings.flat_map(|m| m.capacities.iter().map(|c| (m.resource.as_str(), c)))
}

/// Counters and capacities of a class.
pub(super) fn sources_of<'a>(config: &'a Config, class: &'a str) -> impl Iterator<Item = &'a DeviceSource> {
    counters_of(config, class).chain(capacities_of(config, class)).map(|(_, source)| source)
}

/// The resource that a class is mapped to.
pub(super) fn mapped<'a>(config: &'a Config, class: &str) -> Option<&'a str> {
    let mut mappings = config.device_mappings.iter();
    mappings.find(|m| m.classes.iter().any(|c| c == class)).map(|m| m.resource.as_str())
}
