//! `plimsoll bench cluster`: controllers on a real API server, in turns, under the loads of Kueue's performance test and
//! of scheduler_perf.
//!
//! The client, etcd, kube-apiserver and the controller share this machine, as they do in Kueue's own test. Each turn has
//! a new API server. Writes are counted by the API server itself; what this client wrote is taken off.

mod binder;
mod bound;
mod drive;
mod failover;
mod make;
mod objects;
mod place;
mod watch;
pub mod writes;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use plimsoll_api::json;
use plimsoll_runtime::api::{Api, CLUSTER_QUEUES, PatchKind, Resource, WORKLOADS};
use serde_json::Value;

use self::drive::Outcome;
use self::writes::Writes;
use super::admission::shape::Shape;
use super::client::Target;
use super::placement::workload::Workload;
use super::process::{Controller, Running, Usage};
use super::report::{self, Row};
use super::upstream::Upstream;
use crate::cli;

const NAMESPACE: &str = "bench";
/// This program in rows.
const OWN: &str = "plimsoll";
/// Rows with more nodes run only when they are named.
const MOST_NODES: usize = 10_000;
/// Longest wait for queues to become active, and for their statuses to say that nothing is left.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures the rows that were asked for.
///
/// A signal ends what was started, too.
pub async fn run(args: cli::BenchCluster) -> anyhow::Result<()> {
    tokio::select! {
        measured = measure(args) => measured,
        () = crate::up::signal() => bail!("interrupted: not all rows were measured"),
    }
}

async fn measure(args: cli::BenchCluster) -> anyhow::Result<()> {
    let Some(assets) = args.assets.clone() else {
        bail!(
            "--assets: etcd and kube-apiserver are needed; name their directory, or set KUBEBUILDER_ASSETS"
        );
    };
    let with = |role: &str, peers: &[String]| -> anyhow::Result<Vec<Controller>> {
        std::iter::once(own(&args, role)).chain(peers.iter().map(|p| Controller::parse(p))).collect()
    };
    let controllers: Vec<Controller> =
        kueue(&assets).into_iter().chain(with("--queueing", &args.peers)?).collect();
    let schedulers = place::upstream(&assets).into_iter().chain(with("--placement", &args.schedulers)?);
    let schedulers: Vec<Controller> = schedulers.collect();
    let (workloads, shapes) = select(&args)?;
    if let Some(file) = &args.history {
        super::history::keep(file, asked(&args))?;
    }
    report::head(args.output, false);
    let mut failed = Vec::new();
    for mut w in workloads {
        w.scale(args.scale);
        // The other rows are worth their time still.
        let measured = match w.failover {
            true => failover::run(&args, &w, &schedulers, &assets).await,
            false => place::run(&args, &w, &schedulers, &assets).await,
        };
        if let Err(e) = measured {
            failed.push(format!("{e:#}"));
        }
    }
    for mut shape in shapes {
        shape.scale(args.scale);
        let mut turns: Vec<Vec<Turn>> = controllers.iter().map(|_| Vec::new()).collect();
        for round in 0..args.rounds {
            for (controller, turns) in controllers.iter().zip(&mut turns) {
                let what = format!("{} {} {}/{}", shape.name, controller.name, round + 1, args.rounds);
                let turn = turn(&shape, controller, &assets, &args, &what).await.context(what.clone())?;
                turn.rows(&shape, &what).iter().for_each(|row| report::row(row, args.output));
                turns.push(turn);
            }
        }
        compare(&shape, &controllers, &turns, args.output);
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("; ")) }
}

/// The flags that matter to who reads the figures later, without paths of this machine.
fn asked(args: &cli::BenchCluster) -> String {
    let mut words = format!("bench cluster --scale {} --rounds {}", args.scale, args.rounds);
    if !args.rows.is_empty() {
        words.push_str(&format!(" --rows {}", args.rows.join(",")));
    }
    if let Some(qps) = args.qps {
        words.push_str(&format!(" --qps {qps}"));
    }
    words
}

