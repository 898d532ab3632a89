//! What an admission assigns to the pods of a podset, and how it gets into a pod template and out again (Kueue
//! `pkg/podset`).

use std::borrow::Cow;

use plimsoll_api::json;
use serde_json::{Map, Value, json};

use crate::pod_view::first_slice;
use crate::store::Kind;
use crate::{Env, names};

/// What a podset was assigned (Kueue `podset.PodSetInfo`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSetInfo {
    /// Podset.
    pub name: String,
    /// Number of pods.
    pub count: i64,
    /// Labels for its pods.
    pub labels: Map<String, Value>,
    /// Annotations for its pods.
    pub annotations: Map<String, Value>,
    /// Node selector for its pods.
    pub node_selector: Map<String, Value>,
    /// Tolerations for its pods.
    pub tolerations: Vec<Value>,
    /// Scheduling gates for its pods.
    pub scheduling_gates: Vec<Value>,
}

/// Why there is no [`PodSetInfo`], or why it can't be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A flavor is not known (yet).
    Missing(String),
    /// Two sources assign different values; no retry resolves it.
    Conflict(String),
}

impl Error {
    /// The message alone.
    pub fn into_message(self) -> String {
        match self {
            Self::Missing(message) | Self::Conflict(message) => message,
        }
    }
}

/// What the workload's admission assigns to each podset, in the order of the assignments (Kueue `reconciler.go`,
/// `getPodSetsInfoFromStatus`): flavors and topology, queue labels of gate AssignQueueLabelsForPods, updates of admission
/// checks.
///
/// # Errors
/// When a flavor is missing, or admission checks contradict each other or the flavors.
pub fn infos(workload: &Value, env: Env<'_>) -> Result<Vec<PodSetInfo>, Error> {
    let admission = &workload["status"]["admission"];
    let specs = json::list(workload, &["spec", "podSets"]);
    let mut out = Vec::new();
    for (i, assigned) in json::list(admission, &["podSetAssignments"]).iter().enumerate() {
        let spec = specs.get(i).unwrap_or(&Value::Null);
        let declared = spec["count"].as_i64().unwrap_or(1);
        let mut info = from_assignment(assigned, declared, env)?;
        let asks = |how: &str| !spec["topologyRequest"][how].is_null();
        if assigned["topologyAssignment"].is_object()
            && !["required", "preferred", "unconstrained"].iter().any(|how| asks(how))
        {
            // Its pods count as what the assignment charges, and not as pods beside it.
            info.annotations.insert(names::UNCONSTRAINED.into(), json!("true"));
        }
        info.labels.insert(names::PODSET.into(), json!(info.name));
        info.annotations.insert(names::WORKLOAD.into(), json!(json::name(workload)));
        if env.is_elastic(workload) {
            info.annotations.insert(names::SLICE.into(), json!(first_slice(workload)));
            // Also where the job was not elastic yet when it was created.
            info.scheduling_gates.push(json!({"name": names::ELASTIC_GATE}));
        }
        if json::label_opt(workload, names::ORIGIN).is_some() {
            info.labels.insert(names::OF_MULTIKUEUE.into(), json!("true"));
        }
        for (label, value) in [
            (names::CLUSTER_QUEUE, json::text(admission, &["clusterQueue"])),
            (names::LOCAL_QUEUE, json::text(workload, &["spec", "queueName"])),
        ] {
            // A queue's name may be longer than a label's value.
            if !value.is_empty() && value.len() <= 63 {
                info.labels.insert(label.into(), json!(value));
            }
        }
        for check in json::list(workload, &["status", "admissionChecks"]) {
            for update in json::list(check, &["podSetUpdates"]) {
                if update["name"] != info.name.as_str() {
                    continue;
                }
                info.merge(&PodSetInfo {
                    labels: map_of(update, "labels"),
                    annotations: map_of(update, "annotations"),
                    node_selector: map_of(update, "nodeSelector"),
                    tolerations: json::list(update, &["tolerations"]).to_vec(),
                    ..PodSetInfo::default()
                })?;
            }
        }
        out.push(info);
    }
    Ok(out)
}

