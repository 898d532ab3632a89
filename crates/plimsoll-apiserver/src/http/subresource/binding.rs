//! `pods/binding`: the one way a pod gets its node.

use std::sync::Arc;

use plimsoll_apimachinery::{ApiError, Details, Kind, Subresource};
use serde_json::{Map, Value, json};

use super::super::endpoint::write_of;
use super::super::options::WriteOptions;
use super::super::present::wants_nothing;
use super::super::reply::Reply;
use super::super::{Req, body_format};
use super::decode_own;
use crate::pipeline::{self, Change, Part, uid_conflict};
use crate::store::{Encoded, Fields, Record};
use crate::time;

/// POST to `pods/NAME/binding`.
pub async fn create(req: &mut Req, kind: &Arc<Kind>, sub: &Subresource) -> Result<Reply, ApiError> {
    body_format(req, true)?;
    let options = WriteOptions::parse(&req.query, "CreateOptions", false)?;
    let binding = decode_own(req, sub, &options)?;
    bind(req, kind, &binding, &options).await
}

/// POST to `bindings`, the old path.
pub async fn old_path(
    req: &mut Req,
    kind: &Arc<Kind>,
    binding: Value,
    options: &WriteOptions,
) -> Result<Reply, ApiError> {
    let pods = req.table.resource("", "v1", "pods").cloned();
    let pods = pods.ok_or_else(|| ApiError::internal(format!("no pods beside {}", kind.plural)))?;
    binding["metadata"]["name"].as_str().unwrap_or("").clone_into(&mut req.info.name);
    "binding".clone_into(&mut req.info.subresource);
    bind(req, &pods, &binding, options).await
}

async fn bind(
    req: &mut Req,
    pods: &Arc<Kind>,
    binding: &Value,
    options: &WriteOptions,
) -> Result<Reply, ApiError> {
    check(binding, &req.info.name)?;
    let mut write = write_of(req, pods, options, "CreateOptions");
    let result = write_binding(&mut write, binding.clone()).await;
    req.warnings.append(&mut write.warnings);
    result?;
    Ok(if wants_nothing(req) { Reply::nothing(201) } else { Reply::success(201) })
}

/// Admits a binding and gives the pod its node.
async fn write_binding(write: &mut pipeline::Write, mut binding: Value) -> Result<(), ApiError> {
    super::admit_part(write, &mut binding).await?;
    let (pods, binding, now) = (Arc::clone(&write.kind), &binding, write.now);
    let whole = |pod: Value| assign(&pods, pod, binding, now);
    let quick = |record: &Record| assign_quickly(record, binding, now);
    let part = Part { quick: &quick, whole: &whole };
    pipeline::update(write, Change::Part(&part)).await.map(drop)
}

/// `ValidatePodBinding`; upstream answers its errors as plain errors.
fn check(binding: &Value, name: &str) -> Result<(), ApiError> {
    if binding["metadata"]["name"].as_str().unwrap_or("") != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let target = &binding["target"];
    let kind = target["kind"].as_str().unwrap_or("");
    let mut errors = Vec::new();
    if !matches!(kind, "" | "Node") {
        errors.push(format!(
            "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
        ));
    }
    if target["name"].as_str().unwrap_or("").is_empty() {
        errors.push("target.name: Required value".to_owned());
    }
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(ApiError::new(500, "", one)),
        many => Err(ApiError::new(500, "", format!("[{}]", many.join(", ")))),
    }
}

