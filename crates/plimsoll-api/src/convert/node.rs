//! Nodes.

use super::pod::taint_effect;
use super::{ConvertError, Result, amount, bad, decode_either, required, string_map, time};
use crate::lean::meta::Condition;
use crate::lean::node as lean;
use crate::protobuf;
use plimsoll_state::Time;
use plimsoll_state::model::{ImageState, Node, Taint};

/// A Node from its bytes, JSON or [`protobuf`].
///
/// # Errors
/// When the bytes are not a Node, or a field has a value that can't be understood.
pub fn node(bytes: &[u8]) -> std::result::Result<Node, ConvertError> {
    let raw: lean::Node = decode_either("Node", &protobuf::NODE, bytes)?;
    let spec = raw.spec.unwrap_or_default();
    let status = raw.status.unwrap_or_default();
    let taints = spec.taints.unwrap_or_default().into_iter().map(taint).collect::<Result<_>>()?;
    let images = status.images.unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let ready = conditions.iter().find(|c| c.kind.as_deref() == Some("Ready"));
    Ok(Node {
        name: required("metadata.name", raw.metadata.name)?,
        uid: raw.metadata.uid.unwrap_or_default(),
        labels: string_map(raw.metadata.labels),
        annotations: string_map(raw.metadata.annotations),
        unschedulable: spec.unschedulable.unwrap_or(false),
        taints,
        allocatable: amount::resources("status.allocatable", status.allocatable)?,
        images: images.into_iter().map(image).collect(),
        conditions: conditions.iter().map(status_by_type).collect(),
        ready: ready.is_some_and(|c| c.status.as_deref() == Some("True")),
        ready_since: ready.map(since),
        declared_features: status.declared_features.unwrap_or_default(),
        encoded: None,
    })
}

fn status_by_type(c: &Condition) -> (String, String) {
    (c.kind.clone().unwrap_or_default(), c.status.clone().unwrap_or_default())
}

/// When a condition changed; one without a time, or with a time that can't be read, always was as it is.
fn since(c: &Condition) -> Time {
    let at = c.last_transition_time.as_deref().and_then(|t| time("status.conditions", t).ok());
    at.unwrap_or_default()
}

fn image(raw: lean::Image) -> ImageState {
    ImageState { names: raw.names.unwrap_or_default(), size_bytes: raw.size_bytes.unwrap_or(0) }
}

/// A taint; used for nodes and for flavors.
pub(crate) fn taint(raw: lean::Taint) -> Result<Taint> {
    let effect = raw.effect.unwrap_or_default();
    let Some(parsed) = taint_effect(&effect) else {
        return bad("taints.effect", format!("{effect:?} is not a valid taint effect"));
    };
    Ok(Taint { key: raw.key.unwrap_or_default(), value: raw.value.unwrap_or_default(), effect: parsed })
}