/// What the flavors and the topology of an assignment give (Kueue `podset.FromAssignment`); `count` pods where the
/// assignment has no number.
///
/// # Errors
/// When a flavor is missing.
pub fn from_assignment(assigned: &Value, count: i64, env: Env<'_>) -> Result<PodSetInfo, Error> {
    let mut info = PodSetInfo {
        name: json::text(assigned, &["name"]).to_owned(),
        count: assigned["count"].as_i64().unwrap_or(count),
        ..PodSetInfo::default()
    };
    let mut seen: Vec<&str> = Vec::new();
    for flavor in json::map(assigned, &["flavors"]).into_iter().flat_map(Map::values) {
        let flavor = flavor.as_str().unwrap_or_default();
        if seen.contains(&flavor) {
            continue;
        }
        seen.push(flavor);
        let Some(object) = env.objects.get(Kind::Flavor, "", flavor) else {
            return Err(Error::Missing(format!("ResourceFlavor.kueue.x-k8s.io {flavor:?} not found")));
        };
        for (k, v) in json::map(&object, &["spec", "nodeLabels"]).into_iter().flatten() {
            info.node_selector.insert(k.clone(), v.clone());
        }
        push_new(&mut info.tolerations, json::list(&object, &["spec", "tolerations"]));
    }
    if assigned["topologyAssignment"].is_object() {
        info.scheduling_gates.push(json!({"name": names::TOPOLOGY_GATE}));
    }
    Ok(info)
}

fn map_of(value: &Value, key: &str) -> Map<String, Value> {
    value[key].as_object().cloned().unwrap_or_default()
}

fn push_new(list: &mut Vec<Value>, more: &[Value]) {
    for value in more {
        if !list.contains(value) {
            list.push(value.clone());
        }
    }
}

fn merge_map(into: &mut Map<String, Value>, from: &Map<String, Value>, what: &str) -> Result<(), Error> {
    for (key, value) in from {
        if let Some(old) = into.get(key).filter(|old| *old != value) {
            let plain = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
            return Err(Error::Conflict(format!(
                "invalid admission check PodSetUpdate: conflict for {what}: conflict for key={key}, value1={}, value2={}",
                plain(old),
                plain(value)
            )));
        }
    }
    into.extend(from.iter().map(|(k, v)| (k.clone(), v.clone())));
    Ok(())
}

impl PodSetInfo {
    pub(crate) fn merge(&mut self, other: &Self) -> Result<(), Error> {
        merge_map(&mut self.annotations, &other.annotations, "annotations")?;
        merge_map(&mut self.labels, &other.labels, "labels")?;
        merge_map(&mut self.node_selector, &other.node_selector, "nodeSelector")?;
        push_new(&mut self.tolerations, &other.tolerations);
        push_new(&mut self.scheduling_gates, &other.scheduling_gates);
        Ok(())
    }
}

/// Merges what was assigned into a pod or pod template, an object with `metadata` and `spec` (Kueue `podset.Merge`).
///
/// # Errors
/// When the template already has another value for a key.
pub fn merge(template: &mut Value, info: &PodSetInfo) -> Result<(), Error> {
    let mut present = PodSetInfo {
        labels: map_of(&template["metadata"], "labels"),
        annotations: map_of(&template["metadata"], "annotations"),
        node_selector: map_of(&template["spec"], "nodeSelector"),
        tolerations: json::list(template, &["spec", "tolerations"]).to_vec(),
        scheduling_gates: json::list(template, &["spec", "schedulingGates"]).to_vec(),
        ..PodSetInfo::default()
    };
    // Left over from slices that have finished.
    if info.annotations.contains_key(names::SLICE) {
        present.annotations.remove(names::SLICE);
        present.annotations.remove(names::WORKLOAD);
    }
    present.merge(info)?;
    write(template, present);
    Ok(())
}

fn write(template: &mut Value, info: PodSetInfo) {
    let mut put = |path: [&str; 2], value: Value, empty: bool| {
        if empty {
            json::remove(template, &path);
        } else {
            json::set(template, &path, value);
        }
    };
    let (labels, annotations) = (info.labels.is_empty(), info.annotations.is_empty());
    put(["metadata", "labels"], Value::Object(info.labels), labels);
    put(["metadata", "annotations"], Value::Object(info.annotations), annotations);
    let selector = info.node_selector.is_empty();
    put(["spec", "nodeSelector"], Value::Object(info.node_selector), selector);
    let (tolerations, gates) = (info.tolerations.is_empty(), info.scheduling_gates.is_empty());
    put(["spec", "tolerations"], Value::Array(info.tolerations), tolerations);
    put(["spec", "schedulingGates"], Value::Array(info.scheduling_gates), gates);
}

