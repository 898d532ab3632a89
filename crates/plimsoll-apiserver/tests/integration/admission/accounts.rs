//! ServiceAccount.

use super::*;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn volume(pod: &Value) -> Option<Value> {
    let volumes = pod["spec"]["volumes"].as_array()?;
    volumes.iter().find(|v| v["name"].as_str().unwrap().starts_with("kube-api-access-")).cloned()
}

#[tokio::test]
async fn pods_run_as_an_account_and_mount_its_token() {
    let api = server(None).await;
    created(&api, ACCOUNTS, &account("default", json!({"imagePullSecrets": [{"name": "pull"}]}))).await;
    created(&api, ACCOUNTS, &account("quiet", json!({"automountServiceAccountToken": false}))).await;
    let elsewhere = json!([{"name": "own", "mountPath": MOUNT}]);
    let one = pod(
        "one",
        json!({"spec": {
            "volumes": [{"name": "own", "emptyDir": {}}],
            "initContainers": [{"name": "i", "image": "i", "volumeMounts": elsewhere}],
        }}),
    );
    let one = created(&api, PODS, &one).await;
    let spec = &one["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
    let token = volume(&one).unwrap();
    assert_eq!(
        token["projected"],
        json!({"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        ]})
    );
    let mounted = json!([{"name": token["name"], "readOnly": true, "mountPath": MOUNT}]);
    assert_eq!(spec["containers"][0]["volumeMounts"], mounted);
    assert_eq!(spec["initContainers"][0]["volumeMounts"], elsewhere, "what mounts something there keeps it");
    let own = one["metadata"]["managedFields"].to_string();
    assert!(!own.contains("serviceAccount") && !own.contains("kube-api-access"), "nobody owns it: {own}");

    // The pod's word counts more than the account's.
    for (name, fields, mounts) in [
        ("pod-says-no", json!({"automountServiceAccountToken": false}), false),
        ("account-says-no", json!({"serviceAccountName": "quiet"}), false),
        ("old-name", json!({"serviceAccount": "quiet"}), false),
        ("pod-says-yes", json!({"serviceAccountName": "quiet", "automountServiceAccountToken": true}), true),
    ] {
        let made = created(&api, PODS, &pod(name, json!({"spec": fields}))).await;
        assert_eq!(volume(&made).is_some(), mounts, "{name}");
        let wanted = if name == "pod-says-no" { "default" } else { "quiet" };
        assert_eq!(made["spec"]["serviceAccountName"], wanted, "{name}");
    }
    let secrets = json!({"spec": {"imagePullSecrets": [{"name": "mine"}]}});
    let made = created(&api, PODS, &pod("secrets", secrets)).await;
    assert_eq!(made["spec"]["imagePullSecrets"], json!([{"name": "mine"}]));
}

#[tokio::test]
async fn accounts_have_to_exist() {
    let api = server(None).await;
    let missing = |name: &str| {
        format!(
            "pods \"p\" is forbidden: error looking up service account default/{name}: serviceaccount \"{name}\" not found"
        )
    };
    let named = pod("p", json!({"spec": {"serviceAccountName": "worker"}}));
    assert_eq!(answer(&api, "POST", PODS, &named).await, (403, missing("worker")));
    // The default account comes soon after its namespace: a client that is faster waits for it.
    let early = pod("q", json!({}));
    let (early, ()) = tokio::join!(answer(&api, "POST", PODS, &early), async {
        tokio::task::yield_now().await;
        created(&api, ACCOUNTS, &account("default", json!({}))).await;
    });
    assert_eq!(early, (201, String::new()));
    // But not for ever.
    created(&api, "/api/v1/namespaces", &namespace("bare", json!({}))).await;
    let wanted = missing("default").replace("default/", "bare/");
    assert_eq!(
        answer(&api, "POST", "/api/v1/namespaces/bare/pods", &pod("p", json!({}))).await,
        (403, wanted)
    );
}

#[tokio::test]
async fn mirror_pods_refer_to_nothing() {
    let api = server(None).await;
    let mirror = |fields: Value| {
        let mut mirror = pod("m", json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}));
        merge(&mut mirror, &json!({"spec": fields}));
        mirror
    };
    let token = json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]);
    for (fields, why) in [
        (json!({"serviceAccountName": "a"}), "a mirror pod may not reference service accounts"),
        (json!({"imagePullSecrets": [{"name": "s"}]}), "a mirror pod may not reference secrets"),
        (
            json!({"volumes": [{"name": "s", "secret": {"secretName": "s"}}]}),
            "a mirror pod may not reference secrets",
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]}),
            "a mirror pod may not reference secrets",
        ),
        (json!({"volumes": token}), "a mirror pod may not use ServiceAccountToken volume projections"),
    ] {
        let wanted = (403, format!("pods \"m\" is forbidden: {why}"));
        assert_eq!(answer(&api, "POST", PODS, &mirror(fields)).await, wanted);
    }
    let made = created(&api, PODS, &mirror(json!({"nodeName": "n"}))).await;
    assert_eq!((&made["spec"]["serviceAccountName"], volume(&made)), (&Value::Null, None));
}

#[tokio::test]
async fn accounts_limit_the_secrets_of_their_pods() {
    let api = server(None).await;
    let strict = json!({"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
        "secrets": [{"name": "mine"}], "imagePullSecrets": [{"name": "pull"}]});
    created(&api, ACCOUNTS, &account("default", strict)).await;
    let from =
        |secret: &str| json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]);
    let lacks = "is not allowed because service account default does not reference that";
    for (fields, why) in [
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "other"}}]}),
            format!("volume with secret.secretName=\"other\" {lacks} secret"),
        ),
        (
            json!({"containers": [{"name": "c", "image": "i", "env": from("other")}]}),
            format!("container c with envVar V referencing secret.secretName=\"other\" {lacks} secret"),
        ),
        (
            json!({"initContainers": [{"name": "n", "image": "i", "envFrom": [{"secretRef": {"name": "other"}}]}]}),
            format!("init container n with envFrom referencing secret.secretName=\"other\" {lacks} secret"),
        ),
        (
            json!({"imagePullSecrets": [{"name": "pull"}, {"name": "other"}]}),
            format!("imagePullSecrets[1].name=\"other\" {lacks} imagePullSecret"),
        ),
    ] {
        let wanted = (403, format!("pods \"p\" is forbidden: {why}"));
        assert_eq!(answer(&api, "POST", PODS, &pod("p", json!({"spec": fields}))).await, wanted);
    }
    let fine = json!({"containers": [{"name": "c", "image": "i", "env": from("mine")}]});
    created(&api, PODS, &pod("p", json!({"spec": fine}))).await;
    let debug = |secret: &str| json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "i", "env": from(secret)}]}});
    let path = format!("{PODS}/p/ephemeralcontainers");
    let why =
        format!("ephemeral container e with envVar V referencing secret.secretName=\"other\" {lacks} secret");
    assert_eq!(answer(&api, "PATCH", &path, &debug("other")).await, (500, why));
    assert_eq!(answer(&api, "PATCH", &path, &debug("mine")).await.0, 200);
}
