//! `resources.deviceClassMappings`: what devices count as (Kueue KEP-2941).

use std::collections::BTreeMap;

use plimsoll_queueing::{CounterSource, DeviceMapping};
use plimsoll_state::DeviceSelector;

use super::{Errors, FeatureGates, wire};
use plimsoll_api::content::{SUBDOMAIN, is_subdomain, label_key};
use plimsoll_api::device_cel::CelSelector;

const FIELD: &str = "resources.deviceClassMappings";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    text.len() <= 63
        && !text.is_empty()
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn name(field: &str, text: &str, errors: &mut Errors) {
    let faults = label_key(text);
    if !faults.is_empty() {
        errors.add(field, format!("Invalid value: {text:?}: {}", faults.join("; ")));
    }
    if text.len() > 253 {
        errors.add(field, format!("Invalid value: {text:?}: must not exceed 253 characters"));
    }
}

fn at_most(field: &str, count: usize, most: usize, errors: &mut Errors) {
    if count > most {
        errors.add(field, format!("Too many: {count}: must have at most {most} items"));
    }
}

/// Reads and checks the mappings.
pub(super) fn mappings(
    raw: &[wire::DeviceClassMapping],
    gates: &FeatureGates,
    errors: &mut Errors,
) -> Vec<DeviceMapping> {
    at_most(FIELD, raw.len(), 16, errors);
    let mut seen: Vec<&str> = Vec::new();
    // The resource a class counts as, and the counters it has.
    let mut classes: BTreeMap<&str, (&str, Vec<&str>)> = BTreeMap::new();
    let mut out = Vec::new();
    for (i, mapping) in raw.iter().enumerate() {
        let field = format!("{FIELD}[{i}]");
        name(&format!("{field}.name"), &mapping.name, errors);
        if seen.contains(&mapping.name.as_str()) {
            errors.add(&format!("{field}.name"), format!("Duplicate value: {:?}", mapping.name));
        }
        seen.push(&mapping.name);
        class_names(mapping, &format!("{field}.deviceClassNames"), &mut classes, errors);
        let counters = sources(&mapping.sources, &format!("{field}.sources"), gates, errors);
        out.push(DeviceMapping {
            resource: mapping.name.clone(),
            classes: mapping.device_class_names.clone(),
            counters,
        });
    }
    out
}

fn class_names<'a>(
    mapping: &'a wire::DeviceClassMapping,
    field: &str,
    classes: &mut BTreeMap<&'a str, (&'a str, Vec<&'a str>)>,
    errors: &mut Errors,
) {
    if mapping.device_class_names.is_empty() {
        errors.add(field, "Required value: at least one device class name is required");
    }
    at_most(field, mapping.device_class_names.len(), 8, errors);
    let counter = mapping.sources.iter().find_map(|s| s.counter.as_ref()).map_or("", |c| c.name.as_str());
    for (i, class) in mapping.device_class_names.iter().enumerate() {
        let at = format!("{field}[{i}]");
        name(&at, class, errors);
        if mapping.device_class_names.iter().take(i).any(|c| c == class) {
            errors.add(&at, format!("Duplicate value: {class:?}"));
        }
        let Some((resource, counters)) = classes.get_mut(class.as_str()) else {
            let counters = if counter.is_empty() { Vec::new() } else { vec![counter] };
            classes.insert(class, (&mapping.name, counters));
            continue;
        };
        if *resource == mapping.name {
            continue;
        }
        // One class may be counted in several ways, each by a counter of its own.
        if counter.is_empty() || counters.is_empty() {
            let text = format!("device class already mapped to resource {resource}");
            errors.add(&at, format!("Invalid value: {class:?}: {text}"));
        } else if counters.contains(&counter) {
            let text = format!("device class already has a counter source for counter {counter:?}");
            errors.add(&at, format!("Invalid value: {class:?}: {text}"));
        } else {
            counters.push(counter);
        }
    }
}

fn sources(
    raw: &[wire::DeviceSource],
    field: &str,
    gates: &FeatureGates,
    errors: &mut Errors,
) -> Vec<CounterSource> {
    let mut counters = Vec::new();
    for (i, source) in raw.iter().enumerate() {
        let at = format!("{field}[{i}]");
        let one = "exactly one source type must be set per entry";
        match (&source.counter, &source.capacity) {
            (None, None) => errors.add(&at, format!("Required value: {one}")),
            (Some(_), Some(_)) => errors.add(&at, format!("Invalid value: \"counter+capacity\": {one}")),
            (None, Some(_)) => {
                let text = "capacity sources require KueueDRAIntegrationConsumableCapacity to be enabled";
                errors.add(&format!("{at}.capacity"), format!("Invalid value: true: {text}"));
            }
            (Some(_), None) if !gates.is_on("KueueDRAIntegrationPartitionableDevices") => {
                let text = "counter sources require KueueDRAIntegrationPartitionableDevices to be enabled";
                errors.add(&format!("{at}.counter"), format!("Invalid value: true: {text}"));
            }
            (Some(counter), None) => counters.push(self::counter(counter, &format!("{at}.counter"), errors)),
        }
    }
    let mixed = raw.iter().any(|s| s.counter.is_some()) && raw.iter().any(|s| s.capacity.is_some());
    if mixed {
        let text = "cannot mix counter and capacity sources in the same mapping";
        errors.add(field, format!("Invalid value: {}: {text}", raw.len()));
    }
    counters
}

