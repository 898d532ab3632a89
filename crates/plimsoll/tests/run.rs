//! `plimsoll run` as a cluster's user has it: another process than the API server, a kubeconfig between them.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Up, assert_within_quota, job, queue};
use plimsoll_runtime::api::{CLUSTER_QUEUES, JOBS, LEASES, LOCAL_QUEUES, PODS, WORKLOADS};
use plimsoll_runtime::json;
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A running `plimsoll run`.
struct Run {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    log: PathBuf,
}

impl Run {
    /// Starts it and waits for its first line.
    fn start(kubeconfig: &Path, args: &[&str]) -> (Self, Value) {
        let log = common::directory().join("log");
        let mut child = common::binary()
            .args(["--log", "warn,plimsoll_runtime=info", "run", "--output", "json", "--kubeconfig"])
            .arg(kubeconfig)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut run = Self { child, out, log };
        let first = run.line();
        (run, first)
    }

    /// The next line on standard output; waits for it.
    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}\n{}", self.log()))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn terminate(&mut self) -> Option<i32> {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(dir) = self.log.parent() {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

/// The API server, controllers and simulated nodes alone.
async fn server(args: &[&str]) -> Up {
    Up::start(&[&["--no-scheduler"], args].concat()).await
}

fn complete(object: &Value) -> bool {
    json::is_true(object, "Complete")
}

/// What holds at every moment: quota is kept, and no workload gets it twice.
#[derive(Default)]
struct Watchdog {
    admitted: BTreeMap<String, String>,
}

impl Watchdog {
    async fn look(&mut self, up: &Up) {
        let workloads = up.list(WORKLOADS).await;
        assert_within_quota(&up.list(CLUSTER_QUEUES).await, &workloads);
        for wl in &workloads {
            let Some(c) = json::condition(wl, "QuotaReserved").filter(|c| c["status"] == "True") else {
                continue;
            };
            let since = json::text(c, &["lastTransitionTime"]).to_owned();
            let first = self.admitted.entry(json::uid(wl).to_owned()).or_insert_with(|| since.clone());
            assert_eq!(*first, since, "{} was admitted twice", json::name(wl));
        }
    }
}

/// Every Job has one workload and as many pods as it asked for, all are done, and no quota is held.
async fn settled(up: &Up, jobs: usize) {
    let mut watchdog = Watchdog::default();
    up.until("all jobs complete", async |up| {
        watchdog.look(up).await;
        let all = up.list(JOBS).await;
        (all.len() == jobs && all.iter().all(complete)).then_some(())
    })
    .await;
    let zero = |object: &Value| {
        let rows = ["flavorsReservation", "flavorsUsage"]
            .into_iter()
            .flat_map(|k| json::list(object, &["status", k]))
            .flat_map(|f| json::list(f, &["resources"]));
        let counts = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"];
        rows.count() > 0 && counts.iter().all(|k| json::int(object, &["status", k]).unwrap_or(0) == 0)
    };
    let empty = |object: &Value| {
        ["flavorsReservation", "flavorsUsage"]
            .into_iter()
            .flat_map(|k| json::list(object, &["status", k]))
            .flat_map(|f| json::list(f, &["resources"]))
            .all(|r| r["total"] == "0")
    };
    up.until_shown("usage is zero", async |up| {
        let queues = [up.list(CLUSTER_QUEUES).await, up.list(LOCAL_QUEUES).await].concat();
        if !queues.is_empty() && queues.iter().all(|q| zero(q) && empty(q)) {
            return Ok(());
        }
        Err(format!("{queues:#?}"))
    })
    .await;
    let (pods, workloads) = (up.list(PODS).await, up.list(WORKLOADS).await);
    for job in up.list(JOBS).await {
        let owned = |o: &&Value| json::controller(o).is_some_and(|c| c["uid"] == json::uid(&job));
        let mine = pods.iter().filter(owned).count();
        assert_eq!(
            Some(mine as i64),
            json::int(&job, &["spec", "completions"]),
            "pods of {}",
            json::name(&job)
        );
        assert_eq!(workloads.iter().filter(owned).count(), 1, "workloads of {}", json::name(&job));
    }
}

