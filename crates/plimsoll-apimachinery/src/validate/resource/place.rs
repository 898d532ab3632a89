//! Nodes on which devices can be used: those of a slice, or of each device.

use serde_json::Value;

use super::super::path::{Errors, Path};
use super::super::{checks, golang, pod};
use crate::obj::{Obj, has, list, object};

/// The nodes of all devices of a slice: exactly one of the fields is set.
pub(super) fn of_slice(spec: &Obj, path: &Path<'_>, errors: &mut Errors) {
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let chosen = ways(spec, true, path, errors);
    match chosen.len() {
        0 => errors.required(path, ONE),
        1 => {}
        _ => errors.invalid(path, shown(&chosen), &format!("{ONE}, but multiple fields are set")),
    }
}

/// The nodes of one device, if the slice sets them per device.
pub(super) fn of_device(device: &Obj, per_device: bool, path: &Path<'_>, errors: &mut Errors) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if !per_device {
        if ["nodeName", "nodeSelector", "allNodes"].iter().any(|key| has(device, key)) {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
            errors.invalid(path, Value::Null, detail);
        }
        return;
    }
    let chosen = ways(device, false, path, errors);
    match chosen.len() {
        0 => errors.required(path, ONE),
        1 => {}
        _ => errors.invalid(path, shown(&chosen), ONE),
    }
}

/// The ways that are taken, as messages show them.
fn shown(ways: &[&str]) -> String {
    let quoted: Vec<String> = ways.iter().map(|way| format!("`{way}`")).collect();
    format!("{{{}}}", quoted.join(", "))
}

/// The fields that are set.
fn ways(owner: &Obj, slice: bool, path: &Path<'_>, errors: &mut Errors) -> Vec<&'static str> {
    let mut chosen = Vec::new();
    if let Some(name) = owner.get("nodeName").and_then(Value::as_str) {
        let at = path.field("nodeName");
        if name.is_empty() {
            let whole = "must be either unset or set to a non-empty string";
            errors.invalid(&at, name, if slice { whole } else { "must not be empty" });
        } else {
            chosen.push("nodeName");
            errors.invalid_all(&at, name, &checks::dns_subdomain(name));
        }
    }
    if has(owner, "nodeSelector") {
        chosen.push("nodeSelector");
        let (selector, at) = (object(owner, "nodeSelector"), path.field("nodeSelector"));
        pod::node_selector(selector, &at, errors);
        if slice && list(selector, "nodeSelectorTerms").len() != 1 {
            let shown = golang::shown("[]NodeSelectorTerm", selector.get("nodeSelectorTerms"));
            let detail = "must have exactly one node selector term";
            errors.invalid_text(&at.field("nodeSelectorTerms"), shown, detail);
        }
    }
    let flags: &[&'static str] = if slice { &["allNodes", "perDeviceNodeSelection"] } else { &["allNodes"] };
    for key in flags {
        match owner.get(*key) {
            Some(Value::Bool(true)) => chosen.push(key),
            Some(Value::Bool(false)) => {
                errors.invalid(&path.field(key), false, "must be either unset or set to true");
            }
            _ => {}
        }
    }
    chosen
}
