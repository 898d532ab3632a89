//! AdmissionReview requests.

use serde_json::{Value, json};

use crate::admission::{Attributes, Operation, Target};

/// The `AdmissionReview` of a call. `target` is the result of [`super::Webhook::target`], and the objects are in its
/// version; `uid` is a fresh one.
pub fn review(request: &Attributes, target: &Target, uid: &str) -> Value {
    let mut fields = request.fields(target);
    fields.insert("uid".to_owned(), json!(uid));
    fields.insert("object".to_owned(), request.object.clone());
    fields.insert("oldObject".to_owned(), request.old.clone());
    json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": fields })
}

/// Options of an operation from the request's query parameters and, for deletions, its body: `CreateOptions`,
/// `UpdateOptions` or `DeleteOptions` of `meta.k8s.io/v1`.
pub fn options(operation: Operation, query: &[(&str, &str)], body: &Value) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
        Operation::Connect => "ConnectOptions",
    };
    let mut made = body.as_object().cloned().unwrap_or_default();
    let allowed: &[&str] = match operation {
        Operation::Delete => &["propagationPolicy", "gracePeriodSeconds", "orphanDependents", "dryRun"],
        _ => &["fieldManager", "fieldValidation", "dryRun"],
    };
    for (key, value) in query.iter().filter(|(key, value)| allowed.contains(key) && !value.is_empty()) {
        let value = match *key {
            "dryRun" => json!([value]),
            "gracePeriodSeconds" => value.parse::<i64>().map_or(Value::Null, Value::from),
            "orphanDependents" => json!(*value == "true"),
            _ => json!(value),
        };
        made.insert((*key).to_owned(), value);
    }
    made.insert("kind".to_owned(), json!(kind));
    made.insert("apiVersion".to_owned(), json!("meta.k8s.io/v1"));
    Value::Object(made)
}
