//! Roles and bindings that exist from the start (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`), as far as
//! this server needs them: what every user may do, the administrator's role, and [`components`].

mod components;

use serde_json::{Value, json};

/// Roles and bindings to create.
pub fn objects() -> Vec<Value> {
    let mut all = everybody();
    all.extend(components::objects());
    all
}

fn everybody() -> Vec<Value> {
    let get = |urls: &[&str]| json!([{"verbs": ["get"], "nonResourceURLs": urls}]);
    let create = |group: &str, resources: &[&str]| json!({"verbs": ["create"], "apiGroups": [group], "resources": resources});
    let info = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let auth = ["system:authenticated"];
    let all = ["system:authenticated", "system:unauthenticated"];
    vec![
        role(
            "cluster-admin",
            json!([
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]),
        ),
        role(
            "system:basic-user",
            json!([
                create("authorization.k8s.io", &["selfsubjectaccessreviews", "selfsubjectrulesreviews"]),
                create("authentication.k8s.io", &["selfsubjectreviews"]),
            ]),
        ),
        role("system:discovery", get(&discovery)),
        role("system:public-info-viewer", get(&info)),
        role("system:service-account-issuer-discovery", get(&["/.well-known", "/.well-known/*"])),
        binding("cluster-admin", &["system:masters"]),
        binding("system:basic-user", &auth),
        binding("system:discovery", &auth),
        binding("system:public-info-viewer", &all),
        // Upstream binds this role to service accounts; recorded reviews show it for every authenticated user.
        binding("system:service-account-issuer-discovery", &auth),
    ]
}

fn meta(name: &str) -> Value {
    json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

#[allow(clippy::needless_pass_by_value, reason = "reads as a table")]
fn role(name: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta(name), "rules": rules,
    })
}

fn binding(name: &str, groups: &[&str]) -> Value {
    binding_to(name, "Group", groups)
}

/// A role bound to users or groups.
fn binding_to(name: &str, kind: &str, names: &[&str]) -> Value {
    let subjects: Vec<Value> = names
        .iter()
        .map(|n| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": n}))
        .collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta(name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": subjects,
    })
}
