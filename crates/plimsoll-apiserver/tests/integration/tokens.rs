//! Service account tokens through HTTP: asked for, used, reviewed, and lost with what they stand on.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::support::api::Api;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use plimsoll_apiserver::ServerConfig;
use serde_json::{Value, json};

const ISSUER: &str = "https://kubernetes.default.svc";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

async fn request(api: &Api, account: &str, spec: Value) -> (u16, Value) {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    api.send("POST", &format!("{ACCOUNTS}/{account}/token"), Some(&body)).await
}

async fn token(api: &Api, account: &str, spec: Value) -> String {
    let (code, answer) = request(api, account, spec).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"]["token"].as_str().unwrap().to_owned()
}

async fn review(api: &Api, token: &str, audiences: &[&str]) -> Value {
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, "audiences": audiences},
    });
    let (code, answer) = api.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", Some(&body)).await;
    assert_eq!(code, 201, "{answer}");
    answer["status"].clone()
}

async fn world() -> Api {
    let api = Api::new(ServerConfig::default()).await;
    for name in ["bot", "other"] {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}});
        assert_eq!(api.send("POST", ACCOUNTS, Some(&account)).await.0, 201);
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "bot", "nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
    });
    assert_eq!(api.send("POST", PODS, Some(&pod)).await.0, 201);
    api
}

#[tokio::test]
async fn a_token_is_its_account_until_that_is_gone() {
    let api = world().await;
    let token = token(&api, "bot", json!({"expirationSeconds": 1200})).await;
    let found = claims(&token);
    let (_, account) = api.send("GET", &format!("{ACCOUNTS}/bot"), None).await;
    let uid = &account["metadata"]["uid"];
    assert_eq!(found["iss"], ISSUER);
    assert_eq!(found["aud"], json!([ISSUER]));
    assert_eq!(found["sub"], "system:serviceaccount:default:bot");
    assert_eq!(
        found["kubernetes.io"],
        json!({"namespace": "default", "serviceaccount": {"name": "bot", "uid": uid}})
    );
    assert_eq!(found["exp"].as_i64().unwrap() - found["iat"].as_i64().unwrap(), 1200);
    assert!(found["jti"].is_string() && found["nbf"] == found["iat"]);

    let user = json!({
        "username": "system:serviceaccount:default:bot", "uid": uid,
        "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": [format!("JTI={}", found["jti"].as_str().unwrap())]},
    });
    let status = review(&api, &token, &[]).await;
    assert_eq!(status, json!({"authenticated": true, "user": user, "audiences": [ISSUER]}));
    let mine = api.with_token(&token);
    let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let (code, answer) =
        mine.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", Some(&who)).await;
    assert_eq!((code, &answer["status"]["userInfo"]), (201, &user), "{answer}");
    // Authenticated, but nobody has bound a role to it.
    let (code, answer) = mine.send("GET", PODS, None).await;
    assert_eq!(code, 403, "{answer}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "bot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "bot", "namespace": "default"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";
    assert_eq!(api.send("POST", path, Some(&role)).await.0, 201);
    assert_eq!(mine.send("GET", PODS, None).await.0, 200);

    assert_eq!(api.send("DELETE", &format!("{ACCOUNTS}/bot"), None).await.0, 200);
    assert_eq!(mine.send("GET", PODS, None).await.0, 401);
    let status = review(&api, &token, &[]).await;
    assert_eq!(
        status,
        json!({"user": {}, "error": "[invalid bearer token, serviceaccounts \"bot\" not found]"})
    );
}

#[tokio::test]
async fn a_bound_token_ends_with_its_pod() {
    let api = world().await;
    let bound = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "p"}});
    let token = token(&api, "bot", bound.clone()).await;
    let (_, pod) = api.send("GET", &format!("{PODS}/p"), None).await;
    let named = json!({"name": "p", "uid": pod["metadata"]["uid"]});
    assert_eq!(claims(&token)["kubernetes.io"]["pod"], named);
    assert_eq!(claims(&token)["kubernetes.io"]["node"], json!({"name": "n"}));
    let extra = review(&api, &token, &[]).await["user"]["extra"].clone();
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n"]));
    // A kubelet's token lives on for clients that read it once.
    let long = json!({"expirationSeconds": 3607, "boundObjectRef": bound["boundObjectRef"]});
    let long = claims(&self::token(&api, "bot", long).await);
    assert_eq!(long["exp"].as_i64().unwrap() - long["iat"].as_i64().unwrap(), 365 * 24 * 3600);
    assert_eq!(long["kubernetes.io"]["warnafter"].as_i64().unwrap() - long["iat"].as_i64().unwrap(), 3607);

    let (code, answer) = request(&api, "other", bound).await;
    assert_eq!(code, 400, "{answer}");
    assert_eq!(
        answer["message"],
        "cannot bind token for serviceaccount \"other\" to pod running with different serviceaccount name."
    );
    let now = format!("{PODS}/p?gracePeriodSeconds=0");
    assert_eq!(api.send("DELETE", &now, None).await.0, 200);
    assert_eq!(
        review(&api, &token, &[]).await["error"],
        "[invalid bearer token, service account token has been invalidated]"
    );
}

