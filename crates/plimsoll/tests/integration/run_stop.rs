//! How `plimsoll run` ends when much of what it wants to write has to wait.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Up, binary, job, queue};
use plimsoll_api::json;
use plimsoll_runtime::api::{LEASES, WORKLOADS};
use serde_json::json;

/// A client that may write so little that the Jobs below would keep it busy for minutes.
const SLOW: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                    clientConnection: {qps: 1, burst: 10}\n";
const JOBS: u32 = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_drops_writes_that_wait_and_releases_the_lease() {
    let up = Up::start(&["--no-scheduler", "--nodes", "1"]).await;
    let config = up.dir.join("kueue.yaml");
    std::fs::write(&config, SLOW).unwrap();
    up.apply(&queue(1)).await;
    let mut run = binary()
        .args(["run", "--output", "json", "--kubeconfig"])
        .arg(&up.kubeconfig)
        .arg("--config")
        .arg(&config)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("\"leader\":true") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the process ended");
    }
    for n in 0..JOBS {
        let labels = json!({"kueue.x-k8s.io/queue-name": "main"});
        let mut job = job(&format!("j{n}"), &labels, 1, 1);
        job["spec"]["suspend"] = json!(true);
        up.create(&job).await.unwrap();
    }
    up.until("the limit is reached", async |up| (up.list(WORKLOADS).await.len() > 4).then_some(())).await;
    let lease = up.get(LEASES, "kube-system", "plimsoll").await;
    assert!(!json::text(&lease, &["spec", "holderIdentity"]).is_empty(), "{lease}");
    let began = Instant::now();
    assert!(Command::new("kill").args(["-INT", &run.id().to_string()]).status().unwrap().success());
    let ended = run.wait().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "ended after {:?}", began.elapsed());
    assert_eq!(ended.code(), Some(0));
    let made = up.list(WORKLOADS).await.len();
    assert!(made < JOBS as usize, "nothing had to wait: {made}");
    let lease = up.get(LEASES, "kube-system", "plimsoll").await;
    assert_eq!(json::text(&lease, &["spec", "holderIdentity"]), "", "{lease}");
}
