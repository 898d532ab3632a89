//! Rows of storage, coordination, node, resource, RBAC, admission and certificate kinds.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::age;
use super::cell::{Ctx, at, created, list, name, or, text};

/// StorageClass.
pub fn storage_class(v: &Value, ctx: Ctx) -> Vec<Value> {
    let annotation = |key: &str| text(v, &["metadata", "annotations", key]) == "true";
    let default = annotation("storageclass.kubernetes.io/is-default-class")
        || annotation("storageclass.beta.kubernetes.io/is-default-class");
    let own = text(v, &["metadata", "name"]);
    vec![
        json!(if default { format!("{own} (default)") } else { own.to_owned() }),
        json!(text(v, &["provisioner"])),
        or(text(v, &["reclaimPolicy"]), "Delete"),
        or(text(v, &["volumeBindingMode"]), "Immediate"),
        json!(at(v, &["allowVolumeExpansion"]) == true),
        created(v, ctx),
    ]
}

/// CSINode.
pub fn csi_node(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(list(v, &["spec", "drivers"]).len()), created(v, ctx)]
}

/// CSIDriver.
pub fn csi_driver(v: &Value, ctx: Ctx) -> Vec<Value> {
    let flag = |field: &str, default: bool| json!(at(v, &["spec", field]).as_bool().unwrap_or(default));
    let join = |field: &str, of: fn(&Value) -> &str| {
        let all: Vec<&str> = list(v, &["spec", field]).iter().map(of).collect();
        all.join(",")
    };
    let requests = match list(v, &["spec", "tokenRequests"]) {
        [] => "<unset>".to_owned(),
        _ => join("tokenRequests", |t| text(t, &["audience"])),
    };
    vec![
        name(v),
        flag("attachRequired", true),
        flag("podInfoOnMount", false),
        flag("storageCapacity", false),
        json!(requests),
        flag("requiresRepublish", false),
        or(&join("volumeLifecycleModes", |m| m.as_str().unwrap_or_default()), "<none>"),
        created(v, ctx),
    ]
}

/// VolumeAttachment.
pub fn volume_attachment(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![
        name(v),
        json!(text(v, &["spec", "attacher"])),
        json!(text(v, &["spec", "source", "persistentVolumeName"])),
        json!(text(v, &["spec", "nodeName"])),
        json!(at(v, &["status", "attached"]) == true),
        created(v, ctx),
    ]
}

/// VolumeAttributesClass.
pub fn volume_attributes_class(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(text(v, &["driverName"])), created(v, ctx)]
}

/// Lease.
pub fn lease(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(text(v, &["spec", "holderIdentity"])), created(v, ctx)]
}

/// RuntimeClass.
pub fn runtime_class(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(text(v, &["handler"])), created(v, ctx)]
}

/// Kinds that show their name and age only.
pub fn name_and_age(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), created(v, ctx)]
}

/// ResourceClaim.
pub fn resource_claim(v: &Value, ctx: Ctx) -> Vec<Value> {
    let deleted = !at(v, &["metadata", "deletionTimestamp"]).is_null();
    let mut states = Vec::new();
    if deleted {
        states.push("deleted");
    }
    if at(v, &["status", "allocation"]).is_null() {
        if !deleted {
            states.push("pending");
        }
    } else {
        states.push("allocated");
        if !list(v, &["status", "reservedFor"]).is_empty() {
            states.push("reserved");
        }
    }
    vec![name(v), json!(states.join(",")), created(v, ctx)]
}

/// ResourceSlice.
pub fn resource_slice(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![
        name(v),
        json!(text(v, &["spec", "nodeName"])),
        json!(text(v, &["spec", "driver"])),
        json!(text(v, &["spec", "pool", "name"])),
        created(v, ctx),
    ]
}

