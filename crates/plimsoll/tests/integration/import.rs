//! `plimsoll import`: pods that run already hold quota.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Output;

use crate::common::run::Run;
use crate::common::{Up, condition, directory, pod, queue};
use plimsoll_api::json;
use plimsoll_runtime::api::{CLUSTER_QUEUES, PODS, WORKLOADS};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const MANAGED: &str = "kueue.x-k8s.io/managed";

fn import(up: &Up, args: &[&str]) -> (bool, String, String) {
    let mut command = crate::common::binary();
    command.args(["import", "--kubeconfig"]).arg(&up.kubeconfig).args(["-n", "team"]).args(args);
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.success(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

async fn pods_run(up: &Up) {
    up.until("all pods run", async |up| {
        let pods = up.list(PODS).await;
        pods.iter().all(|p| json::text(p, &["status", "phase"]) == "Running").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn running_pods_hold_quota_after_their_import() {
    let up = Up::start(&["--no-scheduler", "--nodes", "1"]).await;
    up.apply(&queue(2)).await;
    for (name, source) in [("one", "a"), ("two", "a"), ("other", "b")] {
        let mut pod = pod(name, &json!({"src": source}), 3600);
        pod["spec"]["nodeName"] = json!("node-0");
        up.create(&pod).await.unwrap();
    }
    pods_run(&up).await;

    let (done, _, said) = import(&up, &["--queuelabel", "src", "--queuemapping", "a=main"]);
    assert!(
        !done && said.contains("Validation failed for 1 pods, first team/other: no mapping found"),
        "{said}"
    );
    let (done, _, said) = import(&up, &["--queuelabel", "src"]);
    assert!(!done && said.contains("--queuemapping"), "{said}");

    let dir = directory();
    let file = dir.join("rules.yaml");
    std::fs::write(
        &file,
        "- {match: {labels: {src: a}}, toLocalQueue: main}\n- {match: {labels: {src: b}}, skip: true}\n",
    )
    .unwrap();
    let rules = ["--queuemapping-file", file.to_str().unwrap(), "--add-labels", "team=x"];
    let (done, text, said) = import(&up, &rules);
    assert!(
        done && text.starts_with("Check done: 3 pods, 1 skipped, 0 failed\n\"dry-run\" is enabled"),
        "{text}{said}"
    );
    assert!(up.list(WORKLOADS).await.is_empty(), "nothing is written");

    let args = [&rules[..], &["--dry-run=false"]].concat();
    let (done, text, said) = import(&up, &args);
    assert!(done && text.ends_with("Import done: 3 pods, 1 skipped, 0 failed\n"), "{text}{said}");
    let imported = up.list(WORKLOADS).await;
    assert_eq!(imported.len(), 2);
    for w in &imported {
        let want = ("True", "Imported", "Imported into ClusterQueue cq");
        assert_eq!((condition(w, "QuotaReserved"), condition(w, "Admitted")), (want, want));
        let row = &w["status"]["admission"]["podSetAssignments"][0];
        assert_eq!((&row["flavors"]["cpu"], &row["resourceUsage"]["cpu"]), (&json!("any"), &json!("1")));
        let pod = up.get(PODS, "team", json::text(&w["metadata"]["ownerReferences"][0], &["name"])).await;
        let label = |key: &str| json::label(&pod, key).to_owned();
        assert_eq!([label(QUEUE), label(MANAGED), label("team")], ["main", "true", "x"]);
    }
    assert!(json::label_opt(&up.get(PODS, "team", "other").await, QUEUE).is_none());
    let (done, _, said) = import(&up, &args);
    assert!(done, "{said}");
    assert_eq!(up.list(WORKLOADS).await, imported, "a second import changes nothing");
    let _ = std::fs::remove_dir_all(dir);

    // The queue manager that starts now counts them.
    let (_run, _) =
        Run::start(&up.kubeconfig, &["--queueing", "--leader-elect=false", "--webhook-port", "0"]);
    let mut third = pod("third", &json!({QUEUE: "main", MANAGED: "true"}), 3600);
    third["metadata"]["finalizers"] = json!([MANAGED]);
    third["spec"]["schedulingGates"] = json!([{"name": "kueue.x-k8s.io/admission"}]);
    up.create(&third).await.unwrap();
    let of = |all: &[Value], pod: &str| {
        let owned = |w: &&Value| w["metadata"]["ownerReferences"][0]["name"] == pod;
        all.iter().find(owned).cloned()
    };
    up.until("the third pod waits for quota", async |up| {
        let third = of(&up.list(WORKLOADS).await, "third")?;
        (condition(&third, "QuotaReserved").0 == "False").then_some(())
    })
    .await;
    up.until("the ClusterQueue counts two workloads", async |up| {
        (up.get(CLUSTER_QUEUES, "", "cq").await["status"]["admittedWorkloads"] == 2).then_some(())
    })
    .await;
    up.api.delete(PODS, "team", "two", "", None).await.unwrap();
    up.until("the third pod has the quota", async |up| {
        json::is_true(&of(&up.list(WORKLOADS).await, "third")?, "Admitted").then_some(())
    })
    .await;
    let now = of(&up.list(WORKLOADS).await, "one").unwrap();
    let before = of(&imported, "one").unwrap();
    assert_eq!(
        (json::uid(&now), condition(&now, "Admitted")),
        (json::uid(&before), condition(&before, "Admitted"))
    );
    assert_eq!(up.get(PODS, "team", "one").await["status"]["phase"], "Running");
}