fn counter(raw: &wire::CounterSource, field: &str, errors: &mut Errors) -> CounterSource {
    let required = "Required value";
    if raw.name.is_empty() {
        errors.add(&format!("{field}.name"), required);
    } else if !is_label(&raw.name) {
        errors.add(&format!("{field}.name"), format!("Invalid value: {:?}: {LABEL}", raw.name));
    }
    let driver = format!("{field}.driver");
    if raw.driver.is_empty() {
        errors.add(&driver, required);
    } else if raw.driver.len() > 63 {
        errors.add(&driver, format!("Invalid value: {:?}: must not exceed 63 characters", raw.driver));
    } else if !is_subdomain(&raw.driver) {
        errors.add(&driver, format!("Invalid value: {:?}: {SUBDOMAIN}", raw.driver));
    }
    let at = format!("{field}.deviceSelector.cel.expression");
    let selector = raw.device_selector.cel.as_ref().map_or("", |c| c.expression.as_str());
    if selector.is_empty() {
        errors.add(&at, required);
    } else if let Err(e) = CelSelector::default().check(selector) {
        errors.add(&at, format!("Invalid value: {selector:?}: CEL compilation failed: {e}"));
    }
    CounterSource { name: raw.name.clone(), driver: raw.driver.clone(), selector: selector.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::read;

    fn with(mappings: &str) -> Result<Vec<super::DeviceMapping>, String> {
        gated("", mappings)
    }

    fn gated(gates: &str, mappings: &str) -> Result<Vec<super::DeviceMapping>, String> {
        let text = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfeatureGates: {{{gates}}}\nresources:\n  deviceClassMappings: [{mappings}]\n"
        );
        read(&text, "kueue-system").map(|c| c.queueing.device_mappings).map_err(|e| e.to_string())
    }

    #[test]
    fn mappings_are_read() {
        let selector = "deviceSelector: {cel: {expression: device.driver == 'd'}}";
        let text = format!(
            "{{name: example.com/gpus, deviceClassNames: [a, b]}}, {{name: mem, deviceClassNames: [c], sources: [{{counter: {{name: memory, driver: gpu.example.com, {selector}}}}}]}}"
        );
        let found = with(&text).expect("valid");
        assert_eq!((found[0].resource.as_str(), found[0].classes.len()), ("example.com/gpus", 2));
        assert_eq!(found[1].counters[0].driver, "gpu.example.com");
        // One class, two counters.
        let of = |resource: &str, counter: &str| {
            format!(
                "{{name: {resource}, deviceClassNames: [c], sources: [{{counter: {{name: {counter}, driver: d, {selector}}}}}]}}"
            )
        };
        assert!(with(&format!("{}, {}", of("x", "m"), of("z", "k"))).is_ok());
        let twice = with(&format!("{}, {}", of("x", "m"), of("z", "m"))).expect_err("twice");
        assert!(twice.contains("device class already has a counter source for counter \"m\""), "{twice}");
    }

    #[test]
    fn bad_mappings_are_refused() {
        let capacity =
            "sources: [{capacity: {name: m, driver: d, deviceSelector: {cel: {expression: 'true'}}}}]";
        let table = [
            (
                "{name: A_, deviceClassNames: [a]}",
                "resources.deviceClassMappings[0].name: Invalid value: \"A_\": name part must consist of",
            ),
            ("{name: a}", "deviceClassNames: Required value: at least one device class name is required"),
            ("{name: a, deviceClassNames: [x, x]}", "deviceClassNames[1]: Duplicate value: \"x\""),
            (
                "{name: a, deviceClassNames: [x]}, {name: a, deviceClassNames: [z]}",
                "[1].name: Duplicate value: \"a\"",
            ),
            (
                "{name: a, deviceClassNames: [x]}, {name: b, deviceClassNames: [x]}",
                "[1].deviceClassNames[0]: Invalid value: \"x\": device class already mapped to resource a",
            ),
            (
                "{name: a, deviceClassNames: [a, b, c, d, e, f, g, h, i]}",
                "Too many: 9: must have at most 8 items",
            ),
            (
                "{name: a, deviceClassNames: [x], sources: [{}]}",
                "sources[0]: Required value: exactly one source type must be set per entry",
            ),
            (
                &format!("{{name: a, deviceClassNames: [x], {capacity}}}"),
                "capacity sources require KueueDRAIntegrationConsumableCapacity to be enabled",
            ),
            (
                "{name: a, deviceClassNames: [x], sources: [{counter: {name: A, driver: '', deviceSelector: {cel: {expression: '(('}}}}]}",
                "deviceSelector.cel.expression: Invalid value: \"((\": CEL compilation failed",
            ),
            (
                "{name: a, deviceClassNames: [x], sources: [{counter: {name: a, driver: D}}]}",
                "counter.driver: Invalid value: \"D\": a lowercase RFC 1123 subdomain",
            ),
            (
                "{name: a, deviceClassNames: [x], other: 1}",
                "unknown field \"resources.deviceClassMappings[0].other\"",
            ),
        ];
        for (text, want) in table {
            let error = with(text).expect_err(text);
            assert!(error.contains(want), "{text}: {error}");
        }
        let many: Vec<String> =
            (0..17).map(|i| format!("{{name: r{i}, deviceClassNames: [c{i}]}}")).collect();
        assert!(
            with(&many.join(", ")).expect_err("many").contains("Too many: 17: must have at most 16 items")
        );
        let counter = "{name: a, deviceClassNames: [x], sources: [{counter: {name: m, driver: d, deviceSelector: {cel: {expression: 'true'}}}}]}";
        let off = gated("KueueDRAIntegrationPartitionableDevices: false", counter).expect_err("off");
        assert!(
            off.contains("counter sources require KueueDRAIntegrationPartitionableDevices to be enabled"),
            "{off}"
        );
    }
}
