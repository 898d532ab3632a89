//! `plimsoll run --shard NAME`: several leaders in one cluster, each with its own nodes and queues.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::run::Run;
use crate::common::{Up, condition, directory, pod, suspended_job};
use plimsoll_api::json;
use plimsoll_runtime::api::{
    CLUSTER_QUEUES, COHORTS, EVENTS, JOBS, LEASES, NODES, PODS, PatchKind, Resource, WORKLOADS,
};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const SHARD: &str = "plimsoll.dev/shard";

/// The API server, controllers and simulated nodes: two nodes of four CPUs in each of the shards `a` and `b`, and one in none.
async fn server() -> Up {
    let dir = directory();
    let node = |name: &str, labels: Value| {
        let resources = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "status": {"capacity": resources, "allocatable": resources}})
    };
    let nodes = ["a", "b"].into_iter().flat_map(|shard| {
        (0..2).map(move |i| node(&format!("{shard}-{i}"), json!({"plimsoll.dev/shard": shard})))
    });
    let nodes: Vec<String> = nodes.chain([node("plain", json!({}))]).map(|node| node.to_string()).collect();
    let file = dir.join("nodes.yaml");
    std::fs::write(&file, nodes.join("\n---\n")).unwrap();
    let up =
        Up::start_in(dir, &["--no-scheduler", "--speed", "10", "--nodes-file", file.to_str().unwrap()]).await;
    up.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n").await;
    up.create(
        &json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}}),
    )
    .await
    .unwrap();
    // The root of one tree says the shard; the other has no cohort.
    let root = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort",
        "metadata": {"name": "root", "labels": {SHARD: "a"}}});
    up.create(&root).await.unwrap();
    queue(&up, "a", json!({}), "root").await;
    queue(&up, "b", json!({SHARD: "b"}), "").await;
    queue(&up, "plain", json!({}), "").await;
    up
}

/// A ClusterQueue with more quota than its shard has CPUs, and a LocalQueue of its name.
async fn queue(up: &Up, name: &str, labels: Value, cohort: &str) {
    let resources = json!([{"name": "cpu", "nominalQuota": 100}]);
    let mut cq = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": name, "labels": labels},
        "spec": {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"],
            "flavors": [{"name": "any", "resources": resources}]}]}});
    if !cohort.is_empty() {
        cq["spec"]["cohortName"] = cohort.into();
    }
    let lq = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": name}});
    up.create(&cq).await.unwrap();
    up.create(&lq).await.unwrap();
}

/// A leader of this shard.
fn leader(up: &Up, shard: &str) -> Run {
    let (mut run, line) = Run::start(&up.kubeconfig, &["--shard", shard]);
    assert_eq!(line["shard"], shard, "{line}");
    assert!(line["leader"] == true || run.line()["leader"] == true, "{}", run.log());
    run
}

async fn submit(up: &Up, name: &str, queue: &str, pods: u32, seconds: u32) {
    up.create(&suspended_job(name, &json!({QUEUE: queue}), pods, seconds)).await.unwrap();
}

async fn completes(up: &Up, name: &str) {
    up.until_shown(&format!("{name} completes"), async |up| {
        let job = up.get(JOBS, "team", name).await;
        let done = json::is_true(&job, "Complete");
        if done { Ok(()) } else { Err(format!("{job:#}\n{:#?}", up.list(WORKLOADS).await)) }
    })
    .await;
}

/// Nodes of the pods of a job.
async fn nodes_of(up: &Up, job: &str) -> BTreeSet<String> {
    let pods = up.list(PODS).await;
    let mine = pods.iter().filter(|p| json::label(p, "batch.kubernetes.io/job-name") == job);
    mine.map(|p| json::text(p, &["spec", "nodeName"]).to_owned()).collect()
}

/// The workload of a job.
async fn workload(up: &Up, job: &str) -> Option<Value> {
    let all = up.list(WORKLOADS).await;
    all.into_iter().find(|wl| json::controller(wl).is_some_and(|owner| owner["name"] == job))
}

