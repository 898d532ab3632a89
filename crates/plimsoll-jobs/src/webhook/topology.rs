//! Rules for the topology annotations of one template (Kueue `tas_validation.go`).

use plimsoll_api::json;
use serde_json::Value;

use super::validation::ErrorList;
use crate::podset;

pub(super) const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
pub(super) const PREFERRED: &str = "kueue.x-k8s.io/podset-preferred-topology";
const UNCONSTRAINED: &str = "kueue.x-k8s.io/podset-unconstrained-topology";
const SLICE_LEVEL: &str = "kueue.x-k8s.io/podset-slice-required-topology";
pub(super) const SLICE_SIZE: &str = "kueue.x-k8s.io/podset-slice-size";
pub(super) const SLICE_LAYERS: &str = "kueue.x-k8s.io/podset-slice-required-topology-constraints";
pub(super) const GROUP: &str = "kueue.x-k8s.io/podset-group-name";

/// Topology annotations of a template: at most one mode; a slice has a level and a size (Kueue `ValidateTASPodSetRequest`).
pub(crate) fn topology(object: &Value, at: &str, errors: &mut ErrorList) {
    let get = |key: &str| json::annotation(object, key);
    let path = |key: &str| format!("{at}.annotations[{key}]");
    let modes = [REQUIRED, PREFERRED, UNCONSTRAINED];
    if modes.iter().filter(|m| get(m).is_some()).count() > 1 {
        let all: Vec<String> = modes.iter().map(|m| format!("{m:?}")).collect();
        let detail = format!("must not contain more than one topology annotation: [{}]", all.join(", "));
        errors.invalid_whole(&format!("{at}.annotations"), &detail);
    }
    for key in [REQUIRED, PREFERRED, SLICE_LEVEL] {
        if let Some(level) = get(key) {
            errors.label_key(&path(key), level);
        }
    }
    if let Some(name) = get(GROUP) {
        if name.parse::<u64>().is_ok() && !name.starts_with('+') {
            errors.invalid(&path(GROUP), name, "must not be a number");
        }
        for key in [SLICE_SIZE, SLICE_LEVEL, SLICE_LAYERS] {
            if get(key).is_some() {
                errors.forbidden(&path(GROUP), &format!("may not be set when '{key}' is specified"));
            }
        }
        if get(PREFERRED).is_none() && get(REQUIRED).is_none() {
            let detail = format!("may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified");
            errors.forbidden(&path(GROUP), &detail);
        }
    }
    if let Some(text) = get(UNCONSTRAINED).filter(|text| podset::parse_bool(text).is_none()) {
        errors.invalid(&path(UNCONSTRAINED), text, "must be a boolean value");
    }
    if let Some(size) = get(SLICE_SIZE) {
        match size.parse::<i32>() {
            Err(_) => errors.invalid(&path(SLICE_SIZE), size, "must be a numeric value"),
            Ok(n) if n < 1 => errors.invalid(&path(SLICE_SIZE), size, "must be greater than or equal to 1"),
            Ok(_) => {}
        }
    }
    match (get(SLICE_LEVEL), get(SLICE_SIZE)) {
        (Some(_), None) => {
            errors.required(&path(SLICE_SIZE), &format!("must be set when '{SLICE_LEVEL}' is specified"));
        }
        (None, Some(_)) => {
            let detail = format!("may not be set when '{SLICE_LEVEL}' is not specified");
            errors.forbidden(&path(SLICE_SIZE), &detail);
        }
        _ => {}
    }
    if let Some(text) = get(SLICE_LAYERS) {
        for key in [SLICE_LEVEL, SLICE_SIZE] {
            if get(key).is_some() {
                errors.forbidden(&path(SLICE_LAYERS), &format!("may not be set when '{key}' is specified"));
            }
        }
        slice_layers(text, &path(SLICE_LAYERS), errors);
    }
}

