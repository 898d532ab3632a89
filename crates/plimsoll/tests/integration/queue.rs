//! `plimsoll queue`: kueuectl's commands against a control plane.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::common::{Up, suspended_job};
use plimsoll_api::json;
use plimsoll_runtime::api::{CLUSTER_QUEUES, FLAVORS, JOBS, LOCAL_QUEUES, WORKLOADS};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

fn command(up: &Up, args: &[&str]) -> Command {
    let mut command = crate::common::binary();
    command.args(["queue", "--kubeconfig"]).arg(&up.kubeconfig).args(args);
    command
}

fn run(up: &Up, args: &[&str]) -> Output {
    command(up, args).output().unwrap()
}

/// Standard output of a command that succeeds.
fn ok(up: &Up, args: &[&str]) -> String {
    let out = run(up, args);
    let (text, error) =
        (String::from_utf8(out.stdout).unwrap(), String::from_utf8_lossy(&out.stderr).into_owned());
    assert!(out.status.success(), "{args:?}: {error}");
    text.trim_end().to_owned()
}

/// Standard error of a command that fails.
fn err(up: &Up, args: &[&str]) -> String {
    let out = run(up, args);
    assert!(!out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stdout));
    String::from_utf8_lossy(&out.stderr).trim_end().to_owned()
}

/// Cells of a table's lines. Columns are at least three spaces apart.
fn cells(table: &str) -> Vec<Vec<String>> {
    let starts: Vec<usize> = {
        let head = table.lines().next().unwrap();
        let word =
            |&(i, _): &(usize, char)| i == 0 || head[..i].ends_with("  ") && !head[i..].starts_with(' ');
        head.char_indices().filter(word).map(|(i, _)| i).collect()
    };
    let line = |line: &str| {
        let ends = starts.iter().skip(1).copied().chain([usize::MAX]);
        let cell =
            |(from, to): (usize, usize)| line.get(from..to.min(line.len())).unwrap_or("").trim().to_owned();
        starts.iter().copied().zip(ends).map(cell).collect()
    };
    table.lines().map(line).collect()
}