/// `BindingREST.setPodNodeAndMetadata`.
fn assign(pods: &Kind, mut pod: Value, binding: &Value, now: jiff::Timestamp) -> Result<Value, ApiError> {
    let meta = &binding["metadata"];
    let name = pod["metadata"]["name"].as_str().unwrap_or("").to_owned();
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("");
    if let Some(uid) = meta["uid"].as_str().filter(|u| !u.is_empty() && pod["metadata"]["uid"] != **u) {
        let key = crate::store::Key::new(pods.storage.as_str(), namespace, name.as_str());
        return Err(uid_conflict(pods, &key, uid, pod["metadata"]["uid"].as_str().unwrap_or(""), false));
    }
    if let Some(rv) = meta["resourceVersion"].as_str().filter(|v| !v.is_empty())
        && pod["metadata"]["resourceVersion"] != *rv
    {
        let found = pod["metadata"]["resourceVersion"].as_str().unwrap_or("");
        let key = crate::store::Key::new(pods.storage.as_str(), namespace, name.as_str());
        let path = pipeline::etcd_path(pods, &key);
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: ResourceVersion in precondition: {rv}, ResourceVersion in object meta: {found}"
        );
        return Err(ApiError::conflict("", "pods", &name, &why));
    }
    let refuse = |why: String| Err(conflict(&name, &why));
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = pod["spec"]["nodeName"].as_str().unwrap_or("");
    if !node.is_empty() {
        return refuse(format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|g| !g.is_empty()) {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = binding["target"]["name"].clone();
    copy(&mut pod, "annotations", &meta["annotations"]);
    copy(&mut pod, "labels", &meta["labels"]);
    // It is on a node: what it was nominated to tells nobody anything (`ClearingNominatedNodeNameAfterBinding`).
    if let Some(status) = pod["status"].as_object_mut() {
        status.remove("nominatedNodeName");
    }
    set_scheduled(&mut pod, now);
    Ok(pod)
}

/// [`assign`] for a pod and a binding with nothing out of the ordinary, without reading the rest of the pod.
fn assign_quickly(record: &Record, binding: &Value, now: jiff::Timestamp) -> Option<Encoded> {
    let meta = &binding["metadata"];
    let other = meta["uid"].as_str().is_some_and(|uid| !uid.is_empty() && uid != record.uid);
    let versioned = meta["resourceVersion"].as_str().is_some_and(|v| !v.is_empty());
    if other || versioned {
        return None;
    }
    let update = record.partial_update()?;
    let mut metadata = Fields::of(update.get("metadata")?)?;
    let mut spec = Fields::of(update.get("spec")?)?;
    let mut status = Fields::of(update.get("status")?)?;
    let plain = metadata.get("deletionTimestamp").is_none()
        && spec.get("nodeName").is_none_or(|n| n == "\"\"")
        && spec.get("schedulingGates").is_none();
    if !plain {
        return None;
    }
    let json = |value: &Value| serde_json::to_string(value).ok();
    spec.set("nodeName", json(&binding["target"]["name"])?);
    let mut conditions = match status.get("conditions") {
        Some(json) => serde_json::from_str(json).ok().filter(Value::is_array)?,
        None => json!([]),
    };
    schedule(conditions.as_array_mut()?, now);
    status.set("conditions", json(&conditions)?);
    status.remove("nominatedNodeName");
    let mut labels = record.labels.clone();
    let mut copied = false;
    for field in ["annotations", "labels"] {
        let Some(from) = meta[field].as_object().filter(|m| !m.is_empty()) else { continue };
        let mut map = match metadata.get(field) {
            Some(json) => serde_json::from_str(json).ok()?,
            None => Map::new(),
        };
        merge(&mut map, from);
        if field == "labels" {
            labels = map.iter().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect();
        }
        metadata.set(field, json(&Value::Object(map))?);
        copied = true;
    }
    let metadata = copied.then_some((&metadata, labels));
    update.with(metadata, &[("spec", spec.to_json()), ("status", status.to_json())])
}

fn conflict(name: &str, why: &str) -> ApiError {
    let mut e = ApiError::new(
        409,
        "Conflict",
        format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}"),
    );
    e.details = Some(Box::new(Details {
        name: name.to_owned(),
        kind: "pods/binding".to_owned(),
        ..Details::default()
    }));
    e
}

/// Adds the binding's annotations or labels to the pod's; labels that are there stay.
fn copy(pod: &mut Value, field: &str, from: &Value) {
    let Some(from) = from.as_object().filter(|m| !m.is_empty()) else { return };
    if pod["metadata"][field].is_null() {
        pod["metadata"][field] = json!({});
    }
    if let Some(map) = pod["metadata"][field].as_object_mut() {
        merge(map, from);
    }
}

