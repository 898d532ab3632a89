//! What happens when a part of the program panics: it is started again and counted, or the process ends and says why.
//! Debug builds panic where `PLIMSOLL_PANIC` tells them to.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::run::{Run, get};
use crate::common::{PATIENCE, Up, job, process, queue};
use plimsoll_api::json;
use plimsoll_runtime::api::{Api, Error, JOBS, Resource};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const MAPS: Resource = Resource { api_version: "v1", plural: "configmaps", kind: "ConfigMap" };

/// Starts `run` with these panics beside a server of its own.
async fn start(panics: &str) -> (Up, Run, String) {
    let up = Up::start(&["--no-scheduler", "--speed", "10"]).await;
    up.apply(&queue(4)).await;
    let (run, first) = Run::start_with(&up.kubeconfig, &["--leader-elect=false"], panics);
    let metrics = json::text(&first, &["metrics"]).to_owned();
    (up, run, metrics)
}

async fn create(api: &Api, name: &str) {
    let mut job = job(name, &json!({QUEUE: "main"}), 1, 1);
    job["spec"]["suspend"] = true.into();
    api.create(JOBS, &job).await.unwrap();
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<(), String>) {
    let began = Instant::now();
    while let Err(seen) = holds().await {
        assert!(
            began.elapsed() < PATIENCE,
            "waited too long: {what}
seen: {seen}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn complete(api: &Api, jobs: &[&str]) {
    for name in jobs {
        until("the job completes", async || {
            let job = api.get(JOBS, "team", name).await.unwrap();
            json::is_true(&job, "Complete").then_some(()).ok_or_else(|| job.to_string())
        })
        .await;
    }
}

fn restarts(metrics: &str, task: &str) -> String {
    let text = get(metrics, "/metrics").1;
    let start = format!("plimsoll_task_restarts_total{{task=\"{task}\"}} ");
    text.lines().find_map(|l| l.strip_prefix(&start)).unwrap_or("none").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_makes_a_controller_panic_does_not_stop_the_others() {
    let (up, mut run, metrics) = start("reconcile:poisoned*3,watch:seen*2").await;
    for name in ["poisoned", "healthy", "seen"] {
        create(&up.api, name).await;
    }
    complete(&up.api, &["healthy", "seen", "poisoned"]).await;
    assert_eq!(restarts(&metrics, "job controllers"), "3");
    assert_eq!(restarts(&metrics, "watch of jobs"), "2");
    assert_eq!(get(&metrics, "/readyz"), (200, "ok".into()));
    assert!(run.log().contains("injected at reconcile poisoned"), "{}", run.log());
    assert_eq!(run.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_panics_all_the_time_makes_the_process_not_ready() {
    let (up, _run, metrics) = start("watch:poisoned").await;
    create(&up.api, "before").await;
    complete(&up.api, &["before"]).await;
    create(&up.api, "poisoned").await;
    until("it is not ready", async || match get(&metrics, "/readyz") {
        (500, text)
            if text.contains("[-]tasks failed: watch of jobs panicked and waits to be started again") =>
        {
            Ok(())
        }
        (_, text) => Err(text),
    })
    .await;
    assert_eq!(get(&metrics, "/healthz").0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_engine_ends_the_process() {
    let (_up, mut run, _) = start("engine").await;
    assert_eq!(run.ended(), Some(1));
    let log = run.log();
    assert!(log.contains("error: the engine thread panicked: injected at engine"), "{log}");
}

/// `up` with panics: the process, and what it says when it is ready. Its standard error goes into `dir`.
fn up_with(panics: &str, dir: &std::path::Path, args: &[&str]) -> (std::process::Child, Value) {
    let mut child = crate::common::binary()
        .args(["up", "--output", "json", "--port", "0", "--speed", "10", "--kubeconfig"])
        .arg(dir.join("kubeconfig"))
        .args(args)
        .env("PLIMSOLL_PANIC", panics)
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(dir.join("log")).unwrap())
        .spawn()
        .unwrap();
    let line = process::Lines::of(child.stdout.take().unwrap()).next();
    (child, serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}")))
}

async fn client(dir: &std::path::Path) -> Api {
    let file = kube::config::Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    plimsoll_runtime::connect::api(config, "test").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_and_kubelets_of_a_control_plane_are_started_again() {
    let dir = crate::common::directory();
    let panics = "controller:job*2,controller:cronjob,sync:team/healthy*2,kubelets*1";
    let (mut child, ready) = up_with(panics, &dir, &["--metrics-bind-address", "127.0.0.1:0"]);
    let api = client(&dir).await;
    for object in serde_saphyr::from_multiple::<Value>(&queue(4)).unwrap() {
        api.create(crate::common::resource(&object), &object).await.unwrap();
    }
    create(&api, "healthy").await;
    complete(&api, &["healthy"]).await;
    let metrics = json::text(&ready, &["metrics"]);
    assert_eq!((restarts(metrics, "job"), restarts(metrics, "kubelets")), ("2".into(), "1".into()));
    let text = get(metrics, "/readyz").1;
    assert!(text.contains("[-]tasks failed: cronjob panicked and waits to be started again"), "{text}");
    process::kill(&mut child);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_journal_ends_the_process_and_keeps_what_was_acknowledged() {
    let dir = crate::common::directory();
    let data = dir.join("data");
    let args = ["--no-scheduler", "--data", data.to_str().unwrap()];
    let (mut child, _) = up_with("journal:poisoned", &dir, &args);
    let api = client(&dir).await;
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
    api.create(MAPS, &map("kept")).await.unwrap();
    let refused = api.create(MAPS, &map("poisoned")).await.unwrap_err();
    assert!(matches!(refused, Error::Status { code: 500.., .. } | Error::Transport(_)), "{refused}");
    let code = process::ended(&mut child);
    let text = std::fs::read_to_string(dir.join("log")).unwrap();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("error: the journal thread panicked: injected at journal poisoned"), "{text}");
    let (mut child, _) = up_with("", &dir, &args);
    let api = client(&dir).await;
    api.get(MAPS, "default", "kept").await.unwrap();
    assert!(api.get(MAPS, "default", "poisoned").await.unwrap_err().is_not_found());
    process::kill(&mut child);
}

/// Without a listener nobody gets in, and without its thread the audit log lacks requests that were answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_the_listener_or_of_the_audit_log_ends_the_process() {
    for (place, reason) in [
        ("listener", "error: the listener of the API server has ended: "),
        ("audit", "error: the audit log's thread has ended"),
    ] {
        let dir = crate::common::directory();
        let policy = "{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}";
        std::fs::write(dir.join("policy"), policy).unwrap();
        let paths = ["audit.log", "policy"].map(|name| dir.join(name).to_str().unwrap().to_owned());
        let args = ["--no-scheduler", "--audit-log-path", &paths[0], "--audit-policy-file", &paths[1]];
        let (mut child, _) = up_with(place, &dir, &args);
        // The answer, if there is one, is of no account.
        let _ = client(&dir).await.get(MAPS, "default", "any").await;
        let code = process::ended(&mut child);
        let text = std::fs::read_to_string(dir.join("log")).unwrap();
        assert_eq!(code, Some(1), "{place}: {text}");
        assert!(text.contains(reason), "{place}: {text}");
    }
}
