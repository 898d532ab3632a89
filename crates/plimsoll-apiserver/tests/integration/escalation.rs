//! Nobody grants rights that they don't have themselves.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::support::api::Api;
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

fn role(kind: &str, name: &str, rules: &[Value]) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "rules": rules})
}

fn binding(kind: &str, name: &str, (role_kind, role): (&str, &str), user: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

async fn created(api: &Api, path: &str, object: &Value) -> (u16, String) {
    let (code, body) = api.send("POST", &format!("{RBAC}/{path}"), Some(object)).await;
    (code, body["message"].as_str().unwrap_or("").to_owned())
}

/// `ann` may write roles and bindings, and read pods in `default`.
async fn world() -> Api {
    let api = Api::new(ServerConfig::default()).await;
    let all = [
        rule(&["rbac.authorization.k8s.io"], &["*"], &["create", "update", "get"]),
        rule(&[""], &["pods", "pods/log"], &["get", "list"]),
    ];
    assert_eq!(created(&api, "clusterroles", &role("ClusterRole", "writer", &all)).await.0, 201);
    let bound = binding("ClusterRoleBinding", "ann", ("ClusterRole", "writer"), "ann");
    assert_eq!(created(&api, "clusterrolebindings", &bound).await.0, 201);
    api
}

#[tokio::test]
async fn roles_hold_no_more_than_their_writer_has() {
    let api = world().await;
    let ann = api.as_user("ann");
    let roles = "namespaces/default/roles";
    let few = [rule(&[""], &["pods"], &["get"]), rule(&[""], &["pods/log"], &["list"])];
    assert_eq!(created(&ann, roles, &role("Role", "few", &few)).await.0, 201);
    let more = [rule(&[""], &["pods", "secrets"], &["get"])];
    let (code, text) = created(&ann, roles, &role("Role", "more", &more)).await;
    assert_eq!(code, 403);
    assert_eq!(
        text,
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"
    );
    // Also for a role that others gather, and for what is gathered.
    for rules in [&more[..], &[rule(&["*"], &["*"], &["*"])]] {
        let mut gathered = role("ClusterRole", "sly", rules);
        gathered["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
        assert_eq!(created(&ann, "clusterroles", &gathered).await.0, 403);
    }
    let mut gathers = role("ClusterRole", "gathers", &[]);
    gathers["aggregationRule"] = json!({"clusterRoleSelectors": [{}]});
    let (code, text) = created(&ann, "clusterroles", &gathers).await;
    assert!(
        code == 403 && text.ends_with("must have cluster-admin privileges to use the aggregationRule"),
        "{text}"
    );
    // Changes as well, and the administrator may do it all.
    let path = format!("{RBAC}/{roles}/few");
    let (code, _) = ann.send("PUT", &path, Some(&role("Role", "few", &more))).await;
    assert_eq!(code, 403);
    assert_eq!(api.send("PUT", &path, Some(&role("Role", "few", &more))).await.0, 200);
    assert_eq!(created(&api, "clusterroles", &gathers).await.0, 201);
}

#[tokio::test]
async fn bindings_give_no_more_than_their_writer_has() {
    let api = world().await;
    let ann = api.as_user("ann");
    let bindings = "namespaces/default/rolebindings";
    let to = |name: &str, role: (&str, &str)| binding("RoleBinding", name, role, "bob");
    assert_eq!(created(&ann, bindings, &to("a", ("ClusterRole", "writer"))).await.0, 201);
    assert_eq!(created(&ann, bindings, &to("b", ("ClusterRole", "cluster-admin"))).await.0, 403);
    assert_eq!(created(&ann, bindings, &to("c", ("ClusterRole", "nobody"))).await.0, 404);
    let all = binding("ClusterRoleBinding", "d", ("ClusterRole", "cluster-admin"), "ann");
    assert_eq!(created(&ann, "clusterrolebindings", &all).await.0, 403);
    // Whoever may `bind` a role needn't have its rights, whoever may `escalate` may write any.
    let more = [
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
               "resourceNames": ["cluster-admin"]}),
        rule(&["rbac.authorization.k8s.io"], &["roles"], &["escalate"]),
    ];
    assert_eq!(created(&api, "clusterroles", &role("ClusterRole", "binder", &more)).await.0, 201);
    let bound = binding("ClusterRoleBinding", "ann-binds", ("ClusterRole", "binder"), "ann");
    assert_eq!(created(&api, "clusterrolebindings", &bound).await.0, 201);
    assert_eq!(created(&ann, bindings, &to("b", ("ClusterRole", "cluster-admin"))).await.0, 201);
    let secrets = role("Role", "secrets", &[rule(&[""], &["secrets"], &["*"])]);
    assert_eq!(created(&ann, "namespaces/default/roles", &secrets).await.0, 201);
}

