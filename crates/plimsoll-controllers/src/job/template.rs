//! From a Job to its pods.

use plimsoll_apimachinery::meta::controller_reference;
use serde_json::{Map, Value, json};

use super::model::{
    COMPLETION_INDEX, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT, Job, TRACKING_FINALIZER,
};
use super::plan::NewPod;

/// Longest prefix of a generated name: 63 characters less 5 random ones.
const MAX_PREFIX: usize = 58;
/// Environment variable with the index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// The pod to be created.
pub fn pod(job: &Job, new: NewPod) -> Value {
    let template = &job.spec.template;
    let map = |path: &str| template["metadata"][path].as_object().cloned().unwrap_or_default();
    let (mut labels, mut annotations) = (map("labels"), map("annotations"));
    let mut spec = template["spec"].clone();
    let mut prefix = format!("{}-", job.metadata.name);
    if let Some(index) = new.index {
        prefix = indexed_prefix(&job.metadata.name, index);
        let text = json!(index.to_string());
        labels.insert(COMPLETION_INDEX.to_owned(), text.clone());
        annotations.insert(COMPLETION_INDEX.to_owned(), text);
        if let Some((failures, ignored)) = new.failures {
            annotations.insert(INDEX_FAILURE_COUNT.to_owned(), json!(failures.to_string()));
            if ignored > 0 {
                annotations.insert(INDEX_IGNORED_FAILURE_COUNT.to_owned(), json!(ignored.to_string()));
            }
        }
        spec["hostname"] = json!(format!("{}-{index}", job.metadata.name));
        add_index_variable(&mut spec);
    }
    let mut finalizers = template["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|f| f == TRACKING_FINALIZER) {
        finalizers.push(json!(TRACKING_FINALIZER));
    }
    let mut metadata = json!({
        "generateName": prefix,
        "namespace": job.metadata.namespace,
        "finalizers": finalizers,
        "ownerReferences": [controller_reference("batch/v1", "Job", &job.metadata)],
    });
    set_unless_empty(&mut metadata, "labels", labels);
    set_unless_empty(&mut metadata, "annotations", annotations);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

fn set_unless_empty(metadata: &mut Value, key: &str, map: Map<String, Value>) {
    if !map.is_empty() {
        metadata[key] = Value::Object(map);
    }
}

/// `<job>-<index>-`, the Job's part shortened where need be.
fn indexed_prefix(job: &str, index: i32) -> String {
    let suffix = format!("-{index}-");
    let room = MAX_PREFIX.saturating_sub(suffix.len());
    // Names are ASCII; anything else is left whole and refused by validation.
    let name = if job.len() > room { job.get(..room).unwrap_or(job) } else { job };
    format!("{name}{suffix}")
}

fn add_index_variable(spec: &mut Value) {
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let env = container.entry("env").or_insert_with(|| json!([]));
            if !env.is_array() {
                *env = json!([]);
            }
            let Some(env) = env.as_array_mut() else { continue };
            if env.iter().any(|v| v["name"] == INDEX_VARIABLE) {
                continue;
            }
            env.push(json!({
                "name": INDEX_VARIABLE,
                "valueFrom": {"fieldRef": {"fieldPath": format!("metadata.labels['{COMPLETION_INDEX}']")}},
            }));
        }
    }
}
