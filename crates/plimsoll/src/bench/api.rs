//! `plimsoll bench api`: pods from creation to binding through the embedded server, with watchers.
//!
//! Clients talk to the server's service in this process, so what is measured is the server and the engine without
//! TLS and sockets. Nodes have no kubelets: a pod is done when it is bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::AsyncBufReadExt;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_runtime::Roles;
use plimsoll_runtime::api::{Api, NAMESPACES, PODS};
use plimsoll_runtime::watch::{self, Delta};
use plimsoll_sim::nodes::{Shape, node};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::up::plane::{Plane, Settings};
use crate::{cli, say};

/// Namespace of the pods.
const NAMESPACE: &str = "bench";
/// A run that makes no progress for this long has failed.
const STALLED: Duration = Duration::from_secs(60);

/// Runs the benchmark and prints its figures.
pub async fn run(args: cli::BenchApi) -> anyhow::Result<()> {
    let settings = Settings {
        data: args.data.clone(),
        durability: args.durability,
        token: None,
        address: "127.0.0.1:6443".into(),
        roles: Roles { queueing: false, placement: true },
        speed: None,
    };
    let idle = rss();
    let plane = Plane::start(&settings).await?;
    let stop = CancellationToken::new();
    let now = plimsoll_runtime::clock::now().0;
    let shape = Shape { cpu: "64".into(), memory: "256Gi".into(), pods: 110 };
    let began = Instant::now();
    plane.create_nodes((0..args.nodes).map(|i| node(i, &shape, now)).collect()).await?;
    let nodes_seconds = began.elapsed().as_secs_f64();
    plane
        .api()
        .create(
            NAMESPACES,
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        )
        .await
        .context("creating the namespace")?;

    let bound = Arc::new(AtomicUsize::new(0));
    follow(plane.api(), &bound, &stop);
    let delivered = Arc::new(AtomicU64::new(0));
    for _ in 0..args.watchers {
        tokio::spawn(count(plane.api().clone(), Arc::clone(&delivered), stop.clone()));
    }
    let quiet = args.output == cli::Output::Json;
    let began = Instant::now();
    let created = create(&args, plane.api(), quiet).await?;
    wait(&args, &bound, quiet).await?;
    let total = began.elapsed().as_secs_f64();
    // Watchers may still have events on the way: each pod is at least created and bound.
    let expected = 2 * args.pods as u64 * args.watchers as u64;
    let deadline = Instant::now() + Duration::from_secs(10);
    while delivered.load(Ordering::Relaxed) < expected && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let fan_out = began.elapsed().as_secs_f64();
    let events = delivered.load(Ordering::Relaxed);
    let figures = json!({
        "pods": args.pods, "nodes": args.nodes, "watchers": args.watchers,
        "nodesSeconds": nodes_seconds, "createSeconds": created, "boundSeconds": total,
        "podsPerSecond": args.pods as f64 / total, "createsPerSecond": args.pods as f64 / created,
        "watchEvents": events, "watchEventsPerSecond": events as f64 / fan_out,
        "rssBytesIdle": idle, "rssBytes": rss(),
        "store": if args.data.is_some() { "disk" } else { "memory" },
    });
    stop.cancel();
    plane.stop().await;
    print(&figures, quiet);
    Ok(())
}

fn bar(quiet: bool, length: usize, what: &str) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length as u64).with_message(what.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{msg:8} {bar:40} {pos}/{len} {per_sec}") {
        bar.set_style(style);
    }
    bar
}

fn pod(index: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{index}"), "namespace": NAMESPACE, "labels": {"app": "bench"}},
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "work", "image": "busybox",
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }]},
    })
}

async fn create(args: &cli::BenchApi, api: &Api, quiet: bool) -> anyhow::Result<f64> {
    let next = Arc::new(AtomicUsize::new(0));
    let progress = bar(quiet, args.pods, "created");
    let began = Instant::now();
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..args.clients.max(1) {
        let (next, api, progress, pods) = (Arc::clone(&next), api.clone(), progress.clone(), args.pods);
        clients.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= pods {
                    return Ok(());
                }
                api.create(PODS, &pod(index)).await?;
                progress.inc(1);
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        let done: Result<(), plimsoll_runtime::api::Error> = done.context("a client")?;
        done.context("creating a pod")?;
    }
    progress.finish();
    Ok(began.elapsed().as_secs_f64())
}

/// Counts the pods that have a node, from a watch like any other client's.
fn follow(api: &Api, bound: &Arc<AtomicUsize>, stop: &CancellationToken) {
    let (api, bound, stop) = (api.clone(), Arc::clone(bound), stop.clone());
    tokio::spawn(async move {
        let mut seen = std::collections::HashSet::new();
        watch::run(api, PODS, "", stop, move |delta| {
            if let Delta::Upsert { meta, bytes } = delta
                && bytes.windows(12).any(|w| w == b"\"nodeName\":\"")
                && seen.insert(meta.uid.clone())
            {
                bound.fetch_add(1, Ordering::Relaxed);
            }
        })
        .await;
    });
}

async fn wait(args: &cli::BenchApi, bound: &AtomicUsize, quiet: bool) -> anyhow::Result<()> {
    let progress = bar(quiet, args.pods, "bound");
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let count = bound.load(Ordering::Relaxed);
        progress.set_position(count as u64);
        if count >= args.pods {
            progress.finish();
            return Ok(());
        }
        if count > last {
            (last, since) = (count, Instant::now());
        } else if since.elapsed() > STALLED {
            anyhow::bail!("stalled: {count} of {} pods are bound", args.pods);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Reads a watch as fast as it comes and counts its lines.
async fn count(api: Api, delivered: Arc<AtomicU64>, stop: CancellationToken) {
    let work = async {
        let path = format!("{}?watch=true", PODS.collection(NAMESPACE));
        let request = http::Request::get(path).body(Vec::new()).ok()?;
        let mut lines = std::pin::pin!(api.client().request_stream(request).await.ok()?);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).await.ok()? > 0 {
            delivered.fetch_add(1, Ordering::Relaxed);
            line.clear();
        }
        Some(())
    };
    tokio::select! {
        () = stop.cancelled() => {}
        _ = work => {}
    }
}

/// Resident memory of this process in bytes, where the system tells (Linux).
fn rss() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn print(figures: &Value, quiet: bool) {
    if quiet {
        return say::line(&figures.to_string());
    }
    let number = |key: &str| figures[key].as_f64().unwrap_or(0.0);
    let mib = |key: &str| number(key) / 1_048_576.0;
    say::line(&format!(
        "{} pods on {} nodes, store in {}:\n  bound in {:.2} s: {:.0} pods/s (created in {:.2} s: {:.0}/s)\n  {} \
         watchers: {:.0} events, {:.0}/s\n  memory: {:.0} MiB (idle {:.0} MiB)",
        figures["pods"],
        figures["nodes"],
        figures["store"].as_str().unwrap_or_default(),
        number("boundSeconds"),
        number("podsPerSecond"),
        number("createSeconds"),
        number("createsPerSecond"),
        figures["watchers"],
        number("watchEvents"),
        number("watchEventsPerSecond"),
        mib("rssBytes"),
        mib("rssBytesIdle"),
    ));
}
