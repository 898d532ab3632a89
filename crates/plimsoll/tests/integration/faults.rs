//! `plimsoll run` behind a proxy that answers wrongly or not at all.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::proxy::{Fault, Proxy};
use crate::common::run::{Run, get};
use crate::common::{Up, pod, queue, suspended_job};
use plimsoll_api::json;
use plimsoll_runtime::api::{CLUSTER_QUEUES, JOBS, PODS, Resource};
use serde_json::{Value, json};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// A server, a proxy in front of it, and the engine behind the proxy.
struct Setup {
    up: Up,
    proxy: Proxy,
    run: Run,
    metrics: String,
}

impl Setup {
    async fn start(cpu: u32) -> Self {
        let up = Up::start(&["--no-scheduler", "--speed", "1"]).await;
        up.apply(&queue(cpu)).await;
        let proxy = Proxy::start(&up.kubeconfig, &up.dir).await;
        let (run, first) = Run::start(&proxy.kubeconfig, &["--leader-elect=false"]);
        let metrics = json::text(&first, &["metrics"]).to_owned();
        let setup = Self { up, proxy, run, metrics };
        setup.until_ready().await;
        setup
    }

    async fn until_ready(&self) {
        self.up
            .until_shown("it is ready", async |_| match get(&self.metrics, "/readyz") {
                (200, _) => Ok(()),
                (_, text) => Err(text),
            })
            .await;
    }

    /// Waits until readiness fails for this reason.
    async fn until_unready(&self, reason: &str) {
        self.up
            .until_shown(reason, async |_| match get(&self.metrics, "/readyz?verbose") {
                (500, text) if text.contains(reason) => Ok(()),
                (_, text) => Err(text),
            })
            .await;
    }

    async fn start_job(&self, name: &str, pods: u32) {
        self.up.create(&suspended_job(name, &json!({QUEUE: "main"}), pods, 3600)).await.unwrap();
    }

