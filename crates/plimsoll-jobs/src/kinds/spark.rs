//! SparkApplications, framework `sparkoperator.k8s.io/sparkapplication`, behind the gate `SparkApplicationIntegration` (Kueue
//! `pkg/controller/jobs/sparkapplication`): a podset for the driver and one for the executors, as the operator makes their
//! pods.

use plimsoll_api::json;
use serde_json::{Map, Value, json};

use super::{Inject, JobKind, PodTemplate, Updates};
use crate::custom_kind::CustomKind;
use crate::generic_job::Finished;
use crate::podset::{PodSetInfo, Ranks};
use crate::webhook::validation::ErrorList;

/// The kind.
pub(crate) const SPARK_APPLICATION: JobKind = JobKind {
    kind: CustomKind::SPARK_APPLICATION,
    validating_webhook: "vsparkapplication.kb.io",
    suspend: &["spec", "suspend"],
    templates,
    groups: false,
    inject: Inject::Elsewhere { run, restore },
    is_active: |app| state(app) == "RUNNING",
    finished,
    pods_ready,
    reclaimable_pods: None,
    priority_class: |_| None,
    default: |_| (),
    adjust: |_, _| (),
    skip: |_| false,
    on_hold: None,
    updates: Updates::WholeIfQueued,
    takes_prebuilt: false,
    validate,
    elastic: None,
};

/// A podset and the field of the application that it is made from.
struct Role {
    name: &'static str,
    container: &'static str,
    /// Name by which its container is found in a template.
    known_as: &'static str,
}

const ROLES: [Role; 2] = [
    Role { name: "driver", container: "spark-kubernetes-driver", known_as: "spark-kubernetes-driver" },
    Role { name: "executor", container: "spark-kubernetes-executor", known_as: "executor" },
];

/// Volumes of this name are the operator's own.
const LOCAL_DIRECTORY: &str = "spark-local-dir-";

fn state(app: &Value) -> &str {
    json::text(app, &["status", "applicationState", "state"])
}

/// Executors at the beginning.
fn executors(app: &Value) -> i64 {
    json::int(app, &["spec", "executor", "instances"]).unwrap_or(0)
}

fn templates(app: &Value) -> Vec<PodTemplate> {
    let template = |role: &Role| PodTemplate {
        podset: role.name.into(),
        count: if role.name == "driver" { 1 } else { executors(app) },
        // The application has no whole template anywhere.
        pointer: String::new(),
        field: format!("spec.{}", role.name),
        ranks: Ranks::default(),
        otherwise: Some(pod(app, role)),
    };
    ROLES.iter().map(template).collect()
}

/// The pod of a role (Kueue `sparkapplication_podset.go`, which follows the operator's `sparkpod_defaulter.go`).
fn pod(app: &Value, role: &Role) -> Value {
    let own = &app["spec"][role.name];
    let mut spec = json!({"containers": [{"name": role.container}]});
    volumes(app, own, role, &mut spec);
    let extend = |spec: &mut Value, field: &str, more: &[Value]| {
        let mut all = json::list(spec, &[field]).to_vec();
        let new = |c: &&Value| !all.iter().any(|o| o["name"] == c["name"] && o["image"] == c["image"]);
        let more: Vec<Value> = more.iter().filter(new).cloned().collect();
        all.extend(more);
        if !all.is_empty() {
            json::set(spec, &[field], Value::Array(all));
        }
    };
    extend(&mut spec, "initContainers", json::list(own, &["initContainers"]));
    extend(&mut spec, "containers", json::list(own, &["sidecars"]));
    for field in ["priorityClassName", "nodeSelector", "affinity", "tolerations"] {
        if !own[field].is_null() {
            json::set(&mut spec, &[field], own[field].clone());
        }
    }
    let amounts = [
        ("requests", "cpu", own["coreRequest"].clone()),
        ("limits", "cpu", own["coreLimit"].clone()),
        ("requests", "memory", memory(&own["memory"])),
        ("limits", "memory", memory(&own["memoryLimit"])),
    ];
    let container = main_container(&mut spec, role);
    for (of, resource, amount) in amounts.into_iter().filter(|(.., amount)| !amount.is_null()) {
        json::set(container, &["resources", of, resource], amount);
    }
    let gpu = json::text(own, &["gpu", "name"]);
    if let Some(count) = json::int(own, &["gpu", "quantity"]).filter(|n| *n > 0 && !gpu.is_empty()) {
        json::set(container, &["resources", "limits", gpu], json!(count.to_string()));
    }
    json!({"metadata": metadata(own), "spec": spec})
}

