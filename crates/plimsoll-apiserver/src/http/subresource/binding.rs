//! `pods/binding`: the one way a pod gets its node.

use std::sync::Arc;

use plimsoll_machinery::{ApiError, Details, Kind, Subresource};
use serde_json::{Value, json};

use super::super::Req;
use super::super::generic::{wants_nothing, write_of};
use super::super::options::WriteOptions;
use super::super::reply::Reply;
use super::{body_format, decode_own};
use crate::pipeline::{self, Change, uid_conflict};
use crate::{machine, time};

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
    let mut binding = binding.clone();
    super::admit_part(req, pods, &mut binding, options).await?;
    let binding = &binding;
    let mut write = write_of(req, pods, options, "CreateOptions");
    let now = write.now;
    let change = |pod: Value| assign(pods, pod, binding, now);
    let result = pipeline::update(&mut write, Change::Internal(&change)).await;
    req.warnings.append(&mut write.warnings);
    result?;
    Ok(if wants_nothing(req) { Reply::nothing(201) } else { Reply::success(201) })
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
    copy(&mut pod, "annotations", &meta["annotations"], true);
    copy(&mut pod, "labels", &meta["labels"], false);
    set_scheduled(&mut pod, now);
    Ok(pod)
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
fn copy(pod: &mut Value, field: &str, from: &Value, overwrite: bool) {
    let Some(from) = from.as_object().filter(|m| !m.is_empty()) else { return };
    if pod["metadata"][field].is_null() {
        pod["metadata"][field] = json!({});
    }
    let Some(map) = pod["metadata"][field].as_object_mut() else { return };
    for (key, value) in from {
        if overwrite || !map.contains_key(key) {
            map.insert(key.clone(), value.clone());
        }
    }
}

fn set_scheduled(pod: &mut Value, now: jiff::Timestamp) {
    if !pod["status"].is_object() {
        pod["status"] = json!({});
    }
    let mut condition = machine::ordered(json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null,
        "lastTransitionTime": time::seconds(now),
    }));
    match pod["status"]["conditions"].as_array_mut() {
        Some(list) => match list.iter_mut().find(|c| c["type"] == "PodScheduled") {
            Some(old) => {
                if old["status"] == "True" {
                    condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
                }
                *old = condition;
            }
            None => list.push(condition),
        },
        None => pod["status"]["conditions"] = json!([condition]),
    }
}