fn quickstart() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quickstart.yaml");
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_completes_through_the_front_door() {
    let up = server(&["--speed", "10"]).await;
    let (mut run, first) = Run::start(&up.kubeconfig, &["--leader-elect=false"]);
    assert_eq!(first["leader"], true, "{first}");
    up.apply(&quickstart()).await;
    settled(&up, 6).await;
    assert_eq!(run.terminate(), Some(0), "{}", run.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_engine_nothing_is_placed() {
    let up = server(&["--speed", "10"]).await;
    up.apply(&queue(2)).await;
    up.create(&common::pod("alone", &json!({}), 1)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pod = up.get(PODS, "team", "alone").await;
    assert_eq!(json::text(&pod, &["spec", "nodeName"]), "");
    assert!(pod["status"]["conditions"].as_array().is_none_or(Vec::is_empty), "{pod}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_the_engine_lose_nothing_and_admit_nothing_twice() {
    let up = server(&["--speed", "4"]).await;
    up.apply(&queue(3)).await;
    let mut watchdog = Watchdog::default();
    let mut next = 0;
    for round in 0..6u64 {
        let (mut run, _) = Run::start(&up.kubeconfig, &["--leader-elect=false"]);
        let until = Instant::now() + Duration::from_millis(400 + 370 * round % 900);
        while Instant::now() < until {
            if next < 12 {
                up.create(&job(&format!("job-{next}"), &json!({QUEUE: "main"}), 1 + next % 2, 3))
                    .await
                    .unwrap();
                next += 1;
            }
            watchdog.look(&up).await;
        }
        run.kill();
    }
    let (_run, _) = Run::start(&up.kubeconfig, &["--leader-elect=false"]);
    up.until("all complete", async |up| {
        watchdog.look(up).await;
        up.list(JOBS).await.iter().all(complete).then_some(())
    })
    .await;
    settled(&up, next as usize).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_a_restart_of_the_server() {
    let dir = common::directory();
    let data = dir.join("data");
    let data = data.to_str().unwrap().to_owned();
    let args = ["--no-scheduler", "--data", &data, "--speed", "4"];
    let mut up = Up::start_in(dir, &args).await;
    // The same address every time, as a cluster has it.
    let port = json::text(&up.ready, &["url"]).rsplit(':').next().unwrap().to_owned();
    let args = [&args[..], &["--port", &port]].concat();
    up.apply(&queue(3)).await;
    // Longer than the server is away.
    let times = ["--leader-elect-lease-duration", "90s", "--leader-elect-renew-deadline", "80s"];
    let (mut run, _) = Run::start(&up.kubeconfig, &times);
    for round in 0..3 {
        for i in 0..3 {
            up.create(&job(&format!("job-{round}-{i}"), &json!({QUEUE: "main"}), 2, 3)).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(700 + 400 * round)).await;
        up.kill();
        let old = std::mem::replace(&mut up.dir, std::env::temp_dir().join("plimsoll-test-none"));
        drop(up);
        tokio::time::sleep(Duration::from_millis(300)).await;
        up = Up::start_in(old, &args).await;
    }
    settled(&up, 9).await;
    assert!(run.child.try_wait().unwrap().is_none(), "it ended: {}", run.log());
    assert_eq!(run.terminate(), Some(0), "{}", run.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_leads_and_another_takes_over() {
    let up = server(&["--speed", "10"]).await;
    up.apply(&queue(4)).await;
    let times = [
        "--leader-elect",
        "--leader-elect-lease-duration",
        "4s",
        "--leader-elect-renew-deadline",
        "3s",
        "--leader-elect-retry-period",
        "500ms",
    ];
    let (mut first, line) = Run::start(&up.kubeconfig, &times);
    assert!(line["leader"] == true || first.line()["leader"] == true);
    let holder = async |up: &Up| {
        let lease = up.get(LEASES, "kube-system", "plimsoll").await;
        json::text(&lease, &["spec", "holderIdentity"]).to_owned()
    };
    let before = holder(&up).await;
    assert!(before.contains(&format!("_{}_", first.child.id())), "{before}");
    let (mut second, line) = Run::start(&up.kubeconfig, &times);
    assert_eq!(line["leader"], false, "{line}");
    up.create(&job("a", &json!({QUEUE: "main"}), 2, 3)).await.unwrap();
    settled(&up, 1).await;
    assert_eq!(holder(&up).await, before, "the second only waits");
    up.create(&job("b", &json!({QUEUE: "main"}), 2, 30)).await.unwrap();
    first.kill();
    assert_eq!(second.line()["leader"], true);
    assert!(holder(&up).await.contains(&format!("_{}_", second.child.id())));
    up.create(&job("c", &json!({QUEUE: "main"}), 2, 3)).await.unwrap();
    settled(&up, 3).await;
    // An orderly end gives the Lease back, so the next one need not wait.
    assert_eq!(second.terminate(), Some(0), "{}", second.log());
    assert_eq!(holder(&up).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lost_the_lease_ends() {
    let up = server(&[]).await;
    let times = ["--leader-elect-retry-period", "300ms"];
    let (mut run, line) = Run::start(&up.kubeconfig, &times);
    assert!(line["leader"] == true || run.line()["leader"] == true);
    let mut lease = up.get(LEASES, "kube-system", "plimsoll").await;
    loop {
        json::set(&mut lease, &["spec", "holderIdentity"], json!("somebody-else"));
        match up.api.replace(LEASES, &lease).await {
            Ok(_) => break,
            Err(_) => lease = up.get(LEASES, "kube-system", "plimsoll").await,
        }
    }
    assert_eq!(run.child.wait().unwrap().code(), Some(1));
    assert!(run.log().contains("error: leaderelection lost"), "{}", run.log());
}

#[test]
fn its_errors_are_clear() {
    let run = |args: &[&str]| {
        let out = common::binary().arg("run").args(args).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, text) = run(&["--kubeconfig", "/nowhere/kubeconfig"]);
    assert!(code == Some(1) && text.contains("/nowhere/kubeconfig"), "{text}");
    let (code, text) = run(&["--leader-elect-lease-duration", "5s"]);
    assert!(code == Some(1) && text.contains("leaseDuration must be greater than renewDeadline"), "{text}");
}
