//! How `plimsoll run` ends when much of what it wants to write has to wait.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{PipeReader, PipeWriter, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::process::{self, Lines};
use crate::common::{Up, binary, job, queue};
use plimsoll_api::json;
use plimsoll_runtime::api::{LEASES, WORKLOADS};
use serde_json::json;

/// A client that may write so little that the Jobs below would keep it busy for minutes.
const SLOW: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                    clientConnection: {qps: 1, burst: 10}\n";
const JOBS: u32 = 150;

/// A standard output that takes nothing until it is read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mine = writer.try_clone().unwrap();
    // Pipes have room for 64 KiB, or for less when a user has many: the write that doesn't end has filled it, too.
    let filled = std::thread::spawn(move || writer.write_all(&[b'\n'; 64 << 10]));
    std::thread::sleep(Duration::from_millis(100));
    drop(filled);
    (reader, mine)
}

/// The signal comes between two waits of the process, while it says that it is ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_is_not_lost_while_the_process_starts() {
    let up = Up::start(&["--no-scheduler", "--nodes", "1"]).await;
    let (mut reader, writer) = full_pipe();
    let log = up.dir.join("log");
    let mut run = binary()
        .args(["--log", "info", "run", "--metrics-bind-address", "0", "--kubeconfig"])
        .arg(&up.kubeconfig)
        .stdout(writer)
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let shown = || std::fs::read_to_string(&log).unwrap_or_default();
    up.until("it is ready", async |_| shown().contains(" Ready ").then_some(())).await;
    process::signal(&run, "TERM");
    std::thread::sleep(Duration::from_millis(100));
    std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    assert_eq!(process::ended(&mut run), Some(0), "{}", shown());
}

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
    let lines = Lines::of(run.stdout.take().unwrap());
    while !lines.next().contains("\"leader\":true") {
        assert!(run.try_wait().unwrap().is_none(), "the process ended");
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
    process::signal(&run, "INT");
    let code = process::ended(&mut run);
    assert!(began.elapsed() < Duration::from_secs(10), "ended after {:?}", began.elapsed());
    assert_eq!(code, Some(0));
    let made = up.list(WORKLOADS).await.len();
    assert!(made < JOBS as usize, "nothing had to wait: {made}");
    let lease = up.get(LEASES, "kube-system", "plimsoll").await;
    assert_eq!(json::text(&lease, &["spec", "holderIdentity"]), "", "{lease}");
}
