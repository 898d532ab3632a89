//! Objects that Kueue has stored in v1beta1 keep working under Plimsoll on a real kube-apiserver: they are converted, what
//! was admitted stays, and the commands of `docs/cluster.md` migrate them.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use crate::common::{assert_within_quota, job, pod};
use crate::real_cluster::{
    self, DEFINITIONS, Real, documented, documents, list, running, until, until_shown,
};
use plimsoll_api::json;
use plimsoll_runtime::api::{
    ADMISSION_CHECKS, Api, CLUSTER_QUEUES, COHORTS, FLAVORS, JOBS, LOCAL_QUEUES, PODS, PatchKind, Resource,
    TOPOLOGIES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS,
};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const LONG: u32 = 36000;
const KINDS: [Resource; 8] = [
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    LOCAL_QUEUES,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
];

/// A kind as Kueue served it before v1beta2.
fn old(resource: Resource) -> Resource {
    Resource { api_version: "kueue.x-k8s.io/v1beta1", ..resource }
}

/// The definitions of before v1beta2: of those kinds that had v1beta1, that version alone.
async fn old_definitions(api: &Api) {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    for file in std::fs::read_dir(dir).unwrap() {
        for mut definition in documents(&file.unwrap().path()) {
            let mut versions = json::list(&definition, &["spec", "versions"]).iter();
            let Some(mut old) = versions.find(|v| v["name"] == "v1beta1").cloned() else { continue };
            old["storage"] = json!(true);
            definition["spec"]["versions"] = json!([old]);
            definition["spec"].as_object_mut().unwrap().remove("conversion");
            api.create(DEFINITIONS, &definition).await.unwrap();
        }
    }
    for kind in KINDS {
        until(&format!("{} are served", kind.plural), async || {
            api.get_path(&old(kind).collection("")).await.ok()
        })
        .await;
    }
}

fn object(kind: Resource, name: &str, spec: &Value) -> Value {
    let mut object = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": kind.kind, "metadata": {"name": name}, "spec": spec});
    if [LOCAL_QUEUES, WORKLOADS].contains(&kind) {
        object["metadata"]["namespace"] = json!("team");
    }
    object
}

/// What an administrator made with an old Kueue.
async fn old_queues(api: &Api) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    api.create(crate::common::resource(&namespace), &namespace).await.unwrap();
    let groups = |flavor: &str| {
        json!([{"coveredResources": ["cpu"],
        "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "4"}]}]}])
    };
    let level = json!({"levels": [{"nodeLabel": "kubernetes.io/hostname"}]});
    let labels = json!({"kubernetes.io/os": "linux"});
    let check = json!({"controllerName": "example.com/nobody", "retryDelayMinutes": 7});
    let class = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "WorkloadPriorityClass",
        "metadata": {"name": "high"}, "value": 100});
    let all = [
        (TOPOLOGIES, object(TOPOLOGIES, "hosts", &level)),
        (FLAVORS, object(FLAVORS, "any", &json!({}))),
        (FLAVORS, object(FLAVORS, "hosts", &json!({"nodeLabels": labels, "topologyName": "hosts"}))),
        (ADMISSION_CHECKS, object(ADMISSION_CHECKS, "nobody", &check)),
        (COHORTS, object(COHORTS, "all", &json!({}))),
        (WORKLOAD_PRIORITY_CLASSES, class),
        (
            CLUSTER_QUEUES,
            object(
                CLUSTER_QUEUES,
                "cq",
                &json!({"cohort": "all", "namespaceSelector": {}, "resourceGroups": groups("any"),
                "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}),
            ),
        ),
        (
            CLUSTER_QUEUES,
            object(
                CLUSTER_QUEUES,
                "placed",
                &json!({"namespaceSelector": {}, "resourceGroups": groups("hosts")}),
            ),
        ),
        (
            CLUSTER_QUEUES,
            object(
                CLUSTER_QUEUES,
                "checked",
                &json!({"namespaceSelector": {}, "resourceGroups": groups("any"), "admissionChecks": ["nobody"]}),
            ),
        ),
        (LOCAL_QUEUES, object(LOCAL_QUEUES, "main", &json!({"clusterQueue": "cq"}))),
        (LOCAL_QUEUES, object(LOCAL_QUEUES, "placed", &json!({"clusterQueue": "placed"}))),
    ];
    for (kind, object) in all {
        api.create(old(kind), &object).await.unwrap_or_else(|e| panic!("{e}: {object}"));
    }
}

/// A workload of 2 pods that an old Kueue has admitted.
async fn old_workload(api: &Api, name: &str, queue: (&str, &str, &str), job: &Value, topology: &Value) {
    let (local, cluster, flavor) = queue;
    let podset = json!({"name": "main", "count": 2, "template": job["spec"]["template"]});
    let mut workload = object(
        WORKLOADS,
        name,
        &json!({"queueName": local, "podSets": [podset], "active": true, "priority": 100,
            "priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}),
    );
    if !json::uid(job).is_empty() {
        workload["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job",
            "name": json::name(job), "uid": json::uid(job), "controller": true, "blockOwnerDeletion": true}]);
    }
    workload["metadata"]["finalizers"] = json!(["kueue.x-k8s.io/resource-in-use"]);
    api.create(old(WORKLOADS), &workload).await.unwrap();
    let mut assignment =
        json!({"name": "main", "count": 2, "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": "2"}});
    if !topology.is_null() {
        assignment["topologyAssignment"] = topology.clone();
    }
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "as it was",
        "lastTransitionTime": "2025-01-02T03:04:05Z", "observedGeneration": 1})
    };
    let status = json!({"status": {
        "admission": {"clusterQueue": cluster, "podSetAssignments": [assignment]},
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
        "accumulatedPastExexcutionTimeSeconds": 5}});
    api.patch(old(WORKLOADS), "team", name, "status", PatchKind::Merge, &status).await.unwrap();
}

