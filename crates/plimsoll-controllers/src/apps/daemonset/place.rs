//! On which nodes a DaemonSet's pods run, and what such a pod looks like (`NodeShouldRunDaemonPod`,
//! `pkg/controller/daemon/util` upstream).

use plimsoll_apimachinery::meta::{controller_reference, text};
use serde_json::{Value, json};

use super::model::{DaemonSet, GENERATION, Node, Taint};

/// Label of pods: the revision of their template.
pub const REVISION: &str = "controller-revision-hash";
const NO_EXECUTE: &str = "NoExecute";
/// Taints that daemons live with: whatever is wrong with a node, they are part of it.
const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// Whether a pod is to be made on a node, and whether one that is there may stay.
pub fn should_run(set: &DaemonSet, tolerations: &[Value], node: &Node) -> (bool, bool) {
    let spec = &set.spec.template["spec"];
    let name = text(spec, &["nodeName"]);
    if !(name.is_empty() || name == node.metadata.name) || !is_selected(spec, node) {
        return (false, false);
    }
    let bears = |t: &Taint| tolerations.iter().any(|by| tolerates(by, t));
    let hurts = |t: &&Taint| matches!(t.effect.as_str(), "NoSchedule" | NO_EXECUTE) && !bears(t);
    let mut hurting = node.spec.taints.iter().filter(hurts).peekable();
    let fits = hurting.peek().is_none();
    (fits, fits || hurting.all(|t| t.effect != NO_EXECUTE))
}

/// The tolerations of the set's pods: those of the template, and those of every daemon.
pub fn tolerations(set: &DaemonSet) -> Vec<Value> {
    let spec = &set.spec.template["spec"];
    let mut all = spec["tolerations"].as_array().cloned().unwrap_or_default();
    let network = [("node.kubernetes.io/network-unavailable", "NoSchedule")];
    let network = network.iter().filter(|_| spec["hostNetwork"] == true);
    for (key, effect) in TOLERATED.iter().chain(network) {
        let same = |t: &Value| t["key"] == *key && t["effect"] == *effect && t["operator"] == "Exists";
        all.retain(|t| !same(t));
        all.push(json!({"key": key, "operator": "Exists", "effect": effect}));
    }
    all
}

fn tolerates(toleration: &Value, taint: &Taint) -> bool {
    let field = |name: &str| toleration[name].as_str().unwrap_or_default();
    let (key, effect, value) = (field("key"), field("effect"), field("value"));
    if !(effect.is_empty() || effect == taint.effect) || !(key.is_empty() || key == taint.key) {
        return false;
    }
    match field("operator") {
        "Exists" => true,
        "" | "Equal" => value == taint.value && !key.is_empty(),
        _ => false,
    }
}

/// `nodeSelector` and required node affinity.
fn is_selected(spec: &Value, node: &Node) -> bool {
    let labels = &node.metadata.labels;
    let mut plain = spec["nodeSelector"].as_object().into_iter().flatten();
    if !plain.all(|(k, v)| labels.get(k).map(String::as_str) == v.as_str()) {
        return false;
    }
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    if required.is_null() {
        return true;
    }
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    list(&required["nodeSelectorTerms"]).iter().any(|term| {
        let (labelled, named) = (list(&term["matchExpressions"]), list(&term["matchFields"]));
        let name = |e: &Value| (e["key"] == "metadata.name").then_some(node.metadata.name.as_str());
        let label = |e: &Value| labels.get(e["key"].as_str().unwrap_or_default()).map(String::as_str);
        // A term without conditions selects nothing.
        !(labelled.is_empty() && named.is_empty())
            && labelled.iter().all(|e| holds(e, label(e)))
            && named.iter().all(|e| holds(e, name(e)))
    })
}

fn holds(expression: &Value, value: Option<&str>) -> bool {
    let values = || expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let listed = value.is_some_and(|v| values().any(|x| x == v));
    let compared = || {
        let number = value?.parse::<i64>().ok()?;
        Some(number.cmp(&values().next()?.parse::<i64>().ok()?))
    };
    match expression["operator"].as_str().unwrap_or_default() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

/// The pod for a node. The scheduler places it: it may go to no other node.
pub fn pod(set: &DaemonSet, tolerations: &[Value], hash: &str, node: &str) -> Value {
    let template = &set.spec.template;
    let mut metadata = json!({
        "generateName": format!("{}-", set.metadata.name), "namespace": set.metadata.namespace,
        "ownerReferences": [controller_reference("apps/v1", "DaemonSet", &set.metadata)],
        "labels": {},
    });
    for key in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(key).filter(|v| !v.is_null()) {
            metadata[key] = value.clone();
        }
    }
    metadata["labels"][REVISION] = json!(hash);
    if let Some(generation) = set.metadata.annotations.get(GENERATION) {
        metadata["labels"]["pod-template-generation"] = json!(generation);
    }
    let mut spec = template["spec"].clone();
    spec["tolerations"] = json!(tolerations);
    for key in ["affinity", "nodeAffinity"] {
        let parent = if key == "affinity" { &mut spec } else { &mut spec["affinity"] };
        if parent[key].is_null() {
            parent[key] = json!({});
        }
    }
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!({
        "nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [node]}]}]});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// The node that a pod of a DaemonSet is for (`GetTargetNodeName`), read from a whole pod.
pub fn target(pod: &Value) -> Option<String> {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = required["nodeSelectorTerms"].as_array()?;
    let mut fields = terms.iter().flat_map(|t| t["matchFields"].as_array().into_iter().flatten());
    let field = fields.find(|f| f["key"] == "metadata.name" && f["operator"] == "In")?;
    match field["values"].as_array()?.as_slice() {
        [one] => one.as_str().map(str::to_owned),
        _ => None,
    }
}
