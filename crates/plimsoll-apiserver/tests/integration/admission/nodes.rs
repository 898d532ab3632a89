//! NodeRestriction.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_apiserver::auth::User;

use super::*;

const NODES: &str = "/api/v1/nodes";

fn node(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

/// A server on which kubelets have rights to everything, so that only the plugin refuses; nodes `own` and `other`, a pod
/// on each. Gives the kubelet of `own` as well, and the UID of its node.
async fn world(plugin: Option<Plugin>) -> (Api, Api, Value) {
    let api = server(plugin).await;
    grant(&api, "Group", "system:nodes", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]))
        .await;
    let kubelet = api.as_somebody(User::new("system:node:own", &["system:nodes"]));
    created(&api, "/api/v1/namespaces/default/serviceaccounts", &account("default", json!({}))).await;
    let own = created(&api, NODES, &node("own", json!({}))).await;
    created(&api, NODES, &node("other", json!({}))).await;
    for name in ["own", "other"] {
        created(&api, PODS, &pod(name, json!({"spec": {"nodeName": name}}))).await;
    }
    (api, kubelet, own["metadata"]["uid"].clone())
}

#[tokio::test]
async fn kubelets_change_their_own_node_alone() {
    let (_, kubelet, _) = world(Some(Plugin::NodeRestriction)).await;
    let own = format!("{NODES}/own");
    let labels = |labels: Value| json!({"metadata": {"labels": labels}});
    let taint = json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}});
    let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}});
    let leases = |ns: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases");
    let csi = |name: &str| json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": []}});
    let slice = |name: &str| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name},
        "spec": {"driver": "d.io", "nodeName": name, "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}}})
    };
    let rows = [
        (
            "PATCH",
            format!("{NODES}/other"),
            labels(json!({"a": "b"})),
            "nodes \"other\" is forbidden: node \"own\" is not allowed to modify node \"other\"",
        ),
        ("PATCH", own.clone(), labels(json!({"a": "b", "topology.kubernetes.io/zone": "z"})), ""),
        (
            "PATCH",
            own.clone(),
            labels(json!({"node-restriction.kubernetes.io/x": "y", "k8s.io/x": "y"})),
            "nodes \"own\" is forbidden: is not allowed to modify labels: k8s.io/x, node-restriction.kubernetes.io/x",
        ),
        (
            "PATCH",
            own.clone(),
            taint,
            "nodes \"own\" is forbidden: node \"own\" is not allowed to modify taints",
        ),
        (
            "PATCH",
            own.clone(),
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}),
            "nodes \"own\" is forbidden: node \"own\" is not allowed to modify ownerReferences",
        ),
        ("PATCH", format!("{own}/status"), json!({"status": {"phase": "Running"}}), ""),
        (
            "POST",
            leases("default"),
            lease("own"),
            "leases.coordination.k8s.io \"own\" is forbidden: can only access leases in the \"kube-node-lease\" system namespace",
        ),
        (
            "POST",
            leases("kube-node-lease"),
            lease("other"),
            "leases.coordination.k8s.io \"other\" is forbidden: can only access node lease with the same name as the requesting node",
        ),
        ("POST", leases("kube-node-lease"), lease("own"), ""),
        (
            "POST",
            "/apis/storage.k8s.io/v1/csinodes".into(),
            csi("other"),
            "csinodes.storage.k8s.io \"other\" is forbidden: can only access CSINode with the same name as the requesting node",
        ),
        ("POST", "/apis/storage.k8s.io/v1/csinodes".into(), csi("own"), ""),
        (
            "POST",
            "/apis/resource.k8s.io/v1/resourceslices".into(),
            slice("other"),
            "resourceslices.resource.k8s.io \"other\" is forbidden: can only create ResourceSlice with the same NodeName as the requesting node",
        ),
        ("POST", "/apis/resource.k8s.io/v1/resourceslices".into(), slice("own"), ""),
    ];
    for (method, path, body, wanted) in rows {
        let (code, message) = answer(&kubelet, method, &path, &body).await;
        assert_eq!((code < 300, message.as_str()), (wanted.is_empty(), wanted), "{method} {path}");
    }
    let (code, message) = answer(&kubelet, "DELETE", &format!("{NODES}/other"), &Value::Null).await;
    assert_eq!(
        (code, message.ends_with("is not allowed to modify node \"other\"")),
        (403, true),
        "{message}"
    );
}

