//! DefaultTolerationSeconds, PodTopologyLabels, PodResizeValidator.

use std::sync::Arc;

use plimsoll_api::quantity::Quantity;
use plimsoll_apimachinery::{ApiError, Cause};
use serde_json::{Value, json};

use super::{Operation, forbidden, subject};
use crate::store::{Key, Record};
use crate::write::Write;
use plimsoll_apimachinery::amounts::{Part, View, amounts, total};

const SECONDS: i64 = 300;

/// Pods tolerate a node that is not ready or unreachable for five minutes, unless they say otherwise.
pub fn default_tolerations(w: &Write, pod: &mut Value) {
    if !subject(w).is("", "pods") || !pod["spec"].is_object() {
        return;
    }
    let tolerated = |pod: &Value, key: &str| {
        pod["spec"]["tolerations"].as_array().into_iter().flatten().any(|t| {
            let text = |f: &str| t[f].as_str().unwrap_or("");
            (text("key") == key || text("key").is_empty()) && matches!(text("effect"), "NoExecute" | "")
        })
    };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if tolerated(pod, key) {
            continue;
        }
        let toleration =
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS});
        match pod["spec"]["tolerations"].as_array_mut() {
            Some(list) => list.push(toleration),
            None => pod["spec"]["tolerations"] = json!([toleration]),
        }
    }
}

const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// A pod that comes with a node, or is bound to one, gets the zone and the region of the node as labels.
pub fn label_topology(w: &Write, object: &mut Value, operation: Operation) {
    let s = subject(w);
    if operation != Operation::Create || !s.group.is_empty() || s.plural != "pods" {
        return;
    }
    let node = match s.subresource {
        "" => object["spec"]["nodeName"].as_str(),
        "binding" if object["target"]["kind"] == "Node" => object["target"]["name"].as_str(),
        _ => None,
    };
    let Some(record) = node.filter(|n| !n.is_empty()).and_then(|n| node_record(w, n)) else { return };
    for key in [ZONE, REGION] {
        let Some(value) = record.labels.get(key) else { continue };
        if object["metadata"]["labels"].is_null() {
            object["metadata"]["labels"] = json!({});
        }
        object["metadata"]["labels"][key] = json!(value);
    }
}

/// The node from the committed store (upstream reads its informer).
fn node_record(w: &Write, name: &str) -> Option<Arc<Record>> {
    w.server.store().get(&Key::new("/nodes", "", name))
}

/// A pod that is resized has to fit its node, all alone, and the node has to run Linux.
pub fn check_resize(
    w: &Write,
    pod: &Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    let s = subject(w);
    let resize =
        operation == Operation::Update && (s.group, s.plural, s.subresource) == ("", "pods", "resize");
    let Some(old) = old.filter(|_| resize) else { return Ok(()) };
    let name = pod["spec"]["nodeName"].as_str().unwrap_or("");
    if name.is_empty() || old["metadata"]["generation"] == pod["metadata"]["generation"] {
        return Ok(());
    }
    let Some(node) = node_record(w, name).and_then(|r| r.value().ok()) else {
        return Err(forbidden(w, pod, &format!("node {name:?} not found")));
    };
    let refuse = |why: &str, reason: &str| {
        let mut e = forbidden(w, pod, why);
        if let Some(details) = &mut e.details {
            details.causes.push(Cause { reason: reason.to_owned(), ..Cause::default() });
        }
        Err(e)
    };
    let system = node["metadata"]["labels"]["kubernetes.io/os"].as_str().unwrap_or("linux");
    if system != "linux" {
        let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
        return refuse(&why, "UnsupportedPlatform");
    }
    let (wanted, there) = (total(pod, Part::Requests, View::Whole), amounts(&node["status"]["allocatable"]));
    let mut short = Vec::new();
    for (resource, shown) in
        [("cpu", Quantity::milli_value as fn(Quantity) -> i64), ("memory", Quantity::value)]
    {
        let of = |amounts: &plimsoll_apimachinery::amounts::Amounts| {
            amounts.get(resource).copied().unwrap_or_default()
        };
        let (wanted, there) = (of(&wanted), of(&there));
        if wanted > there {
            short.push(format!("{resource}, requested: {}, allocatable: {}", shown(wanted), shown(there)));
        }
    }
    if short.is_empty() {
        return Ok(());
    }
    let why = format!("node didn't have enough allocatable resources: {}", short.join("; "));
    refuse(&why, "NodeCapacity")
}
