//! `plimsoll up` with a part left out, so that somebody else's program does it; the roles that it gives to users; its
//! admission plugins.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{Up, job, pod, queue};
use plimsoll_api::json;
use plimsoll_runtime::api::{CLUSTER_QUEUES, JOBS, NAMESPACES, PODS, Resource, WORKLOADS};
use serde_json::{Value, json};

async fn namespace(up: &Up) {
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    up.api.create(NAMESPACES, &team).await.unwrap();
}

#[tokio::test]
async fn without_queueing_pods_are_placed_and_nothing_of_kueue_is_there() {
    let up = Up::start(&["--no-queueing", "--speed", "100"]).await;
    let error = up.api.get_path(&CLUSTER_QUEUES.collection("")).await.unwrap_err().to_string();
    assert!(error.contains("404") || error.contains("could not find"), "{error}");
    namespace(&up).await;
    // No webhook looks at the queue's name: the job is not suspended.
    let queued = json!({"kueue.x-k8s.io/queue-name": "main"});
    up.create(&job("now", &queued, 2, 1)).await.unwrap();
    up.until("the job is complete", async |up| {
        let job = up.get(JOBS, "team", "now").await;
        assert_ne!(job["spec"]["suspend"], true);
        json::is_true(&job, "Complete").then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_placement_jobs_are_admitted_and_pods_wait() {
    let up = Up::start(&["--no-placement", "--speed", "100"]).await;
    up.apply(&queue(4)).await;
    up.create(&job("queued", &json!({"kueue.x-k8s.io/queue-name": "main"}), 1, 1)).await.unwrap();
    let waiting: Value = up
        .until("the job's pod is there", async |up| {
            let pods = up.list(PODS).await;
            pods.into_iter().find(|p| json::name(p).starts_with("queued-"))
        })
        .await;
    assert!(up.list(WORKLOADS).await.iter().all(|w| json::is_true(w, "Admitted")));
    // Whatever places pods would have done so by the time that a binding is made by hand.
    let name = json::name(&waiting);
    let now = up.get(PODS, "team", name).await;
    assert_eq!(now["spec"]["nodeName"], Value::Null);
    let node = json!({"apiVersion": "v1", "kind": "Node", "name": "node-0"});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": node});
    up.api.create_sub(PODS, "team", name, "binding", &binding).await.unwrap();
    up.until("the job is complete", async |up| {
        json::is_true(&up.get(JOBS, "team", "queued").await, "Complete").then_some(())
    })
    .await;
}

/// As beside kube-scheduler: nodes are known for topologies, though pods are placed by others.
#[tokio::test]
async fn without_placement_topologies_are_kept() {
    let up = Up::start(&["--no-placement", "--nodes", "2", "--speed", "100"]).await;
    let topology = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Topology\nmetadata: {name: hosts}\n\
         spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}\n---\n";
    let flavor = "kind: ResourceFlavor\nmetadata: {name: any}\n";
    let with = format!("{flavor}spec: {{topologyName: hosts, nodeLabels: {{kubernetes.io/os: linux}}}}\n");
    up.apply(&format!("{topology}{}", queue(8).replace(flavor, &with))).await;
    let mut queued = job("queued", &json!({"kueue.x-k8s.io/queue-name": "main"}), 2, 1);
    let required = json!({"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"});
    queued["spec"]["template"]["metadata"] = json!({"annotations": required});
    up.create(&queued).await.unwrap();
    let sent: Vec<String> = up
        .until("both pods are sent to a host", async |up| {
            let pods = up.list(PODS).await;
            let host =
                |p: &Value| json::text(p, &["spec", "nodeSelector", "kubernetes.io/hostname"]).to_owned();
            let hosts: Vec<String> = pods.iter().map(host).filter(|h| !h.is_empty()).collect();
            (hosts.len() == 2).then_some(hosts)
        })
        .await;
    assert_eq!(sent[0], sent[1], "the required topology is one host");
    assert!(sent[0].starts_with("node-"), "{sent:?}");
}

#[tokio::test]
async fn without_both_it_is_an_api_server_with_nodes() {
    let up = Up::start(&["--no-queueing", "--no-placement", "--nodes", "1", "--speed", "100"]).await;
    assert!(up.api.get_path(&CLUSTER_QUEUES.collection("")).await.is_err());
    namespace(&up).await;
    let mut bound = pod("bound", &json!({}), 1);
    bound["spec"]["nodeName"] = json!("node-0");
    up.create(&bound).await.unwrap();
    up.create(&pod("waits", &json!({}), 1)).await.unwrap();
    up.until("the pod with a node runs", async |up| {
        (up.get(PODS, "team", "bound").await["status"]["phase"] == "Succeeded").then_some(())
    })
    .await;
    assert_eq!(up.get(PODS, "team", "waits").await["spec"]["nodeName"], Value::Null);
}

/// Whether a user may do something in namespace `team`.
async fn may(up: &Up, user: &str, verb: &str, group: &str, resource: &str) -> bool {
    const REVIEWS: Resource = Resource {
        api_version: "authorization.k8s.io/v1",
        plural: "subjectaccessreviews",
        kind: "SubjectAccessReview",
    };
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": user,
        "resourceAttributes": {"namespace": "team", "verb": verb, "group": group, "resource": resource}}});
    up.api.create(REVIEWS, &review).await.unwrap()["status"]["allowed"] == true
}

