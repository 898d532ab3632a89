//! `plimsoll bench soak --kube-apiserver DIR`: `plimsoll run` on etcd and kube-apiserver for hours, killed now and then.
//!
//! Pods come, of which two in three wait in a queue, run on simulated nodes, end, and are deleted. Workloads are deleted with
//! their pods, because nothing here collects garbage. A process that holds more and more memory, files, threads or watches,
//! that writes more and more for each pod, or leaves something behind, has a fault. So has one that lets more pods of the
//! queue run than its quota allows.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use plimsoll_api::json;
use plimsoll_runtime::api::{Api, NAMESPACES, PODS, Resource, WORKLOADS};
use plimsoll_runtime::simulated;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{DRAIN, QUOTA, SAMPLES, SPEED};
use crate::bench::client::Target;
use crate::bench::cluster::{self, writes::Writes};
use crate::bench::process::{Controller, Held, Running};
use crate::bench::{load, upstream::Upstream};
use crate::{cli, say};

const NAMESPACE: &str = "soak";
/// Pods that may be there at a time; beyond, making them pauses.
const MOST_PODS: u64 = 300;
/// How often ended pods are looked for.
const REAP: Duration = Duration::from_secs(1);
/// From one try to the next while the webhook's process is gone.
const AGAIN: Duration = Duration::from_millis(250);
/// Longest time without an answer that is taken: a Lease expires within it.
const PATIENCE: Duration = Duration::from_secs(90);
/// How much more than before a process may hold: this factor, and so many MiB, files or watches.
const GROWTH: (f64, f64) = (1.25, 16.0);
/// How much more may be written for each pod in the last quarter than in the second.
const MORE_WRITES: f64 = 1.15;
/// Kueue's configuration: pods are queued where they are made.
const CONFIGURATION: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
    integrations: {frameworks: [pod]}\n\
    managedJobsNamespaceSelector: {matchLabels: {kubernetes.io/metadata.name: soak}}\n";

/// A look at everything.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at: f64,
    /// How often the process was started before.
    life: usize,
    held: Held,
    /// Watches that the API server has open, those of others included.
    watches: u64,
    /// Pods that have ended, and all writes that the API server has counted.
    pods: u64,
    writes: u64,
}

/// What the load has done.
#[derive(Default)]
struct Done {
    made: AtomicU64,
    there: AtomicU64,
    ended: AtomicU64,
    /// Most pods of the queue that ran at once.
    most: AtomicU64,
}

/// Runs it and reports.
pub async fn run(args: &cli::BenchSoak, assets: &Path) -> anyhow::Result<()> {
    let parent = args.data.clone().unwrap_or_else(std::env::temp_dir);
    let dir = parent.join(format!("plimsoll-soak-{}", std::process::id()));
    let upstream = Upstream::start(assets, dir.clone(), false).await?;
    let target = Target::new(kube::config::Kubeconfig::read_from(&upstream.kubeconfig)?).await?;
    let api = plimsoll_runtime::connect::api(target.config.clone(), "plimsoll-soak")?;
    cluster::define(&api).await?;
    for name in [NAMESPACE, "plimsoll-system"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        api.create(NAMESPACES, &namespace).await.context("a namespace")?;
    }
    let kubelets = api.writing_as("kubelet");
    simulated::create_nodes(&kubelets, super::nodes()).await.context("nodes")?;
    super::make_queue(&target, NAMESPACE).await?;
    let config = dir.join("config.yaml");
    std::fs::write(&config, CONFIGURATION)?;
    let words = ["run", "--kubeconfig", "{kubeconfig}", "--webhook-port=0", "--metrics-bind-address=0"];
    let config = format!("--config={}", config.display());
    let controller = Controller::own(words.map(str::to_owned).into_iter().chain([config]).collect())?;

    let (done, stop) = (Arc::new(Done::default()), CancellationToken::new());
    let over = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    let options = plimsoll_kubelet::Options { speed: SPEED, ..plimsoll_kubelet::Options::default() };
    tasks.spawn({
        let over = over.clone();
        async move {
            simulated::run(kubelets, options, over).await;
            Ok(())
        }
    });
    tasks.spawn(make(api.clone(), args.jobs, Arc::clone(&done), stop.clone()));
    tasks.spawn(reap(api.clone(), Arc::clone(&done), over.clone()));
    let life = Life { args, upstream: &upstream, controller: &controller, dir: &dir, api: &api };
    let (samples, mut running) = life.follow(&done, &mut tasks).await?;
    stop.cancel();
    let stuck = drain(&api, &mut running).await;
    over.cancel();
    while let Some(ended) = tasks.join_next().await {
        ended.context("the load")??;
    }
    let stopped = running.stop().await?;
    let mut figures = summary(&samples);
    figures["pods"] = done.ended.load(Ordering::Relaxed).into();
    figures["mostRunning"] = done.most.load(Ordering::Relaxed).into();
    figures["stoppedSeconds"] = json!(stopped.as_secs_f64());
    figures["stuck"] = json!(stuck);
    report(&figures, &samples, args.output);
    verdict(&figures, &samples)
}

