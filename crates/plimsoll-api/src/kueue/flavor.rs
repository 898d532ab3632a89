//! ResourceFlavors.

use super::decode::{list, name, strings, text};
use crate::convert::{self, ConvertError, Result, bad, taint_from_value, toleration_from_value};
use plimsoll_queueing::ResourceFlavor;
use plimsoll_state::model::Node;
use serde_json::Value;

/// Annotation of ResourceFlavors, `true` where a cluster autoscaler adds nodes for pods that have none.
pub const AUTOSCALED: &str = "plimsoll.dev/autoscaled";
/// Annotation of ResourceFlavors: a Node in JSON, as a cluster autoscaler adds them.
pub const NEW_NODE: &str = "plimsoll.dev/node-template";

/// A ResourceFlavor.
///
/// # Errors
/// When a taint, a toleration or one of our annotations can't be understood.
pub fn resource_flavor(object: &Value) -> std::result::Result<ResourceFlavor, ConvertError> {
    let spec = &object["spec"];
    let annotations = &object["metadata"]["annotations"];
    let mut flavor = ResourceFlavor {
        name: name(object)?,
        node_labels: strings(&spec["nodeLabels"]),
        node_taints: list(spec, "nodeTaints").iter().map(taint_from_value).collect::<Result<_>>()?,
        tolerations: list(spec, "tolerations").iter().map(toleration_from_value).collect::<Result<_>>()?,
        topology: text(spec, "topologyName"),
        labels: strings(&object["metadata"]["labels"]),
        autoscaled: autoscaled(annotations)?,
        new_node: None,
    };
    if let Some(template) = annotations[NEW_NODE].as_str() {
        flavor.new_node = Some(Box::new(new_node(template, &flavor)?));
    }
    Ok(flavor)
}

fn autoscaled(annotations: &Value) -> Result<bool> {
    match annotations[AUTOSCALED].as_str() {
        None => Ok(annotations[NEW_NODE].is_string()),
        Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(other) => {
            let field = format!("metadata.annotations[{AUTOSCALED}]");
            bad(field, format!("Unsupported value: {other:?}: supported values: \"true\", \"false\""))
        }
    }
}

/// The node of a template, with labels and taints of the flavor.
fn new_node(template: &str, flavor: &ResourceFlavor) -> Result<Node> {
    let field = || format!("metadata.annotations[{NEW_NODE}]");
    let mut object: Value = match serde_json::from_str(template) {
        Ok(object @ Value::Object(_)) => object,
        Ok(_) => return bad(field(), "Invalid value: must be a Node in JSON"),
        Err(error) => return bad(field(), format!("Invalid value: must be a Node in JSON: {error}")),
    };
    // No node has a slash in its name.
    object["metadata"]["name"] = format!("new/{}", flavor.name).into();
    let mut node = match convert::node(object.to_string().as_bytes()) {
        Ok(node) => node,
        Err(error) => return bad(field(), format!("Invalid value: {error}")),
    };
    if node.allocatable.is_empty() {
        return bad(field(), "Required value: status.allocatable says what such a node has");
    }
    // What cloud providers leave out.
    node.allocatable.entry("pods".into()).or_insert(110);
    node.ready = true;
    node.labels.extend(flavor.node_labels.iter().map(|(k, v)| (k.clone(), v.clone())));
    node.taints
        .extend(flavor.node_taints.iter().filter(|t| !node.taints.contains(t)).cloned().collect::<Vec<_>>());
    Ok(node)
}
