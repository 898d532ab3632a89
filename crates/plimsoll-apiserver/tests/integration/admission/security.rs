//! PodSecurity.

use plimsoll_apiserver::audit::Audit;

use super::*;

const TEAM: &str = "/api/v1/namespaces/team/pods";

/// Namespace `team` with labels `pod-security.kubernetes.io/…`, on a server where pods need no account.
async fn team(labels: Value, audit: Option<std::sync::Arc<Audit>>) -> Api {
    let api = Api::new(ServerConfig { audit, ..ServerConfig::default() }).await;
    created(&api, "/api/v1/namespaces", &namespace("team", security(labels))).await;
    api
}

fn security(labels: Value) -> Value {
    let labels = labels.as_object().unwrap().clone();
    labels.into_iter().map(|(key, value)| (format!("pod-security.kubernetes.io/{key}"), value)).collect()
}

fn privileged(name: &str) -> Value {
    let container = json!([{"name": "c", "image": "i", "securityContext": {"privileged": true}}]);
    pod(name, json!({"spec": {"containers": container}}))
}

const PRIVILEGED: &str = "privileged (container \"c\" must not set securityContext.privileged=true)";

#[tokio::test]
async fn pods_meet_what_their_namespace_enforces() {
    let api = team(json!({"enforce": "baseline", "enforce-version": "v1.30"}), None).await;
    let why = format!("violates PodSecurity \"baseline:v1.30\": {PRIVILEGED}");
    let refused = |name: &str| (403, format!("pods \"{name}\" is forbidden: {why}"), Vec::new());
    assert_eq!(warned(&api, "POST", TEAM, &privileged("p")).await, refused("p"));
    let path = format!("{TEAM}?dryRun=All");
    assert_eq!(warned(&api, "POST", &path, &privileged("p")).await, refused("p"));
    assert_eq!(warned(&api, "POST", TEAM, &pod("p", json!({}))).await, (201, String::new(), Vec::new()));
    // Containers that are added later are seen as well.
    let debug = json!({"spec": {"ephemeralContainers": [
        {"name": "d", "image": "i", "securityContext": {"privileged": true}}]}});
    let (code, message) = answer(&api, "PATCH", &format!("{TEAM}/p/ephemeralcontainers"), &debug).await;
    assert_eq!((code, message), (403, refused("p").1.replace("\"c\"", "\"d\"")));
    // A template is warned of, and its pods are refused.
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": privileged("x")["spec"]});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let would = format!("would violate PodSecurity \"baseline:v1.30\": {PRIVILEGED}");
    assert_eq!(
        warned(&api, "POST", "/apis/apps/v1/namespaces/team/deployments", &deployment).await,
        (201, String::new(), vec![would.clone()])
    );
    let mut job = template;
    job["spec"]["restartPolicy"] = json!("Never");
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "j"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job}}}});
    let (code, _, warnings) = warned(&api, "POST", "/apis/batch/v1/namespaces/team/cronjobs", &cron).await;
    assert_eq!((code, warnings), (201, vec![would]));
}

#[tokio::test]
async fn warnings_and_records_are_apart_from_refusals() {
    let directory = std::env::temp_dir().join(format!("plimsoll-security-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (log, rules) = (directory.join("log"), directory.join("policy"));
    let _ = std::fs::remove_file(&log);
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";
    std::fs::write(&rules, policy).unwrap();
    let audit = Audit::open(&log, &rules).unwrap();
    let api =
        team(json!({"audit": "baseline", "warn": "restricted", "warn-version": "v1.7"}), Some(audit)).await;
    let non_root = "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)";
    let warning = format!("would violate PodSecurity \"restricted:v1.7\": {PRIVILEGED}, {non_root}");
    assert_eq!(warned(&api, "POST", TEAM, &privileged("p")).await, (201, String::new(), vec![warning]));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let event: Value = loop {
        let text = std::fs::read_to_string(&log).unwrap();
        let mut events = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        if let Some(event) = events.find(|e| e["objectRef"]["resource"] == "pods") {
            break event;
        }
        assert!(std::time::Instant::now() < deadline, "no event");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let annotations = &event["annotations"];
    assert_eq!(annotations["pod-security.kubernetes.io/enforce-policy"], "privileged:latest");
    assert_eq!(
        annotations["pod-security.kubernetes.io/audit-violations"],
        format!("would violate PodSecurity \"baseline:latest\": {PRIVILEGED}")
    );
}

#[tokio::test]
async fn labels_are_checked_and_pods_that_are_there_are_told_of() {
    let api = team(json!({}), None).await;
    let name = |label: &str| format!("metadata.labels[pod-security.kubernetes.io/{label}]: Invalid value");
    let wrong = namespace("wrong", security(json!({"enforce": "strict", "warn-version": "1.30"})));
    let (code, message) = answer(&api, "POST", "/api/v1/namespaces", &wrong).await;
    assert_eq!(
        (code, message),
        (
            422,
            format!(
                "Namespace \"wrong\" is invalid: [{}: \"strict\": must be one of privileged, baseline, restricted, {}: \
                 \"1.30\": must be \"latest\" or \"v1.x\"]",
                name("enforce"),
                name("warn-version")
            )
        )
    );
    for pod_name in ["b", "a", "c"] {
        created(&api, TEAM, &privileged(pod_name)).await;
    }
    created(&api, TEAM, &pod("net", json!({"spec": {"hostNetwork": true}}))).await;
    created(&api, TEAM, &pod("well", json!({}))).await;
    let label = |level: Value| json!({"metadata": {"labels": security(json!({"enforce": level}))}});
    let namespace = "/api/v1/namespaces/team";
    let change = async |level: Value| warned(&api, "PATCH", namespace, &label(level)).await;
    assert_eq!(
        change(json!("baseline")).await,
        (
            200,
            String::new(),
            vec![
                "existing pods in namespace \"team\" violate the new PodSecurity enforce level \"baseline:latest\"".to_owned(),
                "a (and 2 other pods): privileged".to_owned(),
                "net: host namespaces".to_owned(),
            ]
        )
    );
    assert_eq!(change(json!("odd")).await.0, 422);
    // What is relaxed, or is as it was, concerns nobody.
    assert_eq!(change(json!("baseline")).await, (200, String::new(), Vec::new()));
    assert_eq!(change(Value::Null).await, (200, String::new(), Vec::new()));
}
