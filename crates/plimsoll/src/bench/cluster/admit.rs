//! Kueue's loads end to end: `plimsoll run --queueing`, Kueue and others admit workloads on a real API server, and a client
//! that decides nothing does, which is the most that the API server lets through.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use plimsoll_api::json;
use plimsoll_runtime::api::{Api, CLUSTER_QUEUES, PatchKind};
use serde_json::Value;

use super::actor::Actor;
use super::answerer::Answerer;
use super::drive::{self, Outcome};
use super::writes::Writes;
use super::{NAMESPACE, Server, define, objects, quiet};
use crate::bench::admission::shape::Shape;
use crate::bench::load;
use crate::bench::process::{Controller, Usage};
use crate::bench::report::{self, Row};
use crate::cli;

/// Name of the client that decides nothing.
const ADMITTER: &str = "admitter";
/// Longest wait for queues to become active, and for their statuses to say that nothing is left: a controller that writes one
/// status after the other takes more than a minute for a thousand of each kind.
const PATIENCE: Duration = Duration::from_secs(300);

/// What one turn of one controller came to.
struct Turn {
    outcome: Outcome,
    /// Of the controller.
    used: Usage,
    /// Of kube-apiserver and etcd.
    server: Usage,
    writes: Writes,
    /// From the last end to statuses of queues that say so.
    settled: Duration,
    /// From SIGTERM to the end.
    stopped: Duration,
}

impl Turn {
    fn rows(&self, shape: &Shape, what: &str) -> Vec<Row> {
        let o = &self.outcome;
        let per = |n: u64| n as f64 / shape.workloads().max(1) as f64;
        let of = |names: &'static [&'static str]| {
            move |w: &str| names.iter().any(|n| w.split('/').next() == Some(n))
        };
        let writes = |names| per(self.writes.sum(of(names)));
        let mut rows = vec![
            Row::less(format!("{what}: wall"), o.elapsed.as_secs_f64(), "s", None)
                .with("created", o.created.as_secs_f64())
                .with("evictions", o.evictions as f64)
                .with("settled", self.settled.as_secs_f64())
                .with("stopped", self.stopped.as_secs_f64()),
            Row::less(format!("{what}: writes per workload"), per(self.writes.sum(|_| true)), "", None)
                .with("workloads", writes(&["workloads"]))
                .with("queues", writes(&["clusterqueues", "localqueues", "cohorts"]))
                .with("events", writes(&["events"])),
            Row::less(format!("{what}: CPU of the controller"), self.used.cpu, "s", None)
                .with("memoryMiB", self.used.memory)
                .with("server", self.server.cpu),
        ];
        for (class, waits) in shape.by_class(&o.waits) {
            let at = |q: f64| waits.get(((waits.len() as f64 - 1.0) * q).round() as usize).copied();
            let average = waits.iter().sum::<f64>() / waits.len().max(1) as f64;
            let row = Row::less(format!("{what}: to admission, {class}"), average, "s", None);
            rows.push(row.with("p50", at(0.5).unwrap_or(0.0)).with("p99", at(0.99).unwrap_or(0.0)));
        }
        rows.iter_mut().for_each(|r| r.case.clone_from(&shape.name));
        rows
    }
}

/// Measures a load: the client that decides nothing and each controller, in turns.
pub async fn run(
    args: &cli::BenchCluster,
    shape: &Shape,
    controllers: &[Controller],
    assets: &Path,
) -> anyhow::Result<()> {
    let actors: Vec<Option<&Controller>> =
        std::iter::once(None).chain(controllers.iter().map(Some)).collect();
    let name = |actor: &Option<&Controller>| actor.map_or(ADMITTER, |c| c.name.as_str()).to_owned();
    let mut turns: Vec<Vec<Turn>> = actors.iter().map(|_| Vec::new()).collect();
    for round in 0..args.rounds {
        for (actor, turns) in actors.iter().zip(&mut turns) {
            let what = format!("{} {} {}/{}", shape.name, name(actor), round + 1, args.rounds);
            let turn = turn(shape, *actor, assets, args, &what).await.context(what.clone())?;
            turn.rows(shape, &what).iter().for_each(|row| report::row(row, args.output));
            turns.push(turn);
        }
    }
    let named: Vec<(String, Vec<Turn>)> = actors.iter().map(name).zip(turns).collect();
    compare(shape, &named, args.output);
    Ok(())
}

