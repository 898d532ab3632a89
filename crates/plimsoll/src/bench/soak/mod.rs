//! `plimsoll bench soak`: jobs come and go, watchers connect and leave, for hours; what stays behind is a fault.

mod real;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use plimsoll_apiserver::store::Store;
use plimsoll_kubelet::nodes::{Shape, node};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::cases::Scratch;
use super::client::{Connection, JSON, Target};
use super::load;
use super::place::{Place, Storage, What};
use super::report::rss;
use crate::{cli, say};

/// Jobs that may be there at a time; beyond, making them pauses.
const MOST_JOBS: usize = 300;
/// How long the load may take to begin.
const BEGIN: Duration = Duration::from_secs(60);
/// Time that everything gets to finish and go away at the end.
const DRAIN: Duration = Duration::from_secs(60);
/// CPUs of the queue.
const QUOTA: u64 = 40;
/// Looks at memory and sizes in a run.
const SAMPLES: u32 = 120;
/// How much memory may grow from the third quarter of the run to the last: this factor and so many bytes.
const GROWTH: (f64, f64) = (1.25, 64.0 * 1_048_576.0);
/// How many times faster than real time pods run.
const SPEED: f64 = 20.0;
/// What is made and must be gone at the end.
const PASSING: [&str; 3] = ["batch/jobs", "/pods", "kueue.x-k8s.io/workloads"];

/// A look at the server.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: f64,
    rss: u64,
    objects: u64,
    journal: u64,
}

/// What the load has done.
#[derive(Default)]
struct Done {
    jobs: AtomicU64,
    watches: AtomicU64,
    events: AtomicU64,
}

/// Runs it and reports.
pub async fn run(args: cli::BenchSoak) -> anyhow::Result<()> {
    if let Some(assets) = args.kube_apiserver.clone() {
        return tokio::select! {
            soaked = real::run(&args, &assets) => soaked,
            // What was started ends, too.
            () = crate::up::signal() => anyhow::bail!("interrupted: the soak is not over"),
        };
    }
    let parent = args.data.clone().unwrap_or_else(std::env::temp_dir);
    let dir = parent.join(format!("plimsoll-soak-{}", std::process::id()));
    let _scratch = Scratch(dir.clone());
    let storage = Storage { data: Some(dir.clone()), durability: args.durability };
    let place = Place::own(&storage, What::Everything { speed: SPEED, event_ttl: args.event_ttl }).await?;
    let server = Arc::clone(place.server().context("a server of our own")?);
    prepare(&place).await?;

    let (done, stop) = (Arc::new(Done::default()), CancellationToken::new());
    let mut load = tokio::task::JoinSet::new();
    load.spawn(make(place.target.clone(), place.namespace.clone(), server.store().clone(), args.jobs, {
        (Arc::clone(&done), stop.clone())
    }));
    for n in 0..args.watchers {
        load.spawn(come_and_go(place.target.clone(), n, Arc::clone(&done), stop.clone()));
    }
    begun(&done, args.watchers).await;
    let samples = follow(&args, server.store(), &dir).await;
    stop.cancel();
    while let Some(ended) = load.join_next().await {
        ended.context("the load")??;
    }
    let left = drain(server.store(), &place.namespace).await;
    let metrics = server.store().metrics();
    let mut figures = summary(&samples);
    figures["jobs"] = done.jobs.load(Ordering::Relaxed).into();
    figures["watches"] = done.watches.load(Ordering::Relaxed).into();
    figures["watchEvents"] = done.events.load(Ordering::Relaxed).into();
    figures["watchesCut"] = metrics.watches_cut.into();
    figures["compactions"] = metrics.journal_compactions.into();
    figures["writes"] = metrics.commits.into();
    figures["stuck"] = json!(left);
    place.end().await?;
    report(&figures, &samples, args.output);
    verdict(&figures, &samples)
}

fn nodes() -> Vec<Value> {
    let now = plimsoll_runtime::clock::now().0;
    let shape = Shape { cpu: "32".into(), memory: "64Gi".into(), pods: 110 };
    (0..20).map(|i| node(i, &shape, now)).collect()
}

/// Nodes, and a queue that some of the jobs have to wait in.
async fn prepare(place: &Place) -> anyhow::Result<()> {
    place.create_nodes(nodes()).await?;
    make_queue(&place.target, &place.namespace).await
}

async fn make_queue(target: &Target, namespace: &str) -> anyhow::Result<()> {
    let mut connection = target.connect().await?;
    for (path, object) in queue(namespace) {
        connection.send(Method::POST, &path, JSON, object.to_string().into()).await.context(path)?;
    }
    Ok(())
}