/// RoleBinding and ClusterRoleBinding.
pub fn role_binding(v: &Value, ctx: Ctx) -> Vec<Value> {
    let subjects = |kind: &str| {
        let found: Vec<String> = list(v, &["subjects"])
            .iter()
            .filter(|s| text(s, &["kind"]) == kind)
            .map(|s| match kind {
                "ServiceAccount" => format!("{}/{}", text(s, &["namespace"]), text(s, &["name"])),
                _ => text(s, &["name"]).to_owned(),
            })
            .collect();
        json!(found.join(", "))
    };
    vec![
        name(v),
        json!(format!("{}/{}", text(v, &["roleRef", "kind"]), text(v, &["roleRef", "name"]))),
        created(v, ctx),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

/// Mutating and validating webhook configurations.
pub fn webhook_configuration(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(list(v, &["webhooks"]).len()), created(v, ctx)]
}

fn param_kind(v: &Value) -> Value {
    let p = at(v, &["spec", "paramKind"]);
    if p.is_object() {
        json!(format!("{}/{}", text(p, &["apiVersion"]), text(p, &["kind"])))
    } else {
        json!("<unset>")
    }
}

/// ValidatingAdmissionPolicy.
pub fn validating_policy(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(list(v, &["spec", "validations"]).len()), param_kind(v), created(v, ctx)]
}

/// MutatingAdmissionPolicy.
pub fn mutating_policy(v: &Value, ctx: Ctx) -> Vec<Value> {
    vec![name(v), json!(list(v, &["spec", "mutations"]).len()), param_kind(v), created(v, ctx)]
}

/// Bindings of admission policies.
pub fn policy_binding(v: &Value, ctx: Ctx) -> Vec<Value> {
    let p = at(v, &["spec", "paramRef"]);
    let param = match (text(p, &["namespace"]), text(p, &["name"])) {
        (_, "") if at(p, &["selector"]).is_object() => go_selector(at(p, &["selector"])),
        (_, "") => "<unset>".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    vec![name(v), json!(text(v, &["spec", "policyName"])), json!(param), created(v, ctx)]
}

/// A label selector as its generated `String` method writes it.
fn go_selector(selector: &Value) -> String {
    let mut out = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (key, value) in at(selector, &["matchLabels"]).as_object().into_iter().flatten() {
        let _ = write!(out, "{key}: {},", value.as_str().unwrap_or_default());
    }
    out.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for e in list(selector, &["matchExpressions"]) {
        let values: Vec<&str> = list(e, &["values"]).iter().filter_map(Value::as_str).collect();
        let (key, operator) = (text(e, &["key"]), text(e, &["operator"]));
        let values = values.join(" ");
        let _ = write!(out, "LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},");
    }
    out.push_str("},}");
    out
}

/// CertificateSigningRequest.
pub fn signing_request(v: &Value, ctx: Ctx) -> Vec<Value> {
    let mut status = Vec::new();
    let has = |kind: &str| list(v, &["status", "conditions"]).iter().any(|c| text(c, &["type"]) == kind);
    if has("Denied") {
        status.push("Denied");
    } else if has("Approved") {
        status.push("Approved");
    } else {
        status.push("Pending");
    }
    if has("Failed") {
        status.push("Failed");
    }
    if !text(v, &["status", "certificate"]).is_empty() {
        status.push("Issued");
    }
    let duration = at(v, &["spec", "expirationSeconds"]).as_i64();
    vec![
        name(v),
        created(v, ctx),
        or(text(v, &["spec", "signerName"]), "<none>"),
        json!(text(v, &["spec", "username"])),
        json!(duration.map_or_else(|| "<none>".to_owned(), age::human_duration)),
        json!(status.join(",")),
    ]
}

/// APIService.
pub fn api_service(v: &Value, ctx: Ctx) -> Vec<Value> {
    let s = at(v, &["spec", "service"]);
    let service = if s.is_object() {
        format!("{}/{}", text(s, &["namespace"]), text(s, &["name"]))
    } else {
        "Local".to_owned()
    };
    let available = list(v, &["status", "conditions"]).iter().find(|c| text(c, &["type"]) == "Available");
    let available = match available {
        Some(c) if text(c, &["status"]) == "True" => "True".to_owned(),
        Some(c) => format!("{} ({})", text(c, &["status"]), text(c, &["reason"])),
        None => "Unknown".to_owned(),
    };
    vec![name(v), json!(service), json!(available), created(v, ctx)]
}