/// The process and what it runs on.
struct Life<'a> {
    args: &'a cli::BenchSoak,
    upstream: &'a Upstream,
    controller: &'a Controller,
    dir: &'a Path,
    api: &'a Api,
}

impl Life<'_> {
    fn start(&self, life: usize) -> anyhow::Result<Running> {
        self.controller.start(&self.upstream.kubeconfig, &self.dir.join(format!("controller-{life}.log")))
    }

    /// Looks at everything until the time is over; kills the process now and then.
    async fn follow(
        &self,
        done: &Done,
        tasks: &mut tokio::task::JoinSet<anyhow::Result<()>>,
    ) -> anyhow::Result<(Vec<Sample>, Running)> {
        let (began, duration) = (Instant::now(), self.args.duration);
        let pause = (duration / SAMPLES).max(Duration::from_millis(100));
        let quiet = self.args.quiet || self.args.output == cli::Output::Json;
        let progress = load::bar(quiet, SAMPLES as usize, "soaking");
        let (mut samples, mut life, mut running) = (Vec::new(), 0, self.start(0)?);
        while began.elapsed() < duration {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Some(ended) = tasks.join_next() => {
                    ended.context("the load")??;
                    bail!("the load ended");
                }
            }
            running.check()?;
            let metrics = self.api.get_text("/metrics").await?;
            samples.push(Sample {
                at: began.elapsed().as_secs_f64(),
                life,
                held: running.held(),
                watches: watches(&metrics),
                pods: done.ended.load(Ordering::Relaxed),
                writes: Writes::read(&metrics).sum(|what| what != "leases"),
            });
            progress.inc(1);
            let lives = began.elapsed().as_secs_f64() / self.args.kill_every.as_secs_f64().max(1.0);
            if lives as usize > life && began.elapsed() + self.args.kill_every / 2 < duration {
                // It is killed when it is dropped.
                drop(running);
                life += 1;
                running = self.start(life)?;
            }
        }
        progress.finish_and_clear();
        Ok((samples, running))
    }
}

/// Open watches, by the API server's own count.
fn watches(metrics: &str) -> u64 {
    let lines = metrics.lines().filter(|l| l.starts_with("apiserver_longrunning_requests{"));
    let watches = lines.filter(|l| l.contains("verb=\"WATCH\""));
    let count = |l: &str| l.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok()).unwrap_or_default();
    watches.map(count).sum::<f64>() as u64
}

fn pod(index: u64) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("soak-{index}"), "namespace": NAMESPACE, "labels": {"app": "soak"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [{
            "name": "work", "image": "busybox", "command": ["sleep", (index % 60).to_string()],
            "resources": {"requests": {"cpu": "1"}},
        }]},
    });
    // Two of three go through the queue.
    if !index.is_multiple_of(3) {
        pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "soak".into();
    }
    pod
}

/// Makes pods at a rate, as long as not too many are there; some are deleted before their time.
async fn make(api: Api, rate: f64, done: Arc<Done>, stop: CancellationToken) -> anyhow::Result<()> {
    let mut clock = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut refused: Option<Instant> = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = clock.tick() => {}
        }
        if done.there.load(Ordering::Relaxed) >= MOST_PODS {
            continue;
        }
        let index = done.made.load(Ordering::Relaxed);
        match api.create(PODS, &pod(index)).await {
            Ok(_) => refused = None,
            // It was created, though the answer was an error.
            Err(e) if e.is_conflict() => refused = None,
            // Without its process the webhook can't be asked.
            Err(e) => {
                let since = *refused.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Err(e).context("creating pods");
                }
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        }
        done.made.store(index + 1, Ordering::Relaxed);
        if index % 10 == 9 {
            // It may have gone by itself.
            let _ = api.delete(PODS, NAMESPACE, &format!("soak-{}", index - 3), "", None).await;
        }
    }
}