/// `csrStrategy`: whoever approves relies on the names in a request.
#[tokio::test]
async fn requests_for_certificates_say_who_made_them() {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let api = Api::new(ServerConfig::default()).await;
    let may = rule(&["certificates.k8s.io"], &["certificatesigningrequests"], &["create", "update", "get"]);
    assert_eq!(created(&api, "clusterroles", &role("ClusterRole", "asker", &[may])).await.0, 201);
    let bound = binding("ClusterRoleBinding", "ann", ("ClusterRole", "asker"), "ann");
    assert_eq!(created(&api, "clusterrolebindings", &bound).await.0, 201);
    let ann = api.as_user("ann");
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "r"},
        "spec": {"request": "LS0tLS1CRUdJTg==", "signerName": "example.com/signer", "usages": ["client auth"],
            "username": "admin", "uid": "0", "groups": ["system:masters"], "extra": {"a": ["b"]}},
        "status": {"conditions": [{"type": "Approved", "status": "True", "reason": "Me"}]},
    });
    let (code, made) = ann.send("POST", REQUESTS, Some(&request)).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["username"], "ann");
    assert!(!made["spec"]["groups"].to_string().contains("masters") && made["spec"]["extra"]["a"].is_null());
    assert_eq!(made["status"], json!({}));
    // Nor can it be changed afterwards.
    let mut forged = made.clone();
    forged["spec"]["username"] = json!("admin");
    let (code, kept) = ann.send("PUT", &format!("{REQUESTS}/r"), Some(&forged)).await;
    assert_eq!((code, &kept["spec"]), (200, &made["spec"]), "{kept}");

    // An approval is a condition with its times.
    let mut approved = made.clone();
    approved["status"] = json!({"certificate": "bm90aGluZw==",
        "conditions": [{"type": "Approved", "status": "True", "reason": "Good", "message": "yes"}]});
    let (code, now) = api.send("PUT", &format!("{REQUESTS}/r/approval"), Some(&approved)).await;
    assert_eq!(code, 200, "{now}");
    let condition = &now["status"]["conditions"][0];
    assert!(
        condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string(),
        "{condition}"
    );
    assert!(now["status"]["certificate"].is_null(), "only conditions are approved");
}

/// Who signs neither approves, nor takes a denial back, nor signs again.
#[tokio::test]
async fn those_who_sign_certificates_do_not_decide_on_them() {
    const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let api = Api::new(ServerConfig::default()).await;
    let may = [
        rule(&["certificates.k8s.io"], &["certificatesigningrequests/status"], &["update", "get"]),
        rule(&["certificates.k8s.io"], &["signers"], &["sign"]),
    ];
    assert_eq!(created(&api, "clusterroles", &role("ClusterRole", "signer", &may)).await.0, 201);
    let bound = binding("ClusterRoleBinding", "sam", ("ClusterRole", "signer"), "sam");
    assert_eq!(created(&api, "clusterrolebindings", &bound).await.0, 201);
    let sam = api.as_user("sam");
    let request = |name: &str| {
        json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"request": "LS0tLS1CRUdJTg==", "signerName": "example.com/signer", "usages": ["client auth"]},
        })
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "m"});
    let put = async |who: &Api, name: &str, part: &str, status: Value| {
        let (_, mut object) = api.send("GET", &format!("{REQUESTS}/{name}"), None).await;
        object["status"] = status;
        who.send("PUT", &format!("{REQUESTS}/{name}/{part}"), Some(&object)).await
    };
    for name in ["fresh", "denied", "signed"] {
        assert_eq!(api.send("POST", REQUESTS, Some(&request(name))).await.0, 201);
    }
    let message = |answer: &Value| answer["message"].as_str().unwrap_or_default().to_owned();
    let (code, answer) = put(&sam, "fresh", "status", json!({"conditions": [condition("Approved")]})).await;
    assert_eq!(code, 422);
    assert!(message(&answer).contains("updates may not add a condition of type \"Approved\""), "{answer}");
    assert_eq!(put(&api, "denied", "approval", json!({"conditions": [condition("Denied")]})).await.0, 200);
    for (who, part) in [(&sam, "status"), (&api, "approval")] {
        let (code, answer) = put(who, "denied", part, json!({})).await;
        assert_eq!(code, 422);
        assert!(
            message(&answer).contains("updates may not remove a condition of type \"Denied\""),
            "{answer}"
        );
    }
    let both = json!({"conditions": [condition("Denied"), condition("Approved")]});
    assert_eq!(put(&api, "denied", "approval", both).await.0, 422);
    let (code, answer) = put(&sam, "signed", "status", json!({"certificate": "YQ=="})).await;
    assert_eq!(code, 200, "{answer}");
    let (code, answer) = put(&sam, "signed", "status", json!({"certificate": "Yg=="})).await;
    assert_eq!(code, 422);
    assert!(message(&answer).contains("updates may not modify existing certificate content"), "{answer}");
}