/// The container with Spark: the one of the known name, else the first.
fn main_container<'a>(spec: &'a mut Value, role: &Role) -> &'a mut Value {
    let named = json::list(spec, &["containers"]).iter().position(|c| c["name"] == role.known_as);
    &mut spec["containers"][named.unwrap_or(0)]
}

/// The volumes of the application that the container of this role mounts.
fn volumes(app: &Value, own: &Value, role: &Role, spec: &mut Value) {
    let all = json::list(app, &["spec", "volumes"]);
    let (mut used, mut mounts): (Vec<Value>, Vec<Value>) = (Vec::new(), Vec::new());
    for mount in json::list(own, &["volumeMounts"]) {
        let name = json::text(mount, &["name"]);
        let Some(volume) = all.iter().find(|v| v["name"] == name) else { continue };
        if name.starts_with(LOCAL_DIRECTORY) {
            continue;
        }
        if !used.contains(volume) {
            used.push(volume.clone());
        }
        mounts.push(mount.clone());
    }
    if !mounts.is_empty() {
        json::set(spec, &["volumes"], Value::Array(used));
        json::set(main_container(spec, role), &["volumeMounts"], Value::Array(mounts));
    }
}

/// Labels and annotations of the role over those of its template.
fn metadata(own: &Value) -> Value {
    let mut metadata = Map::new();
    for key in ["labels", "annotations"] {
        let mut all = json::map(own, &["template", "metadata", key]).cloned().unwrap_or_default();
        all.extend(json::map(own, &[key]).cloned().unwrap_or_default());
        if !all.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(all));
        }
    }
    Value::Object(metadata)
}

/// An amount of memory as Java writes it, as Kubernetes does (the operator's `ConvertJavaMemoryStringToK8sMemoryString`).
fn memory(amount: &Value) -> Value {
    const UNITS: [(&str, &str); 8] = [
        ("kb", "Ki"),
        ("mb", "Mi"),
        ("gb", "Gi"),
        ("tb", "Ti"),
        ("k", "Ki"),
        ("m", "Mi"),
        ("g", "Gi"),
        ("t", "Ti"),
    ];
    let Some(text) = amount.as_str() else { return amount.clone() };
    let unit = UNITS.iter().find_map(|(java, ours)| Some((text.strip_suffix(java)?, ours)));
    unit.map_or_else(|| amount.clone(), |(number, unit)| json!(format!("{number}{unit}")))
}

/// Where a role has what is assigned; gates are in its template.
const ASSIGNED: [&str; 4] = ["annotations", "labels", "nodeSelector", "tolerations"];

