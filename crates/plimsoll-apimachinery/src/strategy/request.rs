//! CertificateSigningRequests (`pkg/registry/certificates/certificates/strategy.go`).

use jiff::Timestamp;
use serde_json::{Value, json};

use super::keep;
use crate::obj::{Obj, list, object, with_child};

/// Approval changes only conditions.
pub(super) fn approval(old: &Obj, new: &mut Obj, now: Timestamp) {
    keep(new, old, "spec");
    let conditions = object(new, "status").get("conditions").cloned();
    keep(new, old, "status");
    with_child(new, "status", |status| match conditions {
        Some(conditions) => status.insert("conditions".to_owned(), conditions),
        None => status.remove("conditions"),
    });
    times(old, new, now);
}

/// A status has the decisions that were there; one more or less is refused later.
pub(super) fn status(old: &Obj, new: &mut Obj, now: Timestamp) {
    let before = list(object(old, "status"), "conditions");
    with_child(new, "status", |status| {
        let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) else { return };
        for kind in ["Approved", "Denied"] {
            let there: Vec<&Value> = before.iter().filter(|c| c["type"] == kind).collect();
            let mut given: Vec<&mut Value> = conditions.iter_mut().filter(|c| c["type"] == kind).collect();
            if there.len() == given.len() {
                given.iter_mut().zip(there).for_each(|(new, old)| new.clone_from(old));
            }
        }
    });
    times(old, new, now);
}

/// Times of conditions that the client left out; a condition that stays has the time that it had.
pub(super) fn times(old: &Obj, new: &mut Obj, now: Timestamp) {
    let before = list(object(old, "status"), "conditions");
    let now = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    with_child(new, "status", |status| {
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten().filter(|c| c.is_object()) {
            if condition["lastUpdateTime"].is_null() {
                condition["lastUpdateTime"] = now.clone();
            }
            if condition["lastTransitionTime"].is_null() {
                let same = |c: &&Value| c["type"] == condition["type"] && c["status"] == condition["status"];
                let known = before.iter().find(same).map(|c| c["lastTransitionTime"].clone());
                condition["lastTransitionTime"] =
                    known.filter(|t| !t.is_null()).unwrap_or_else(|| now.clone());
            }
        }
    });
}