/// Labels tell where the node is: the pod's author must not (`copyLabelsWithOverwriting`).
fn merge(map: &mut Map<String, Value>, from: &Map<String, Value>) {
    map.extend(from.iter().map(|(key, value)| (key.clone(), value.clone())));
}

fn set_scheduled(pod: &mut Value, now: jiff::Timestamp) {
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    if let Some(list) = conditions.as_array_mut() {
        schedule(list, now);
    }
}

/// Sets the condition that the pod has its node.
fn schedule(conditions: &mut Vec<Value>, now: jiff::Timestamp) {
    let mut condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": time::seconds(now),
    });
    match conditions.iter_mut().find(|c| c["type"] == "PodScheduled") {
        Some(old) => {
            if old["status"] == "True" {
                condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::{Expected, Key, Store, Write};

    fn some<T: Clone + std::fmt::Debug + 'static>(values: &[T]) -> impl Strategy<Value = Option<T>> + use<T> {
        proptest::option::of(proptest::sample::select(values.to_vec()))
    }

    prop_compose! {
        fn pod()(
            deletion in some(&["2026-01-01T00:00:00Z"]), node in some(&["", "there"]), gates in some(&[json!([{"name": "g"}])]),
            labels in some(&[json!({"a": "1", "zone": "\u{e9}\""})]), status in some(&[json!({"phase": "Pending"}), json!({"nominatedNodeName": "n"})]),
            condition in some(&[
                json!([]), json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]),
                json!([{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True", "lastTransitionTime": "t"}]),
            ]),
            more in some(&[json!([1.5, {"nodeName": "no", "conditions": []}, "\u{1f600}"])]),
        ) -> Value {
            let mut pod = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a", "uid": "u-1"},
                "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"},
            });
            let mut put = |path: [&str; 2], value: Option<Value>| {
                if let Some(value) = value { pod[path[0]][path[1]] = value; }
            };
            put(["metadata", "deletionTimestamp"], deletion.map(Value::from));
            put(["metadata", "labels"], labels);
            put(["spec", "nodeName"], node.map(Value::from));
            put(["spec", "schedulingGates"], gates);
            put(["spec", "tolerations"], more);
            if let Some(status) = status {
                pod["status"] = status;
                if let Some(conditions) = condition { pod["status"]["conditions"] = conditions; }
            }
            pod
        }
    }

    proptest! {
        /// The quick way gives up, or comes to what the other way comes to.
        #[test]
        fn both_ways_to_bind_come_to_the_same(
            pod in pod(), uid in some(&["u-1", "u-2", ""]), version in some(&["1"]), labels in some(&[json!({"z": "1"}), json!({"zone": "2"}), json!({})]),
            annotations in some(&[json!({"note": "x"})]),
        ) {
            let kinds = plimsoll_apimachinery::builtin::table();
            let pods = kinds.resource("", "v1", "pods").unwrap();
            let now = jiff::Timestamp::from_second(1_800_000_000).unwrap();
            let binding = json!({
                "metadata": {"name": "p", "uid": uid, "resourceVersion": version, "labels": labels, "annotations": annotations},
                "target": {"kind": "Node", "name": "n-\"1"},
            });
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let put = |object: Encoded| {
                let store = Store::in_memory();
                let key = Key::new("/pods", "a", "p");
                let write = Write { key, expected: Expected::Absent, op: crate::store::Op::Put(object) };
                runtime.block_on(store.commit(write)).unwrap()
            };
            let record = put(Encoded::new(&pod).unwrap());
            let quick = assign_quickly(&record, &binding, now);
            let whole = assign(pods, record.value().unwrap(), &binding, now);
            let ordinary = pod["metadata"].get("deletionTimestamp").is_none()
                && pod["spec"].get("schedulingGates").is_none() && pod["spec"]["nodeName"] != "there"
                && pod["status"].is_object() && uid != Some("u-2") && version.is_none();
            prop_assert_eq!(quick.is_some(), ordinary);
            if let Some(quick) = quick {
                let whole = put(Encoded::new(&whole.unwrap()).unwrap());
                let quick = put(quick);
                prop_assert_eq!(&quick.json, &whole.json);
                prop_assert_eq!(&quick.labels, &whole.labels);
            }
        }
    }
}