/// Deletes pods that have ended, and workloads without pods.
async fn reap(api: Api, done: Arc<Done>, stop: CancellationToken) -> anyhow::Result<()> {
    // Pods that were asked to go: a finalizer may hold them while the process is gone.
    let mut going: HashSet<String> = HashSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(REAP) => {}
        }
        // Workloads first: one that is listed has had its pod before the pods are listed.
        let (Ok(workloads), Ok(pods)) = (list(&api, WORKLOADS).await, list(&api, PODS).await) else {
            continue;
        };
        done.there.store(pods.len() as u64, Ordering::Relaxed);
        let phase = |pod: &Value| json::text(pod, &["status", "phase"]).to_owned();
        let ended = |pod: &Value| matches!(phase(pod).as_str(), "Succeeded" | "Failed");
        let queued = |pod: &Value| !pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].is_null();
        let runs = |pod: &&Value| queued(pod) && !ended(pod) && !pod["spec"]["nodeName"].is_null();
        let running = pods.iter().filter(runs).count() as u64;
        done.most.fetch_max(running, Ordering::Relaxed);
        ensure!(running <= QUOTA, "{running} pods of the queue run, and its quota is {QUOTA}");
        let uids: HashSet<&str> = pods.iter().map(json::uid).collect();
        going.retain(|uid| uids.contains(uid.as_str()));
        for pod in pods.iter().filter(|p| ended(p)) {
            if going.insert(json::uid(pod).to_owned()) {
                done.ended.fetch_add(1, Ordering::Relaxed);
                // A failure shows in the next list; what can't be deleted is left in the end.
                if api.delete(PODS, NAMESPACE, json::name(pod), json::uid(pod), Some(0)).await.is_err() {
                    going.remove(json::uid(pod));
                }
            }
        }
        for workload in workloads {
            let owners = json::list(&workload, &["metadata", "ownerReferences"]);
            let owned = owners.iter().any(|o| o["uid"].as_str().is_some_and(|uid| uids.contains(uid)));
            if !owned && workload["metadata"]["deletionTimestamp"].is_null() {
                let name = json::name(&workload);
                let _ = api.delete(WORKLOADS, NAMESPACE, name, json::uid(&workload), None).await;
            }
        }
    }
}

async fn list(api: &Api, resource: Resource) -> anyhow::Result<Vec<Value>> {
    let list = api.get_path(&resource.collection(NAMESPACE)).await?;
    Ok(json::list(&list, &["items"]).to_vec())
}

