//! Jobs: completion, indexes, failures, suspension, deadlines, clean-up, restarts of the server.

use std::time::{Duration, Instant};

use plimsoll_client::{Clock, resources};
use serde_json::{Value, json};

use crate::world::{SPEED, World, is_true, job};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_to_its_end() {
    let world = World::new().await;
    let made = job("plain", Some("0"), &json!({"completions": 5, "parallelism": 2}));
    world.create(&resources::JOBS, "default", made).await;
    world.until("completion", |w| is_true(&w.job("plain"), "Complete")).await;
    let status = world.job("plain")["status"].clone();
    assert_eq!((&status["succeeded"], status.get("active"), &status["ready"]), (&json!(5), None, &json!(0)));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert!(status["completionTime"].is_string() && status["startTime"].is_string());
    let pods = world.list(&resources::PODS, "default");
    assert_eq!(pods.len(), 5);
    for pod in pods {
        assert!(pod["metadata"].get("finalizers").is_none_or(Value::is_null), "{pod}");
        assert!(pod["metadata"]["name"].as_str().unwrap().starts_with("plain-"));
        assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], "plain");
    }
    world.until("events", |w| w.reasons("plain").iter().any(|r| r == "Completed")).await;
    let reasons = world.reasons("plain");
    assert_eq!(reasons.iter().filter(|r| *r == "SuccessfulCreate").count(), 5, "{reasons:?}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_indexed_job_has_each_index_once() {
    let world = World::new().await;
    let spec = json!({"completions": 30, "parallelism": 10, "completionMode": "Indexed"});
    world.create(&resources::JOBS, "default", job("ix", Some("0"), &spec)).await;
    world.until("completion", |w| is_true(&w.job("ix"), "Complete")).await;
    assert_eq!(world.job("ix")["status"]["completedIndexes"], "0-29");
    let pods = world.list(&resources::PODS, "default");
    let mut indexes: Vec<i64> = pods
        .iter()
        .map(|p| {
            p["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..30).collect::<Vec<_>>());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_job_backs_off_and_fails() {
    let world = World::new().await;
    let begun = Instant::now();
    world.create(&resources::JOBS, "default", job("bad", Some("3"), &json!({"backoffLimit": 2}))).await;
    world.until("failure", |w| is_true(&w.job("bad"), "Failed")).await;
    let status = world.job("bad")["status"].clone();
    assert_eq!((&status["failed"], status.get("succeeded")), (&json!(3), None));
    let last = status["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["type"], &last["reason"]), (&json!("Failed"), &json!("BackoffLimitExceeded")));
    // 10 s after the first failure and 20 s after the second, in the test's time; timestamps lose up to a second.
    let passed = begun.elapsed().as_secs_f64() * SPEED;
    assert!(passed > 27.0, "{passed}");
    assert_eq!(world.list(&resources::PODS, "default").len(), 3);
    world.until("event", |w| w.reasons("bad").iter().any(|r| r == "BackoffLimitExceeded")).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspend_resume_and_deadline() {
    let world = World::new().await;
    let spec = json!({"suspend": true, "parallelism": 3, "completions": 3, "activeDeadlineSeconds": 100});
    world.create(&resources::JOBS, "default", job("s", None, &spec)).await;
    world.until("suspension", |w| is_true(&w.job("s"), "Suspended")).await;
    assert!(world.list(&resources::PODS, "default").is_empty());
    assert!(world.job("s")["status"].get("startTime").is_none());
    let suspend = |on: bool| {
        move |job: &mut Value| {
            job["spec"]["suspend"] = json!(on);
            true
        }
    };
    world.change(&resources::JOBS, "default", "s", suspend(false)).await;
    world.until("running pods", |w| w.job("s")["status"]["ready"] == 3).await;
    assert!(!is_true(&world.job("s"), "Suspended"));
    world.change(&resources::JOBS, "default", "s", suspend(true)).await;
    world.until("pods gone", |w| w.list(&resources::PODS, "default").is_empty()).await;
    world.until("counts", |w| w.job("s")["status"]["terminating"] == 0).await;
    assert!(world.job("s")["status"].get("failed").is_none());
    world.change(&resources::JOBS, "default", "s", suspend(false)).await;
    world.until("deadline", |w| is_true(&w.job("s"), "Failed")).await;
    let conditions = world.job("s")["status"]["conditions"].clone();
    let reasons: Vec<_> =
        conditions.as_array().unwrap().iter().map(|c| c["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["JobResumed", "DeadlineExceeded", "DeadlineExceeded"]);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_jobs_go_with_their_pods_after_their_ttl() {
    let world = World::new().await;
    let spec = json!({"ttlSecondsAfterFinished": 30});
    world.create(&resources::JOBS, "default", job("t", Some("0"), &spec)).await;
    world.until("completion", |w| is_true(&w.job("t"), "Complete")).await;
    assert_eq!(world.list(&resources::PODS, "default").len(), 1);
    world.until("the end", |w| w.job("t").is_null()).await;
    world.until("the pods' end", |w| w.list(&resources::PODS, "default").is_empty()).await;
    world.stop().await;
}

/// The server and its controllers are stopped in the middle of whatever they do, many times, and started again on the same
/// directory: every pod is made once and counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_survives_restarts() {
    const COMPLETIONS: i64 = 120;
    let dir = std::env::temp_dir().join(format!("plimsoll-restarts-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let clock = Clock::scaled(SPEED);
    let spec = json!({"completions": COMPLETIONS, "parallelism": 6, "backoffLimit": 0});
    let indexed =
        json!({"completions": COMPLETIONS, "parallelism": 6, "completionMode": "Indexed", "backoffLimit": 0});
    let mut restarts = 0;
    for round in 0.. {
        let world = World::with(clock.clone(), Some(dir.clone())).await;
        if round == 0 {
            world.create(&resources::JOBS, "default", job("plain", Some("0"), &spec)).await;
            world.create(&resources::JOBS, "default", job("indexed", Some("0"), &indexed)).await;
        }
        // Pods that were made while there was no kubelet.
        for pod in
            world.list(&resources::PODS, "default").iter().filter(|p| p["status"]["phase"] == "Pending")
        {
            world
                .change(&resources::PODS, "default", pod["metadata"]["name"].as_str().unwrap(), |pod| {
                    pod["metadata"]["annotations"]["seen"] = json!(round.to_string());
                    true
                })
                .await;
        }
        let done = |w: &World| is_true(&w.job("plain"), "Complete") && is_true(&w.job("indexed"), "Complete");
        if done(&world) || round > 200 {
            let pods = world.list(&resources::PODS, "default");
            let of =
                |job: &str| pods.iter().filter(|p| p["metadata"]["labels"]["job-name"] == job).count() as i64;
            assert_eq!((of("plain"), of("indexed")), (COMPLETIONS, COMPLETIONS));
            for name in ["plain", "indexed"] {
                let status = world.job(name)["status"].clone();
                assert_eq!(
                    (&status["succeeded"], status.get("failed")),
                    (&json!(COMPLETIONS), None),
                    "{name}"
                );
            }
            world.stop().await;
            break;
        }
        restarts += 1;
        tokio::time::sleep(Duration::from_millis(30 + 17 * (round % 7))).await;
        // Requests in flight are cut off where they are.
        let store = world.store.clone();
        world.stop().await;
        store.close().await;
    }
    let _ = std::fs::remove_dir_all(&dir);
    assert!(restarts > 5, "{restarts}");
}