/// Wall times of each other controller over those of this program, turn by turn.
fn compare(shape: &Shape, turns: &[(String, Vec<Turn>)], output: cli::Output) {
    let Some((_, own)) = turns.iter().find(|(name, _)| name == super::OWN) else { return };
    for (peer, theirs) in turns.iter().filter(|(name, _)| name != super::OWN) {
        let seconds = |t: &Turn| t.outcome.elapsed.as_secs_f64().max(1e-9);
        let times = own.iter().zip(theirs).map(|(a, b)| seconds(b) / seconds(a)).collect();
        if let Some(row) = super::ratios(&shape.name, peer, times) {
            report::row(&row, output);
        }
    }
}

async fn turn(
    shape: &Shape,
    controller: Option<&Controller>,
    assets: &Path,
    args: &cli::BenchCluster,
    what: &str,
) -> anyhow::Result<Turn> {
    let server = Server::start(assets, args).await?;
    let (upstream, target, api) = (&server.upstream, &server.target, server.api.clone());
    install(&api, shape).await?;
    let mut actor = match controller {
        None => Actor::Limit(Answerer::admitter(&api, target, NAMESPACE).await?),
        Some(controller) => Actor::Controller(controller.start(&upstream.kubeconfig, &server.log())?),
    };
    // Nobody writes statuses of queues beside the client that decides nothing.
    if controller.is_some() {
        active(&api, shape.queues(), &mut actor).await?;
    }
    let before = Writes::read(&api.get_text("/metrics").await?);
    let (used_before, server_before) = (actor.usage(), upstream.usage());
    let bar = load::bar(args.quiet, shape.workloads(), what);
    let outcome = drive::play(shape, (&api, target, NAMESPACE), &mut actor, args.timeout, &bar).await?;
    bar.finish_and_clear();
    let settled = match controller {
        None => Duration::ZERO,
        Some(_) => settled(&api, shape.queues(), &mut actor).await?,
    };
    let after = quiet(&api).await?;
    let (used, server) = (actor.usage(), upstream.usage());
    let stopped = actor.stop().await?;
    Ok(Turn {
        writes: after.since(&before, &outcome.own),
        used: Usage { cpu: used.cpu - used_before.cpu, ..used },
        server: Usage { cpu: server.cpu - server_before.cpu, ..server },
        outcome,
        settled,
        stopped,
    })
}

/// Creates the definitions and everything but workloads.
async fn install(api: &Api, shape: &Shape) -> anyhow::Result<()> {
    define(api).await?;
    for (resource, object) in objects::setup(shape, NAMESPACE) {
        api.create(resource, &object).await.with_context(|| format!("creating {}", json::name(&object)))?;
        if object.get("status").is_some() {
            let status = serde_json::json!({"status": object["status"]});
            api.patch(resource, "", json::name(&object), "status", PatchKind::Merge, &status).await?;
        }
    }
    Ok(())
}

async fn cluster_queues(api: &Api) -> anyhow::Result<Vec<Value>> {
    let list = api.get_path(&CLUSTER_QUEUES.collection("")).await?;
    Ok(json::list(&list, &["items"]).to_vec())
}

async fn active(api: &Api, count: usize, actor: &mut Actor) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let is = |q: &&Value| json::condition(q, "Active").is_some_and(|c| c["status"] == "True");
        if cluster_queues(api).await?.iter().filter(is).count() == count {
            return Ok(());
        }
        actor.check()?;
        if began.elapsed() > PATIENCE {
            bail!("the controller does not make {count} ClusterQueues active");
        }
        look_again(count).await;
    }
}

/// Waits until the statuses of queues say that nothing waits and nothing runs.
async fn settled(api: &Api, count: usize, actor: &mut Actor) -> anyhow::Result<Duration> {
    let began = Instant::now();
    loop {
        let left = |q: &Value| {
            let count = |field: &str| q["status"][field].as_i64().unwrap_or_default();
            count("pendingWorkloads") + count("reservingWorkloads")
        };
        let left: i64 = cluster_queues(api).await?.iter().map(left).sum();
        if left == 0 {
            return Ok(began.elapsed());
        }
        actor.check()?;
        if began.elapsed() > PATIENCE {
            bail!("statuses of ClusterQueues still count {left} workloads after the end");
        }
        look_again(count).await;
    }
}

/// Waits between two lists of ClusterQueues: a millisecond for each, so that looking does not take the server from those
/// who write.
async fn look_again(count: usize) {
    let each = Duration::from_millis(u64::try_from(count).unwrap_or(u64::MAX));
    tokio::time::sleep(each.max(Duration::from_millis(50))).await;
}