/// The objects in the new version say the same.
async fn converted(api: &Api) {
    let cq = api.get(CLUSTER_QUEUES, "", "cq").await.unwrap();
    assert_eq!(cq["spec"]["cohortName"], "all");
    assert_eq!(cq["spec"]["flavorFungibility"]["whenCanBorrow"], "MayStopSearch");
    assert_eq!(cq["spec"]["flavorFungibility"]["whenCanPreempt"], "MayStopSearch");
    let checked = api.get(CLUSTER_QUEUES, "", "checked").await.unwrap();
    assert_eq!(checked["spec"]["admissionChecksStrategy"]["admissionChecks"][0]["name"], "nobody");
    let check = api.get(ADMISSION_CHECKS, "", "nobody").await.unwrap();
    assert_eq!(check["spec"]["retryDelayMinutes"], Value::Null);
    let placed = api.get(WORKLOADS, "team", "placed").await.unwrap();
    assert_eq!(placed["spec"]["priorityClassRef"]["name"], "high");
    assert_eq!(placed["status"]["accumulatedPastExecutionTimeSeconds"], 5);
    let assignment = &placed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    assert_eq!(assignment["slices"][0]["domainCount"], 2, "{assignment}");
    // And in the old one what they said before.
    let cq = api.get(old(CLUSTER_QUEUES), "", "cq").await.unwrap();
    assert_eq!((&cq["spec"]["cohort"], &cq["spec"]["cohortName"]), (&json!("all"), &Value::Null));
    let placed = api.get(old(WORKLOADS), "team", "placed").await.unwrap();
    assert_eq!(placed["spec"]["priorityClassSource"], "kueue.x-k8s.io/workloadpriorityclass");
    let assignment = &placed["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    assert_eq!(assignment["domains"][1]["values"], json!(["node-1"]), "{assignment}");
}

fn charged(cq: &Value) -> &str {
    json::text(&cq["status"]["flavorsReservation"][0]["resources"][0], &["total"])
}

/// What was admitted is admitted, charged, and has been since the time that the old Kueue wrote.
async fn still_admitted(api: &Api, names: &[&str]) {
    for name in names {
        let workload = api.get(WORKLOADS, "team", name).await.unwrap();
        for kind in ["QuotaReserved", "Admitted"] {
            let condition = json::condition(&workload, kind).unwrap();
            let said = (&condition["status"], &condition["lastTransitionTime"]);
            assert_eq!(said, (&json!("True"), &json!("2025-01-02T03:04:05Z")), "{name} {workload}");
        }
        assert!(json::condition(&workload, "Evicted").is_none(), "{workload}");
    }
    assert_within_quota(&list(api, CLUSTER_QUEUES).await, &list(api, WORKLOADS).await);
}

/// Uses the queues in both versions: what is left of the quota is given, and no more.
async fn used(api: &Api) {
    api.create(PODS, &pod("first", &json!({QUEUE: "main"}), LONG)).await.unwrap();
    api.create(PODS, &pod("second", &json!({QUEUE: "main"}), LONG)).await.unwrap();
    until_shown("the rest of the quota is used", async || {
        let pods = running(api, "team").await;
        let names: Vec<&str> = pods.iter().map(json::name).collect();
        let all = ["first", "second"].iter().all(|n| names.contains(n));
        if all { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    api.create(PODS, &pod("third", &json!({QUEUE: "main"}), LONG)).await.unwrap();
    until_shown("one waits, and the queue says what it has given", async || {
        let cq = api.get(CLUSTER_QUEUES, "", "cq").await.unwrap();
        let seen = (charged(&cq), &cq["status"]["pendingWorkloads"]);
        if seen == ("4", &json!(1)) { Ok(()) } else { Err(cq["status"].to_string()) }
    })
    .await;
    // Clients of the old version change the quota.
    let quota = json!({"spec": {"resourceGroups": [{"coveredResources": ["cpu"],
        "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": "5"}]}]}]}});
    api.patch(old(CLUSTER_QUEUES), "", "cq", "", PatchKind::Merge, &quota).await.unwrap();
    until("the third runs", async || {
        running(api, "team").await.iter().any(|p| json::name(p) == "third").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_v1beta1_are_taken_over() {
    let Some(assets) = real_cluster::assets(&[]) else { return };
    let mut cluster = Real::start(&assets).await;
    cluster.populate(4, "job-controller,garbage-collector-controller").await;
    let (api, site) = (cluster.api.clone(), cluster.site());
    old_definitions(&api).await;
    old_queues(&api).await;
    let domains = json!({"levels": ["kubernetes.io/hostname"],
        "domains": [{"values": ["node-0"], "count": 1}, {"values": ["node-1"], "count": 1}]});
    let labels = json!({QUEUE: "main", "kueue.x-k8s.io/priority-class": "high"});
    let job = job("started", &labels, 2, LONG);
    old_workload(&api, "placed", ("placed", "placed", "hosts"), &job, &domains).await;
    // A Job that an old Kueue has started.
    let job = api.create(JOBS, &job).await.unwrap();
    old_workload(&api, "job-started", ("main", "cq", "any"), &job, &Value::Null).await;

    site.install(&["--frameworks", "batch/job,pod"]);
    let config = cluster.kubeconfig.with_file_name("config.yaml");
    // The file of that Kueue: it doesn't wait for pods unless it says so.
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n\
                integrations: {frameworks: [batch/job, pod]}\n";
    std::fs::write(&config, text).unwrap();
    let account = real_cluster::account(&cluster.kubeconfig).await;
    let flags = ["--config", config.to_str().unwrap()];
    let mut first = real_cluster::run_with(&account, "first.log", &flags);
    real_cluster::registered(&api).await;
    until_shown("the queue charges what was admitted", async || {
        let cq = api.get(CLUSTER_QUEUES, "", "cq").await.map_err(|e| e.to_string())?;
        if charged(&cq) == "2" { Ok(()) } else { Err(format!("{}\n{}", cq["status"], first.log())) }
    })
    .await;
    converted(&api).await;
    used(&api).await;
    still_admitted(&api, &["placed", "job-started"]).await;
    let job = api.get(JOBS, "team", "started").await.unwrap();
    assert_eq!(job["spec"]["suspend"], json!(false));
    let denied: Vec<String> =
        first.log().lines().filter(|l| l.contains("forbidden")).map(str::to_owned).collect();
    assert!(denied.is_empty(), "{denied:?}");

    // Without its webhook they can't be read, and so not be deleted: an uninstall says so before it does anything.
    let refused = crate::common::binary().arg("uninstall").arg("--kubeconfig").arg(&site.kubeconfig).output();
    let refused = refused.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("storedVersions has v1beta1"), "{said}");
    first.kill();
    // Nobody has written this kind since. A list would come from the API server's cache.
    let unwritten = async || api.get(WORKLOAD_PRIORITY_CLASSES, "", "high").await;
    let unread = unwritten().await.unwrap_err();
    assert!(unread.to_string().contains("conversion webhook"), "{unread}");

    let second = real_cluster::run_with(&account, "second.log", &flags);
    until("they are read again", async || unwritten().await.ok()).await;
    // Conversion comes back first; the other webhooks when everything has been listed.
    let touch = async || api.patch(ADMISSION_CHECKS, "", "nobody", "", PatchKind::Merge, &json!({})).await;
    until("its webhooks answer", async || touch().await.ok()).await;
    site.shell(&documented("storedVersions"));
    for definition in list(&api, DEFINITIONS).await {
        let stored = &definition["status"]["storedVersions"];
        assert_eq!(json::list(stored, &[]).len(), 1, "{} {stored}", json::name(&definition));
    }
    drop(second);
    // All of them are stored in v1beta2: nobody has to convert them.
    for kind in KINDS {
        for object in list(&api, kind).await {
            let read = api.get(kind, json::namespace(&object), json::name(&object)).await;
            assert!(read.is_ok(), "{} {read:?}", kind.plural);
        }
    }
    still_admitted(&api, &["placed", "job-started"]).await;
    cluster.stop().await;
}