/// A queue of [`QUOTA`] CPUs: collection and object.
fn queue(namespace: &str) -> [(String, Value); 3] {
    let kueue = "/apis/kueue.x-k8s.io/v1beta2";
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "any", "resources": [{"name": "cpu", "nominalQuota": QUOTA}]},
    ]}]);
    let mut objects = [
        (format!("{kueue}/resourceflavors"), json!({"kind": "ResourceFlavor", "metadata": {"name": "any"}})),
        (
            format!("{kueue}/clusterqueues"),
            json!({"kind": "ClusterQueue", "metadata": {"name": "soak"},
                   "spec": {"namespaceSelector": {}, "resourceGroups": quota}}),
        ),
        (
            format!("{kueue}/namespaces/{namespace}/localqueues"),
            json!({"kind": "LocalQueue", "metadata": {"name": "soak"}, "spec": {"clusterQueue": "soak"}}),
        ),
    ];
    for (_, object) in &mut objects {
        object["apiVersion"] = json!("kueue.x-k8s.io/v1beta2");
    }
    objects
}

fn job(index: u64) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("job-{index}")},
        "spec": {
            "parallelism": 2, "completions": 3, "ttlSecondsAfterFinished": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{
                "name": "work", "image": "busybox", "command": ["sleep", (index % 20).to_string()],
                "resources": {"requests": {"cpu": "1"}},
            }]}},
        },
    });
    // Two of three go through the queue.
    if !index.is_multiple_of(3) {
        job["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "soak"});
    }
    job
}

/// Makes jobs at a rate, as long as not too many are there; some are deleted before their time.
async fn make(
    target: Target,
    namespace: String,
    store: Store,
    rate: f64,
    (done, stop): (Arc<Done>, CancellationToken),
) -> anyhow::Result<()> {
    let mut connection = target.connect().await?;
    let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs");
    let mut clock = tokio::time::interval(Duration::from_secs_f64(1.0 / rate));
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut index = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            _ = clock.tick() => {}
        }
        if store.list("batch/jobs", Some(&namespace)).len() >= MOST_JOBS {
            continue;
        }
        connection.send(Method::POST, &path, JSON, job(index).to_string().into()).await?;
        if index % 10 == 9 {
            let one = format!("{path}/job-{}?propagationPolicy=Background", index - 3);
            // It may have gone by itself.
            let _ = connection.send(Method::DELETE, &one, JSON, Bytes::new()).await;
        }
        index += 1;
        done.jobs.store(index, Ordering::Relaxed);
    }
}

/// Connects, watches or lists for a while, leaves, and comes again.
async fn come_and_go(
    target: Target,
    n: usize,
    done: Arc<Done>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    const WHAT: [&str; 4] =
        ["/api/v1/pods", "/apis/batch/v1/jobs", "/api/v1/events", "/apis/kueue.x-k8s.io/v1beta2/workloads"];
    for round in n.. {
        let path = WHAT.get(round % WHAT.len()).copied().unwrap_or_default();
        // Different each time, without a source of randomness: 0.2 to 3 s.
        let stay = Duration::from_millis(200 + (round as u64 * 7919) % 2800);
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            visit = visit(target.connect(), path, round, stay, &done) => visit?,
        }
    }
    Ok(())
}

async fn visit(
    connection: impl Future<Output = anyhow::Result<Connection>>,
    path: &str,
    round: usize,
    stay: Duration,
    done: &Done,
) -> anyhow::Result<()> {
    let mut connection = connection.await?;
    connection.count(&format!("{path}?limit=100")).await?;
    let mut body = connection.watch(&format!("{path}?watch=true&allowWatchBookmarks=true")).await?;
    done.watches.fetch_add(1, Ordering::Relaxed);
    if round.is_multiple_of(5) {
        // One that doesn't read.
        tokio::time::sleep(stay).await;
        return Ok(());
    }
    let _ = tokio::time::timeout(stay, async {
        while let Some(Ok(frame)) = body.frame().await {
            let lines = frame.data_ref().map_or(0, |d| d.iter().filter(|b| **b == b'\n').count());
            done.events.fetch_add(lines as u64, Ordering::Relaxed);
        }
    })
    .await;
    Ok(())
}

