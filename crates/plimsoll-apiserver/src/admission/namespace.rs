//! NamespaceLifecycle.

use plimsoll_apimachinery::{ApiError, Cause};
use serde_json::Value;

use super::{Operation, forbidden, forbidden_named};
use crate::store::Key;
use crate::write::Write;

const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Nothing is created in a namespace that isn't there or is going away; some namespaces never go.
pub fn check(w: &Write, object: &Value, operation: Operation) -> Result<(), ApiError> {
    let is_namespace = w.kind.gvk.group.is_empty() && w.kind.plural == "namespaces";
    if is_namespace && operation == Operation::Delete && IMMORTAL.contains(&w.name.as_str()) {
        return Err(forbidden_named(w, &w.name, "this namespace may not be deleted"));
    }
    if !w.kind.namespaced || operation == Operation::Delete || w.kind.gvk.group == "authorization.k8s.io" {
        return Ok(());
    }
    let key = Key::new("/namespaces", "", w.namespace.as_str());
    let Some(record) = w.server.store().latest(&key) else {
        return Err(ApiError::not_found("", "namespaces", &w.namespace));
    };
    if operation != Operation::Create || !is_terminating(&record.json) {
        return Ok(());
    }
    let ns = &w.namespace;
    let why = format!("unable to create new content in namespace {ns} because it is being terminated");
    let mut e = forbidden(w, object, &why);
    if let Some(details) = &mut e.details {
        details.causes.push(Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {ns} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
    }
    Err(e)
}

/// Whether a namespace is going away, without reading all of it when the word isn't even there.
fn is_terminating(json: &[u8]) -> bool {
    memchr::memmem::find(json, b"Terminating").is_some()
        && serde_json::from_slice::<Value>(json).is_ok_and(|v| v["status"]["phase"] == "Terminating")
}
