//! Workloads of scheduler_perf end to end: `plimsoll run --placement` and other schedulers bind pods on a real API server,
//! and a client that decides nothing does, which is the most that the API server lets through.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use plimsoll_api::json;
use plimsoll_runtime::api::{Api, EVENTS, NODES, PODS};

use super::actor::Actor;
use super::binder;
use super::bound::Bound;
use super::writes::Writes;
use super::{Server, make, quiet};
use crate::bench::load;
use crate::bench::placement::workload::{Pods, Workload};
use crate::bench::process::{Controller, Usage};
use crate::bench::report::{self, Row};
use crate::cli;

/// Name of the client that decides nothing.
const BINDER: &str = "binder";

/// What one turn came to.
struct Turn {
    /// Pods that were bound.
    bound: usize,
    /// From the first creation, or the start of the process, to the last binding.
    elapsed: Duration,
    /// Milliseconds from creation to binding, sorted; from the start of the process when pods wait for it.
    latencies: Vec<f64>,
    used: Usage,
    /// Of etcd and kube-apiserver.
    servers: [Usage; 2],
    /// Writes other than those of the benchmark's client.
    writes: u64,
    /// Events that were written until the last binding was seen.
    events: u64,
}

impl Turn {
    fn quantile(&self, q: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * q).round() as usize).copied().unwrap_or_default()
    }

    fn rate(&self) -> f64 {
        self.bound as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The figure of the row: the rate; of pods that come at a pace the time that 99 of 100 take at most; of a start the
    /// time to the first binding.
    fn figure(&self, w: &Workload) -> f64 {
        match w.pods.per_second {
            Some(_) => self.quantile(0.99),
            None if w.is_start() => self.quantile(0.0),
            None => self.rate(),
        }
    }

    fn row(&self, w: &Workload, what: &str) -> Row {
        let pods = self.bound.max(1) as f64;
        let what = format!("{what}: {} nodes, {} pods", w.nodes.count, w.pods.count);
        let mut row = match w.pods.per_second {
            Some(_) => Row::less(format!("{what}, P99"), self.figure(w), "ms", None),
            None if w.is_start() => Row::less(format!("{what}, first binding"), self.figure(w), "ms", None),
            None => Row::more(what, self.figure(w), "pods/s", None),
        };
        if w.waiting {
            row = row.with("firstMs", self.quantile(0.0));
        } else {
            row = row.with("p50ms", self.quantile(0.5)).with("p99ms", self.quantile(0.99));
        }
        let [etcd, apiserver] = self.servers;
        let row = row
            .with("writesPerPod", self.writes as f64 / pods)
            .with("eventsByThen", self.events as f64)
            .with("cpu", self.used.cpu)
            .with("memoryMiB", self.used.memory)
            .with("apiserverCpu", apiserver.cpu)
            .with("apiserverMiB", apiserver.memory)
            .with("etcdCpu", etcd.cpu)
            .with("etcdMiB", etcd.memory);
        Row { case: w.name.clone(), ..row }
    }
}

/// Measures a workload: the client that decides nothing and each scheduler, in turns.
pub async fn run(
    args: &cli::BenchCluster,
    w: &Workload,
    schedulers: &[Controller],
    assets: &Path,
) -> anyhow::Result<()> {
    // The client that decides nothing has no state to build.
    let binder = (!w.is_start()).then_some(None);
    let actors: Vec<Option<&Controller>> = binder.into_iter().chain(schedulers.iter().map(Some)).collect();
    let name = |actor: &Option<&Controller>| actor.map_or(BINDER, |s| s.name.as_str()).to_owned();
    let mut turns: Vec<Vec<Turn>> = actors.iter().map(|_| Vec::new()).collect();
    for round in 0..args.rounds {
        for (actor, turns) in actors.iter().zip(&mut turns) {
            let what = format!("{} {} {}/{}", w.name, name(actor), round + 1, args.rounds);
            match turn(*actor, w, assets, args, &what).await {
                Ok(turn) => {
                    report::row(&turn.row(w, &what), args.output);
                    turns.push(turn);
                }
                // The others are worth their time still.
                Err(e) => crate::say::error(&format!("{what}: {e:#}")),
            }
        }
    }
    let figures = |turns: &Vec<Turn>| turns.iter().map(|t| t.figure(w)).collect::<Vec<f64>>();
    let named: Vec<(String, Vec<f64>)> = actors.iter().map(name).zip(turns.iter().map(figures)).collect();
    compare(w, &named, args.output);
    match named.iter().find(|(_, figures)| figures.len() < args.rounds as usize) {
        Some((name, _)) => bail!("{}: {name} was not measured in each round", w.name),
        None => Ok(()),
    }
}