/// Kueue as its own performance test runs it (`test/performance/scheduler/minimalkueue`), from the directory of etcd and
/// kube-apiserver. Its client is held to 50 requests a second; `--qps 50` holds Plimsoll to the same.
fn kueue(assets: &Path) -> Option<Controller> {
    let program = assets.join("minimalkueue");
    let command = vec![program.display().to_string(), "--enableTAS".into()];
    program.is_file().then(|| Controller { name: "kueue".into(), command })
}

/// This program in the role that is measured; without `--qps` without a limit of requests.
fn own(args: &cli::BenchCluster, role: &str) -> anyhow::Result<Controller> {
    let mut words = vec!["run".to_owned(), role.to_owned(), "--kubeconfig".into(), "{kubeconfig}".into()];
    if let Some(qps) = args.qps {
        let file = parent(args).join(format!("plimsoll-bench-{}.yaml", std::process::id()));
        let text = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nclientConnection: {{qps: {qps}, burst: {}}}\n",
            qps.saturating_mul(2)
        );
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        words.extend(["--config".to_owned(), file.display().to_string()]);
    }
    Controller::own(words)
}

/// Where temporary files go.
fn parent(args: &cli::BenchCluster) -> PathBuf {
    args.data.clone().unwrap_or_else(std::env::temp_dir)
}

/// The rows that were asked for, by name or by the name of their test case.
fn select(args: &cli::BenchCluster) -> anyhow::Result<(Vec<Workload>, Vec<Shape>)> {
    let (mut workloads, mut shapes) = (Workload::all()?, Shape::built_in()?);
    let is = |w: &Workload, row: &String| w.name == *row || w.upstream.as_ref() == Some(row);
    let known =
        |row: &&String| workloads.iter().any(|w| is(w, row)) || shapes.iter().any(|s| s.name == **row);
    if let Some(unknown) = args.rows.iter().find(|row| !known(row)) {
        let names = workloads.iter().map(|w| w.name.as_str()).chain(shapes.iter().map(|s| s.name.as_str()));
        bail!("--rows: no row {unknown}; there are {}", names.collect::<Vec<_>>().join(", "));
    }
    if args.rows.is_empty() {
        workloads.retain(|w| w.nodes.count <= MOST_NODES);
    } else {
        workloads.retain(|w| args.rows.iter().any(|row| is(w, row)));
        shapes.retain(|s| args.rows.contains(&s.name));
    }
    Ok((workloads, shapes))
}

/// A new API server and the way in.
struct Server {
    upstream: Upstream,
    target: Target,
    api: Api,
    dir: PathBuf,
}

impl Server {
    async fn start(assets: &Path, args: &cli::BenchCluster) -> anyhow::Result<Self> {
        let dir = parent(args).join(format!("plimsoll-bench-{}", std::process::id()));
        let upstream = Upstream::start(assets, dir.clone(), false).await?;
        let target = Target::new(kube::config::Kubeconfig::read_from(&upstream.kubeconfig)?).await?;
        let api = plimsoll_runtime::connect::api(target.config.clone(), "plimsoll-bench")?;
        Ok(Self { upstream, target, api, dir })
    }

    /// What the controller says goes there.
    fn log(&self) -> PathBuf {
        self.replica_log(0)
    }

    /// What one of several replicas says goes there.
    fn replica_log(&self, replica: usize) -> PathBuf {
        self.dir.join(format!("controller-{replica}.log"))
    }
}

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

async fn turn(
    shape: &Shape,
    controller: &Controller,
    assets: &Path,
    args: &cli::BenchCluster,
    what: &str,
) -> anyhow::Result<Turn> {
    let server = Server::start(assets, args).await?;
    let (upstream, target, api) = (&server.upstream, &server.target, server.api.clone());
    install(&api, shape).await?;
    let mut running = controller.start(&upstream.kubeconfig, &server.log())?;
    active(&api, shape.queues(), &mut running).await?;
    let before = Writes::read(&api.get_text("/metrics").await?);
    let (used_before, server_before) = (running.usage(), upstream.usage());
    let bar = super::load::bar(args.quiet, shape.workloads(), what);
    let outcome = drive::play(shape, (&api, target, NAMESPACE), &mut running, args.timeout, &bar).await?;
    bar.finish_and_clear();
    let settled = settled(&api, &mut running).await?;
    let after = quiet(&api).await?;
    let (used, server) = (running.usage(), upstream.usage());
    let stopped = running.stop().await?;
    Ok(Turn {
        writes: after.since(&before, &outcome.own),
        used: Usage { cpu: used.cpu - used_before.cpu, ..used },
        server: Usage { cpu: server.cpu - server_before.cpu, ..server },
        outcome,
        settled,
        stopped,
    })
}