    /// Waits until this many pods run, and gives their UIDs.
    async fn running(&self, pods: usize) -> BTreeSet<String> {
        self.up
            .until(&format!("{pods} pods run"), async |up| {
                let all = up.list(PODS).await;
                let running = all.iter().filter(|p| json::text(p, &["status", "phase"]) == "Running");
                let uids: BTreeSet<String> = running.map(|p| json::uid(p).to_owned()).collect();
                (uids.len() == pods).then_some(uids)
            })
            .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_with_404_is_unknown_and_not_deleted() {
    let mut setup = Setup::start(4).await;
    setup.start_job("first", 2).await;
    let before = setup.running(2).await;
    setup.proxy.rule(|asked| match asked.about("workloads") {
        true => Fault::Status(404),
        false => Fault::None,
    });
    setup.until_unready("[-]watches failed: workloads.kueue.x-k8s.io is not served since").await;
    // Decided when the Workload can be seen again.
    setup.start_job("second", 2).await;
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        let job = setup.up.get(JOBS, "team", "first").await;
        assert_eq!(job["spec"]["suspend"], false, "{job}");
        assert_eq!(setup.running(2).await, before);
        assert_eq!(setup.up.get(JOBS, "team", "second").await["spec"]["suspend"], true);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(get(&setup.metrics, "/healthz").0, 200, "a restart would not help");
    setup.proxy.heal();
    setup.until_ready().await;
    let after = setup.running(4).await;
    assert!(after.is_superset(&before), "the same pods run: {before:?}, {after:?}");
    assert!(setup.run.log().contains("not served any more"), "{}", setup.run.log());
    assert_eq!(setup.run.terminate(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_start_a_404_is_no_empty_list_either() {
    let mut setup = Setup::start(4).await;
    setup.start_job("first", 2).await;
    let before = setup.running(2).await;
    setup.run.kill();
    setup.proxy.rule(|asked| match asked.about("workloads") || asked.about("clusterqueues") {
        true => Fault::Status(404),
        false => Fault::None,
    });
    let (run, first) = Run::start(&setup.proxy.kubeconfig, &["--leader-elect=false"]);
    setup.run = run;
    json::text(&first, &["metrics"]).clone_into(&mut setup.metrics);
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        assert_eq!(setup.up.get(JOBS, "team", "first").await["spec"]["suspend"], false);
        setup.until_unready("informer-sync").await;
    }
    setup.proxy.heal();
    setup.until_ready().await;
    assert_eq!(setup.running(2).await, before);
}

/// A replica whose watch of Workloads is late must not take a job that the leader before it started for one without quota.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_the_leader_before_started_runs_on() {
    let up = Up::start(&["--no-scheduler", "--speed", "1"]).await;
    up.apply(&queue(4)).await;
    let proxy = Proxy::start(&up.kubeconfig, &up.dir).await;
    // The lease has its usual length: see `run::one_leads_and_another_takes_over`.
    let args = ["--leader-elect-retry-period", "500ms"];
    let (mut first, line) = Run::start(&up.kubeconfig, &args);
    assert!(line["leader"] == true || first.line()["leader"] == true);
    let (mut second, line) = Run::start(&proxy.kubeconfig, &args);
    assert_eq!(line["leader"], false, "{line}");
    let metrics = json::text(&line, &["metrics"]).to_owned();
    up.until_shown("the second has seen everything", async |_| match get(&metrics, "/readyz?verbose") {
        (_, text) if text.contains("[-]informer-sync") => Err(text),
        _ => Ok(()),
    })
    .await;
    proxy.rule(|asked| match asked.watch && asked.about("workloads") {
        true => Fault::Hang,
        false => Fault::None,
    });
    let job = suspended_job("runs", &json!({QUEUE: "main"}), 2, 3600);
    up.create(&job).await.unwrap();
    let started = async |up: &Up| {
        let job = up.get(JOBS, "team", "runs").await;
        (job["spec"]["suspend"] == false && json::int(&job, &["status", "active"]) == Some(2)).then_some(())
    };
    up.until("the job runs", started).await;
    first.kill();
    assert_eq!(second.line()["leader"], true);
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        let job = up.get(JOBS, "team", "runs").await;
        assert_eq!(job["spec"]["suspend"], false, "{job}\n{}", second.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// It answers requests for webhooks and the visibility API, and is to take over.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_does_not_lead_is_not_ready_without_its_watches() {
    let up = Up::start(&["--no-scheduler", "--speed", "1"]).await;
    up.apply(&queue(4)).await;
    let proxy = Proxy::start(&up.kubeconfig, &up.dir).await;
    let (mut first, line) = Run::start(&up.kubeconfig, &[]);
    assert!(line["leader"] == true || first.line()["leader"] == true);
    let (run, line) = Run::start(&proxy.kubeconfig, &["--webhook-port", "0"]);
    assert_eq!(line["leader"], false, "{line}");
    let metrics = json::text(&line, &["metrics"]).to_owned();
    let setup = Setup { up, proxy, run, metrics };
    setup.until_ready().await;
    setup.proxy.rule(|asked| match asked.about("localqueues") {
        true => Fault::Status(404),
        false => Fault::None,
    });
    for check in ["watches", "webhook-watches"] {
        let reason = format!("[-]{check} failed: localqueues.kueue.x-k8s.io is not served since");
        setup.until_unready(&reason).await;
    }
    setup.proxy.heal();
    setup.until_ready().await;
}

/// The last status of a queue is not lost, though nothing changes any more when the server recovers.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_status_answered_with_404_is_written_again() {
    let setup = Setup::start(4).await;
    setup.proxy.rule(|asked| match asked.writes() && asked.about("clusterqueues") {
        true => Fault::Status(404),
        false => Fault::None,
    });
    setup.start_job("first", 2).await;
    setup.running(2).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let admitted = |queue: &Value| queue["status"]["admittedWorkloads"].clone();
    assert_ne!(admitted(&setup.up.get(CLUSTER_QUEUES, "", "cq").await), 1, "not written yet");
    setup.proxy.heal();
    setup
        .up
        .until("the status is written", async |up| {
            (admitted(&up.get(CLUSTER_QUEUES, "", "cq").await) == 1).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_really_gone_stops_nothing_else() {
    const DEFINITIONS: Resource = Resource {
        api_version: "apiextensions.k8s.io/v1",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
    };
    let setup = Setup::start(4).await;
    setup.start_job("first", 2).await;
    let before = setup.running(2).await;
    setup.up.api.delete(DEFINITIONS, "", "runwindows.plimsoll.dev", "", None).await.unwrap();
    // The watch of it ends with the definition; discovery says that there is none.
    setup.start_job("second", 2).await;
    assert!(setup.running(4).await.is_superset(&before));
    setup.until_ready().await;
}

/// The API server answers so if a webhook for `workloads/status` with `failurePolicy: Fail` is not reachable.
#[tokio::test(flavor = "multi_thread")]
async fn failing_writes_to_workloads_do_not_delay_bindings() {
    let setup = Setup::start(1).await;
    let tried = Arc::new(Mutex::new(BTreeSet::new()));
    setup.proxy.rule({
        let tried = Arc::clone(&tried);
        move |asked| {
            let fails = asked.writes() && asked.about("workloads") && asked.about("status");
            // The job controllers write the condition PodsReady.
            if fails && asked.by("kueue-admission") {
                tried.lock().unwrap().insert(asked.path.to_owned());
            }
            if fails { Fault::Status(500) } else { Fault::None }
        }
    });
    // All of them stay pending, so each has a reason to be written.
    for i in 0..300 {
        setup.start_job(&format!("large-{i}"), 2).await;
    }
    let enough = async |_: &Up| (tried.lock().unwrap().len() >= 256).then_some(());
    setup.up.until("the limit of writes in flight is reached", enough).await;
    setup.up.create(&pod("alone", &json!({}), 3600)).await.unwrap();
    setup.running(1).await;
}

/// Writes that are carried out and never answered, and watches that go silent, for 25 s.
#[tokio::test(flavor = "multi_thread")]
async fn silence_is_over_within_a_minute() {
    let mut setup = Setup::start(8).await;
    setup.start_job("before", 2).await;
    let before = setup.running(2).await;
    let began = Instant::now();
    setup.proxy.rule(|asked| match asked.writes() {
        true => Fault::Lose,
        false if asked.watch => Fault::Hang,
        false => Fault::None,
    });
    setup.start_job("meanwhile", 2).await;
    tokio::time::sleep(Duration::from_secs(25)).await;
    setup.proxy.heal();
    setup.start_job("after", 2).await;
    let after = setup.running(6).await;
    let took = began.elapsed();
    assert!(after.is_superset(&before));
    // 46 s until a silent watch is given up, 30 s for a write; and the machine is slow.
    assert!(took < Duration::from_secs(80), "{took:?}");
    setup.until_ready().await;
    let workloads: Vec<Value> = setup.up.list(plimsoll_runtime::api::WORKLOADS).await;
    assert_eq!(workloads.len(), 3, "repeated writes make nothing twice");
    assert_eq!(setup.run.terminate(), Some(0));
}