/// Layers of slices: one to three, each of a label and a size that divides the one above it (Kueue
/// `validateSliceRequiredTopologyConstraintsAnnotation`).
fn slice_layers(text: &str, path: &str, errors: &mut ErrorList) {
    let layers = match podset::slice_layers(text) {
        Ok(layers) => layers,
        Err(e) => return errors.invalid(path, text, &format!("must be a valid JSON array: {e}")),
    };
    if layers.is_empty() || layers.len() > podset::MOST_SLICE_LAYERS {
        return errors.invalid(path, text, "topology constraints must contain between 1 and 3 entries");
    }
    for (i, layer) in layers.iter().enumerate() {
        errors.label_key(&format!("{path}[{i}].topology"), &layer.topology);
        if layer.size < 1 {
            errors.invalid(&format!("{path}[{i}].size"), layer.size, "must be greater than or equal to 1");
        }
    }
    for (i, layer) in layers.iter().enumerate() {
        let earlier = layers.iter().take(i).position(|before| before.topology == layer.topology);
        if let Some(earlier) = earlier {
            let shown = format!("{} (also at index {earlier})", layer.topology);
            errors.duplicate(&format!("{path}[{i}].topology"), &shown);
        }
    }
    for (i, pair) in layers.windows(2).enumerate() {
        let [above, below] = pair else { continue };
        if below.size > 0 && above.size % below.size != 0 {
            let detail = format!("must evenly divide the parent layer size {}", above.size);
            errors.invalid(&format!("{path}[{}].size", i + 1), below.size, &detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    /// Annotations without their prefix, and what is said to each fault, in order (Kueue `tas_validation_test.go`).
    #[test]
    fn topologies_are_refused_in_kueues_words() {
        const LAYERS: &str = "podset-slice-required-topology-constraints";
        let layer = |topology: &str, size: i64| json!({"topology": topology, "size": size});
        let layers = |all: &[Value]| json!({LAYERS: json!(all).to_string()});
        let many = "must not contain more than one topology annotation: [\"kueue.x-k8s.io/podset-required-topology\", \
                    \"kueue.x-k8s.io/podset-preferred-topology\", \"kueue.x-k8s.io/podset-unconstrained-topology\"]";
        let count = "topology constraints must contain between 1 and 3 entries";
        let cases: Vec<(Value, Vec<&str>)> = vec![
            (json!({"podset-required-topology": "example.com/rack"}), vec![]),
            (json!({"podset-required-topology": "rack", "podset-preferred-topology": "rack"}), vec![many]),
            (
                json!({"podset-preferred-topology": "a b"}),
                vec!["Invalid value: \"a b\": name part must consist of"],
            ),
            (json!({"podset-unconstrained-topology": "T"}), vec![]),
            (json!({"podset-unconstrained-topology": "yes"}), vec!["\"yes\": must be a boolean value"]),
            (
                json!({"podset-required-topology": "rack", "podset-group-name": "7"}),
                vec!["\"7\": must not be a number"],
            ),
            (json!({"podset-group-name": "g"}), vec!["Forbidden: may not be set when neither"]),
            (
                json!({"podset-group-name": "g", "podset-required-topology": "rack",
                    "podset-slice-required-topology": "rack", "podset-slice-size": "2"}),
                vec!["podset-slice-size' is specified", "podset-slice-required-topology' is specified"],
            ),
            (json!({"podset-slice-required-topology": "rack"}), vec!["Required value: must be set when"]),
            (
                json!({"podset-slice-size": "x"}),
                vec!["\"x\": must be a numeric value", "Forbidden: may not be set when"],
            ),
            (
                json!({"podset-slice-required-topology": "rack", "podset-slice-size": "0"}),
                vec!["\"0\": must be greater than or equal to 1"],
            ),
            (layers(&[layer("block", 8), layer("rack", 4), layer("host", 2)]), vec![]),
            (layers(&[]), vec![count]),
            (layers(&[layer("a", 1), layer("b", 1), layer("c", 1), layer("d", 1)]), vec![count]),
            (json!({LAYERS: "null"}), vec![count]),
            (json!({LAYERS: "{"}), vec!["must be a valid JSON array"]),
            (
                json!({LAYERS: r#"[{"topology": "rack", "size": "2"}]"#}),
                vec!["must be a valid JSON array: size"],
            ),
            (
                json!({LAYERS: r#"[{"topology": "rack", "size": 2147483648}]"#}),
                vec!["must be a valid JSON array: size"],
            ),
            (
                layers(&[layer("block", 8), layer("rack", 3)]),
                vec!["[1].size: Invalid value: 3: must evenly divide the parent layer size 8"],
            ),
            (
                layers(&[layer("rack", 4), layer("rack", 0)]),
                vec![
                    "[1].size: Invalid value: 0: must be greater than or equal to 1",
                    "[1].topology: Duplicate value: \"rack (also at index 0)\"",
                ],
            ),
        ];
        for (annotations, wanted) in cases {
            let prefixed = |(key, value): (&String, &Value)| (format!("kueue.x-k8s.io/{key}"), value.clone());
            let all: Map<String, Value> = annotations.as_object().unwrap().iter().map(prefixed).collect();
            let mut errors = ErrorList::default();
            topology(&json!({"metadata": {"annotations": all}}), "metadata", &mut errors);
            let said = errors.into_message().unwrap_or_default();
            assert_eq!(said.matches("metadata.annotations").count(), wanted.len(), "{annotations}: {said}");
            let mut rest = said.as_str();
            for wanted in wanted {
                let Some(at) = rest.find(wanted) else { panic!("{annotations}: {said} without {wanted}") };
                rest = &rest[at..];
            }
        }
    }
}
