//! The recorded creates: request → decode → defaults → strategy gives the recorded answer, apart from what the
//! server assigns and admission adds.

use serde_json::{Value, json};

use crate::builtin;
use crate::decode::{FieldValidation, Format, decode};
use crate::kinds::Kind;
use crate::test_vectors::family;

/// The resource a create goes to, by its path.
pub(crate) fn target(path: &str) -> Option<(std::sync::Arc<Kind>, String)> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, plural) = match rest {
        ["namespaces", namespace, plural] => (*namespace, *plural),
        [plural] => ("", *plural),
        _ => return None,
    };
    let kind = builtin::table().resource(group, version, plural).cloned()?;
    Some((kind, namespace.to_owned()))
}

/// Everything this crate does to a body before validation.
pub(crate) fn prepared(kind: &Kind, namespace: &str, body: &Value, answer: &Value) -> Value {
    let text = body.to_string();
    let decoded = decode(kind, text.as_bytes(), Format::Json, FieldValidation::Warn).unwrap();
    let mut object = decoded.object;
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    for key in ["deletionTimestamp", "selfLink"] {
        object["metadata"].as_object_mut().unwrap().remove(key);
    }
    super::apply_defaults(kind, &mut object);
    for key in ["uid", "creationTimestamp", "name"] {
        if let Some(value) = answer["metadata"].get(key) {
            object["metadata"][key] = value.clone();
        }
    }
    crate::strategy::prepare_create(kind, &mut object, "2026-11-20T10:00:00Z".parse().unwrap());
    object
}

/// Takes out of an answer what admission adds and the server allocates.
fn without_admission(kind: &str, object: &mut Value) {
    let meta = object["metadata"].as_object_mut().unwrap();
    for key in ["managedFields", "resourceVersion"] {
        meta.remove(key);
    }
    if kind.starts_with("PersistentVolume") {
        let protection = json!(["kubernetes.io/pv-protection", "kubernetes.io/pvc-protection"]);
        if let Some(list) = meta.get_mut("finalizers").and_then(Value::as_array_mut) {
            list.retain(|f| !protection.as_array().unwrap().contains(f));
        }
        if meta.get("finalizers").is_some_and(|f| f == &json!([])) {
            meta.remove("finalizers");
        }
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match kind {
        "Pod" => {
            spec.remove("priority");
            spec.remove("preemptionPolicy");
            drop_entries(
                spec,
                "tolerations",
                &["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"],
            );
        }
        "Node" => drop_entries(spec, "taints", &["node.kubernetes.io/not-ready"]),
        "Service" => {
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                spec.remove(key);
            }
            for port in spec["ports"].as_array_mut().into_iter().flatten() {
                port.as_object_mut().unwrap().remove("nodePort");
            }
        }
        _ => {}
    }
}

fn drop_entries(spec: &mut serde_json::Map<String, Value>, key: &str, keys: &[&str]) {
    if let Some(list) = spec.get_mut(key).and_then(Value::as_array_mut) {
        list.retain(|t| !keys.contains(&t["key"].as_str().unwrap_or_default()));
        if list.is_empty() {
            spec.remove(key);
        }
    }
}

/// Where two values differ.
pub(crate) fn differences(path: &str, got: &Value, want: &Value, out: &mut Vec<String>) {
    match (got, want) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                let none = Value::String("(missing)".into());
                let (x, y) = (a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none));
                differences(&format!("{path}.{key}"), x, y, out);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (x, y)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{i}]"), x, y, out);
            }
        }
        (Value::String(_), Value::String(t)) if t == "<time>" => {}
        _ if got == want => {}
        _ => out.push(format!("{path}: {got} instead of {want}")),
    }
}

#[test]
fn recorded_creates() {
    let (mut seen, mut failed) = (0, Vec::new());
    for row in family("defaults") {
        for step in row["steps"].as_array().unwrap() {
            let (request, response) = (&step["request"], &step["response"]);
            if request["method"] != "POST" || response["status"] != 201 {
                continue;
            }
            let Some((kind, namespace)) = target(request["path"].as_str().unwrap()) else { continue };
            if kind.schema.is_none() {
                continue;
            }
            seen += 1;
            let mut want = response["body"].clone();
            let mut got = prepared(&kind, &namespace, &request["body"], &want);
            without_admission(&kind.gvk.kind, &mut want);
            without_admission(&kind.gvk.kind, &mut got);
            let mut out = Vec::new();
            differences("", &got, &want, &mut out);
            failed.extend(out.into_iter().map(|d| format!("{} {d}", row["id"])));
        }
    }
    assert!(seen > 120, "only {seen}");
    assert!(failed.is_empty(), "{} of {seen}:\n{}", failed.len(), failed.join("\n"));
}

/// Defaults that no recorded create shows: what is at a path of the prepared object.
#[test]
fn made_creates() {
    let strategy = |strategy: Value| json!({ "metadata": {}, "spec": { "updateStrategy": strategy } });
    let class = json!({ "metadata": {}, "spec": { "parameters": { "kind": "K", "name": "n" } } });
    let projected = json!({ "metadata": {}, "spec": { "volumes": [{ "projected": { "sources": [] } }] } });
    let service = |spec: Value| json!({ "metadata": {}, "spec": spec });
    let local = json!([{
        "type": "Available", "status": "True", "lastTransitionTime": "2026-11-20T10:00:00Z", "reason": "Local",
        "message": "Local APIServices are always available",
    }]);
    let sets = "/apis/apps/v1/namespaces/d/statefulsets";
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    let rows = [
        (
            sets,
            strategy(json!({ "type": "RollingUpdate" })),
            "/spec/updateStrategy/rollingUpdate",
            Value::Null,
        ),
        (sets, strategy(json!({})), "/spec/updateStrategy/rollingUpdate", json!({ "partition": 0 })),
        (
            sets,
            strategy(json!({ "type": "RollingUpdate", "rollingUpdate": {} })),
            "/spec/updateStrategy/rollingUpdate",
            json!({ "partition": 0 }),
        ),
        ("/apis/networking.k8s.io/v1/ingressclasses", class, "/spec/parameters/scope", json!("Cluster")),
        ("/api/v1/namespaces/d/pods", projected, "/spec/volumes/0/projected/sources", Value::Null),
        (services, service(json!({ "service": { "name": "n" } })), "/spec/service/port", json!(443)),
        (services, service(json!({ "service": { "name": "n" } })), "/status", json!({})),
        (services, service(json!({ "group": "g" })), "/status/conditions", local),
    ];
    for (path, body, at, wanted) in rows {
        let (kind, namespace) = target(path).unwrap();
        let made = prepared(&kind, &namespace, &body, &json!({}));
        assert_eq!(made.pointer(at).cloned().unwrap_or_default(), wanted, "{path} {body}");
    }
}