/// What this program reaches beside each of the others, turn by turn.
fn compare(w: &Workload, turns: &[(String, Vec<f64>)], output: cli::Output) {
    let Some((_, own)) = turns.iter().find(|(name, _)| name == super::OWN) else { return };
    for (name, theirs) in turns.iter().filter(|(name, _)| name != super::OWN) {
        let times = w.pods.per_second.is_some() || w.is_start();
        let ratio = |(own, theirs): (&f64, &f64)| if times { theirs / own } else { own / theirs };
        let ratios: Vec<f64> = own.iter().zip(theirs).map(ratio).collect();
        if let Some(row) = super::ratios(&w.name, name, ratios) {
            report::row(&row, output);
        }
    }
}

async fn turn(
    scheduler: Option<&Controller>,
    w: &Workload,
    assets: &Path,
    args: &cli::BenchCluster,
    what: &str,
) -> anyhow::Result<Turn> {
    let server = Server::start(assets, args).await?;
    make::cluster(&server.target, w).await?;
    untainted(&server.api, &w.nodes.nth(0)).await?;
    let bar = load::bar(args.quiet, w.pods.fitting(), what);
    let done = match w.waiting {
        true => waiting(scheduler, w, &server, args, &bar).await,
        false => coming(scheduler, w, &server, args, &bar).await,
    };
    bar.finish_and_clear();
    done
}

/// A taint that the API server gives to new nodes would keep all pods off.
async fn untainted(api: &Api, node: &str) -> anyhow::Result<()> {
    let node = api.get(NODES, "", node).await?;
    let taints = json::list(&node, &["spec", "taints"]).iter();
    match taints.filter(|t| t["key"].as_str().is_some_and(|k| k.contains("not-ready"))).count() {
        0 => Ok(()),
        _ => bail!("the API server taints new nodes"),
    }
}

/// What was used and written before.
struct Before {
    writes: Writes,
    used: Usage,
    servers: [Usage; 2],
}

impl Before {
    async fn read(server: &Server, actor: Option<&Actor>) -> anyhow::Result<Self> {
        let writes = Writes::read(&server.api.get_text("/metrics").await?);
        Ok(Self { writes, used: used(actor), servers: server.upstream.usages() })
    }

    /// Events that were written since.
    async fn events(&self, server: &Server) -> anyhow::Result<u64> {
        let now = Writes::read(&server.api.get_text("/metrics").await?);
        Ok(now.since(&self.writes, &Writes::default()).sum(|what| what == EVENTS.plural))
    }

    /// What came since, when no more comes.
    async fn since(
        self,
        server: &Server,
        actor: Option<&Actor>,
        own: &Writes,
    ) -> anyhow::Result<(Usage, [Usage; 2], u64)> {
        let after = quiet(&server.api).await?;
        let minus = |now: Usage, before: Usage| Usage { cpu: now.cpu - before.cpu, ..now };
        let [etcd, apiserver] = server.upstream.usages();
        let servers = [minus(etcd, self.servers[0]), minus(apiserver, self.servers[1])];
        let writes = after.since(&self.writes, own).sum(|what| what != "leases");
        Ok((minus(used(actor), self.used), servers, writes))
    }
}

fn used(actor: Option<&Actor>) -> Usage {
    actor.map(Actor::usage).unwrap_or_default()
}