#[tokio::test]
async fn requests_are_checked() {
    let api = world().await;
    let pod = |name: &str, uid: &str| json!({"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}});
    let map = json!({"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}});
    let rows = [
        (json!({"expirationSeconds": 599}), 422, "may not specify a duration less than 10 minutes"),
        (
            json!({"expirationSeconds": (1_i64 << 32) + 1}),
            422,
            "may not specify a duration larger than 2^32 seconds",
        ),
        (pod("nosuch", ""), 404, "pods \"nosuch\" not found"),
        (pod("p", "other"), 409, "does not match the UID in record"),
        (map, 400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
    ];
    for (spec, code, message) in rows {
        let (found, answer) = request(&api, "bot", spec.clone()).await;
        assert_eq!(found, code, "{spec}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(message), "{spec}: {answer}");
    }
    // A token for somebody else is none for this server.
    let token = token(&api, "bot", json!({"audiences": ["vault"]})).await;
    assert_eq!(api.with_token(&token).send("GET", "/version", None).await.0, 401);
    assert_eq!(review(&api, &token, &["vault", "x"]).await["audiences"], json!(["vault"]));
    assert_eq!(review(&api, &token, &[]).await["authenticated"], Value::Null);
}

#[tokio::test]
async fn others_can_verify_tokens() {
    let api = world().await;
    let (code, configuration) = api.send("GET", "/.well-known/openid-configuration", None).await;
    assert_eq!((code, &configuration["issuer"]), (200, &json!(ISSUER)));
    let keys = configuration["jwks_uri"].as_str().unwrap();
    let path = keys.split_once("//").unwrap().1.split_once('/').unwrap().1;
    let (code, keys) = api.send("GET", &format!("/{path}"), None).await;
    assert_eq!(code, 200);
    let key = &keys["keys"][0];
    let coordinate = |c: &str| BASE64_URL_SAFE_NO_PAD.decode(key[c].as_str().unwrap()).unwrap();
    let point = [vec![4], coordinate("x"), coordinate("y")].concat();
    let token = token(&api, "bot", json!({})).await;
    let (text, signature) = token.rsplit_once('.').unwrap();
    let header: Value =
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text.split('.').next().unwrap()).unwrap())
            .unwrap();
    assert_eq!(header, json!({"alg": "ES256", "kid": key["kid"]}));
    let verifier = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point);
    verifier.verify(text.as_bytes(), &BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
}

#[tokio::test]
async fn policies_decide_on_tokens() {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let api = world().await;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                "resources": ["serviceaccounts/token"]}]},
            "validations": [{"expression": "request.name != 'bot' || object.kind == 'TokenRequest' && \
                object.spec.expirationSeconds <= 1000 && object.spec.audiences == ['https://kubernetes.default.svc'] \
                && !request.dryRun", "message": "not so long"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    for (plural, object) in
        [("validatingadmissionpolicies", policy), ("validatingadmissionpolicybindings", binding)]
    {
        let (code, answer) = api.send("POST", &format!("{GROUP}/{plural}"), Some(&object)).await;
        assert_eq!(code, 201, "{answer}");
    }
    let (code, answer) = request(&api, "bot", json!({"expirationSeconds": 1001})).await;
    assert_eq!(code, 422, "{answer}");
    assert_eq!(
        answer["message"],
        "serviceaccounts \"bot\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not so long"
    );
    assert!(answer["status"]["token"].is_null());
    token(&api, "bot", json!({"expirationSeconds": 1000})).await;
    token(&api, "other", json!({"expirationSeconds": 1001})).await;
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 1000}});
    let (code, _) = api.send("POST", &format!("{ACCOUNTS}/bot/token?dryRun=All"), Some(&body)).await;
    assert_eq!(code, 422, "admission knows that it is a dry run");
}
