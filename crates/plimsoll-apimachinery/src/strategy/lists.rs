//! Lists that are empty in the store.

use serde_json::Value;

use crate::kinds::Kind;
use crate::obj::Obj;
use crate::schema::{Presence, SchemaId, Schemas};

/// Makes empty lists what they are once stored. Protobuf doesn't distinguish them from missing ones, so that a list
/// that Go always writes is `null` afterwards; until then the list is as the client wrote it, and the client owns it.
/// Kinds that are stored as JSON keep empty lists.
pub fn store(kind: &Kind, object: &mut Obj) {
    let as_json = matches!(kind.gvk.group.as_str(), "apiextensions.k8s.io" | "apiregistration.k8s.io");
    if let Some(schema) = kind.schema.as_ref().filter(|_| !as_json) {
        in_fields(&schema.schemas, schema.root, object);
    }
}

fn in_fields(schemas: &Schemas, id: SchemaId, object: &mut Obj) {
    if !schemas.has_null_lists(id) {
        return;
    }
    let schema = schemas.get(id);
    for (name, value) in object {
        match schema.properties.get(name) {
            Some(field)
                if field.presence == Presence::Null && value.as_array().is_some_and(Vec::is_empty) =>
            {
                *value = Value::Null;
            }
            Some(field) => in_value(schemas, field.id, value),
            None => schema.additional.iter().for_each(|id| in_value(schemas, *id, value)),
        }
    }
}

fn in_value(schemas: &Schemas, id: SchemaId, value: &mut Value) {
    match value {
        Value::Object(object) => in_fields(schemas, id, object),
        Value::Array(items) if schemas.has_null_lists(id) => {
            if let Some(id) = schemas.get(id).items {
                items.iter_mut().for_each(|item| in_value(schemas, id, item));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use crate::decode::{self, FieldValidation, Format};
    use crate::{builtin, default, strategy};

    /// The stored form of a new object.
    fn stored(group: &str, version: &str, plural: &str, object: &Value) -> Value {
        let kinds = builtin::table();
        let kind = kinds.resource(group, version, plural).unwrap();
        let body = object.to_string();
        let read = decode::decode(kind, body.as_bytes(), Format::Json, FieldValidation::Strict).unwrap();
        let mut object = read.object;
        default::apply_defaults(kind, &mut object);
        strategy::prepare_create(kind, &mut object, Timestamp::UNIX_EPOCH);
        object
    }

    #[test]
    #[allow(clippy::too_many_lines, reason = "one case after the other")]
    fn what_becomes_of_empty_values() {
        let containers = json!([{"name": "c", "image": "i"}]);
        let rows = [
            ("", "v1", "pods", "/spec/volumes/0/projected/sources", json!([]), Some(json!(null))),
            ("", "v1", "pods", "/spec/tolerations", json!([]), None),
            ("", "v1", "pods", "/spec/securityContext/sysctls", json!([]), None),
            ("", "v1", "pods", "/spec/affinity/nodeAffinity", json!({}), Some(json!({}))),
            ("", "v1", "nodes", "/status/images/0/names", json!([]), Some(json!(null))),
            ("", "v1", "limitranges", "/spec/limits", json!([]), Some(json!(null))),
            ("", "v1", "resourcequotas", "/spec/scopeSelector/matchExpressions", json!([]), None),
            ("", "v1", "secrets", "/data/a", json!(""), Some(json!(""))),
            ("", "v1", "secrets", "/data/a", json!(null), Some(json!(""))),
            ("", "v1", "secrets", "/data", json!({}), None),
            ("", "v1", "serviceaccounts", "/secrets", json!([]), None),
            (
                "autoscaling",
                "v2",
                "horizontalpodautoscalers",
                "/spec/behavior/scaleUp/policies",
                json!([]),
                Some(json!([])),
            ),
            ("autoscaling", "v2", "horizontalpodautoscalers", "/spec/behavior", json!(null), None),
            ("batch", "v1", "jobs", "/spec/podFailurePolicy/rules", json!([]), Some(json!(null))),
            ("batch", "v1", "jobs", "/spec/successPolicy/rules", json!([]), Some(json!(null))),
            ("rbac.authorization.k8s.io", "v1", "clusterroles", "/rules", json!([]), Some(json!(null))),
            ("rbac.authorization.k8s.io", "v1", "roles", "/rules/0/verbs", json!([]), Some(json!(null))),
            ("rbac.authorization.k8s.io", "v1", "roles", "/rules/0/apiGroups", json!([]), None),
            ("discovery.k8s.io", "v1", "endpointslices", "/endpoints", json!([]), Some(json!(null))),
            (
                "resource.k8s.io",
                "v1",
                "resourceclaims",
                "/spec/devices/requests",
                json!([]),
                Some(json!(null)),
            ),
            (
                "resource.k8s.io",
                "v1",
                "resourceclaimtemplates",
                "/spec/spec/devices/requests",
                json!([]),
                Some(json!(null)),
            ),
            ("storage.k8s.io", "v1", "csinodes", "/spec/drivers", json!([]), Some(json!(null))),
            (
                "storage.k8s.io",
                "v1",
                "csinodes",
                "/spec/drivers/0/topologyKeys",
                json!([]),
                Some(json!(null)),
            ),
            ("storage.k8s.io", "v1", "storageclasses", "/parameters", json!({}), None),
            (
                "admissionregistration.k8s.io",
                "v1",
                "validatingwebhookconfigurations",
                "/webhooks/0/clientConfig/caBundle",
                json!(""),
                None,
            ),
            (
                "admissionregistration.k8s.io",
                "v1",
                "validatingwebhookconfigurations",
                "/webhooks/0/admissionReviewVersions",
                json!([]),
                Some(json!(null)),
            ),
            (
                "certificates.k8s.io",
                "v1",
                "certificatesigningrequests",
                "/spec/request",
                json!(""),
                Some(json!("")),
            ),
            (
                "certificates.k8s.io",
                "v1",
                "certificatesigningrequests",
                "/spec/request",
                json!(null),
                Some(json!(null)),
            ),
            // stored as JSON
            (
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "/spec/conversion/webhook/conversionReviewVersions",
                json!([]),
                Some(json!([])),
            ),
            (
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "/spec/names/shortNames",
                json!([]),
                None,
            ),
        ];
        for (group, version, plural, path, given, want) in rows {
            let mut object = json!({"metadata": {"name": "x"}});
            if plural == "pods" {
                object["spec"]["containers"] = containers.clone();
            }
            // `/a/0/b` in an object
            let mut here = &mut object;
            for step in path.split('/').skip(1) {
                here = if step == "0" {
                    *here = json!([{}]);
                    &mut here[0]
                } else {
                    &mut here[step]
                };
            }
            *here = given.clone();
            let stored = stored(group, version, plural, &object);
            assert_eq!(stored.pointer(path), want.as_ref(), "{plural} {path} {given}");
        }
    }

    #[test]
    fn empty_lists_of_a_status_are_not_there_either() {
        let kinds = builtin::table();
        let kind = kinds.resource("autoscaling", "v2", "horizontalpodautoscalers").unwrap();
        let old = json!({"metadata": {"name": "x"}, "spec": {}, "status": {"currentMetrics": null}});
        let mut new = json!({"metadata": {"name": "x"}, "spec": {}, "status": {"currentMetrics": []}});
        strategy::prepare_update(kind, "status", &old, &mut new, Timestamp::UNIX_EPOCH);
        assert_eq!(new, old);
    }
}
