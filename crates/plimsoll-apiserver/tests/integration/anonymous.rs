//! Requests without credentials, and methods that no resource has.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::support::api::Api;
use plimsoll_apiserver::ServerConfig;
use plimsoll_apiserver::auth::{AuthConfig, Mode};
use serde_json::json;

/// `system:public-info-viewer`, as kube-apiserver 1.36.2 answers.
#[tokio::test]
async fn anonymous_requests_read_health_and_version_and_nothing_else() {
    let api = Api::new(ServerConfig::default()).await.anonymous();
    for path in ["/healthz", "/livez", "/readyz", "/readyz?verbose", "/version", "/version/"] {
        assert_eq!(api.send("GET", path, None).await.0, 200, "{path}");
    }
    for (method, path, what) in [
        ("GET", "/healthz/etcd", "get path \"/healthz/etcd\""),
        ("GET", "/healthz/", "get path \"/healthz/\""),
        ("POST", "/healthz", "post path \"/healthz\""),
        ("GET", "/", "get path \"/\""),
        ("GET", "/api", "get path \"/api\""),
        ("GET", "/openapi/v2", "get path \"/openapi/v2\""),
        ("GET", "/metrics", "get path \"/metrics\""),
        ("GET", "/nosuch", "get path \"/nosuch\""),
    ] {
        let (code, answer) = api.send(method, path, None).await;
        let message = format!("forbidden: User \"system:anonymous\" cannot {what}");
        assert_eq!((code, &answer["message"]), (403, &json!(message)), "{method} {path}");
    }
    for (method, path) in [
        ("GET", "/api/v1/secrets"),
        ("POST", "/api/v1/namespaces/default/configmaps"),
        ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ] {
        let (code, answer) = api.send(method, path, Some(&json!({}))).await;
        let message = answer["message"].as_str().unwrap();
        assert_eq!(code, 403, "{method} {path}");
        assert!(message.contains("is forbidden: User \"system:anonymous\" cannot "), "{message}");
    }
    // What is wrong is not the same as nothing.
    assert_eq!(api.with_token("wrong").send("GET", "/healthz", None).await.0, 401);
}

/// Where every user may do everything there is no anonymous user, as upstream.
#[tokio::test]
async fn without_authorization_there_is_no_anonymous_user() {
    let auth = AuthConfig { mode: Mode::AlwaysAllow, ..AuthConfig::default() };
    let api = Api::new(ServerConfig { auth, ..ServerConfig::default() }).await;
    assert_eq!(api.anonymous().send("GET", "/healthz", None).await.0, 401);
}

#[tokio::test]
async fn no_tunnel_is_opened() {
    let api = Api::new(ServerConfig::default()).await;
    for (path, code) in
        [("example.com:443", 404), ("/", 404), ("/healthz", 404), ("/api/v1/pods", 405), ("/api", 404)]
    {
        assert_eq!(api.send("CONNECT", path, None).await.0, code, "{path}");
        assert_eq!(api.anonymous().send("CONNECT", path, None).await.0, 403, "anonymous {path}");
    }
    for method in ["TRACE", "OPTIONS", "PROPFIND"] {
        assert_eq!(api.send(method, "/api/v1/pods", None).await.0, 405, "{method}");
    }
}