#[tokio::test]
async fn kubelets_run_their_own_pods_alone() {
    let (api, kubelet, uid) = world(Some(Plugin::NodeRestriction)).await;
    let owner = |uid: &Value| json!([{"apiVersion": "v1", "kind": "Node", "name": "own", "controller": true, "uid": uid}]);
    let mirror = |fields: Value| {
        let mut mirror = pod(
            "m",
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": owner(&uid)}, "spec": {"nodeName": "own"}}),
        );
        merge(&mut mirror, &fields);
        mirror
    };
    let eviction =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let status = json!({"status": {"phase": "Running"}});
    let refused = |why: &str| format!("pods \"m\" is forbidden: {why}");
    let rows = [
        ("POST", PODS.to_owned(), pod("m", json!({})), refused("pod does not have \"kubernetes.io/config.mirror\" annotation, node \"own\" can only create mirror pods")),
        ("POST", PODS.to_owned(), mirror(json!({"spec": {"nodeName": "other"}})), refused("node \"own\" can only create pods with spec.nodeName set to itself")),
        ("POST", PODS.to_owned(), mirror(json!({"metadata": {"ownerReferences": []}})), refused("node \"own\" can only create pods with an owner reference set to itself")),
        ("POST", PODS.to_owned(), mirror(json!({"metadata": {"ownerReferences": owner(&json!("x"))}})), refused(&format!("node own UID mismatch: expected x got {}", uid.as_str().unwrap()))),
        ("POST", PODS.to_owned(), mirror(json!({"spec": {"volumes": [{"name": "v", "configMap": {"name": "c"}}]}})), refused("node \"own\" can not create pods that reference configmaps")),
        ("POST", PODS.to_owned(), mirror(json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}})), String::new()),
        ("PATCH", format!("{PODS}/own"), json!({"metadata": {"labels": {"a": "b"}}}), "pods \"own\" is forbidden: unexpected operation \"UPDATE\", node \"own\" can only create and delete mirror pods".into()),
        ("PATCH", format!("{PODS}/other/status"), status.clone(), "pods \"other\" is forbidden: node \"own\" can only update pod status for pods with spec.nodeName set to itself".into()),
        ("PATCH", format!("{PODS}/own/status"), status, String::new()),
        ("PATCH", format!("{PODS}/own/status"), json!({"metadata": {"labels": {"a": "b"}}}), "pods \"own\" is forbidden: node \"own\" cannot update labels through pod status".into()),
        ("POST", format!("{PODS}/other/eviction"), eviction("other"), "pods \"other\" is forbidden: node own can only evict pods with spec.nodeName set to itself".into()),
        ("POST", format!("{PODS}/none/eviction"), eviction("none"), "pod \"none\" not found".into()),
        ("DELETE", format!("{PODS}/other"), Value::Null, "pods \"other\" is forbidden: node \"own\" can only delete pods with spec.nodeName set to itself".into()),
        ("POST", format!("{PODS}/own/eviction"), eviction("own"), String::new()),
    ];
    for (method, path, body, wanted) in rows {
        let (code, message) = answer(&kubelet, method, &path, &body).await;
        let (ok, message) =
            if wanted.is_empty() { (code < 300, String::new()) } else { (code < 300, message) };
        assert_eq!((ok, message), (wanted.is_empty(), wanted), "{method} {path}");
    }
    // Nobody else is restricted, nor is a user of that name outside of the group.
    assert_eq!(
        answer(&api, "PATCH", &format!("{PODS}/other"), &json!({"metadata": {"labels": {"a": "b"}}})).await.0,
        200
    );
}

#[tokio::test]
async fn kubelets_get_tokens_and_certificates_of_their_own() {
    let (api, kubelet, _) = world(Some(Plugin::NodeRestriction)).await;
    let uid = async |name: &str| {
        api.send("GET", &format!("{PODS}/{name}"), None).await.1["metadata"]["uid"].clone()
    };
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = |name: &str, uid: &Value, audiences: Value| {
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": audiences,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}}})
    };
    let (own, other) = (uid("own").await, uid("other").await);
    let unbound =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": []}});
    for (body, wanted) in [
        (unbound, "node requested token not bound to a pod"),
        (request("own", &Value::Null, json!([])), "node requested token with a pod binding without a uid"),
        (
            request("other", &other, json!([])),
            "node requested token bound to a pod scheduled on a different node",
        ),
        (request("own", &own, json!([])), ""),
    ] {
        let (code, message) = answer(&kubelet, "POST", path, &body).await;
        assert!(message.ends_with(wanted), "{message}");
        assert_eq!(code, if wanted.is_empty() { 201 } else { 403 }, "{message}");
    }
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    for (name, wanted) in
        [("system:node:other", "can only create a node CSR with CN=system:node:own"), ("system:node:own", "")]
    {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        let csr = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "c"},
            "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["client auth"],
                "request": BASE64_STANDARD.encode(pem)}});
        let (code, message) = answer(&kubelet, "POST", path, &csr).await;
        assert!(message.ends_with(wanted), "{message}");
        assert_eq!(code, if wanted.is_empty() { 201 } else { 403 }, "{message}");
    }
}

#[tokio::test]
async fn kubelets_are_free_unless_that_is_switched_on() {
    let (_, kubelet, _) = world(None).await;
    let label = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}});
    assert_eq!(answer(&kubelet, "PATCH", &format!("{NODES}/other"), &label).await.0, 200);
}
