//! The audit log through HTTP: what is recorded of which request.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::api::Api;
use plimsoll_apiserver::ServerConfig;
use plimsoll_apiserver::audit::Audit;
use plimsoll_apiserver::auth::{AuthConfig, User};
use serde_json::{Value, json};

const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, nonResourceURLs: [/healthz*]}
- {level: RequestResponse, resources: [{group: '', resources: [configmaps]}], omitManagedFields: true}
- {level: Request, resources: [{group: '', resources: [serviceaccounts/*]}]}
- {level: Metadata, omitStages: []}
";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Log(PathBuf);

impl Log {
    fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.0.join("log")).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// Waits for so many events.
    async fn wait(&self, count: usize) -> Vec<Value> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let events = self.events();
            if events.len() >= count {
                assert_eq!(events.len(), count, "{events:#?}");
                return events;
            }
            assert!(Instant::now() < deadline, "{events:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn world() -> (Api, Log) {
    let dir = std::env::temp_dir()
        .join(format!("plimsoll-audit-{}", std::process::id()))
        .join(std::thread::current().name().unwrap_or("t"));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("policy"), POLICY).unwrap();
    let audit = Audit::open(&dir.join("log"), &dir.join("policy")).unwrap();
    let auth =
        AuthConfig { tokens: vec![("t".into(), User::new("dev", &["devs"]))], ..AuthConfig::default() };
    let config = ServerConfig { audit: Some(audit), auth, ..ServerConfig::default() };
    (Api::new(config).await, Log(dir))
}

#[tokio::test]
async fn requests_are_recorded_as_the_policy_says() {
    let (api, log) = world().await;
    assert_eq!(api.send("GET", "/healthz", None).await.0, 200);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}});
    assert_eq!(api.send("POST", MAPS, Some(&map)).await.0, 201);
    assert_eq!(api.send("GET", "/api/v1/namespaces/default?x=1", None).await.0, 200);
    assert_eq!(api.with_token("t").send("DELETE", "/api/v1/nodes/n", None).await.0, 403);
    assert_eq!(api.with_token("wrong").send("GET", "/version", None).await.0, 401);
    assert_eq!(api.send("GET", &format!("{MAPS}/nosuch"), None).await.0, 404);
    let events = log.wait(5).await;
    for event in &events {
        assert_eq!((&event["kind"], &event["apiVersion"]), (&json!("Event"), &json!("audit.k8s.io/v1")));
        assert!(event["auditID"].is_string() && event["stageTimestamp"].as_str().unwrap().len() == 27);
    }
    let made = &events[0];
    assert_eq!(
        (&made["level"], &made["stage"], &made["verb"]),
        (&json!("RequestResponse"), &json!("ResponseComplete"), &json!("create"))
    );
    assert_eq!(made["requestURI"], MAPS);
    assert_eq!(made["user"]["username"], "admin");
    assert_eq!(
        made["objectRef"],
        json!({"resource": "configmaps", "namespace": "default", "apiVersion": "v1"})
    );
    assert_eq!(made["requestObject"]["data"], json!({"a": "b"}));
    assert_eq!(made["responseObject"]["metadata"]["name"], "m");
    assert!(made["responseObject"]["metadata"]["uid"].is_string());
    assert_eq!(made["responseObject"]["metadata"].get("managedFields"), None);
    assert_eq!(made["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(made["annotations"]["authorization.k8s.io/decision"], "allow");

    let read = &events[1];
    assert_eq!(
        (&read["level"], &read["requestURI"]),
        (&json!("Metadata"), &json!("/api/v1/namespaces/default?x=1"))
    );
    assert!(read.get("requestObject").is_none() && read.get("responseObject").is_none());

    let refused = &events[2];
    assert_eq!(
        (&refused["user"]["username"], &refused["responseStatus"]["code"]),
        (&json!("dev"), &json!(403))
    );
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");

    let unknown = &events[3];
    assert_eq!(unknown["responseStatus"]["message"], "Authentication failed, attempted: bearer");
    assert_eq!(
        (&unknown["stage"], &unknown["responseStatus"]["code"]),
        (&json!("ResponseStarted"), &json!(401))
    );
    assert_eq!(events[4]["responseObject"]["reason"], "NotFound");
    assert_eq!(events[4]["responseStatus"]["code"], 404);
}

#[tokio::test]
async fn a_watch_is_recorded_when_it_starts_and_when_it_ends() {
    let (api, log) = world().await;
    let (code, _) = api.send("GET", "/api/v1/nodes?watch=1&timeoutSeconds=1", None).await;
    assert_eq!(code, 200);
    let events = log.wait(2).await;
    let stages: Vec<&str> = events.iter().map(|e| e["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["ResponseStarted", "ResponseComplete"]);
    assert_eq!(events[0]["auditID"], events[1]["auditID"]);
    assert_eq!(events[1]["verb"], "watch");
}

#[tokio::test]
async fn impersonation_is_recorded_with_its_constraint() {
    let (api, log) = world().await;
    // An administrator has the narrow rights too, which are tried first (KEP-5284).
    for (user, group) in [("bob", None), ("bob", Some("system:masters"))] {
        let mut headers = vec![("impersonate-user", user)];
        headers.extend(group.map(|group| ("impersonate-group", group)));
        let acting = Api::of(std::sync::Arc::clone(&api.server)).with_headers(&headers);
        let _ = acting.send("GET", "/api/v1/nodes/n", None).await;
    }
    let events = log.wait(2).await;
    let constraint = |event: &Value| event["authenticationMetadata"]["impersonationConstraint"].clone();
    assert_eq!(events[0]["user"]["username"], "admin");
    assert_eq!(events[0]["impersonatedUser"]["username"], "bob");
    assert_eq!(constraint(&events[0]), "impersonate:user-info");
    // Constrained impersonation never gives this group.
    assert_eq!(events[1]["impersonatedUser"]["groups"], json!(["system:masters", "system:authenticated"]));
    assert_eq!(constraint(&events[1]), Value::Null);
}

/// Controllers have no connection, and their writes stand in the log as anybody's.
#[tokio::test]
async fn writes_of_controllers_are_recorded_with_their_user() {
    use plimsoll_apiserver::inprocess::ServerClient;
    use plimsoll_client::{Client as _, Deletion, Target, resources};

    let (api, log) = world().await;
    let controllers = ServerClient::new(std::sync::Arc::clone(&api.server));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "b"}});
    let target = Target::create(&resources::CONFIG_MAPS, "default");
    let mut made = controllers.create(target, map.clone()).await.unwrap();
    assert_eq!(controllers.create(target, map).await.unwrap_err().code, 409);
    made["data"]["a"] = json!("c");
    let target = Target::object(&resources::CONFIG_MAPS, "default", "m");
    controllers.update(target, made).await.unwrap();
    controllers.delete(target, Deletion::default()).await.unwrap();
    let pod = Target::object(&resources::PODS, "default", "p").part("status");
    let none = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    assert_eq!(controllers.update(pod, none).await.unwrap_err().code, 404);
    let events = log.wait(5).await;
    let shown: Vec<_> = events
        .iter()
        .map(|e| {
            let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
            let code = e["responseStatus"]["code"].as_u64().unwrap_or_default();
            (text(&e["verb"]), text(&e["requestURI"]), text(&e["stage"]), code)
        })
        .collect();
    let row =
        |verb: &str, uri: &str, stage: &str, code| (verb.to_owned(), uri.to_owned(), stage.to_owned(), code);
    let one = format!("{MAPS}/m");
    let status = "/api/v1/namespaces/default/pods/p/status";
    assert_eq!(
        shown,
        [
            row("create", MAPS, "ResponseComplete", 201),
            row("create", MAPS, "ResponseComplete", 409),
            row("update", &one, "ResponseComplete", 200),
            row("delete", &one, "ResponseComplete", 200),
            row("update", status, "ResponseComplete", 404),
        ]
    );
    for event in &events {
        assert_eq!(event["user"]["username"], "system:kube-controller-manager", "{event}");
        assert!(event["userAgent"].as_str().unwrap().starts_with("kube-controller-manager/"), "{event}");
    }
    assert_eq!(events[0]["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(events[2]["requestObject"]["data"]["a"], "c");
    assert_eq!(events[2]["responseObject"]["data"]["a"], "c");
    assert_eq!(events[2]["objectRef"]["name"], "m");
    assert_eq!(events[1]["responseStatus"]["reason"], "AlreadyExists");
    assert_eq!(events[4]["objectRef"]["subresource"], "status");
}