/// Waits until a job waits for its quota, and returns why.
async fn waits(up: &Up, job: &str) -> String {
    up.until(&format!("{job} waits"), async |up| {
        let wl = workload(up, job).await?;
        let (status, _, message) = condition(&wl, "QuotaReserved");
        (status == "False").then(|| message.to_owned())
    })
    .await
}

async fn patch(up: &Up, resource: Resource, name: &str, body: &Value) {
    up.api.patch(resource, "", name, "", PatchKind::Merge, body).await.unwrap();
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_shard_decides_about_its_own_nodes_and_queues_only() {
    let up = server().await;
    let (mut a, mut b) = (leader(&up, "a"), leader(&up, "b"));
    for lease in ["plimsoll-a", "plimsoll-b"] {
        assert!(
            !json::text(&up.get(LEASES, "kube-system", lease).await, &["spec", "holderIdentity"]).is_empty()
        );
    }
    // Each fills the nodes of its shard.
    submit(&up, "of-a", "a", 8, 2).await;
    submit(&up, "of-b", "b", 8, 2).await;
    completes(&up, "of-a").await;
    completes(&up, "of-b").await;
    assert_eq!(nodes_of(&up, "of-a").await, set(&["a-0", "a-1"]));
    assert_eq!(nodes_of(&up, "of-b").await, set(&["b-0", "b-1"]));
    // A gang that needs the nodes of two shards waits, although there is quota.
    submit(&up, "too-large", "a", 9, 2).await;
    let why = waits(&up, "too-large").await;
    assert!(why.contains("node"), "{why}");
    submit(&up, "again-b", "b", 8, 2).await;
    completes(&up, "again-b").await;
    // Nobody has what has no label: neither queues nor pods that name no profile.
    submit(&up, "of-none", "plain", 1, 2).await;
    up.create(&pod("alone", &json!({}), 1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(up.get(PODS, "team", "alone").await["spec"]["nodeName"], Value::Null);
    assert!(workload(&up, "of-none").await.is_none());
    assert_eq!(condition(&workload(&up, "too-large").await.unwrap(), "QuotaReserved").0, "False");
    let active = |cq: &Value| condition(cq, "Active").0.to_owned();
    assert_eq!(active(&up.get(CLUSTER_QUEUES, "", "a").await), "True");
    assert_eq!(active(&up.get(CLUSTER_QUEUES, "", "plain").await), "", "no status of nobody's queue");
    let mut rest = leader(&up, "default");
    completes(&up, "of-none").await;
    assert_eq!(nodes_of(&up, "of-none").await, set(&["plain"]));
    up.until("the pod without a queue has a node", async |up| {
        (up.get(PODS, "team", "alone").await["spec"]["nodeName"] == "plain").then_some(())
    })
    .await;
    for run in [&mut a, &mut b, &mut rest] {
        assert_eq!(run.terminate(), Some(0), "{}", run.log());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_goes_on_when_another_ends_and_a_replica_takes_it_over() {
    let up = server().await;
    let (mut first, _b) = (leader(&up, "a"), leader(&up, "b"));
    let (mut second, line) = Run::start(&up.kubeconfig, &["--shard", "a"]);
    assert_eq!((&line["leader"], &line["shard"]), (&json!(false), &json!("a")));
    submit(&up, "runs", "a", 6, 600).await;
    up.until("it runs", async |up| (nodes_of(up, "runs").await == set(&["a-0", "a-1"])).then_some(())).await;
    first.kill();
    submit(&up, "of-a", "a", 2, 2).await;
    submit(&up, "too-many", "a", 3, 2).await;
    submit(&up, "of-b", "b", 8, 2).await;
    completes(&up, "of-b").await;
    assert_eq!(second.line()["leader"], true);
    completes(&up, "of-a").await;
    // It knows what the one before gave away: six of eight CPUs.
    waits(&up, "too-many").await;
    let job = up.get(JOBS, "team", "runs").await;
    assert!(job["spec"]["suspend"] == false && json::int(&job, &["status", "active"]) == Some(6), "{job}");
    assert_eq!(nodes_of(&up, "of-a").await.intersection(&set(&["b-0", "b-1", "plain"])).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_with_the_labels_of_two_shards_gets_nothing_and_says_so() {
    let up = server().await;
    let (_a, _b, _rest) = (leader(&up, "a"), leader(&up, "b"), leader(&up, "default"));
    submit(&up, "before", "a", 1, 2).await;
    completes(&up, "before").await;
    patch(&up, CLUSTER_QUEUES, "a", &json!({"metadata": {"labels": {SHARD: "b"}}})).await;
    up.until_shown("its condition says why", async |up| {
        let cq = up.get(CLUSTER_QUEUES, "", "a").await;
        let why = "Can't admit new workloads: its tree belongs to several shards: a (Cohort root), b (ClusterQueue a).";
        let said = condition(&cq, "Active") == ("False", "ShardConflict", why);
        if said { Ok(()) } else { Err(format!("{cq:#}")) }
    })
    .await;
    submit(&up, "meanwhile", "a", 1, 2).await;
    waits(&up, "meanwhile").await;
    // The whole tree goes to the other shard, with the workload that waits in it.
    patch(&up, COHORTS, "root", &json!({"metadata": {"labels": {SHARD: "b"}}})).await;
    completes(&up, "meanwhile").await;
    assert_eq!(nodes_of(&up, "meanwhile").await.intersection(&set(&["a-0", "a-1", "plain"])).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_given_to_another_shard_by_the_one_that_has_it() {
    let up = server().await;
    let (a, b) = (leader(&up, "a"), leader(&up, "b"));
    submit(&up, "of-b", "b", 12, 2).await;
    waits(&up, "of-b").await;
    let annotated = json!({"metadata": {"annotations": {"plimsoll.dev/move-to": "b"}}});
    patch(&up, NODES, "a-1", &annotated).await;
    completes(&up, "of-b").await;
    assert_eq!(nodes_of(&up, "of-b").await, set(&["a-1", "b-0", "b-1"]));
    let node = up.get(NODES, "", "a-1").await;
    assert_eq!((json::label(&node, SHARD), json::annotation(&node, "plimsoll.dev/move-to")), ("b", None));
    submit(&up, "of-a", "a", 5, 2).await;
    waits(&up, "of-a").await;
    submit(&up, "fits", "a", 4, 2).await;
    completes(&up, "fits").await;
    assert_eq!(nodes_of(&up, "fits").await, set(&["a-0"]));
    // By hand, as an administrator may do with a node that is cordoned and drained.
    patch(&up, NODES, "a-1", &json!({"spec": {"unschedulable": true}})).await;
    patch(&up, NODES, "a-1", &json!({"metadata": {"labels": {SHARD: "a"}}})).await;
    patch(&up, NODES, "a-1", &json!({"spec": {"unschedulable": null}})).await;
    completes(&up, "of-a").await;
    assert_eq!(nodes_of(&up, "of-a").await, set(&["a-0", "a-1"]));
    drop((a, b));
}

/// CPUs of the tree that moves.
const MOVING: i64 = 4;

/// CPUs of workloads that hold quota in a ClusterQueue.
async fn used(up: &Up, queue: &str) -> i64 {
    let holds =
        |wl: &&Value| wl["status"]["admission"]["clusterQueue"] == *queue && !json::is_true(wl, "Finished");
    let count = |wl: &Value| json::int(&wl["spec"]["podSets"][0], &["count"]).unwrap_or(0);
    up.list(WORKLOADS).await.iter().filter(holds).map(count).sum()
}

/// Waits until a shard leads a tree, and nothing asks for a move any more.
async fn led_by(up: &Up, shard: &str) {
    up.until_shown(&format!("shard {shard} leads the tree"), async |up| {
        let all = [up.get(COHORTS, "", "shared").await, up.get(CLUSTER_QUEUES, "", "moving").await];
        let is_led = |o: &Value| {
            json::annotation(o, "plimsoll.dev/led-by") == Some(shard)
                && json::annotation(o, "plimsoll.dev/move-to").is_none()
        };
        let active = condition(&all[1], "Active").0 == "True";
        if active && all.iter().all(is_led) { Ok(()) } else { Err(format!("{:#?}", all)) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_moves_between_shards_while_workloads_come() {
    let up = server().await;
    let root = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort",
        "metadata": {"name": "shared", "labels": {SHARD: "a"}}});
    up.create(&root).await.unwrap();
    queue(&up, "moving", json!({}), "shared").await;
    let quota = json!([{"op": "replace", "path": "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota",
        "value": MOVING.to_string()}]);
    up.api.patch(CLUSTER_QUEUES, "", "moving", "", PatchKind::Json, &quota).await.unwrap();
    let (a, b) = (leader(&up, "a"), leader(&up, "b"));
    led_by(&up, "a").await;
    let moves = json!({"metadata": {"annotations": {"plimsoll.dev/move-to": "a"}}});
    patch(&up, COHORTS, "shared", &moves).await;
    patch(&up, NODES, "a-0", &moves).await;
    led_by(&up, "a").await;
    up.until("the node stays and says nothing", async |up| {
        json::annotation(&up.get(NODES, "", "a-0").await, "plimsoll.dev/move-to").is_none().then_some(())
    })
    .await;
    let names: Vec<String> = (0..24).map(|i| format!("job-{i}")).collect();
    // There, back by its label, and there again, while workloads come and others run.
    for (round, jobs) in names.chunks(8).enumerate() {
        for job in &jobs[..4] {
            submit(&up, job, "moving", 2, 2).await;
        }
        if round == 0 {
            up.until("the first leader has admitted one", async |up| {
                nodes_of(up, &jobs[0]).await.iter().any(|node| node.starts_with("a-")).then_some(())
            })
            .await;
        }
        let to = if round == 1 { "a" } else { "b" };
        let by = if round == 1 { ("labels", SHARD) } else { ("annotations", "plimsoll.dev/move-to") };
        patch(&up, COHORTS, "shared", &json!({"metadata": {by.0: {by.1: to}}})).await;
        for job in &jobs[4..] {
            submit(&up, job, "moving", 2, 2).await;
            assert!(used(&up, "moving").await <= MOVING);
        }
        led_by(&up, to).await;
        assert!(used(&up, "moving").await <= MOVING);
        let root = up.get(COHORTS, "", "shared").await;
        assert_eq!(json::label(&root, SHARD), to);
    }
    up.until_shown("all jobs complete", async |up| {
        let used = used(up, "moving").await;
        assert!(used <= MOVING, "{used}");
        let jobs = up.list(JOBS).await;
        let done = jobs.iter().filter(|job| json::is_true(job, "Complete")).count();
        if done == names.len() { Ok(()) } else { Err(format!("{:#?}", up.list(WORKLOADS).await)) }
    })
    .await;
    // The other leader has admitted, too.
    let mut shards = BTreeSet::new();
    for job in &names {
        shards.extend(nodes_of(&up, job).await.iter().filter_map(|node| node.get(..1).map(str::to_owned)));
    }
    assert_eq!(shards, set(&["a", "b"]));
    drop((a, b));
}

/// A name that is misspelt gives nothing to nobody: the shard keeps it until the move is called off.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_given_to_a_shard_without_a_leader() {
    let up = server().await;
    let mut a = leader(&up, "a");
    submit(&up, "before", "a", 1, 1).await;
    completes(&up, "before").await;
    let moves = |to: Value| json!({"metadata": {"annotations": {"plimsoll.dev/move-to": to}}});
    for (resource, name) in [(COHORTS, "root"), (NODES, "a-0")] {
        patch(&up, resource, name, &moves("nowhere".into())).await;
    }
    for kind in ["ClusterQueue", "Node"] {
        up.until(&format!("an Event says why the {kind} stays"), async |up| {
            let says = |e: &Value| e["reason"] == "ShardWithoutLeader" && e["regarding"]["kind"] == kind;
            up.list(EVENTS).await.iter().any(says).then_some(())
        })
        .await;
    }
    let why = "Can't admit new workloads: its tree moves to shard nowhere.";
    let queue = up
        .until("its condition says where to", async |up| {
            let queue = up.get(CLUSTER_QUEUES, "", "a").await;
            (condition(&queue, "Active") == ("False", "ShardMove", why)).then_some(queue)
        })
        .await;
    assert_eq!(json::annotation(&queue, "plimsoll.dev/led-by"), Some("a"));
    assert_eq!(json::label(&up.get(NODES, "", "a-0").await, SHARD), "a");
    for (resource, name) in [(COHORTS, "root"), (NODES, "a-0")] {
        patch(&up, resource, name, &moves(Value::Null)).await;
    }
    // Both nodes are needed.
    submit(&up, "after", "a", 6, 1).await;
    completes(&up, "after").await;
    assert_eq!(nodes_of(&up, "after").await, set(&["a-0", "a-1"]));
    assert_eq!(a.terminate(), Some(0), "{}", a.log());
}

/// The leader of a shard that is gone for good gives nothing: an administrator says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_a_shard_that_is_gone_is_freed_by_hand() {
    let up = server().await;
    let (mut a, mut b) = (leader(&up, "a"), leader(&up, "b"));
    submit(&up, "before", "a", 1, 2).await;
    completes(&up, "before").await;
    assert_eq!(a.terminate(), Some(0), "{}", a.log());
    patch(&up, COHORTS, "root", &json!({"metadata": {"labels": {SHARD: "b"}}})).await;
    submit(&up, "after", "a", 1, 2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(workload(&up, "after").await.is_none(), "nobody decides with it");
    for (resource, name) in [(COHORTS, "root"), (CLUSTER_QUEUES, "a")] {
        let led = json!({"metadata": {"annotations": {"plimsoll.dev/led-by": null}}});
        patch(&up, resource, name, &led).await;
    }
    completes(&up, "after").await;
    assert_eq!(b.terminate(), Some(0), "{}", b.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_does_not_lead_beside_a_process_without_shards() {
    let up = server().await;
    let (mut whole, line) = Run::start(&up.kubeconfig, &[]);
    assert!(line["leader"] == true || whole.line()["leader"] == true);
    assert_eq!(line["shard"], Value::Null);
    let (mut shard, line) = Run::start(&up.kubeconfig, &["--shard", "a"]);
    assert_eq!(line["leader"], false);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(up.api.get(LEASES, "kube-system", "plimsoll-a").await.unwrap_err().is_not_found());
    assert_eq!(whole.terminate(), Some(0), "{}", whole.log());
    assert_eq!(shard.line()["leader"], true);
    let (mut again, line) = Run::start(&up.kubeconfig, &[]);
    assert!(line["leader"] == true || again.line()["leader"] == true);
    assert_eq!(shard.ended(), Some(1));
    assert!(shard.log().contains("leads without --shard"), "{}", shard.log());
    assert_eq!(again.terminate(), Some(0), "{}", again.log());
}

#[test]
fn shards_have_names_and_queues() {
    let run = |args: &[&str]| {
        let out = crate::common::binary().arg("run").args(args).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, text) = run(&["--shard", "A"]);
    assert!(code == Some(2) && text.contains("lower-case letters"), "{text}");
    let (code, text) = run(&["--shard", "a", "--placement"]);
    assert!(code == Some(1) && text.contains("shards are made of queues, too"), "{text}");
    let service = ["--shard", "a", "--visibility-port", "0", "--visibility-service", "s"];
    let (code, text) = run(&service);
    assert!(code == Some(2) && text.contains("cannot be used with"), "{text}");
}
