//! AdmissionReview requests.

use serde_json::{Map, Value, json};

use super::{Attributes, Operation, Target};

/// The `AdmissionReview` for a call. `target` is what [`super::Webhook::target`] gave, the objects are in its version;
/// `uid` is a fresh one.
pub fn review(request: &Attributes, target: &Target, uid: &str) -> Value {
    let mut asked = common(request, target);
    asked.insert("uid".to_owned(), json!(uid));
    asked.insert("object".to_owned(), request.object.clone());
    asked.insert("oldObject".to_owned(), request.old.clone());
    json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked })
}

/// The `request` variable of match conditions, with the fields that reviews leave out when empty.
pub(crate) fn request_for_conditions(request: &Attributes, target: &Target) -> Value {
    let mut asked = common(request, target);
    for key in ["subResource", "requestSubResource", "name", "namespace"] {
        asked.entry(key).or_insert_with(|| json!(""));
    }
    Value::Object(asked)
}

fn common(request: &Attributes, target: &Target) -> Map<String, Value> {
    let mut asked = Map::new();
    let mut put = |key: &str, value: Value| {
        asked.insert(key.to_owned(), value);
    };
    put("kind", kind(target));
    put("resource", resource(target));
    put("requestKind", kind(&request.target));
    put("requestResource", resource(&request.target));
    for (key, value) in [
        ("subResource", &request.subresource),
        ("requestSubResource", &request.subresource),
        ("name", &request.name),
        ("namespace", &request.namespace),
    ] {
        if !value.is_empty() {
            put(key, json!(value));
        }
    }
    put("operation", json!(request.operation.map_or("", Operation::name)));
    put("userInfo", request.user.clone());
    put("dryRun", json!(request.dry_run));
    put("options", request.options.clone());
    asked
}

fn kind(target: &Target) -> Value {
    let gvk = &target.gvk;
    json!({ "group": gvk.group, "version": gvk.version, "kind": gvk.kind })
}

fn resource(target: &Target) -> Value {
    let at = target.resource_version.as_ref().unwrap_or(&target.gvk);
    json!({ "group": at.group, "version": at.version, "resource": target.plural })
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