/// Pods that are there before the scheduler starts.
async fn waiting(
    scheduler: Option<&Controller>,
    w: &Workload,
    server: &Server,
    args: &cli::BenchCluster,
    bar: &indicatif::ProgressBar,
) -> anyhow::Result<Turn> {
    let count = w.pods.count;
    for (set, pods) in w.init.iter().enumerate() {
        let there = make::prepare(&server.target, pods, set + 1).await?.on(&w.nodes);
        there.create(&server.target).await.context("pods that have their nodes")?;
    }
    make::prepare(&server.target, &w.pods, 0).await?.create(&server.target).await?;
    let before = Before::read(server, None).await?;
    let mut bound = Bound::start(&server.api, &server.target, &[count]).await?;
    let began = Instant::now();
    let actor = match scheduler {
        None => {
            let names = (0..count).map(|i| Pods::name(0, i));
            let mut nobody = Actor::Nobody;
            let watched = bound.until((0, count), &mut nobody, args.timeout, bar);
            tokio::try_join!(binder::bind_all(&server.target, names, &w.nodes), watched)?;
            None
        }
        Some(scheduler) => {
            let running = scheduler.start(&server.upstream.kubeconfig, &server.log())?;
            let mut actor = Actor::Controller(running);
            bound.until((0, w.pods.fitting()), &mut actor, args.timeout, bar).await?;
            Some(actor)
        }
    };
    let events = before.events(server).await?;
    let elapsed = bound.last(0).context("nothing was bound")?.duration_since(began);
    let latencies = bound.latencies(0, &vec![began; count]);
    let (used, servers, writes) = before.since(server, actor.as_ref(), &Writes::default()).await?;
    if let Some(actor) = actor {
        actor.stop().await?;
    }
    Ok(Turn { bound: w.pods.fitting(), elapsed, latencies, used, servers, writes, events })
}

/// Pods that are created while the scheduler runs.
async fn coming(
    scheduler: Option<&Controller>,
    w: &Workload,
    server: &Server,
    args: &cli::BenchCluster,
    bar: &indicatif::ProgressBar,
) -> anyhow::Result<Turn> {
    let (api, target) = (&server.api, &server.target);
    // The set after the last one is a pod that shows that the scheduler is ready.
    let probe = w.init.len() + 1;
    let sizes: Vec<usize> = std::iter::once(&w.pods).chain(&w.init).map(|p| p.count).chain([1]).collect();
    let mut bound = Bound::start(api, target, &sizes).await?;
    let mut actor = match scheduler {
        None => Actor::Limit(binder::start(api, target, &w.nodes).await?),
        Some(scheduler) => Actor::Controller(scheduler.start(&server.upstream.kubeconfig, &server.log())?),
    };
    let first = Pods::plain(1);
    for (set, pods) in w.init.iter().enumerate().map(|(i, p)| (i + 1, p)).chain([(probe, &first)]) {
        make::prepare(target, pods, set).await?.create(target).await?;
        let hidden = indicatif::ProgressBar::hidden();
        bound.until((set, pods.fitting()), &mut actor, args.timeout, &hidden).await.context("first pods")?;
    }
    let pods = make::prepare(target, &w.pods, 0).await?;
    // What followed from the first pods, such as events, is not measured.
    quiet(api).await?;
    let before = Before::read(server, Some(&actor)).await?;
    let own = Mutex::new(Writes::default());
    let churn = async {
        match &w.churn {
            Some(churn) => make::churn(target, churn, &own).await,
            None => std::future::pending().await,
        }
    };
    let began = Instant::now();
    let work = async {
        let all = bound.until((0, w.pods.fitting()), &mut actor, args.timeout, bar);
        Ok::<_, anyhow::Error>(tokio::try_join!(pods.create(target), all)?.0)
    };
    let created = tokio::select! {
        created = work => created?,
        ended = churn => {
            ended?;
            bail!("the churn ended");
        }
    };
    let events = before.events(server).await?;
    let elapsed = bound.last(0).context("nothing was bound")?.duration_since(began);
    let mut own = own.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    own.add(PODS.plural, w.pods.count as u64);
    let (used, servers, writes) = before.since(server, Some(&actor), &own).await?;
    let latencies = bound.latencies(0, &created);
    actor.stop().await?;
    Ok(Turn { bound: w.pods.fitting(), elapsed, latencies, used, servers, writes, events })
}

/// kube-scheduler in the directory of etcd and kube-apiserver, without limits of its own and alone.
pub fn upstream(assets: &Path) -> Option<Controller> {
    let program = assets.join("kube-scheduler");
    let args = [
        "--kubeconfig={kubeconfig}",
        "--kube-api-qps=100000",
        "--kube-api-burst=100000",
        "--leader-elect=false",
        "--secure-port=0",
    ];
    let command = std::iter::once(program.display().to_string()).chain(args.map(str::to_owned)).collect();
    program.is_file().then(|| Controller { name: "kube-scheduler".into(), command })
}
