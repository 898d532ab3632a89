//! `resources.deviceClassMappings`: what devices count as (Kueue KEP-2941).

use std::collections::BTreeMap;

use plimsoll_queueing::{DeviceMapping, DeviceSource};
use plimsoll_state::DeviceSelector;

use super::{Errors, FeatureGates, wire};
use plimsoll_api::content::{SUBDOMAIN, is_subdomain, label_key};
use plimsoll_api::device_cel::CelSelector;

const FIELD: &str = "resources.deviceClassMappings";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";

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
        let (counters, capacities) = sources(&mapping.sources, &format!("{field}.sources"), gates, errors);
        out.push(DeviceMapping {
            resource: mapping.name.clone(),
            classes: mapping.device_class_names.clone(),
            counters,
            capacities,
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
) -> (Vec<DeviceSource>, Vec<DeviceSource>) {
    let (mut counters, mut capacities) = (Vec::new(), Vec::new());
    for (i, source) in raw.iter().enumerate() {
        let at = format!("{field}[{i}]");
        let one = "exactly one source type must be set per entry";
        match (&source.counter, &source.capacity) {
            (None, None) => errors.add(&at, format!("Required value: {one}")),
            (Some(_), Some(_)) => errors.add(&at, format!("Invalid value: \"counter+capacity\": {one}")),
            (None, Some(_)) if !gates.is_on("KueueDRAIntegrationConsumableCapacity") => {
                let text = "capacity sources require KueueDRAIntegrationConsumableCapacity to be enabled";
                errors.add(&format!("{at}.capacity"), format!("Invalid value: true: {text}"));
            }
            (Some(_), None) if !gates.is_on("KueueDRAIntegrationPartitionableDevices") => {
                let text = "counter sources require KueueDRAIntegrationPartitionableDevices to be enabled";
                errors.add(&format!("{at}.counter"), format!("Invalid value: true: {text}"));
            }
            (Some(raw), None) => {
                let field = format!("{at}.counter");
                label(&format!("{field}.name"), &raw.name, errors);
                counters.push(self::source(raw, &field, errors));
            }
            (None, Some(raw)) => {
                let field = format!("{at}.capacity");
                qualified_name(&format!("{field}.name"), &raw.name, errors);
                capacities.push(self::source(raw, &field, errors));
            }
        }
    }
    let mixed = raw.iter().any(|s| s.counter.is_some()) && raw.iter().any(|s| s.capacity.is_some());
    if mixed {
        let text = "cannot mix counter and capacity sources in the same mapping";
        errors.add(field, format!("Invalid value: {}: {text}", raw.len()));
    }
    (counters, capacities)
}

fn label(field: &str, name: &str, errors: &mut Errors) {
    if name.is_empty() {
        errors.add(field, "Required value");
    } else if !is_label(name) {
        errors.add(field, format!("Invalid value: {name:?}: {LABEL}"));
    }
}

/// A C identifier, with a domain and a slash before it or without (`validateQualifiedName`). Names with several slashes
/// are let through, as in Kueue.
fn qualified_name(field: &str, name: &str, errors: &mut Errors) {
    let (domain, id) = match name.split_once('/') {
        Some((_, id)) if id.contains('/') => return,
        Some((domain, id)) => (Some(domain), id),
        None => (None, name),
    };
    if domain == Some("") {
        errors.add(field, "Invalid value: \"\": the domain must not be empty");
    }
    if let Some(domain) = domain.filter(|d| !d.is_empty()) {
        if domain.len() > 63 {
            errors.add(field, "Too long: may not be more than 63 bytes");
        }
        if !is_subdomain(&domain.to_lowercase()) {
            errors.add(field, format!("Invalid value: {domain:?}: {SUBDOMAIN}"));
        }
    }
    if domain.is_some() && id.is_empty() {
        errors.add(field, "Invalid value: \"\": the name must not be empty");
        return;
    }
    if id.len() > 32 {
        errors.add(field, "Too long: may not be more than 32 bytes");
    }
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if id.is_empty() || !id.bytes().all(inner) || id.starts_with(|c: char| c.is_ascii_digit()) {
        errors.add(field, format!("Invalid value: {id:?}: {IDENTIFIER}"));
    }
}

/// Driver and selector (`validateDeviceClassSource`).
fn source(raw: &wire::NamedSource, field: &str, errors: &mut Errors) -> DeviceSource {
    let required = "Required value";
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
    DeviceSource { name: raw.name.clone(), driver: raw.driver.clone(), selector: selector.to_owned() }
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
        let shares = |name: &str| {
            let mapping = format!(
                "{{name: mem, deviceClassNames: [c], sources: [{{capacity: {{name: {name}, driver: d, {selector}}}}}]}}"
            );
            gated("KueueDRAIntegrationConsumableCapacity: true", &mapping)
        };
        for name in ["memory", "gpu.example.com/Memory_2"] {
            let found = shares(name).expect(name);
            assert_eq!((found[0].capacities[0].name.as_str(), found[0].counters.len()), (name, 0));
        }
        for (name, want) in [
            ("2nd", "sources[0].capacity.name: Invalid value: \"2nd\": a valid C identifier"),
            ("a-b", "sources[0].capacity.name: Invalid value: \"a-b\": a valid C identifier"),
            ("''", "sources[0].capacity.name: Invalid value: \"\": a valid C identifier"),
            ("/a", "sources[0].capacity.name: Invalid value: \"\": the domain must not be empty"),
            ("d/", "sources[0].capacity.name: Invalid value: \"\": the name must not be empty"),
            ("-/a", "sources[0].capacity.name: Invalid value: \"-\": a lowercase RFC 1123 subdomain"),
        ] {
            let error = shares(name).expect_err(name);
            assert!(error.contains(want), "{name}: {error}");
        }
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