/// Kueue's `config/components/rbac`: tenants read their queues and workloads with the roles that every cluster has, and
/// run jobs with Kueue's.
#[tokio::test]
async fn tenants_and_administrators_have_kueues_roles() {
    const BINDINGS: Resource =
        Resource { api_version: "rbac.authorization.k8s.io/v1", plural: "rolebindings", kind: "RoleBinding" };
    let up = Up::start(&["--nodes", "1", "--speed", "100"]).await;
    namespace(&up).await;
    for role in ["view", "edit", "admin", "kueue-batch-user-role", "kueue-batch-admin-role"] {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": "team"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}]});
        up.api.create(BINDINGS, &binding).await.unwrap();
    }
    let kueue = "kueue.x-k8s.io";
    up.until("the parts of the roles are gathered", async |up| {
        let admin = may(up, "admin", "get", "plimsoll.dev", "runwindows").await;
        let batch = may(up, "kueue-batch-admin-role", "update", "plimsoll.dev", "runwindows").await;
        (admin && batch && may(up, "kueue-batch-user-role", "list", kueue, "workloads").await).then_some(())
    })
    .await;
    let user = "kueue-batch-user-role";
    for (who, verb, group, resource, wanted) in [
        ("edit", "list", kueue, "workloads", true),
        ("view", "watch", kueue, "localqueues", true),
        ("edit", "update", kueue, "workloads", false),
        ("edit", "get", kueue, "clusterqueues", false),
        ("admin", "get", kueue, "clusterqueues", true),
        ("admin", "update", kueue, "clusterqueues", false),
        (user, "create", "batch", "jobs", true),
        (user, "get", kueue, "workloads", true),
        (user, "create", kueue, "localqueues", false),
        (user, "get", "", "pods", false),
        ("kueue-batch-admin-role", "create", kueue, "clusterqueues", true),
        ("kueue-batch-admin-role", "patch", kueue, "workloads", true),
        ("view", "get", "plimsoll.dev", "runwindows", false),
    ] {
        assert_eq!(may(&up, who, verb, group, resource).await, wanted, "{who} {verb} {group} {resource}");
    }
}

#[tokio::test]
async fn admission_plugins_are_chosen_by_name() {
    for (args, wanted) in [
        (
            ["--enable-admission-plugins", "Sidecars"],
            "enable-admission-plugins plugin \"Sidecars\" is unknown",
        ),
        (
            ["--disable-admission-plugins", "Priority,pods"],
            "disable-admission-plugins plugin \"pods\" is unknown",
        ),
    ] {
        let out = crate::common::binary().arg("up").args(args).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && text.contains(wanted), "{text}");
    }
    let token = |pod: &Value| pod["spec"]["volumes"][0]["projected"]["sources"][0].clone();
    let up = Up::start(&["--no-scheduler", "--nodes", "1"]).await;
    namespace(&up).await;
    // Right after its namespace, before anything has made its account.
    let made = up.create(&pod("first", &json!({}), 1)).await.unwrap();
    assert_eq!(made["spec"]["serviceAccountName"], "default");
    assert!(token(&made)["serviceAccountToken"].is_object(), "{made}");
    let off = "ServiceAccount,PodSecurity";
    let up = Up::start(&["--no-scheduler", "--nodes", "1", "--disable-admission-plugins", off]).await;
    namespace(&up).await;
    let made = up.create(&pod("first", &json!({}), 1)).await.unwrap();
    assert_eq!((&made["spec"]["serviceAccountName"], token(&made)), (&Value::Null, Value::Null));
}
