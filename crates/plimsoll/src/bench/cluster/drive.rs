//! Workloads that come, run and end, as Kueue's performance test makes them (`test/performance/scheduler/runner`): one
//! client for each class of each queue creates at its pace; what is admitted ends after its time; what is evicted
//! gives its quota back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use plimsoll_api::json;
use plimsoll_runtime::api::{Api, PatchKind, WORKLOADS};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::actor::Actor;
use super::objects;
use super::watch;
use super::writes::Writes;
use crate::bench::admission::shape::Shape;
use crate::bench::client::Target;

/// Most creations under way. Thousands of clients would wait for each other in the API server until requests are given up.
const CREATIONS: usize = 64;

/// What came of a load.
#[derive(Debug, Default)]
pub struct Outcome {
    /// From the first creation to the end of the last workload.
    pub elapsed: Duration,
    /// How long creations took altogether, at most of one client.
    pub created: Duration,
    /// Seconds from creation to the first admission, by class, unsorted.
    pub waits: Vec<Vec<f64>>,
    /// Evictions.
    pub evictions: u64,
    /// Writes of this driver.
    pub own: Writes,
}

/// A workload on its way.
#[derive(Default)]
struct Progress {
    created: Option<Instant>,
    admitted: Option<Instant>,
    /// Admissions that it was given time for.
    runs: u64,
    finished: bool,
}

struct Driver {
    api: Api,
    namespace: String,
    state: Mutex<HashMap<String, Progress>>,
    /// Turns for creations.
    turns: Semaphore,
    creations: AtomicU64,
    statuses: AtomicU64,
}

/// Plays all workloads of a shape. The controller runs, and its queues are active.
pub async fn play(
    shape: &Shape,
    (api, target, namespace): (&Api, &Target, &str),
    actor: &mut Actor,
    timeout: Duration,
    bar: &ProgressBar,
) -> anyhow::Result<Outcome> {
    let driver = Arc::new(Driver {
        api: api.clone(),
        namespace: namespace.to_owned(),
        state: Mutex::default(),
        turns: Semaphore::new(CREATIONS),
        creations: AtomicU64::new(0),
        statuses: AtomicU64::new(0),
    });
    let (mut watching, mut seen) = watch::start(api, target, WORKLOADS.collection(namespace)).await?;
    let began = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for queue in 0..shape.queues() {
        for class in 0..shape.classes.len() {
            clients.spawn(create(Arc::clone(&driver), shape.clone(), class, queue, began));
        }
    }
    let mut outcome = Outcome { waits: vec![Vec::new(); shape.classes.len()], ..Outcome::default() };
    let mut finished = 0;
    let mut beat = tokio::time::interval(Duration::from_secs(1));
    while finished < shape.workloads() {
        tokio::select! {
            Some(done) = clients.join_next() => outcome.created = outcome.created.max(done.context("a client")??),
            Some(workload) = seen.recv() => if driver.handle(shape, workload, &mut outcome) {
                finished += 1;
                bar.inc(1);
            },
            ended = &mut watching => {
                ended.context("the watch of workloads")?.context("the watch of workloads")?;
                bail!("the watch of workloads ended");
            }
            _ = beat.tick() => {
                actor.check()?;
                if began.elapsed() > timeout {
                    bail!("{finished} of {} workloads ended within {timeout:?}", shape.workloads());
                }
            }
        }
    }
    outcome.elapsed = began.elapsed();
    watching.abort();
    outcome.own.add("workloads", driver.creations.load(Ordering::Relaxed));
    outcome.own.add("workloads/status", driver.statuses.load(Ordering::Relaxed));
    Ok(outcome)
}

/// Creates the workloads of one class in one queue; gives how long it took.
async fn create(
    driver: Arc<Driver>,
    shape: Shape,
    class: usize,
    queue: usize,
    began: Instant,
) -> anyhow::Result<Duration> {
    let Some(class) = shape.classes.get(class) else { return Ok(Duration::ZERO) };
    for i in 0..class.per_queue {
        let at = Duration::from_millis(class.every_ms.unsigned_abs().saturating_mul(i as u64));
        tokio::time::sleep_until((began + at).into()).await;
        let workload = objects::workload(class, queue, i, &driver.namespace);
        let _turn = driver.turns.acquire().await?;
        let name = json::name(&workload).to_owned();
        driver.with(|all| all.entry(name).or_default().created = Some(Instant::now()));
        driver.creations.fetch_add(1, Ordering::Relaxed);
        driver.api.create(WORKLOADS, &workload).await.context("creating a workload")?;
    }
    Ok(began.elapsed())
}

