//! `bench cluster --rows failover`: two replicas of a scheduler under load, of which the leader ends.
//!
//! Pods come all the time. First the leader is asked to end (SIGTERM) and releases its Lease; a replica takes its place, and
//! then the new leader is killed (SIGKILL), and its Lease expires. Measured is the time from a free Lease to the first
//! binding by the other replica. The API server's versions tell who bound: a leader binds after it acquired the Lease, so
//! the versions of its pods are above that of the acquired Lease.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use plimsoll_api::{json, timestamp};
use plimsoll_runtime::api::{Api, LEASES, PODS};
use serde_json::Value;

use super::watch::{self, Pod, Seen as _};
use super::{Server, make};
use crate::bench::load;
use crate::bench::placement::workload::{NAMESPACE, Pods, Workload};
use crate::bench::process::{Controller, Running};
use crate::bench::report::{self, Row};
use crate::cli;

/// Longest wait for a new leader and its first binding.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a replica that follows gets to build its state before the leader ends.
const WARM: Duration = Duration::from_secs(6);
/// How often the Lease is read while a leader ends.
const LOOK: Duration = Duration::from_millis(5);
/// Wanted of this program: milliseconds from a free Lease to a binding.
const WANTED: f64 = 1000.0;

/// Measures each scheduler in turns.
pub async fn run(
    args: &cli::BenchCluster,
    w: &Workload,
    schedulers: &[Controller],
    assets: &Path,
) -> anyhow::Result<()> {
    let mut failed = 0;
    for round in 0..args.rounds {
        for scheduler in schedulers {
            let what = format!("{} {} {}/{}", w.name, scheduler.name, round + 1, args.rounds);
            match turn(&elected(scheduler), w, args, assets, &what).await {
                Ok(gaps) => {
                    let wanted = (scheduler.name == super::OWN).then_some(WANTED);
                    gaps.iter().for_each(|gap| report::row(&gap.row(w, &what, wanted), args.output));
                }
                Err(e) => {
                    crate::say::error(&format!("{what}: {e:#}"));
                    failed += 1;
                }
            }
        }
    }
    if failed > 0 { bail!("{}: {failed} turns were not measured", w.name) } else { Ok(()) }
}

/// The same command with leader election.
fn elected(scheduler: &Controller) -> Controller {
    let mut scheduler = scheduler.clone();
    scheduler.command.retain(|word| !word.starts_with("--leader-elect="));
    scheduler
}

/// A change of leader.
struct Gap {
    /// How the leader ended.
    how: &'static str,
    /// From the signal to the free Lease.
    released: Duration,
    /// From the free Lease to the acquired one.
    acquired: Duration,
    /// From the free Lease to the next binding.
    bound: Duration,
}

impl Gap {
    fn row(&self, w: &Workload, what: &str, wanted: Option<f64>) -> Row {
        let millis = |d: Duration| d.as_secs_f64() * 1e3;
        let what = format!("{what}: free Lease to next binding, leader {}", self.how);
        let row = Row::less(what, millis(self.bound), "ms", wanted)
            .with("acquiredMs", millis(self.acquired))
            .with("releasedMs", millis(self.released));
        Row { case: w.name.clone(), ..row }
    }
}

/// Bindings as they are seen.
#[derive(Clone, Default)]
struct Bindings(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    pods: BTreeSet<String>,
    /// Version of the pod, and time.
    bound: Vec<(u64, Instant)>,
}

impl Bindings {
    /// Follows them until the task is dropped.
    async fn follow(self, mut seen: tokio::sync::mpsc::Receiver<Pod>) {
        while let Some(pod) = seen.recv().await {
            let (Ok(version), true) = (pod.version().parse(), pod.is_bound()) else { continue };
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.pods.insert(pod.name().to_owned()) {
                seen.bound.push((version, Instant::now()));
            }
        }
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bound.len()
    }

