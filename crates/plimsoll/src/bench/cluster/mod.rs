//! `plimsoll bench cluster`: controllers on a real API server, in turns, under the loads of Kueue's performance test and
//! of scheduler_perf.
//!
//! The client, etcd, kube-apiserver and the controller share this machine, as they do in Kueue's own test. Each turn has
//! a new API server. Writes are counted by the API server itself; what this client wrote is taken off.

mod actor;
mod admit;
mod answerer;
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
use plimsoll_runtime::api::{Api, Resource, WORKLOADS};

use self::writes::Writes;
use super::admission::shape::Shape;
use super::client::Target;
use super::placement::workload::Workload;
use super::process::Controller;
use super::report::{self, Row};
use super::upstream::Upstream;
use crate::cli;

const NAMESPACE: &str = "bench";
/// This program in rows.
const OWN: &str = "plimsoll";
/// Rows with more nodes run only when they are named.
const MOST_NODES: usize = 10_000;
/// Longest wait for what the API server has to do, and for the last writes.
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
        admit::run(&args, &shape, &controllers, &assets).await?;
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
    // Without a port that another one on this machine would want, too.
    let words = ["run", role, "--kubeconfig", "{kubeconfig}", "--metrics-bind-address=0"];
    let mut words = words.map(str::to_owned).to_vec();
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
