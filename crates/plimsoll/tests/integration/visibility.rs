//! Kueue's visibility API through the front door: `kubectl get --raw` and discovery.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use crate::common::run::Run;
use crate::common::{Up, queue, suspended_job};
use plimsoll_api::json;
use plimsoll_runtime::api::{Resource, WORKLOADS};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const ACCOUNTS: Resource = Resource { api_version: "v1", plural: "serviceaccounts", kind: "ServiceAccount" };
const BINDINGS: Resource = Resource {
    api_version: "rbac.authorization.k8s.io/v1",
    plural: "clusterrolebindings",
    kind: "ClusterRoleBinding",
};
const BASE: &str = "/apis/visibility.kueue.x-k8s.io";

/// The answer of kubectl, where there is one, or of a client.
async fn raw(up: &Up, path: &str) -> Result<Value, String> {
    let kubectl =
        Command::new("kubectl").args(["get", "--raw", path]).arg("--kubeconfig").arg(&up.kubeconfig).output();
    match kubectl {
        Ok(out) if out.status.success() => Ok(serde_json::from_slice(&out.stdout).unwrap()),
        Ok(out) => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        Err(_) => up.api.get_path(path).await.map_err(|e| e.to_string()),
    }
}

/// Name of the job, position in the ClusterQueue, position in the LocalQueue.
fn rows(summary: &Value) -> Vec<(String, u64, u64)> {
    let row = |w: &Value| {
        let owner = json::text(&w["metadata"]["ownerReferences"][0], &["name"]).to_owned();
        (owner, w["positionInClusterQueue"].as_u64().unwrap(), w["positionInLocalQueue"].as_u64().unwrap())
    };
    json::list(summary, &["items"]).iter().map(row).collect()
}