impl Driver {
    fn with<T>(&self, f: impl FnOnce(&mut HashMap<String, Progress>) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether this is the end of the workload.
    fn handle(self: &Arc<Self>, shape: &Shape, workload: Value, outcome: &mut Outcome) -> bool {
        let now = Instant::now();
        let is = |what: &str| json::condition(&workload, what).is_some_and(|c| c["status"] == "True");
        let (admitted, evicted) = (is("Admitted"), is("Evicted"));
        let name = json::name(&workload).to_owned();
        let Some(class) = shape.classes.iter().position(|c| name.starts_with(&format!("{}-", c.name))) else {
            return false;
        };
        let run = self.with(|all| {
            let progress = all.entry(name.clone()).or_default();
            if std::mem::replace(&mut progress.finished, is("Finished")) || progress.finished {
                return None;
            }
            if !admitted {
                progress.admitted = None;
            } else if !evicted && progress.admitted.is_none() {
                if let Some(created) = progress.created.filter(|_| progress.runs == 0)
                    && let Some(waits) = outcome.waits.get_mut(class)
                {
                    waits.push(now.duration_since(created).as_secs_f64());
                }
                progress.admitted = Some(now);
                progress.runs += 1;
                return Some(progress.runs);
            }
            None
        });
        let lasts = shape.classes.get(class).map_or(0, |c| c.run_ms.unsigned_abs());
        if let Some(run) = run {
            tokio::spawn(Arc::clone(self).finish(name.clone(), run, Duration::from_millis(lasts)));
        }
        if admitted && evicted {
            outcome.evictions += 1;
            tokio::spawn(Arc::clone(self).give_back(workload));
        }
        self.with(|all| {
            let ended = all.get_mut(&name).filter(|p| p.finished && p.runs > 0);
            // Counted once: what comes after it finds no run.
            ended.map(|p| p.runs = 0).is_some()
        })
    }

    /// Ends a workload after its time, unless it was evicted meanwhile.
    async fn finish(self: Arc<Self>, name: String, run: u64, after: Duration) {
        tokio::time::sleep(after).await;
        loop {
            let runs = |p: &Progress| p.runs == run && p.admitted.is_some() && !p.finished;
            if !self.with(|all| all.get(&name).is_some_and(runs)) {
                return;
            }
            let Ok(workload) = self.api.get(WORKLOADS, &self.namespace, &name).await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            if json::condition(&workload, "Evicted").is_some_and(|c| c["status"] == "True") {
                return;
            }
            let end = objects::condition("Finished", "True", "ByTest", "By test runner");
            if self.patch(&workload, &end, &json!({})).await {
                return;
            }
        }
    }

    /// What a job's controller does when its workload is evicted.
    async fn give_back(self: Arc<Self>, workload: Value) {
        let end = objects::condition("QuotaReserved", "False", "Pending", "Evicted by the test runner");
        let unadmitted =
            objects::condition("Admitted", "False", "NoReservation", "The workload has no reservation");
        let mut status = json!({"admission": null});
        status["conditions"] = merged(&workload, &[&end, &unadmitted]);
        // The next change tells when it was refused.
        self.send(&workload, &status).await;
    }

    async fn patch(&self, workload: &Value, condition: &Value, status: &Value) -> bool {
        let mut status = status.clone();
        status["conditions"] = merged(workload, &[condition]);
        self.send(workload, &status).await
    }

    async fn send(&self, workload: &Value, status: &Value) -> bool {
        let version = json::text(workload, &["metadata", "resourceVersion"]);
        let body = json!({"metadata": {"resourceVersion": version}, "status": status});
        self.statuses.fetch_add(1, Ordering::Relaxed);
        let name = json::name(workload);
        self.api.patch(WORKLOADS, &self.namespace, name, "status", PatchKind::Merge, &body).await.is_ok()
    }
}

/// The conditions of a workload with these in place of those of the same type.
fn merged(workload: &Value, new: &[&Value]) -> Value {
    let mut all = json::list(workload, &["status", "conditions"]).to_vec();
    all.retain(|c| new.iter().all(|n| n["type"] != c["type"]));
    all.extend(new.iter().map(|n| (*n).clone()));
    Value::Array(all)
}
