//! Priority: pods get the number and the preemption policy of their class; there is one default class.

use plimsoll_apimachinery::ApiError;
use serde_json::{Value, json};

use super::{Operation, forbidden, forbidden_named, subject};
use crate::store::Key;
use crate::write::{Admission, Write};

const RESOURCE: &str = "scheduling.k8s.io/priorityclasses";
const PREEMPT: &str = "PreemptLowerPriority";

/// Resolves the class of a new pod. What a change leaves out stays as it was.
pub fn resolve(
    w: &Write,
    pod: &mut Value,
    old: Option<&Value>,
    operation: Operation,
) -> Result<(), ApiError> {
    if !subject(w).is("", "pods") || !pod["spec"].is_object() {
        return Ok(());
    }
    if operation != Operation::Create {
        for field in ["priority", "preemptionPolicy"] {
            let before = old.map_or(&Value::Null, |old| &old["spec"][field]);
            if pod["spec"][field].is_null() && !before.is_null() {
                pod["spec"][field] = before.clone();
            }
        }
        return Ok(());
    }
    let named = pod["spec"]["priorityClassName"].as_str().unwrap_or("").to_owned();
    let class = if named.is_empty() {
        default_class(w)
    } else {
        let record = w.server.store().latest(&Key::new(RESOURCE, "", named.as_str()));
        let Some(class) = record.and_then(|r| r.value().ok()) else {
            return Err(forbidden(w, pod, &format!("no PriorityClass with name {named} was found")));
        };
        Some(class)
    };
    let value = class.as_ref().and_then(|c| c["value"].as_i64()).unwrap_or(0);
    let policy = class.as_ref().and_then(|c| c["preemptionPolicy"].as_str()).unwrap_or(PREEMPT).to_owned();
    if let Some(given) = pod["spec"]["priority"].as_i64().filter(|p| *p != value) {
        return Err(forbidden(
            w,
            pod,
            &format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
                 controller computed {value} from the given PriorityClass name"
            ),
        ));
    }
    if let Some(given) = pod["spec"]["preemptionPolicy"].as_str().filter(|p| *p != policy) {
        return Err(forbidden(
            w,
            pod,
            &format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority \
                 admission controller computed {policy} from the given PriorityClass name"
            ),
        ));
    }
    if let Some(class) = class.filter(|_| named.is_empty()) {
        pod["spec"]["priorityClassName"] = class["metadata"]["name"].clone();
    }
    pod["spec"]["priority"] = json!(value);
    pod["spec"]["preemptionPolicy"] = json!(policy);
    Ok(())
}

/// The class for pods that name none; of several the one with the lowest value.
fn default_class(w: &Write) -> Option<Value> {
    let classes = w.server.priority_defaults();
    classes.iter().min_by_key(|c| c["value"].as_i64().unwrap_or(0)).cloned()
}

/// System classes stay.
pub fn protect(w: &Write, operation: Operation) -> Result<(), ApiError> {
    let system = ["system-node-critical", "system-cluster-critical"];
    // Only by name; upstream checks where single deletions come in.
    if operation != Operation::Delete
        || w.admission == Admission::Collection
        || !subject(w).is("scheduling.k8s.io", "priorityclasses")
        || !system.contains(&w.name.as_str())
    {
        return Ok(());
    }
    Err(forbidden_named(w, &w.name, "this is a system priority class and cannot be deleted"))
}

/// A second default class is refused.
pub fn validate(w: &Write, class: &Value, operation: Operation) -> Result<(), ApiError> {
    if !subject(w).is("scheduling.k8s.io", "priorityclasses")
        || !matches!(operation, Operation::Create | Operation::Update)
        || class["globalDefault"] != true
    {
        return Ok(());
    }
    let other = w
        .server
        .priority_defaults()
        .iter()
        .filter_map(|c| c["metadata"]["name"].as_str().map(str::to_owned))
        .find(|n| *n != w.name);
    match other {
        None => Ok(()),
        Some(other) => Err(forbidden(
            w,
            class,
            &format!("PriorityClass {other} is already marked as default. Only one default can exist"),
        )),
    }
}