/// Creates Kueue's definitions, and waits until they are served.
pub async fn define(api: &Api) -> anyhow::Result<()> {
    const DEFINITIONS: Resource = Resource {
        api_version: "apiextensions.k8s.io/v1",
        plural: "customresourcedefinitions",
        kind: "CustomResourceDefinition",
    };
    for definition in plimsoll_apimachinery::crd::kueue_definitions() {
        api.create(DEFINITIONS, definition).await.context("a CustomResourceDefinition")?;
    }
    let began = Instant::now();
    while api.get_path(&WORKLOADS.collection("")).await.is_err() {
        if began.elapsed() > PATIENCE {
            bail!("the API server does not serve Workloads");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
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

async fn active(api: &Api, count: usize, running: &mut Running) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        let is = |q: &&Value| json::condition(q, "Active").is_some_and(|c| c["status"] == "True");
        if cluster_queues(api).await?.iter().filter(is).count() == count {
            return Ok(());
        }
        running.check()?;
        if began.elapsed() > PATIENCE {
            bail!("the controller does not make {count} ClusterQueues active");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until the statuses of queues say that nothing waits and nothing runs.
async fn settled(api: &Api, running: &mut Running) -> anyhow::Result<Duration> {
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
        running.check()?;
        if began.elapsed() > PATIENCE {
            bail!("statuses of ClusterQueues still count {left} workloads after the end");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until no more writes come, such as events that were put off, and gives all.
async fn quiet(api: &Api) -> anyhow::Result<Writes> {
    let began = Instant::now();
    let mut last = Writes::read(&api.get_text("/metrics").await?);
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = Writes::read(&api.get_text("/metrics").await?);
        let lately = now.since(&last, &Writes::default());
        // A Lease is renewed for ever.
        if lately.sum(|what| what != "leases") == 0 || began.elapsed() > PATIENCE {
            return Ok(now);
        }
        last = now;
    }
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

/// Wall times of each other controller over those of this program, turn by turn.
fn compare(shape: &Shape, controllers: &[Controller], turns: &[Vec<Turn>], output: cli::Output) {
    let all = || controllers.iter().zip(turns);
    let Some((_, own)) = all().find(|(c, _)| c.name == OWN) else { return };
    for (peer, theirs) in all().filter(|(c, _)| c.name != OWN) {
        let seconds = |t: &Turn| t.outcome.elapsed.as_secs_f64().max(1e-9);
        let times = own.iter().zip(theirs).map(|(a, b)| seconds(b) / seconds(a)).collect();
        if let Some(row) = ratios(&shape.name, &peer.name, times) {
            report::row(&row, output);
        }
    }
}

/// How many times as fast as a peer, on average, with the spread.
fn ratios(case: &str, peer: &str, mut ratios: Vec<f64>) -> Option<Row> {
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (*ratios.first()?, *ratios.last()?);
    let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
    let row = Row::more(format!("{case}: times as fast as {peer}"), mean, "×", None);
    Some(Row { case: case.to_owned(), ..row.with("least", least).with("most", most) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_have_a_spread() {
        let row = ratios("pods", "binder", vec![1.2, 0.8, 1.0]).expect("three turns");
        assert!((row.value - 1.0).abs() < 1e-9, "{row:?}");
        assert_eq!((row.more.get("least"), row.more.get("most")), (Some(&0.8.into()), Some(&1.2.into())));
        assert!(ratios("pods", "binder", Vec::new()).is_none());
    }
}