/// Waits until there is a load: first connections to a server that has just started, on processors with other work, may take
/// longer than a short soak. What never begins shows in the figures.
async fn begun(done: &Done, watchers: usize) {
    let waits = || {
        let (jobs, watches) = (done.jobs.load(Ordering::Relaxed), done.watches.load(Ordering::Relaxed));
        jobs == 0 || watches < watchers as u64
    };
    let began = Instant::now();
    while waits() && began.elapsed() < BEGIN {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Looks at the server until the time is over.
async fn follow(args: &cli::BenchSoak, store: &Store, dir: &Path) -> Vec<Sample> {
    let began = Instant::now();
    let pause = (args.duration / SAMPLES).max(Duration::from_millis(100));
    let progress = load::bar(args.quiet || args.output == cli::Output::Json, SAMPLES as usize, "soaking");
    let mut samples = Vec::new();
    while began.elapsed() < args.duration {
        tokio::time::sleep(pause).await;
        samples.push(Sample {
            at: began.elapsed().as_secs_f64(),
            rss: rss().unwrap_or(0),
            objects: store.metrics().objects,
            journal: std::fs::metadata(dir.join("plimsoll.redb")).map_or(0, |m| m.len()),
        });
        progress.inc(1);
    }
    progress.finish_and_clear();
    samples
}

/// Waits until everything is gone; what isn't.
async fn drain(store: &Store, namespace: &str) -> Vec<String> {
    let deadline = Instant::now() + DRAIN;
    loop {
        let mut left = Vec::new();
        for resource in PASSING {
            let all = store.list(resource, Some(namespace));
            left.extend(all.iter().map(|r| format!("{resource} {}", r.key.path())));
        }
        if left.is_empty() || Instant::now() > deadline {
            left.truncate(20);
            return left;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Median memory of a quarter of the run, in bytes.
fn quarter(samples: &[Sample], number: usize) -> f64 {
    let size = samples.len().div_ceil(4).max(1);
    let mut values: Vec<u64> = samples.iter().skip(number * size).take(size).map(|s| s.rss).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0) as f64
}

fn summary(samples: &[Sample]) -> Value {
    let mib = |bytes: f64| (bytes / 1_048_576.0 * 10.0).round() / 10.0;
    let quarters: Vec<f64> = (0..4).map(|q| mib(quarter(samples, q))).collect();
    json!({
        "seconds": samples.last().map_or(0.0, |s| s.at.round()),
        "rssMiBByQuarter": quarters,
        "rssMaxMiB": mib(samples.iter().map(|s| s.rss).max().unwrap_or(0) as f64),
        "journalMaxMiB": mib(samples.iter().map(|s| s.journal).max().unwrap_or(0) as f64),
        "journalLastMiB": mib(samples.last().map_or(0, |s| s.journal) as f64),
        "objectsMax": samples.iter().map(|s| s.objects).max(),
    })
}

fn report(figures: &Value, samples: &[Sample], output: cli::Output) {
    if output == cli::Output::Json {
        return say::line(&figures.to_string());
    }
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    say::line(&format!("{:>9} {:>12} {:>10} {:>13}", "seconds", "memory MiB", "objects", "journal MiB"));
    for sample in samples.iter().step_by((samples.len() / 12).max(1)) {
        let (at, objects) = (sample.at, sample.objects);
        say::line(&format!(
            "{at:>9.0} {:>12.1} {objects:>10} {:>13.1}",
            mib(sample.rss),
            mib(sample.journal)
        ));
    }
    for (key, value) in figures.as_object().into_iter().flatten() {
        say::line(&format!("{key}: {value}"));
    }
}

/// What must not be.
fn verdict(figures: &Value, samples: &[Sample]) -> anyhow::Result<()> {
    let stuck = figures["stuck"].as_array().map_or(0, Vec::len);
    anyhow::ensure!(stuck == 0, "objects stayed behind: {}", figures["stuck"]);
    anyhow::ensure!(figures["jobs"].as_u64() > Some(0), "no job was made");
    let (third, last) = (quarter(samples, 2), quarter(samples, 3));
    anyhow::ensure!(last <= third * GROWTH.0 + GROWTH.1, "memory grows: {last} bytes after {third}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_memory_is_a_fault() {
        let sample = |at: u64, rss: u64| Sample { at: at as f64, rss, objects: 1, journal: 1 };
        let flat: Vec<Sample> = (0..40).map(|n| sample(n, 200 << 20)).collect();
        let growing: Vec<Sample> = (0..40).map(|n| sample(n, (n * 40) << 20)).collect();
        let figures = json!({"stuck": [], "jobs": 5});
        assert!(verdict(&figures, &flat).is_ok());
        assert!(verdict(&figures, &growing).is_err());
        assert!(verdict(&json!({"stuck": ["pods x"], "jobs": 5}), &flat).is_err());
        assert!(verdict(&json!({"stuck": [], "jobs": 0}), &flat).is_err());
    }
}
