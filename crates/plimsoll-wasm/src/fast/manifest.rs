//! The manifest of a guest, read strictly: the author of the guest writes it.

use plimsoll_plugin::{Manifest, Normalization};
use serde::Deserialize;

/// Extension points of the interface.
pub(super) const POINTS: [&str; 9] =
    ["preFilter", "filter", "score", "reserve", "permit", "postBind", "workload", "flavor", "victim"];
/// Most columns of a kind, and most reasons.
const MOST: usize = 64;
/// Longest name of a resource or label, and longest reason, in bytes.
const LONGEST: usize = 512;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Text {
    points: Vec<String>,
    charges: bool,
    pod: PodReads,
    node: NodeReads,
    reasons: Vec<Reason>,
    normalize: Option<String>,
    workload: WorkloadReads,
    flavor: FlavorReads,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PodReads {
    requests: Vec<String>,
    labels: Vec<String>,
    name: bool,
    namespace: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct NodeReads {
    resources: Vec<String>,
    labels: Vec<String>,
    numbers: Vec<String>,
    taints: bool,
    annotations: Vec<String>,
    annotation_numbers: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WorkloadReads {
    requests: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FlavorReads {
    labels: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Reason {
    text: String,
    #[serde(default)]
    preemption_helps: bool,
}

/// Reads a manifest.
///
/// # Errors
/// What is wrong with it.
pub(super) fn parse(text: &[u8]) -> Result<Manifest, String> {
    let wrong = |why: String| format!("wasm: the guest's manifest is not valid: {why}");
    let text: Text = serde_json::from_slice(text).map_err(|e| wrong(e.to_string()))?;
    let mut points = Vec::new();
    for point in &text.points {
        match POINTS.iter().find(|known| *known == point) {
            Some(known) if !points.contains(known) => points.push(*known),
            Some(_) => return Err(wrong(format!("points: {point} is there twice"))),
            None => return Err(wrong(format!("points: {point:?} is none of {}", POINTS.join(", ")))),
        }
    }
    if points.is_empty() {
        return Err(wrong(format!("points: name at least one of {}", POINTS.join(", "))));
    }
    let PodReads { requests, labels, name, namespace } = text.pod;
    let node = text.node;
    let reasons: Vec<(String, bool)> =
        text.reasons.into_iter().map(|r| (r.text, r.preemption_helps)).collect();
    let (of_workloads, of_flavors) = (text.workload.requests, text.flavor.labels);
    let of_nodes =
        [&node.resources, &node.labels, &node.numbers, &node.annotations, &node.annotation_numbers];
    let lists: Vec<_> =
        of_nodes.into_iter().chain([&requests, &labels, &of_workloads, &of_flavors]).collect();
    if lists.iter().any(|list| list.len() > MOST) || reasons.len() > MOST {
        return Err(wrong(format!("a list has more than {MOST} entries")));
    }
    let all = lists.iter().flat_map(|list| list.iter()).chain(reasons.iter().map(|(text, _)| text));
    if all.clone().any(|text| text.len() > LONGEST || text.is_empty()) {
        return Err(wrong(format!("a text is empty or longer than {LONGEST} bytes")));
    }
    if points.contains(&"filter") && reasons.is_empty() {
        return Err(wrong("reasons: a guest that filters has at least one".to_owned()));
    }
    let normalize = match text.normalize.as_deref() {
        None | Some("none") => Normalization::None,
        Some("max") => Normalization::Max,
        Some("reverseMax") => Normalization::ReverseMax,
        Some(other) => return Err(wrong(format!("normalize: {other:?} is none of none, max, reverseMax"))),
    };
    Ok(Manifest {
        points,
        charges: text.charges,
        pod_requests: requests,
        pod_labels: labels,
        pod_name: name,
        pod_namespace: namespace,
        node_resources: node.resources,
        node_labels: node.labels,
        node_numbers: node.numbers,
        node_taints: node.taints,
        node_annotations: node.annotations,
        node_annotation_numbers: node.annotation_numbers,
        reasons,
        normalize,
        workload_requests: of_workloads,
        flavor_labels: of_flavors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sdk_writes_is_read() {
        let manifest = Manifest::new().pre_filters().filters().scores().reserves().permits().charges();
        let manifest = manifest.pod_request("cpu").pod_label("a").node_resource("x/y").node_label("b");
        let manifest = manifest.node_number("c").node_taints().reason("full \"up\"", true);
        let manifest = manifest.node_annotation("d").node_annotation_number("e");
        let manifest = manifest.post_binds().rules_workloads().scores_flavors().orders_victims();
        let manifest = manifest.workload_request("x/gpu").flavor_label("price");
        let manifest = Manifest { pod_name: true, pod_namespace: true, ..manifest };
        for normalize in [Normalization::None, Normalization::Max, Normalization::ReverseMax] {
            let manifest = manifest.clone().normalize(normalize);
            assert_eq!(parse(manifest.to_json().as_bytes()), Ok(manifest));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, want) in [
            ("", "EOF"),
            ("{}", "points: name at least one of preFilter"),
            (r#"{"points": ["bind"]}"#, "points: \"bind\" is none of preFilter"),
            (r#"{"points": ["score", "score"]}"#, "score is there twice"),
            (r#"{"points": ["filter"]}"#, "reasons: a guest that filters"),
            (r#"{"points": ["score"], "pod": {"labels": [""]}}"#, "a text is empty"),
            (r#"{"points": ["score"], "normalize": "min"}"#, "normalize: \"min\""),
            (r#"{"points": ["score"], "secrets": true}"#, "unknown field `secrets`"),
        ] {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(want), "{text}: {error}");
        }
        let many = format!(r#"{{"points": ["score"], "pod": {{"labels": {:?}}}}}"#, vec!["a"; 65]);
        assert!(parse(many.as_bytes()).expect_err("many").contains("more than 64"));
    }
}