/// One job runs, five wait: `a` and `c` in `main`, `b` and `d` in `other`, `first` with a higher priority.
async fn waiting_jobs(up: &Up) {
    up.apply(&queue(1)).await;
    up.apply(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: other, namespace: team}\n\
         spec: {clusterQueue: cq}\n---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\n\
         metadata: {name: high}\nvalue: 100\n",
    )
    .await;
    up.create(&suspended_job("runs", &json!({QUEUE: "main"}), 1, 3600)).await.unwrap();
    up.until("the first job is admitted", async |up| {
        up.list(WORKLOADS).await.iter().any(|w| json::is_true(w, "Admitted")).then_some(())
    })
    .await;
    for (name, queue) in [("a", "main"), ("b", "other"), ("c", "main"), ("d", "other")] {
        up.create(&suspended_job(name, &json!({QUEUE: queue}), 1, 3600)).await.unwrap();
        // The order of equals is that of their creation, in seconds.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
    let labels = json!({QUEUE: "other", "kueue.x-k8s.io/priority-class": "high"});
    up.create(&suspended_job("first", &labels, 1, 3600)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_workloads_are_shown_in_queue_order() {
    let up = Up::start(&["--nodes", "1"]).await;
    waiting_jobs(&up).await;
    let row = |name: &str, cq: u64, lq: u64| (name.to_owned(), cq, lq);
    let all = [row("first", 0, 0), row("a", 1, 0), row("b", 2, 1), row("c", 3, 1), row("d", 4, 2)];
    let cq = format!("{BASE}/v1beta2/clusterqueues/cq/pendingworkloads");
    up.until_shown("all wait in order", async |up| {
        let summary = raw(up, &cq).await?;
        if rows(&summary) == all { Ok(()) } else { Err(summary.to_string()) }
    })
    .await;
    let summary = raw(&up, &cq).await.unwrap();
    assert_eq!(summary["kind"], "PendingWorkloadsSummary");
    assert_eq!(summary["apiVersion"], "visibility.kueue.x-k8s.io/v1beta2");
    let first = &summary["items"][0];
    let shown = (&first["priority"], &first["localQueueName"], &first["metadata"]["namespace"]);
    assert_eq!(shown, (&json!(100), &json!("other"), &json!("team")));
    let workload = up.get(WORKLOADS, "team", json::name(first)).await;
    assert_eq!(first["metadata"]["creationTimestamp"], workload["metadata"]["creationTimestamp"]);
    assert_eq!(first["metadata"]["ownerReferences"][0]["kind"], "Job");

    let page = raw(&up, &format!("{cq}?offset=1&limit=2")).await.unwrap();
    assert_eq!(rows(&page), all[1..3]);
    let old = raw(&up, &format!("{BASE}/v1beta1/clusterqueues/cq/pendingworkloads?limit=1")).await.unwrap();
    assert_eq!(
        (&old["apiVersion"], rows(&old)),
        (&json!("visibility.kueue.x-k8s.io/v1beta1"), all[..1].to_vec())
    );
    let local = |name: &str| format!("{BASE}/v1beta2/namespaces/team/localqueues/{name}/pendingworkloads");
    let main = raw(&up, &local("main")).await.unwrap();
    assert_eq!(rows(&main), [row("a", 1, 0), row("c", 3, 1)]);
    let other = raw(&up, &format!("{}?offset=1", local("other"))).await.unwrap();
    assert_eq!(rows(&other), [row("b", 2, 1), row("d", 4, 2)]);

    for (path, text) in [
        (local("none"), "localqueue.visibility.kueue.x-k8s.io \"none\" not found"),
        (cq.replace("/cq/", "/none/"), "clusterqueue.visibility.kueue.x-k8s.io \"none\" not found"),
        (format!("{cq}?limit=x"), "strconv.ParseInt: parsing \"x\": invalid syntax"),
        (format!("{BASE}/v1beta2/clusterqueues"), "could not find the requested resource"),
    ] {
        let error = raw(&up, &path).await.unwrap_err();
        assert!(error.contains(text), "{path}: {error}");
    }
}

/// The OpenAPI documents of the API server have the group: all that `kubectl explain` and its validation read.
async fn documented(up: &Up) {
    let index = raw(up, "/openapi/v3").await.unwrap();
    for version in ["v1beta1", "v1beta2"] {
        let name = format!("apis/visibility.kueue.x-k8s.io/{version}");
        let url =
            index["paths"][&name]["serverRelativeURL"].as_str().unwrap_or_else(|| panic!("{name}: {index}"));
        let document = raw(up, url).await.unwrap();
        let path = format!("{BASE}/{version}/clusterqueues/{{name}}/pendingworkloads");
        let answer = &document["paths"][&path]["get"]["responses"]["200"]["content"]["application/json"];
        let summary = format!("io.k8s.kueue.visibility.{version}.PendingWorkloadsSummary");
        assert_eq!(answer["schema"]["$ref"], format!("#/components/schemas/{summary}"), "{document}");
        let kind = &document["components"]["schemas"][&summary]["x-kubernetes-group-version-kind"][0]["kind"];
        assert_eq!(kind, "PendingWorkloadsSummary");
        let swagger = raw(up, "/openapi/v2").await.unwrap();
        assert_eq!(swagger["definitions"][&summary]["type"], "object");
        assert!(swagger["paths"][&path]["get"].is_object());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_visibility_api_is_discovered() {
    let up = Up::start(&["--nodes", "1"]).await;
    let groups = raw(&up, "/apis").await.unwrap();
    let group = json::list(&groups, &["groups"]).iter().find(|g| g["name"] == BASE[6..]);
    let group = group.unwrap_or_else(|| panic!("{groups}"));
    assert_eq!(group["preferredVersion"]["version"], "v1beta2");
    assert_eq!(raw(&up, BASE).await.unwrap()["versions"], group["versions"]);
    let resources = raw(&up, &format!("{BASE}/v1beta2")).await.unwrap();
    let names: Vec<&str> =
        json::list(&resources, &["resources"]).iter().map(|r| json::text(r, &["name"])).collect();
    assert_eq!(
        names,
        [
            "clusterqueues",
            "clusterqueues/pendingworkloads",
            "localqueues",
            "localqueues/pendingworkloads",
            "localqueues/admissionforecasts"
        ]
    );
    let service =
        raw(&up, "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.visibility.kueue.x-k8s.io").await;
    assert!(json::is_true(&service.unwrap(), "Available"));
    documented(&up).await;
    let without = Up::start(&["--nodes", "1", "--no-scheduler"]).await;
    assert!(raw(&without, BASE).await.is_err());
}

/// A client of a replica, past the API server: with the administrator's certificate and token, or without.
fn past(up: &Up, url: &str, credentials: bool) -> kube::Client {
    let file = kube::config::Kubeconfig::read_from(&up.kubeconfig).unwrap();
    let user = file.auth_infos[0].auth_info.clone().unwrap();
    let mut config = kube::Config::new(url.parse().unwrap());
    config.accept_invalid_certs = true;
    if credentials {
        config.auth_info = user;
    }
    kube::Client::try_from(config).unwrap()
}

/// Status and body of a GET.
async fn get(client: &kube::Client, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut request = http::Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = client.send(request.body(kube::client::Body::empty()).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

/// Makes the API server send requests for the group to a replica.
async fn aggregate(up: &Up, url: &str) {
    const SERVICES: Resource =
        Resource { api_version: "apiregistration.k8s.io/v1", plural: "apiservices", kind: "APIService" };
    let port: u64 = url.rsplit(':').next().unwrap().parse().unwrap();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "visibility", "namespace": "default"},
                         "spec": {"type": "ExternalName", "externalName": "localhost"}});
    up.create(&service).await.unwrap();
    for version in ["v1beta1", "v1beta2"] {
        let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.visibility.kueue.x-k8s.io")},
            "spec": {"group": "visibility.kueue.x-k8s.io", "version": version, "groupPriorityMinimum": 100,
                     "versionPriority": 100, "insecureSkipTLSVerify": true,
                     "service": {"name": "visibility", "namespace": "default", "port": port}}});
        up.api.create(SERVICES, &object).await.unwrap();
    }
    for version in ["v1beta1", "v1beta2"] {
        let name = format!("{version}.visibility.kueue.x-k8s.io");
        up.until_shown("the API is available", async |up| {
            let object = up.get(SERVICES, "", &name).await;
            if json::is_true(&object, "Available") { Ok(()) } else { Err(object["status"].to_string()) }
        })
        .await;
    }
}

/// Metrics over HTTPS are for users who may get them, as Kueue's are.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_served_to_users_who_may_get_them() {
    let up = Up::start(&["--nodes", "1", "--no-scheduler"]).await;
    let (_run, line) = Run::start(&up.kubeconfig, &["--metrics-secure-port", "0", "--queueing"]);
    let url = line["secureMetrics"].as_str().unwrap().to_owned();
    let stranger = past(&up, &url, false);
    up.until_shown("it serves", async |_| match get(&stranger, "/healthz", &[]).await.0 {
        200 => Ok(()),
        status => Err(status.to_string()),
    })
    .await;
    assert_eq!(get(&stranger, "/metrics", &[]).await.0, 403);
    assert_eq!(get(&stranger, "/metrics", &[("authorization", "Bearer nonsense")]).await.0, 401);
    // An account with Kueue's role.
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus", "namespace": "default"}});
    up.api.create(ACCOUNTS, &account).await.unwrap();
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "prometheus"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "default"}]});
    up.api.create(BINDINGS, &binding).await.unwrap();
    let token = format!("Bearer {}", crate::common::token(&up.kubeconfig, "default", "prometheus").await);
    up.until_shown("the account reads metrics", async |_| {
        match get(&stranger, "/metrics", &[("authorization", &token)]).await.0 {
            200 => Ok(()),
            status => Err(status.to_string()),
        }
    })
    .await;
    assert_eq!(get(&stranger, "/plugins", &[("authorization", &token)]).await.0, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_serve_it_behind_the_aggregation_layer() {
    let up = Up::start(&["--nodes", "1", "--no-scheduler", "--speed", "1"]).await;
    let (leader, line) = Run::start(&up.kubeconfig, &["--visibility-port", "0"]);
    let url = line["visibility"].as_str().unwrap().to_owned();
    waiting_jobs(&up).await;
    let (follower, line) = Run::start(&up.kubeconfig, &["--visibility-port", "0"]);
    assert_eq!(line["leader"], false);
    let other = line["visibility"].as_str().unwrap().to_owned();

    let cq = format!("{BASE}/v1beta2/clusterqueues/cq/pendingworkloads");
    let names = ["first", "a", "b", "c", "d"];
    let shown = |summary: &Value| rows(summary).into_iter().map(|(name, ..)| name).collect::<Vec<_>>();
    for url in [&url, &other] {
        let client = past(&up, url, true);
        up.until_shown("a replica has all that wait", async |_| {
            let (status, summary) = get(&client, &cq, &[]).await;
            if status == 200 && shown(&summary) == names {
                Ok(())
            } else {
                Err(format!("{status} {summary}"))
            }
        })
        .await;
    }

    // Who is not known may do nothing, and nobody but the API server names users.
    let stranger = past(&up, &url, false);
    let (status, refused) = get(&stranger, &cq, &[]).await;
    let text = json::text(&refused, &["message"]);
    assert_eq!(status, 403, "{refused}");
    assert!(
        text.contains("User \"system:anonymous\" cannot get resource \"clusterqueues/pendingworkloads\""),
        "{text}"
    );
    assert_eq!(
        get(&stranger, &cq, &[("x-remote-user", "admin"), ("x-remote-group", "system:masters")]).await.0,
        403
    );
    assert_eq!(get(&stranger, &cq, &[("authorization", "Bearer nonsense")]).await.0, 401);
    let file = kube::config::Kubeconfig::read_from(&up.kubeconfig).unwrap();
    let token =
        serde_json::to_value(&file).unwrap()["users"][0]["user"]["token"].as_str().unwrap().to_owned();
    assert_eq!(get(&stranger, &cq, &[("authorization", &format!("Bearer {token}"))]).await.0, 200);

    aggregate(&up, &url).await;
    assert_eq!(shown(&raw(&up, &cq).await.unwrap()), names);
    documented(&up).await;
    let page = raw(&up, &format!("{BASE}/v1beta1/clusterqueues/cq/pendingworkloads?offset=3")).await.unwrap();
    assert_eq!(shown(&page), names[3..]);
    let error = raw(&up, &cq.replace("/cq/", "/none/")).await.unwrap_err();
    assert!(error.contains("clusterqueue.visibility.kueue.x-k8s.io \"none\" not found"), "{error}");
    let groups = raw(&up, "/apis").await.unwrap();
    assert!(json::list(&groups, &["groups"]).iter().any(|g| g["name"] == BASE[6..]), "{groups}");
    // The user that the API server names has the rights of that user, not those of the API server.
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "alice"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "kueue-pending-workloads-lq-viewer-role"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]});
    up.api.create(BINDINGS, &binding).await.unwrap();
    let alice = [("impersonate-user", "alice")];
    let server = up.ready["url"].as_str().unwrap();
    let client = past(&up, server, true);
    let local = format!("{BASE}/v1beta2/namespaces/team/localqueues/main/pendingworkloads");
    up.until_shown("alice may look at LocalQueues only", async |_| {
        let statuses = (get(&client, &local, &alice).await.0, get(&client, &cq, &alice).await.0);
        if statuses == (200, 403) { Ok(()) } else { Err(format!("{statuses:?}")) }
    })
    .await;

    drop(leader);
    up.until_shown("a server that is gone is unavailable", async |up| match raw(up, &cq).await {
        Err(e) if e.contains("service unavailable") || e.contains("ServiceUnavailable") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    drop(follower);
}
