//! Which resource and which counters the configuration maps a DeviceClass to.

use crate::config::{Config, CounterSource};

/// Where a class's devices are counted by what they take: all counters configured for it.
pub(super) fn counters_of<'a>(
    config: &'a Config,
    class: &'a str,
) -> impl Iterator<Item = (&'a str, &'a CounterSource)> {
    let mappings = config.device_mappings.iter().filter(move |m| m.classes.iter().any(|c| c == class));
    let on = config.gates.device_counters;
    mappings.filter(move |_| on).flat_map(|m| m.counters.iter().map(|c| (m.resource.as_str(), c)))
}

/// The resource that a class is mapped to.
pub(super) fn mapped<'a>(config: &'a Config, class: &str) -> Option<&'a str> {
    let mut mappings = config.device_mappings.iter();
    mappings.find(|m| m.classes.iter().any(|c| c == class)).map(|m| m.resource.as_str())
}