/// Restores a template from the workload's podset (Kueue `podset.RestorePodSpec`).
pub fn restore(template: &mut Value, podset: &Value) {
    let original = &podset["template"];
    write(
        template,
        PodSetInfo {
            labels: map_of(&original["metadata"], "labels"),
            annotations: map_of(&original["metadata"], "annotations"),
            node_selector: map_of(&original["spec"], "nodeSelector"),
            tolerations: json::list(original, &["spec", "tolerations"]).to_vec(),
            scheduling_gates: json::list(original, &["spec", "schedulingGates"]).to_vec(),
            ..PodSetInfo::default()
        },
    );
}

/// Whether two lists of podsets describe the same workload (Kueue `equality.ComparePodSetSlices`). Tolerations are not
/// compared once admitted, because the admission adds some.
pub fn equivalent(a: &[Value], b: &[Value], ignore_tolerations: bool) -> bool {
    // The definition of Workloads has this default, and that of a job need not.
    let part = |p: &Value, key: &str| {
        let mut part = p["template"]["spec"][key].clone();
        remove_nulls(&mut part);
        if key != "tolerations" {
            part.as_array_mut().into_iter().flatten().for_each(sanitize_container);
        }
        let containers = part.as_array_mut().into_iter().flatten();
        for port in containers.filter_map(|c| c.get_mut("ports")?.as_array_mut()).flatten() {
            if let Some(port) = port.as_object_mut() {
                port.entry("protocol").or_insert_with(|| json!("TCP"));
            }
        }
        part
    };
    let same = |a: &Value, b: &Value, key: &str| {
        let (a, b) = (part(a, key), part(b, key));
        let empty = |v: &Value| v.is_null() || v.as_array().is_some_and(Vec::is_empty);
        a == b || empty(&a) && empty(&b)
    };
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a["count"].as_i64().unwrap_or(1) == b["count"].as_i64().unwrap_or(1)
                && a["minCount"].as_i64() == b["minCount"].as_i64()
                && same(a, b, "initContainers")
                && same(a, b, "containers")
                && (ignore_tolerations || same(a, b, "tolerations"))
        })
}

/// Removes fields without a value: the API server does so in a Workload, but not in a job whose definition keeps any field.
fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// The workload's podsets as a running job should have them, with what was assigned (Kueue `expectedRunningPodSets`).
/// `None` when no quota is reserved or the assignment can't be applied.
pub fn running(workload: &Value, env: Env<'_>) -> Option<Vec<Value>> {
    if !json::is_true(workload, "QuotaReserved") {
        return None;
    }
    let infos = infos(workload, env).ok()?;
    let mut podsets = json::list(workload, &["spec", "podSets"]).to_vec();
    for podset in &mut podsets {
        let name = json::text(podset, &["name"]);
        let info = infos.iter().find(|i| i.name == name)?;
        let (count, partial) = (info.count, podset["minCount"].is_i64());
        let mut template = podset["template"].take();
        merge(&mut template, info).ok()?;
        json::set(podset, &["template"], template);
        if partial {
            json::set(podset, &["count"], json!(count));
        }
    }
    Some(podsets)
}

/// Whether a job of one object still has the podsets of a workload (Kueue `EquivalentToWorkload`): as a running job should
/// have them, or while it is suspended as they were declared.
pub fn job_matches(suspended: bool, job: &[Value], workload: &Value, env: Env<'_>) -> bool {
    let admitted = json::is_true(workload, "Admitted");
    let declared = json::list(workload, &["spec", "podSets"]);
    let Some(mut running) = running(workload, env) else {
        return equivalent(job, declared, admitted);
    };
    for (expected, own) in running.iter_mut().zip(job) {
        // A running job shows the admitted count; the least count that it accepts is only in the workload.
        if own["minCount"].is_null() {
            json::remove(expected, &["minCount"]);
        }
    }
    equivalent(job, &running, admitted) || suspended && equivalent(job, declared, admitted)
}

/// The labels by which the pods of a podset have ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// Label: index of the pod, in its group if there are groups.
    pub index_label: Option<Cow<'static, str>>,
    /// Label: index of the pod's group, and the number of groups.
    pub groups: Option<(Cow<'static, str>, i64)>,
}

impl Ranks {
    /// `topologyRequest` of a template whose pods have these labels: also without annotations, for flavors with a topology
    /// (Kueue `NewPodSetTopologyRequest`).
    pub fn topology_request(&self, template: &Value) -> Option<Value> {
        let mut out = topology_request(template).unwrap_or_else(|| json!({}));
        if let Some(label) = &self.index_label {
            out["podIndexLabel"] = json!(label);
        }
        if let Some((label, count)) = &self.groups {
            out["subGroupIndexLabel"] = json!(label);
            out["subGroupCount"] = json!(count);
        }
        out.as_object().is_some_and(|o| !o.is_empty()).then_some(out)
    }
}

