//! Jobs: completion, indexes, failures, suspension, deadlines, clean-up, restarts of the server.

use std::time::{Duration, Instant};

use plimsoll_client::{Clock, resources};
use serde_json::{Value, json};

use crate::harness::{Harness, SPEED, is_true, job};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_to_its_end() {
    let harness = Harness::new().await;
    let made = job("plain", Some("0"), &json!({"completions": 5, "parallelism": 2}));
    harness.create(&resources::JOBS, "default", made).await;
    harness.until("completion", |w| is_true(&w.job("plain"), "Complete")).await;
    let status = harness.job("plain")["status"].clone();
    assert_eq!((&status["succeeded"], status.get("active"), &status["ready"]), (&json!(5), None, &json!(0)));
    assert_eq!(status["uncountedTerminatedPods"], json!({}));
    assert!(status["completionTime"].is_string() && status["startTime"].is_string());
    let pods = harness.list(&resources::PODS, "default");
    assert_eq!(pods.len(), 5);
    for pod in pods {
        assert!(pod["metadata"].get("finalizers").is_none_or(Value::is_null), "{pod}");
        assert!(pod["metadata"]["name"].as_str().unwrap().starts_with("plain-"));
        assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], "plain");
    }
    harness.until("events", |w| w.reasons("plain").iter().any(|r| r == "Completed")).await;
    let reasons = harness.reasons("plain");
    assert_eq!(reasons.iter().filter(|r| *r == "SuccessfulCreate").count(), 5, "{reasons:?}");
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_indexed_job_has_each_index_once() {
    let harness = Harness::new().await;
    let spec = json!({"completions": 30, "parallelism": 10, "completionMode": "Indexed"});
    harness.create(&resources::JOBS, "default", job("ix", Some("0"), &spec)).await;
    harness.until("completion", |w| is_true(&w.job("ix"), "Complete")).await;
    assert_eq!(harness.job("ix")["status"]["completedIndexes"], "0-29");
    let pods = harness.list(&resources::PODS, "default");
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
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_job_backs_off_and_fails() {
    let harness = Harness::new().await;
    let begun = Instant::now();
    harness.create(&resources::JOBS, "default", job("bad", Some("3"), &json!({"backoffLimit": 2}))).await;
    harness.until("failure", |w| is_true(&w.job("bad"), "Failed")).await;
    let status = harness.job("bad")["status"].clone();
    assert_eq!((&status["failed"], status.get("succeeded")), (&json!(3), None));
    let last = status["conditions"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["type"], &last["reason"]), (&json!("Failed"), &json!("BackoffLimitExceeded")));
    // 10 s after the first failure and 20 s after the second, in the test's time; timestamps lose up to a second.
    let passed = begun.elapsed().as_secs_f64() * SPEED;
    assert!(passed > 27.0, "{passed}");
    assert_eq!(harness.list(&resources::PODS, "default").len(), 3);
    harness.until("event", |w| w.reasons("bad").iter().any(|r| r == "BackoffLimitExceeded")).await;
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspend_resume_and_deadline() {
    let harness = Harness::new().await;
    let spec = json!({"suspend": true, "parallelism": 3, "completions": 3, "activeDeadlineSeconds": 100});
    harness.create(&resources::JOBS, "default", job("s", None, &spec)).await;
    harness.until("suspension", |w| is_true(&w.job("s"), "Suspended")).await;
    assert!(harness.list(&resources::PODS, "default").is_empty());
    assert!(harness.job("s")["status"].get("startTime").is_none());
    let suspend = |on: bool| {
        move |job: &mut Value| {
            job["spec"]["suspend"] = json!(on);
            true
        }
    };
    harness.change(&resources::JOBS, "default", "s", suspend(false)).await;
    harness.until("running pods", |w| w.job("s")["status"]["ready"] == 3).await;
    assert!(!is_true(&harness.job("s"), "Suspended"));
    harness.change(&resources::JOBS, "default", "s", suspend(true)).await;
    harness.until("pods gone", |w| w.list(&resources::PODS, "default").is_empty()).await;
    harness.until("counts", |w| w.job("s")["status"]["terminating"] == 0).await;
    assert!(harness.job("s")["status"].get("failed").is_none());
    harness.change(&resources::JOBS, "default", "s", suspend(false)).await;
    harness.until("deadline", |w| is_true(&w.job("s"), "Failed")).await;
    let conditions = harness.job("s")["status"]["conditions"].clone();
    let reasons: Vec<_> =
        conditions.as_array().unwrap().iter().map(|c| c["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["JobResumed", "DeadlineExceeded", "DeadlineExceeded"]);
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_jobs_go_with_their_pods_after_their_ttl() {
    let harness = Harness::new().await;
    let spec = json!({"ttlSecondsAfterFinished": 30});
    harness.create(&resources::JOBS, "default", job("t", Some("0"), &spec)).await;
    harness.until("completion", |w| is_true(&w.job("t"), "Complete")).await;
    assert_eq!(harness.list(&resources::PODS, "default").len(), 1);
    harness.until("the end", |w| w.job("t").is_null()).await;
    harness.until("the pods' end", |w| w.list(&resources::PODS, "default").is_empty()).await;
    harness.stop().await;
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
        let harness = Harness::with(clock.clone(), Some(dir.clone())).await;
        if round == 0 {
            harness.create(&resources::JOBS, "default", job("plain", Some("0"), &spec)).await;
            harness.create(&resources::JOBS, "default", job("indexed", Some("0"), &indexed)).await;
        }
        // Pods that were made while there was no kubelet.
        for pod in
            harness.list(&resources::PODS, "default").iter().filter(|p| p["status"]["phase"] == "Pending")
        {
            harness
                .change(&resources::PODS, "default", pod["metadata"]["name"].as_str().unwrap(), |pod| {
                    pod["metadata"]["annotations"]["seen"] = json!(round.to_string());
                    true
                })
                .await;
        }
        let done =
            |w: &Harness| is_true(&w.job("plain"), "Complete") && is_true(&w.job("indexed"), "Complete");
        if done(&harness) || round > 200 {
            let pods = harness.list(&resources::PODS, "default");
            let of =
                |job: &str| pods.iter().filter(|p| p["metadata"]["labels"]["job-name"] == job).count() as i64;
            assert_eq!((of("plain"), of("indexed")), (COMPLETIONS, COMPLETIONS));
            for name in ["plain", "indexed"] {
                let status = harness.job(name)["status"].clone();
                assert_eq!(
                    (&status["succeeded"], status.get("failed")),
                    (&json!(COMPLETIONS), None),
                    "{name}"
                );
            }
            harness.stop().await;
            break;
        }
        restarts += 1;
        tokio::time::sleep(Duration::from_millis(30 + 17 * (round % 7))).await;
        // Requests in flight are cut off where they are.
        let store = harness.store.clone();
        harness.stop().await;
        store.close().await;
    }
    let _ = std::fs::remove_dir_all(&dir);
    assert!(restarts > 5, "{restarts}");
}
