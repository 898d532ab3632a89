//! Extended resources that a DeviceClass stands for (Kueue KEP-2941, gate KueueDRAIntegrationExtendedResource).

use std::collections::BTreeMap;

use super::mappings::{capacities_of, counters_of, mapped};
use super::problem::quoted;
use super::{Extra, QuotaDeviceClass};
use crate::config::Config;
use plimsoll_state::model::is_extended_resource;
use plimsoll_state::model::{Container, PodSpec};

/// The class whose devices stand for a resource: the newest, of equally old ones the first by name.
fn class_of<'a>(
    classes: &'a BTreeMap<String, QuotaDeviceClass>,
    resource: &str,
) -> Option<&'a QuotaDeviceClass> {
    let standing = classes.values().filter(|c| c.extended_resource.as_deref() == Some(resource));
    standing.reduce(|best, c| if c.created > best.created { c } else { best })
}

/// What the containers of a list ask for by resource: the path of the first, and what is added up or the most.
type Asked = BTreeMap<String, (String, i128)>;

fn gather(list: &[Container], field: &str, path: &str, sum: bool, out: &mut Asked) {
    for (i, container) in list.iter().enumerate() {
        for (name, &amount) in container.requests.iter().filter(|(n, v)| **v > 0 && is_extended_resource(n)) {
            let e = out.entry(name.clone()).or_insert_with(|| (format!("{path}.{field}[{i}]"), 0));
            e.1 = if sum { e.1 + i128::from(amount) } else { e.1.max(i128::from(amount)) };
        }
    }
}

/// Counts extended resources as devices of their class. Init containers run one after the other, the others together;
/// sidecars are not told apart (as in Kueue).
pub(super) fn charge(
    classes: &BTreeMap<String, QuotaDeviceClass>,
    specs: &[PodSpec],
    config: &Config,
    extras: &mut [Extra],
) -> Result<(), Vec<String>> {
    if classes.values().all(|c| c.extended_resource.is_none()) {
        return Ok(());
    }
    let mut problems = Vec::new();
    for (i, (spec, extra)) in specs.iter().zip(extras).enumerate() {
        let path = format!("spec.podSets[{i}].template.spec");
        let (mut init, mut together) = (Asked::new(), Asked::new());
        gather(&spec.init_containers, "initContainers", &path, false, &mut init);
        gather(&spec.containers, "containers", &path, true, &mut together);
        for (name, (at, amount)) in together {
            let e = init.entry(name).or_insert((at, 0));
            e.1 = e.1.max(amount);
        }
        for (name, (at, amount)) in init {
            let Some(class) = class_of(classes, &name) else { continue };
            let instead = if counters_of(config, &class.name).next().is_some() {
                "counters configured; use ResourceClaimTemplates with CEL selectors for counter-based quota"
            } else if capacities_of(config, &class.name).next().is_some() {
                "capacity sources configured; use ResourceClaimTemplates with capacity.requests for capacity-based quota"
            } else {
                ""
            };
            if !instead.is_empty() {
                problems.push(format!(
                    "{at}: Invalid value: {}: extended resource {name} resolves to DeviceClass {} with {instead}",
                    quoted(&name),
                    class.name
                ));
                continue;
            }
            let Ok(amount) = i64::try_from(amount) else {
                problems.push(format!(
                    "{at}.resources.requests.{name}: Invalid value: \"{amount}\": total extended resource quantity overflows int64"
                ));
                continue;
            };
            let key = mapped(config, &class.name).unwrap_or(&name).to_owned();
            let e = extra.add.entry(key).or_insert(0);
            *e = e.saturating_add(amount);
            extra.replaced.insert(name);
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}