/// Labels, node selector and so on are fields of each role. A node selector for both is moved there: the operator refuses
/// both at once.
fn run(app: &mut Value, infos: &[PodSetInfo]) -> Result<(), String> {
    if infos.len() != ROLES.len() {
        return Err(format!("invalid podset infos: expecting {} podset, got {}", ROLES.len(), infos.len()));
    }
    let global = app["spec"]["nodeSelector"].as_object().cloned();
    for (role, info) in ROLES.iter().zip(infos) {
        let own = &app["spec"][role.name];
        let map = |key: &str| json::map(own, &[key]).cloned().unwrap_or_default();
        let mut all = PodSetInfo {
            annotations: map("annotations"),
            labels: map("labels"),
            node_selector: global.clone().unwrap_or_else(|| map("nodeSelector")),
            tolerations: json::list(own, &["tolerations"]).to_vec(),
            scheduling_gates: json::list(own, &["template", "spec", "schedulingGates"]).to_vec(),
            ..PodSetInfo::default()
        };
        all.merge(info).map_err(crate::podset::Error::into_message)?;
        let values = [
            Value::Object(all.annotations),
            Value::Object(all.labels),
            Value::Object(all.node_selector),
            Value::Array(all.tolerations),
        ];
        for (key, value) in ASSIGNED.into_iter().zip(values) {
            put(app, &["spec", role.name, key], value);
        }
        gates(app, role, Value::Array(all.scheduling_gates));
    }
    if global.is_some() {
        json::remove(app, &["spec", "nodeSelector"]);
    }
    Ok(())
}

fn restore(app: &mut Value, pod_sets: &[Value]) {
    if pod_sets.len() != ROLES.len() {
        return;
    }
    for (role, podset) in ROLES.iter().zip(pod_sets) {
        let template = &podset["template"];
        for key in ASSIGNED {
            let from = if matches!(key, "annotations" | "labels") { "metadata" } else { "spec" };
            put(app, &["spec", role.name, key], template[from][key].clone());
        }
        gates(app, role, template["spec"]["schedulingGates"].clone());
    }
    if let Some(count) = json::int(pod_sets.last().unwrap_or(&Value::Null), &["count"])
        && count != executors(app)
    {
        json::set(app, &["spec", "executor", "instances"], json!(count));
    }
    json::remove(app, &["spec", "nodeSelector"]);
}

fn gates(app: &mut Value, role: &Role, gates: Value) {
    let is_empty = gates.as_array().is_none_or(Vec::is_empty);
    if !is_empty && app["spec"][role.name]["template"].is_null() {
        let container = json!({"containers": [{"name": role.container}]});
        json::set(app, &["spec", role.name, "template"], json!({ "spec": container }));
    }
    put(app, &["spec", role.name, "template", "spec", "schedulingGates"], gates);
}

/// Writes a value, or removes the field where there is nothing in it.
fn put(app: &mut Value, path: &[&str], value: Value) {
    let is_empty = match &value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if is_empty {
        json::remove(app, path);
    } else {
        json::set(app, path, value);
    }
}

fn finished(app: &Value) -> Option<Finished> {
    let state = state(app);
    matches!(state, "COMPLETED" | "FAILED" | "SUBMISSION_FAILED").then(|| Finished {
        message: json::text(app, &["status", "applicationState", "errorMessage"]).to_owned(),
        success: state == "COMPLETED",
    })
}

/// The application runs as soon as its driver does: executors are counted, too.
fn pods_ready(app: &Value) -> bool {
    let states = json::map(app, &["status", "executorState"]).into_iter().flatten();
    let ready = states.filter(|(_, state)| matches!(state.as_str(), Some("RUNNING" | "COMPLETED"))).count();
    state(app) == "RUNNING" && i64::try_from(ready).is_ok_and(|ready| ready >= executors(app))
}

/// Rules of SparkApplications (Kueue `sparkapplication_webhook.go`, `validateCreate`).
fn validate(app: &Value, elastic: bool, errors: &mut ErrorList) -> bool {
    let mode = json::text(app, &["spec", "mode"]);
    if mode != "cluster" {
        errors.invalid("spec.mode", mode, "only Cluster mode is supported for a kueue managed job");
    }
    if !elastic && json::flag(app, &["spec", "dynamicAllocation", "enabled"]) {
        let detail = "a kueue managed job can use dynamicAllocation only when the ElasticJobsViaWorkloadSlices feature \
                      gate is on and the job is an elastic job";
        errors.invalid("spec.dynamicAllocation.enabled", true, detail);
    }
    true
}
