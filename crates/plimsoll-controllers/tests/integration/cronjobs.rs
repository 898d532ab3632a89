//! CronJobs, and deadlines on a machine that sleeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_client::{Clock, Propagation, TimeSource, resources};
use serde_json::json;

use crate::harness::{Harness, is_true, job};

/// The wall clock of a laptop that wakes up: its timers have stood still meanwhile.
struct Laptop(std::sync::Mutex<jiff::Timestamp>);

impl TimeSource for Laptop {
    fn now(&self) -> jiff::Timestamp {
        *self.0.lock().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cron_jobs_and_deadlines_are_punctual_after_a_sleep() {
    let laptop = Arc::new(Laptop(std::sync::Mutex::new("2026-03-01T02:00:00Z".parse().unwrap())));
    let harness = Harness::with(Clock::wall_from(Arc::clone(&laptop) as _), None).await;
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"},
        "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": job("x", None, &json!({}))["spec"]}},
    });
    harness.create(&resources::CRON_JOBS, "default", cron).await;
    let limited = job("limited", None, &json!({"activeDeadlineSeconds": 1800}));
    harness.create(&resources::JOBS, "default", limited).await;
    harness.until("the job has begun", |w| w.job("limited")["status"]["startTime"].is_string()).await;
    assert_eq!(harness.list(&resources::JOBS, "default").len(), 1);
    *laptop.0.lock().unwrap() = "2026-03-01T03:00:01Z".parse().unwrap();
    let woken = Instant::now();
    harness.until("the CronJob has made a Job", |w| w.list(&resources::JOBS, "default").len() == 2).await;
    harness.until("the deadline has passed", |w| is_true(&w.job("limited"), "Failed")).await;
    assert!(woken.elapsed() < Duration::from_secs(10), "{:?}", woken.elapsed());
    harness.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cron_job_makes_jobs() {
    let harness = Harness::new().await;
    let template = job("x", Some("0"), &json!({}))["spec"].clone();
    let cron = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {"schedule": "* * * * *", "successfulJobsHistoryLimit": 1, "jobTemplate": {"spec": template}},
    });
    harness.create(&resources::CRON_JOBS, "default", cron).await;
    let made = |w: &Harness| w.reasons("tick").iter().filter(|r| *r == "SuccessfulCreate").count();
    harness.until("three jobs", |w| made(w) >= 3).await;
    harness.until("history", |w| w.list(&resources::JOBS, "default").len() <= 2).await;
    let cron = harness.get(&resources::CRON_JOBS, "default", "tick").unwrap();
    assert!(
        cron["status"]["lastScheduleTime"].is_string() && cron["status"]["lastSuccessfulTime"].is_string()
    );
    harness.delete(&resources::CRON_JOBS, "default", "tick", Propagation::Background).await;
    harness
        .until("the end", |w| {
            w.list(&resources::JOBS, "default").is_empty() && w.list(&resources::PODS, "default").is_empty()
        })
        .await;
    harness.stop().await;
}
