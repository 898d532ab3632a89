//! RuntimeClass: pods get the overhead, node selector and tolerations of their class.

use plimsoll_apimachinery::ApiError;
use serde_json::{Value, json};

use super::{Operation, forbidden, subject};
use crate::store::Key;
use crate::write::Write;

/// Applies the class of a new pod.
pub fn apply(w: &Write, pod: &mut Value, operation: Operation) -> Result<(), ApiError> {
    if operation != Operation::Create || !subject(w).is("", "pods") {
        return Ok(());
    }
    let name = pod["spec"]["runtimeClassName"].as_str().unwrap_or("").to_owned();
    let overhead = pod["spec"].get("overhead").filter(|o| !o.is_null()).cloned();
    if name.is_empty() {
        return Ok(());
    }
    let record = w.server.store().latest(&Key::new("node.k8s.io/runtimeclasses", "", name.as_str()));
    let Some(class) = record.and_then(|r| r.value().ok()) else {
        return Err(forbidden(w, pod, &format!("pod rejected: RuntimeClass {name:?} not found")));
    };
    let fixed = &class["overhead"]["podFixed"];
    match (fixed.is_object(), overhead) {
        (true, Some(given)) if given != *fixed => {
            return Err(forbidden(
                w,
                pod,
                "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
            ));
        }
        (true, _) => pod["spec"]["overhead"] = fixed.clone(),
        (false, _) => {}
    }
    select(w, pod, &class["scheduling"]["nodeSelector"])?;
    tolerate(pod, &class["scheduling"]["tolerations"]);
    Ok(())
}

/// Overhead is the class's to say: once the pod itself is found to be right.
pub fn validate(w: &Write, pod: &Value, operation: Operation) -> Result<(), ApiError> {
    if operation != Operation::Create || !subject(w).is("", "pods") || pod["spec"]["overhead"].is_null() {
        return Ok(());
    }
    let name = pod["spec"]["runtimeClassName"].as_str().unwrap_or("");
    let record = w.server.store().latest(&Key::new("node.k8s.io/runtimeclasses", "", name));
    let class = record.filter(|_| !name.is_empty()).and_then(|r| r.value().ok()).unwrap_or_default();
    if class["overhead"]["podFixed"].is_object() {
        return Ok(());
    }
    let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    Err(forbidden(w, pod, why))
}

fn select(w: &Write, pod: &mut Value, selector: &Value) -> Result<(), ApiError> {
    for (key, value) in selector.as_object().into_iter().flatten() {
        let given = pod["spec"]["nodeSelector"].get(key).and_then(Value::as_str).map(str::to_owned);
        let wanted = value.as_str().unwrap_or("");
        match given {
            Some(given) if given != wanted => {
                let why = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; \
                     pod.spec.nodeSelector[{key}] = {given}"
                );
                return Err(forbidden(w, pod, &why));
            }
            Some(_) => {}
            None => {
                if !pod["spec"]["nodeSelector"].is_object() {
                    pod["spec"]["nodeSelector"] = json!({});
                }
                pod["spec"]["nodeSelector"][key] = json!(wanted);
            }
        }
    }
    Ok(())
}

fn tolerate(pod: &mut Value, tolerations: &Value) {
    for toleration in tolerations.as_array().into_iter().flatten() {
        match pod["spec"]["tolerations"].as_array_mut() {
            Some(list) if list.contains(toleration) => {}
            Some(list) => list.push(toleration.clone()),
            None => pod["spec"]["tolerations"] = json!([toleration]),
        }
    }
}
