//! Pods that wait for nodes: how fast `plimsoll run --placement` and other schedulers bind them, and how fast a client
//! binds that decides nothing, which is the most that the API server lets through.

use std::collections::HashSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bytes::Bytes;
use plimsoll_api::json;
use plimsoll_runtime::api::{NODES, PODS, PatchKind};
use serde_json::json;

use super::objects;
use super::watch;
use super::writes::Writes;
use super::{NAMESPACE, Server, quiet};
use crate::bench::client::{self, Target};
use crate::bench::load::{self, Shot};
use crate::bench::process::{Controller, Usage};
use crate::bench::report::{self, Row};
use crate::cli;

/// Nodes and waiting pods.
const NODES_COUNT: usize = 5_000;
const PODS_COUNT: usize = 10_000;
/// Connections of the client that binds by itself, and of those that create.
const CONNECTIONS: usize = 64;

/// What one turn came to.
struct Turn {
    /// From the start of the process to the last binding.
    elapsed: Duration,
    used: Usage,
    server: Usage,
    /// Writes other than its own of the benchmark's client.
    writes: u64,
}

/// Measures binding: the client that decides nothing, and each scheduler, in turns.
pub async fn run(args: &cli::BenchCluster, schedulers: &[Controller], assets: &Path) -> anyhow::Result<()> {
    let sized = |n: usize| ((n as f64 * args.scale).ceil() as usize).max(1);
    let (nodes, pods) = (sized(NODES_COUNT), sized(PODS_COUNT));
    for round in 0..args.rounds {
        let mut limit = 0.0;
        for scheduler in std::iter::once(None).chain(schedulers.iter().map(Some)) {
            let name = scheduler.map_or("binder", |s| s.name.as_str());
            let what = format!("pods {name} {}/{}", round + 1, args.rounds);
            let turn = turn(scheduler, (nodes, pods), assets, args, &what).await.context(what.clone())?;
            let rate = pods as f64 / turn.elapsed.as_secs_f64().max(1e-9);
            if scheduler.is_none() {
                limit = rate;
            }
            let row = Row::more(format!("{what}: {nodes} nodes, {pods} pods"), rate, "pods/s", None)
                .with("ofBinder", rate / limit)
                .with("cpu", turn.used.cpu)
                .with("memoryMiB", turn.used.memory)
                .with("server", turn.server.cpu)
                .with("writesPerPod", turn.writes as f64 / pods as f64);
            report::row(&Row { case: "pods".into(), ..row }, args.output);
        }
    }
    Ok(())
}

async fn turn(
    scheduler: Option<&Controller>,
    (nodes, pods): (usize, usize),
    assets: &Path,
    args: &cli::BenchCluster,
    what: &str,
) -> anyhow::Result<Turn> {
    let server = Server::start(assets, args).await?;
    create(&server, nodes, pods, args, what).await?;
    let before = Writes::read(&server.api.get_text("/metrics").await?);
    let used_before = server.upstream.usage();
    let bar = load::bar(args.quiet, pods, what);
    let (elapsed, used) = match scheduler {
        None => (bind(&server.target, nodes, pods, &bar).await?, Usage::default()),
        Some(scheduler) => {
            let (watching, mut seen) =
                watch::start(&server.api, &server.target, PODS.collection(NAMESPACE)).await?;
            let began = Instant::now();
            let mut running = scheduler.start(&server.upstream.kubeconfig, &server.log())?;
            let mut bound = HashSet::new();
            while bound.len() < pods {
                match tokio::time::timeout(Duration::from_secs(1), seen.recv()).await {
                    Ok(Some(pod)) if !json::text(&pod, &["spec", "nodeName"]).is_empty() => {
                        bound.insert(json::name(&pod).to_owned());
                        bar.set_position(bound.len() as u64);
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => bail!("the watch of pods ended"),
                    Err(_) => running.check()?,
                }
                if began.elapsed() > args.timeout {
                    bail!("{} of {pods} pods bound within {:?}", bound.len(), args.timeout);
                }
            }
            let elapsed = began.elapsed();
            watching.abort();
            let used = running.usage();
            quiet(&server.api).await?;
            running.stop().await?;
            (elapsed, used)
        }
    };
    bar.finish_and_clear();
    let after = Writes::read(&server.api.get_text("/metrics").await?);
    let now = server.upstream.usage();
    let writes = after.since(&before, &Writes::default()).sum(|what| what != "leases");
    Ok(Turn { elapsed, used, server: Usage { cpu: now.cpu - used_before.cpu, ..now }, writes })
}

/// Creates nodes, ready ones, and pods.
async fn create(
    server: &Server,
    nodes: usize,
    pods: usize,
    args: &cli::BenchCluster,
    what: &str,
) -> anyhow::Result<()> {
    server.namespace().await?;
    let body = |value: serde_json::Value| Bytes::from(value.to_string());
    let node = |i: usize| objects::node(&format!("node-{i}"), &json!({}), 32, 64);
    let shots = (0..nodes).map(|i| Shot { path: NODES.collection(""), body: body(node(i)) }).collect();
    let bar = load::bar(args.quiet, nodes, &format!("{what}: nodes"));
    load::post(&server.target, CONNECTIONS, client::JSON, shots, &bar).await?;
    // The status of a new node is kept, the taint of one that is not ready goes with it.
    let first = server.api.get(NODES, "", "node-0").await?;
    if json::list(&first, &["status", "conditions"]).is_empty() {
        for i in 0..nodes {
            let status = json!({"status": node(i)["status"]});
            server.api.patch(NODES, "", &format!("node-{i}"), "status", PatchKind::Merge, &status).await?;
        }
    }
    if !json::list(&first, &["spec", "taints"]).is_empty() {
        for i in 0..nodes {
            let untainted = json!({"spec": {"taints": null}});
            server.api.patch(NODES, "", &format!("node-{i}"), "", PatchKind::Merge, &untainted).await?;
        }
    }
    let pod = |i: usize| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{i}"), "namespace": NAMESPACE},
            "spec": {"containers": [{"name": "main", "image": "none",
                "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}}}]}})
    };
    let shots = (0..pods).map(|i| Shot { path: PODS.collection(NAMESPACE), body: body(pod(i)) }).collect();
    let bar = load::bar(args.quiet, pods, &format!("{what}: pods"));
    load::post(&server.target, CONNECTIONS, client::JSON, shots, &bar).await?;
    Ok(())
}

/// Binds each pod to the next node.
async fn bind(
    target: &Target,
    nodes: usize,
    pods: usize,
    bar: &indicatif::ProgressBar,
) -> anyhow::Result<Duration> {
    let binding = |i: usize| {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": format!("pod-{i}")},
            "target": {"apiVersion": "v1", "kind": "Node", "name": format!("node-{}", i % nodes)}});
        let path = format!("{}/binding", PODS.object(NAMESPACE, &format!("pod-{i}")));
        Shot { path, body: Bytes::from(binding.to_string()) }
    };
    let shots = (0..pods).map(binding).collect();
    Ok(load::post(target, CONNECTIONS, client::JSON, shots, bar).await?.elapsed)
}