/// Waits until everything is gone; what isn't.
async fn drain(api: &Api, running: &mut Running) -> Vec<String> {
    let deadline = Instant::now() + DRAIN;
    loop {
        let mut left = Vec::new();
        for resource in [PODS, WORKLOADS] {
            match list(api, resource).await {
                Ok(all) => left.extend(all.iter().map(|o| format!("{} {}", resource.plural, json::name(o)))),
                Err(e) => left.push(format!("{}: {e:#}", resource.plural)),
            }
        }
        if left.is_empty() || Instant::now() > deadline || running.check().is_err() {
            left.truncate(20);
            return left;
        }
        tokio::time::sleep(REAP).await;
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// What the process held in the later half of a life, which its start does not show in any more.
fn later(samples: &[Sample], life: usize) -> [f64; 4] {
    let of: Vec<&Sample> = samples.iter().filter(|s| s.life == life).collect();
    let half = of.get(of.len() / 2..).unwrap_or_default();
    let figure = |f: fn(&Sample) -> f64| median(half.iter().map(|s| f(s)).collect());
    [
        figure(|s| s.held.memory),
        figure(|s| s.held.files as f64),
        figure(|s| s.held.threads as f64),
        figure(|s| s.watches as f64),
    ]
}

/// Writes for each pod that ended, in a quarter of the run.
fn writes(samples: &[Sample], quarter: usize) -> f64 {
    let size = samples.len() / 4;
    let at = |i: usize| samples.get(i.min(samples.len().saturating_sub(1))).copied().unwrap_or_default();
    let (from, to) = (at(quarter * size), at((quarter + 1) * size));
    (to.writes - from.writes) as f64 / (to.pods - from.pods).max(1) as f64
}

const HELD: [&str; 4] = ["memoryMiB", "files", "threads", "watches"];

fn summary(samples: &[Sample]) -> Value {
    let lives = samples.last().map_or(0, |s| s.life + 1);
    let mut figures = json!({
        "seconds": samples.last().map_or(0.0, |s| s.at.round()),
        "lives": lives,
        "writesPerPodByQuarter": (0..4).map(|q| (writes(samples, q) * 100.0).round() / 100.0).collect::<Vec<_>>(),
    });
    for (i, what) in HELD.iter().enumerate() {
        let of = |life| later(samples, life).get(i).map_or(0.0, |v| (v * 10.0).round() / 10.0);
        figures[format!("{what}ByLife")] = (0..lives).map(of).collect();
    }
    figures
}

fn report(figures: &Value, samples: &[Sample], output: cli::Output) {
    if output == cli::Output::Json {
        return say::line(&figures.to_string());
    }
    let head = format!(
        "{:>9} {:>5} {:>12} {:>7} {:>8} {:>8} {:>9} {:>10}",
        "seconds", "life", "memory MiB", "files", "threads", "watches", "pods", "writes"
    );
    say::line(&head);
    for s in samples.iter().step_by((samples.len() / 24).max(1)) {
        say::line(&format!(
            "{:>9.0} {:>5} {:>12.1} {:>7} {:>8} {:>8} {:>9} {:>10}",
            s.at, s.life, s.held.memory, s.held.files, s.held.threads, s.watches, s.pods, s.writes
        ));
    }
    for (key, value) in figures.as_object().into_iter().flatten() {
        say::line(&format!("{key}: {value}"));
    }
}

/// What must not be.
fn verdict(figures: &Value, samples: &[Sample]) -> anyhow::Result<()> {
    let stuck = figures["stuck"].as_array().map_or(0, Vec::len);
    ensure!(stuck == 0, "objects stayed behind: {}", figures["stuck"]);
    ensure!(figures["pods"].as_u64() > Some(0), "no pod ended");
    let last = samples.last().map_or(0, |s| s.life);
    for ((what, before), after) in HELD.iter().zip(later(samples, 0)).zip(later(samples, last)) {
        ensure!(after <= before * GROWTH.0 + GROWTH.1, "{what} grows: {after} after {before}");
    }
    let (before, after) = (writes(samples, 1), writes(samples, 3));
    ensure!(after <= before * MORE_WRITES, "writes for each pod grow: {after} after {before}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(memory: impl Fn(u64) -> f64, writes: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |n| Sample {
            at: n as f64,
            life: n as usize / 20,
            held: Held { memory: memory(n), threads: 4, files: 20 },
            watches: 30,
            pods: n * 10,
            writes: writes(n),
        };
        (0..80).map(sample).collect()
    }

    #[test]
    fn what_grows_is_a_fault() {
        let figures = json!({"stuck": [], "pods": 5});
        assert!(verdict(&figures, &samples(|_| 50.0, |n| n * 100)).is_ok());
        assert!(verdict(&figures, &samples(|n| 50.0 + n as f64, |n| n * 100)).is_err());
        assert!(verdict(&figures, &samples(|_| 50.0, |n| n * n)).is_err());
        assert!(verdict(&json!({"stuck": ["pods x"], "pods": 5}), &samples(|_| 50.0, |n| n)).is_err());
        assert!(verdict(&json!({"stuck": [], "pods": 0}), &samples(|_| 50.0, |n| n)).is_err());
    }

    #[test]
    fn watches_are_counted() {
        let metrics = "apiserver_longrunning_requests{resource=\"pods\",verb=\"WATCH\"} 3\n\
            apiserver_longrunning_requests{resource=\"nodes\",verb=\"WATCH\"} 2\n\
            apiserver_longrunning_requests{resource=\"pods\",verb=\"CONNECT\"} 1\n";
        assert_eq!(watches(metrics), 5);
    }
}