async fn queues(up: &Up) {
    up.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n").await;
    assert_eq!(
        ok(up, &["create", "resourceflavor", "any", "--node-labels", "kubernetes.io/os=linux"]),
        "resourceflavor.kueue.x-k8s.io/any created"
    );
    let quota = ["--nominal-quota", "any:cpu=1;memory=36Gi", "--borrowing-limit", "any:cpu=2;memory=1Gi"];
    let head = ["create", "clusterqueue", "cq", "--cohort", "all", "--queuing-strategy", "StrictFIFO"];
    assert_eq!(ok(up, &[&head[..], &quota[..]].concat()), "clusterqueue.kueue.x-k8s.io/cq created");
    assert_eq!(
        ok(up, &["create", "lq", "main", "-c", "cq", "-n", "team"]),
        "localqueue.kueue.x-k8s.io/main created"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_and_flavors_are_created_listed_stopped_and_resumed() {
    let up = Up::start(&["--nodes", "1"]).await;
    queues(&up).await;
    let spec = up.get(CLUSTER_QUEUES, "", "cq").await["spec"].clone();
    assert_eq!((&spec["cohortName"], &spec["queueingStrategy"]), (&json!("all"), &json!("StrictFIFO")));
    let flavor = &spec["resourceGroups"][0]["flavors"][0];
    assert_eq!(
        flavor["resources"][1],
        json!({"name": "memory", "nominalQuota": "36Gi", "borrowingLimit": "1Gi"})
    );
    ok(&up, &["create", "rf", "other", "--node-labels", "b=c,a=b", "--tolerations", "x:NoSchedule"]);
    let other = up.get(FLAVORS, "", "other").await["spec"].clone();
    assert_eq!(
        (&other["nodeLabels"]["a"], &other["tolerations"][0]["operator"]),
        (&json!("b"), &json!("Exists"))
    );

    let unknown = err(&up, &["create", "localqueue", "other", "-c", "none", "-n", "team"]);
    assert!(unknown.contains("clusterqueues.kueue.x-k8s.io \"none\" not found"), "{unknown}");
    ok(&up, &["create", "localqueue", "other", "-c", "none", "-i", "-n", "team"]);
    let dry = ok(&up, &["create", "localqueue", "dry", "-c", "cq", "-n", "team", "--dry-run", "server"]);
    assert_eq!(dry, "localqueue.kueue.x-k8s.io/dry created (server dry run)");
    let printed =
        ok(&up, &["create", "lq", "dry", "-c", "cq", "-n", "team", "--dry-run", "client", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&printed).unwrap()["spec"]["clusterQueue"], "cq");
    let wrong = err(&up, &["create", "cq", "x", "--nominal-quota", "any"]);
    assert!(wrong.contains("invalid resources specification"), "{wrong}");

    up.until("the ClusterQueue is active", async |up| {
        json::is_true(&up.get(CLUSTER_QUEUES, "", "cq").await, "Active").then_some(())
    })
    .await;
    let table = cells(&ok(&up, &["list", "clusterqueue"]));
    assert_eq!(table[0], ["NAME", "COHORT", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "ACTIVE", "AGE"]);
    assert_eq!(table[1][..5], ["cq", "all", "0", "0", "true"]);
    assert_eq!(run(&up, &["list", "cq", "--active", "false"]).stderr, b"No resources found\n");
    assert!(
        err(&up, &["list", "cq", "--active", "true,false"]).contains("only one active flag can be provided")
    );
    let table = cells(&ok(&up, &["list", "localqueue", "-A", "-c", "none"]));
    assert_eq!(
        table[0],
        ["NAMESPACE", "NAME", "CLUSTERQUEUE", "PENDING WORKLOADS", "ADMITTED WORKLOADS", "AGE"]
    );
    assert_eq!(table[1][..3], ["team", "other", "none"]);
    assert_eq!(table.len(), 2);
    assert_eq!(cells(&ok(&up, &["list", "rf"]))[2][..2], ["other", "a=b, b=c"]);
    let named = ok(&up, &["list", "lq", "-n", "team", "-o", "name"]);
    assert_eq!(named, "localqueue.kueue.x-k8s.io/main\nlocalqueue.kueue.x-k8s.io/other");

    assert_eq!(ok(&up, &["stop", "clusterqueue", "cq"]), "clusterqueue.kueue.x-k8s.io/cq");
    assert_eq!(up.get(CLUSTER_QUEUES, "", "cq").await["spec"]["stopPolicy"], "HoldAndDrain");
    ok(&up, &["stop", "cq", "cq", "--keep-already-running"]);
    assert_eq!(up.get(CLUSTER_QUEUES, "", "cq").await["spec"]["stopPolicy"], "Hold");
    ok(&up, &["resume", "cq", "cq"]);
    assert_eq!(up.get(CLUSTER_QUEUES, "", "cq").await["spec"]["stopPolicy"], "None");
    ok(&up, &["stop", "lq", "main", "-n", "team"]);
    assert_eq!(up.get(LOCAL_QUEUES, "team", "main").await["spec"]["stopPolicy"], "HoldAndDrain");
    ok(&up, &["resume", "lq", "main", "-n", "team"]);
    assert!(err(&up, &["stop", "cq", "none"]).contains("clusterqueues.kueue.x-k8s.io \"none\" not found"));
}

#[tokio::test(flavor = "multi_thread")]
async fn workloads_are_listed_with_their_position_and_stopped_and_deleted() {
    let up = Up::start(&["--nodes", "1"]).await;
    queues(&up).await;
    up.create(&suspended_job("runs", &json!({QUEUE: "main"}), 1, 3600)).await.unwrap();
    up.until("the first job is admitted", async |up| {
        up.list(WORKLOADS).await.iter().any(|w| json::is_true(w, "Admitted")).then_some(())
    })
    .await;
    let mut waits = suspended_job("waits", &json!({QUEUE: "main"}), 2, 3600);
    waits["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = json!("1Gi");
    up.create(&waits).await.unwrap();
    // Those of a higher priority go first.
    up.apply("apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: high}\nvalue: 100\n").await;
    let labels = json!({QUEUE: "main", "kueue.x-k8s.io/priority-class": "high"});
    let mut first = waits.clone();
    first["metadata"] = json!({"name": "first", "namespace": "team", "labels": labels});
    up.create(&first).await.unwrap();
    let rows = |args: &[&str]| -> Vec<Vec<String>> {
        let table = cells(&ok(&up, &[&["list", "workload", "-n", "team"], args].concat()));
        table.into_iter().skip(1).map(|row| row[1..7].to_vec()).collect()
    };
    let row = |job: &str, status: &str, position: &str| {
        ["job", job, "main", "cq", status, position].map(str::to_owned).to_vec()
    };
    let want = [row("first", "PENDING", "0"), row("runs", "ADMITTED", ""), row("waits", "PENDING", "1")];
    up.until_shown("both wait in order", async |_| {
        let rows = rows(&[]);
        if rows == want { Ok(()) } else { Err(format!("{rows:?}")) }
    })
    .await;
    let head = cells(&ok(&up, &["list", "kwl", "-n", "team"])).swap_remove(0);
    assert_eq!(
        head,
        [
            "NAME",
            "JOB TYPE",
            "JOB NAME",
            "LOCALQUEUE",
            "CLUSTERQUEUE",
            "STATUS",
            "POSITION IN QUEUE",
            "EXEC TIME",
            "AGE"
        ]
    );
    assert_eq!(rows(&["--status", "admitted"]), want[1..2]);
    assert_eq!(rows(&["--status", "pending", "--status", "admitted", "-q", "main"]), want);
    assert_eq!(rows(&["-c", "cq"]), want[1..2]);
    assert_eq!(rows(&["--for", "job/waits"]), want[2..]);
    assert_eq!(rows(&["--for", "jobs.batch/waits"]), want[2..]);
    assert!(err(&up, &["list", "workload", "--for", "train/x"]).contains("doesn't have a resource type"));
    assert!(err(&up, &["list", "workload", "--status", "x"]).contains("invalid status value (x)"));
    let none = run(&up, &["list", "workload", "-n", "default"]).stderr;
    assert_eq!(String::from_utf8_lossy(&none), "No resources found in default namespace.\n");
    up.until_shown("the job's pods are listed", async |_| {
        let pods = ok(&up, &["list", "pods", "--for", "job/runs", "-n", "team"]);
        if pods.lines().count() == 2 && pods.lines().nth(1).unwrap().starts_with("runs-") {
            Ok(())
        } else {
            Err(pods)
        }
    })
    .await;
    assert!(
        err(&up, &["list", "pods", "--for", "lq/main", "-n", "team"])
            .contains("unsupported kind: LocalQueue")
    );

    let name = cells(&ok(&up, &["list", "workload", "-n", "team", "--for", "job/runs"]))[1][0].clone();
    assert_eq!(
        ok(&up, &["stop", "workload", &name, "-n", "team"]),
        format!("workload.kueue.x-k8s.io/{name} stopped")
    );
    assert_eq!(up.get(WORKLOADS, "team", &name).await["spec"]["active"], false);
    assert_eq!(
        ok(&up, &["resume", "kwl", &name, "-n", "team"]),
        format!("workload.kueue.x-k8s.io/{name} resumed")
    );

    // The job goes, and the workload after it.
    let mut asked = command(&up, &["delete", "workload", &name, "-n", "team"]);
    let mut child = asked.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"n\n").unwrap();
    let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(
        text,
        format!(
            "This operation will also delete:\n  - jobs.batch/runs associated with the team/{name} workload\n\
             Do you want to proceed (y/n)? Deletion is canceled\n"
        )
    );
    assert_eq!(up.list(JOBS).await.len(), 3);
    let dry = ok(&up, &["delete", "kwl", &name, "-n", "team", "--dry-run", "client"]);
    assert_eq!(dry, "jobs.batch/runs deleted (client dry run)");
    assert_eq!(ok(&up, &["delete", "workload", &name, "-n", "team", "-y"]), "jobs.batch/runs deleted");
    up.until("the workload goes with its job", async |up| {
        let left = up.list(WORKLOADS).await;
        left.iter().all(|w| json::name(w) != name).then_some(())
    })
    .await;
    assert!(
        err(&up, &["delete", "workload", "-n", "team"])
            .contains("requires at least 1 arg(s), only received 0")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn other_commands_go_to_kubectl() {
    let up = Up::start(&["--nodes", "1"]).await;
    queues(&up).await;
    let refused = err(&up, &["get", "pods"]);
    assert!(
        refused.contains("unknown kind \"pods\"") && refused.contains("workload, clusterqueue"),
        "{refused}"
    );
    if Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        return;
    }
    assert_eq!(ok(&up, &["get", "clusterqueue", "cq", "-o", "name"]), "clusterqueue.kueue.x-k8s.io/cq");
    assert!(ok(&up, &["-n", "team", "describe", "localqueue", "main"]).contains("Cluster Queue:  cq"));
    let patch = ["patch", "rf", "any", "--type", "merge", "-p", "{\"spec\":{\"nodeLabels\":{\"a\":\"c\"}}}"];
    assert!(ok(&up, &patch).contains("patched"));
    assert!(ok(&up, &["-n", "team", "delete", "lq", "main"]).contains("deleted"));
    assert!(up.api.get(LOCAL_QUEUES, "team", "main").await.is_err());
}