    /// Waits for the first one with a version above this one.
    async fn after(&self, version: u64) -> anyhow::Result<Instant> {
        let began = Instant::now();
        loop {
            let first = {
                let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                seen.bound.iter().filter(|(v, _)| *v > version).map(|(_, at)| *at).min()
            };
            if let Some(first) = first {
                return Ok(first);
            }
            if began.elapsed() > PATIENCE {
                bail!("the new leader binds no pod");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for so many.
    async fn until(&self, wanted: usize, replicas: &mut [Option<Running>]) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.count() < wanted {
            for running in replicas.iter_mut().flatten() {
                running.check()?;
            }
            if began.elapsed() > PATIENCE {
                bail!("{} of {wanted} pods bound within {PATIENCE:?}", self.count());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

/// The Lease of the replicas, as it was read.
#[derive(Clone, Debug, PartialEq)]
struct Lease {
    namespace: String,
    name: String,
    holder: String,
    version: u64,
    /// When it expires, unless it is renewed.
    expires: SystemTime,
}

impl Lease {
    fn read(lease: &Value) -> anyhow::Result<Self> {
        let meta = |field| json::text(lease, &["metadata", field]).to_owned();
        let spec = &lease["spec"];
        let renewed = spec["renewTime"].as_str().and_then(timestamp::parse).unwrap_or_default();
        let valid = spec["leaseDurationSeconds"].as_u64().unwrap_or_default();
        let renewed = Duration::from_nanos(u64::try_from(renewed.0).unwrap_or_default());
        Ok(Self {
            namespace: meta("namespace"),
            name: meta("name"),
            holder: json::text(lease, &["spec", "holderIdentity"]).to_owned(),
            version: meta("resourceVersion").parse().context("the version of a Lease")?,
            expires: SystemTime::UNIX_EPOCH + renewed + Duration::from_secs(valid),
        })
    }

    /// The only one that kube-apiserver does not hold itself.
    async fn find(api: &Api) -> anyhow::Result<Self> {
        let list = api.get_path(&LEASES.collection("")).await?;
        let own = |lease: &&Value| !json::name(lease).starts_with("apiserver-");
        let lease = json::list(&list, &["items"]).iter().find(own);
        Self::read(lease.context("no Lease: the scheduler does not elect a leader")?)
    }

    async fn again(&self, api: &Api) -> anyhow::Result<Self> {
        Self::read(&api.get(LEASES, &self.namespace, &self.name).await?)
    }

    /// Waits for another holder. Gives the Lease with that one, when it was seen to be free, and when it was seen to be held.
    async fn taken(&self, api: &Api) -> anyhow::Result<(Self, Instant, Instant)> {
        let began = Instant::now();
        let mut free = None;
        loop {
            let now = self.again(api).await?;
            if now.holder != self.holder {
                let at = *free.get_or_insert_with(Instant::now);
                if !now.holder.is_empty() {
                    return Ok((now, at, Instant::now()));
                }
            }
            if began.elapsed() > PATIENCE {
                bail!("no other replica acquires the Lease of {}", self.holder);
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn turn(
    scheduler: &Controller,
    w: &Workload,
    args: &cli::BenchCluster,
    assets: &Path,
    what: &str,
) -> anyhow::Result<[Gap; 2]> {
    let server = Server::start(assets, args).await?;
    let (api, target) = (&server.api, &server.target);
    make::cluster(target, w).await?;
    let bindings = Bindings::default();
    let (watching, seen) = watch::start(api, target, PODS.collection(NAMESPACE)).await?;
    let following = tokio::spawn(bindings.clone().follow(seen));
    let start = |replica| scheduler.start(&server.upstream.kubeconfig, &server.replica_log(replica));
    let mut replicas = [Some(start(0)?), None];
    // The first one leads for sure: it binds while it is alone.
    make::prepare(target, &Pods::plain(1), 1).await?.create(target).await?;
    bindings.until(1, &mut replicas).await.context("a first pod")?;
    replicas[1] = Some(start(1)?);
    tokio::time::sleep(WARM).await;

    let bar = load::bar(args.quiet, w.pods.count, what);
    let pods = make::prepare(target, &w.pods, 0).await?;
    let work = async {
        let rounds = async {
            tokio::time::sleep(WARM / 2).await;
            let first = leave(api, &bindings, &mut replicas[0], Signal::Terminate).await?;
            replicas[0] = Some(start(0)?);
            tokio::time::sleep(WARM).await;
            let second = leave(api, &bindings, &mut replicas[1], Signal::Kill).await?;
            Ok::<_, anyhow::Error>([first, second])
        };
        let (_, gaps) = tokio::try_join!(pods.create(target), rounds)?;
        bindings.until(w.pods.fitting() + 1, &mut replicas).await?;
        Ok(gaps)
    };
    let done = work.await;
    bar.finish_and_clear();
    watching.abort();
    following.abort();
    done
}

/// How a leader is ended.
#[derive(Clone, Copy)]
enum Signal {
    Terminate,
    Kill,
}

/// Ends the leader, and measures how the other replica takes over.
async fn leave(
    api: &Api,
    bindings: &Bindings,
    leader: &mut Option<Running>,
    signal: Signal,
) -> anyhow::Result<Gap> {
    let mut running = leader.take().context("a leader")?;
    running.check()?;
    let signalled = Instant::now();
    let (how, killed) = match signal {
        Signal::Terminate => {
            running.terminate()?;
            ("asked to end", Some(running))
        }
        // Dropped, a process is killed.
        Signal::Kill => {
            drop(running);
            ("killed", None)
        }
    };
    let lease = Lease::find(api).await?;
    let (next, mut free, acquired) = match lease.holder.is_empty() {
        // It was released before it was read.
        true => {
            let (next, _, acquired) = lease.taken(api).await?;
            (next, signalled, acquired)
        }
        false => lease.taken(api).await?,
    };
    if matches!(signal, Signal::Kill) {
        // Nobody releases it: it is free when it has expired.
        let left = lease.expires.duration_since(SystemTime::now()).unwrap_or_default();
        let passed = SystemTime::now().duration_since(lease.expires).unwrap_or_default();
        free = (Instant::now() + left).checked_sub(passed).unwrap_or(signalled);
    }
    let bound = bindings.after(next.version).await?;
    if let Some(running) = killed {
        running.stop().await?;
    }
    Ok(Gap {
        how,
        released: free.saturating_duration_since(signalled),
        acquired: acquired.saturating_duration_since(free),
        bound: bound.saturating_duration_since(free),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read() {
        let lease = serde_json::json!({
            "metadata": {"namespace": "kube-system", "name": "kube-scheduler", "resourceVersion": "12"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "1970-01-01T00:00:10.500000Z"},
        });
        let read = Lease::read(&lease).expect("a Lease");
        assert_eq!((read.holder.as_str(), read.version), ("a", 12));
        assert_eq!(read.expires, SystemTime::UNIX_EPOCH + Duration::from_millis(25_500));
    }

    #[test]
    fn replicas_elect_a_leader() {
        let command =
            ["kube-scheduler", "--leader-elect=false", "--secure-port=0"].map(str::to_owned).to_vec();
        let peer = elected(&Controller { name: "kube-scheduler".into(), command });
        assert_eq!(peer.command, ["kube-scheduler", "--secure-port=0"]);
    }

    #[tokio::test]
    async fn the_next_leader_is_known_by_versions() {
        let bindings = Bindings::default();
        let at = Instant::now();
        bindings.0.lock().expect("no panic").bound.extend([(5, at), (9, at + Duration::from_secs(1))]);
        assert_eq!(bindings.after(7).await.expect("one"), at + Duration::from_secs(1));
        assert_eq!(bindings.count(), 2);
    }
}