/// `topologyRequest` of a template, from its annotations (Kueue KEP-2724, `jobframework/tas.go`); `None` when there are
/// none. What can't be read counts as not there: webhooks refuse it.
fn topology_request(template: &Value) -> Option<Value> {
    let get = |name: &str| json::annotation(template, &format!("kueue.x-k8s.io/{name}"));
    let mut out = Map::new();
    if let Some(level) = get("podset-required-topology") {
        out.insert("required".into(), json!(level));
    } else if let Some(level) = get("podset-preferred-topology") {
        out.insert("preferred".into(), json!(level));
    } else if let Some(unconstrained) = get("podset-unconstrained-topology").and_then(parse_bool) {
        out.insert("unconstrained".into(), json!(unconstrained));
    }
    if let Some(group) = get("podset-group-name")
        && (out.contains_key("required") || out.contains_key("preferred"))
    {
        out.insert("podSetGroupName".into(), json!(group));
    }
    let size = get("podset-slice-size").and_then(|s| s.parse::<i32>().ok());
    let layers = get("podset-slice-required-topology-constraints").and_then(|text| slice_layers(text).ok());
    if let Some(layers) = layers.filter(|layers| (1..=MOST_SLICE_LAYERS).contains(&layers.len())) {
        let layer = |of: &SliceLayer| json!({"topology": of.topology, "size": of.size});
        out.insert("podsetSliceRequiredTopologyConstraints".into(), layers.iter().map(layer).collect());
    } else if let (Some(level), Some(size)) = (get("podset-slice-required-topology"), size) {
        out.insert("podSetSliceRequiredTopology".into(), json!(level));
        out.insert("podSetSliceSize".into(), json!(size));
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

/// A boolean as Go's `strconv.ParseBool` reads it.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Most layers of slices.
pub(crate) const MOST_SLICE_LAYERS: usize = 3;

/// A layer of slices (Kueue KEP-5439).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceLayer {
    /// Label of nodes.
    pub topology: String,
    /// Number of pods in a slice.
    pub size: i32,
}

/// The layers of slices in an annotation, the largest first, however many there are. As for Go, what is null or missing is
/// empty.
///
/// # Errors
/// What is wrong with the JSON.
pub(crate) fn slice_layers(text: &str) -> Result<Vec<SliceLayer>, String> {
    let given: Option<Vec<Option<Map<String, Value>>>> =
        serde_json::from_str(text).map_err(|e| e.to_string())?;
    given.unwrap_or_default().into_iter().map(Option::unwrap_or_default).map(slice_layer).collect()
}

fn slice_layer(mut of: Map<String, Value>) -> Result<SliceLayer, String> {
    let topology = match of.remove("topology").unwrap_or_default() {
        Value::Null => String::new(),
        Value::String(topology) => topology,
        other => return Err(format!("topology must be a text, not {other}")),
    };
    let size = match of.remove("size").unwrap_or_default() {
        Value::Null => Some(0),
        other => other.as_i64().and_then(|size| i32::try_from(size).ok()),
    };
    let size = size.ok_or("size must be a whole number of 32 bits")?;
    Ok(SliceLayer { topology, size })
}

/// Leaves each environment variable once, at its first place with its last value: a Workload has one of each name (Kueue
/// `SanitizePodSets`).
pub fn sanitize(pod_sets: &mut [Value]) {
    for podset in pod_sets {
        for list in ["containers", "initContainers"] {
            let containers =
                podset.pointer_mut(&format!("/template/spec/{list}")).and_then(Value::as_array_mut);
            containers.into_iter().flatten().for_each(sanitize_container);
        }
    }
}

fn sanitize_container(container: &mut Value) {
    let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) else { return };
    let mut kept: Vec<Value> = Vec::with_capacity(env.len());
    for variable in env.drain(..) {
        match kept.iter_mut().find(|known| known["name"] == variable["name"]) {
            Some(known) => *known = variable,
            None => kept.push(variable),
        }
    }
    *env = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_without_a_value_make_no_difference() {
        let podset = |container: Value| {
            [json!({"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}})]
        };
        let kept = podset(json!({"name": "c", "args": null, "resources": {"limits": null}}));
        let stored = podset(json!({"name": "c", "resources": {}}));
        assert!(equivalent(&kept, &stored, false));
        assert!(!equivalent(&kept, &podset(json!({"name": "c", "args": ["x"], "resources": {}})), false));
    }
}
