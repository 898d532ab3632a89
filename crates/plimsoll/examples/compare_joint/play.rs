//! Plays a load on a cluster in scaled time: Jobs come, nodes fail and return, pods end when their time is over. What comes of it
//! is measured from watches, by the simulator's rules.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use plimsoll_api::json;
use plimsoll_api::request::{Error, PatchKind};
use plimsoll_api::resource::{JOBS, NODES, PODS};
use plimsoll_client::reflector::{Delta, Reflector};
use plimsoll_client::rest::Api;
use plimsoll_runtime::clock;
use plimsoll_sim::api::{Change, Kind, stamp};
use plimsoll_sim::measure::Measure;
use plimsoll_sim::scenario::{NodeSpec, Operation, Scenario};
use plimsoll_state::Time;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::objects::{self, NAMESPACE};
use super::options::{Column, Options};

/// From one line of progress to the next.
const PROGRESS: Duration = Duration::from_secs(30);
/// Between two attempts to end a pod.
const AGAIN: Duration = Duration::from_millis(200);

/// What came of a load.
pub struct Played {
    pub measure: Measure,
    /// Load of the machine at the end: averages of 1, 5 and 15 minutes.
    pub load_average: [f64; 3],
}

/// Time of the load.
#[derive(Clone, Copy)]
struct Clock {
    began: Instant,
    speed: f64,
}

impl Clock {
    /// The time of the load at an instant.
    fn time(self, at: Instant) -> Time {
        Time((at.saturating_duration_since(self.began).as_nanos() as f64 * self.speed) as i64)
    }

    /// When it is so many milliseconds of the load.
    fn instant(self, millis: i64) -> Instant {
        self.began + self.real(millis)
    }

    /// How long so many milliseconds of the load take.
    fn real(self, millis: i64) -> Duration {
        Duration::from_secs_f64(millis.max(0) as f64 / 1_000.0 / self.speed)
    }
}

/// A change that a watch has shown, or a Job that is about to be created.
struct Seen {
    at: Instant,
    kind: Kind,
    change: Change,
}

fn seen(kind: Kind, object: Value, deleted: bool) -> Seen {
    Seen { at: Instant::now(), kind, change: Change { version: 0, object: object.into(), deleted } }
}

/// Plays the load until all its jobs are done or the time is over.
///
/// # Errors
/// A process ends.
pub async fn play(
    options: &Options,
    column: Column,
    scenario: &Scenario,
    cluster: &mut Cluster,
) -> anyhow::Result<Played> {
    let (sender, receiver) = unbounded_channel();
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    for kind in [Kind::Pod, Kind::Job, Kind::Workload] {
        watch(&cluster.api, kind, &sender, &stop);
    }
    // The watches are open by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let clock = Clock { began: Instant::now(), speed: options.speed };
    let submitting = Submitting {
        api: cluster.api.clone(),
        clock,
        topology: column == Column::KueueTopology,
        sender,
        scenario: scenario.clone(),
    };
    let submitting = tokio::spawn(submitting.run());
    let measured = measure(options, column, scenario, cluster, clock, receiver).await;
    submitting.abort();
    measured
}

/// Sends what changes to the measurement.
fn watch(api: &Api, kind: Kind, sender: &UnboundedSender<Seen>, stop: &CancellationToken) {
    let reflector = Reflector { required: true, ..Reflector::new(api.clone(), kind.resource()) };
    let (sender, mut known) = (sender.clone(), HashMap::<String, Value>::new());
    tokio::spawn(reflector.run(stop.clone(), move |delta| {
        let seen = match delta {
            Delta::Upsert { meta, bytes } => {
                let Ok(object) = serde_json::from_slice::<Value>(bytes) else { return };
                known.insert(meta.uid.to_string(), object.clone());
                seen(kind, object, false)
            }
            Delta::Delete { uid, .. } => {
                let Some(object) = known.remove(uid) else { return };
                seen(kind, object, true)
            }
            Delta::Synced { .. } | Delta::Absent => return,
        };
        // Nobody measures any more when the run is over.
        let _ = sender.send(seen);
    }));
}

async fn measure(
    options: &Options,
    column: Column,
    scenario: &Scenario,
    cluster: &mut Cluster,
    clock: Clock,
    mut receiver: UnboundedReceiver<Seen>,
) -> anyhow::Result<Played> {
    let runs = runs(scenario);
    let (mut measure, mut ending) = (Measure::default(), HashSet::new());
    let (end, mut said) = (clock.began + Duration::from_secs(options.limit), clock.began);
    while Instant::now() < end {
        let next = tokio::time::timeout(Duration::from_secs(1), receiver.recv()).await;
        let now = Instant::now();
        if now.duration_since(said) > PROGRESS {
            said = now;
            let (jobs, done) = measure.jobs();
            let seconds = now.duration_since(clock.began).as_secs();
            eprintln!("{}, {seconds} s: {done} of {jobs} jobs done", column.title());
            cluster.check()?;
        }
        let Ok(next) = next else { continue };
        let Some(Seen { at, kind, change }) = next else { break };
        measure.changed(kind, &change, clock.time(at));
        if kind == Kind::Pod
            && let Some(job) = owner(&change.object)
            && let Some(runs) = runs.get(job)
        {
            let began =
                |(name, since): (&str, Time)| (name.to_owned(), clock.instant(since.0 / 1_000_000 + runs));
            let working: Vec<(String, Instant)> = measure.working(job).map(began).collect();
            for (name, at) in working {
                if ending.insert(name.clone()) {
                    tokio::spawn(end_pod(cluster.api.clone(), name, at));
                }
            }
        }
        let (jobs, done) = measure.jobs();
        if done == jobs && jobs == runs.len() {
            break;
        }
    }
    measure.finish(clock.time(Instant::now()));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut load = load.split(' ').filter_map(|l| l.parse().ok());
    let load_average = std::array::from_fn(|_| load.next().unwrap_or(0.0));
    Ok(Played { measure, load_average })
}

/// Milliseconds that the pods of each Job run.
fn runs(scenario: &Scenario) -> HashMap<String, i64> {
    let job = |o: &plimsoll_sim::scenario::Timed| match &o.operation {
        Operation::Submit { job, spec } => Some((plimsoll_sim::scenario::objects::job_name(*job), spec.runs)),
        _ => None,
    };
    scenario.operations.iter().filter_map(job).collect()
}

/// The Job of a pod.
fn owner(pod: &Value) -> Option<&str> {
    let owners = json::list(pod, &["metadata", "ownerReferences"]);
    owners.iter().find(|o| o["kind"] == "Job").map(|o| json::text(o, &["name"]))
}

/// Ends a pod when its time is over: the kubelet's part, which sees one pod and not its gang. Only a pod that runs ends so: one that
/// the failure of its node or an eviction has failed stays failed.
async fn end_pod(api: Api, name: String, at: Instant) {
    tokio::time::sleep_until(at.into()).await;
    let patch = json!([
        {"op": "test", "path": "/status/phase", "value": "Running"},
        {"op": "replace", "path": "/status/phase", "value": "Succeeded"},
    ]);
    while let Err(e) = api.patch(PODS, NAMESPACE, &name, "status", PatchKind::Json, &patch).await {
        if e.is_not_found() {
            return;
        }
        let pod = api.get(PODS, NAMESPACE, &name).await;
        let phase = pod.as_ref().map_or("", |p| json::text(p, &["status", "phase"]));
        if matches!(phase, "Succeeded" | "Failed") || pod.as_ref().is_err_and(Error::is_not_found) {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Creates the Jobs, and has nodes fail and return.
struct Submitting {
    api: Api,
    clock: Clock,
    topology: bool,
    sender: UnboundedSender<Seen>,
    scenario: Scenario,
}

impl Submitting {
    async fn run(self) {
        for timed in &self.scenario.operations {
            tokio::time::sleep_until(self.clock.instant(timed.at).into()).await;
            let done = match &timed.operation {
                Operation::Submit { job, spec } => {
                    let job = objects::job(*job, spec, &self.scenario, self.topology);
                    // Waits begin before the webhooks are called.
                    let _ = self.sender.send(seen(Kind::Job, job.clone(), false));
                    self.api.create(JOBS, &job).await.map(drop).map_err(Into::into)
                }
                Operation::Node { node, spec: None } => self.node_fails(*node).await,
                Operation::Node { node, spec: Some(spec) } => self.node_returns(*node, spec).await,
                _ => Ok(()),
            };
            // Seen in the end: jobs are missing.
            if let Err(e) = done {
                eprintln!("{:?}: {e:#}", timed.operation);
            }
        }
    }

    /// Deletes a node, and what ran there at once: garbage collection of pods would wait for 40 s.
    async fn node_fails(&self, node: usize) -> anyhow::Result<()> {
        let name = format!("node-{node}");
        self.api.delete(NODES, "", &name, "", None).await.context("delete")?;
        let pods = PODS.collection(NAMESPACE);
        let list = self.api.get_path(&format!("{pods}?fieldSelector=spec.nodeName%3D{name}")).await?;
        for pod in json::list(&list, &["items"]) {
            let name = json::name(pod);
            let phase = json::text(pod, &["status", "phase"]);
            if !matches!(phase, "Succeeded" | "Failed") {
                // It may have ended meanwhile.
                let _ = self
                    .api
                    .patch(PODS, NAMESPACE, name, "status", PatchKind::Json, &failed(pod, phase))
                    .await;
            }
            match self.api.delete(PODS, NAMESPACE, name, json::uid(pod), Some(0)).await {
                Err(e) if !e.is_not_found() => return Err(e.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// Creates it again, and waits until the node lifecycle controller has seen that it is ready.
    async fn node_returns(&self, number: usize, spec: &NodeSpec) -> anyhow::Result<()> {
        let mut node = objects::node(number, spec);
        let now = stamp(clock::now());
        node["status"]["conditions"] = json!([{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is ready",
            "lastTransitionTime": now, "lastHeartbeatTime": now,
        }]);
        self.api.create(NODES, &node).await?;
        let status = json!({"status": node["status"]});
        let name = json::name(&node).to_owned();
        self.api.patch(NODES, "", &name, "status", PatchKind::Strategic, &status).await?;
        for _ in 0..20 {
            let node = self.api.get(NODES, "", &name).await?;
            let taints = json::list(&node, &["spec", "taints"]);
            if !taints.iter().any(|t| json::text(t, &["key"]).starts_with("node.kubernetes.io/not-ready")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }
}

/// What makes a pod one that failed with its node. Not ready since a year: the Job controller's back-off counts from there, and
/// would be seconds that the load's time multiplies.
fn failed(pod: &Value, phase: &str) -> Value {
    let now = clock::now();
    let year = plimsoll_state::Duration::from_seconds(365 * 24 * 3_600);
    let long_ago = stamp(Time(now.0 - year.0));
    let kept = |c: &&Value| !matches!(json::text(c, &["type"]), "Ready" | "ContainersReady");
    let mut conditions: Vec<Value> =
        json::list(pod, &["status", "conditions"]).iter().filter(kept).cloned().collect();
    conditions.push(json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "node is gone",
        "lastTransitionTime": stamp(now),
    }));
    for kind in ["Ready", "ContainersReady"] {
        let reason = "PodFailed";
        conditions
            .push(json!({"type": kind, "status": "False", "reason": reason, "lastTransitionTime": long_ago}));
    }
    json!([
        {"op": "test", "path": "/status/phase", "value": phase},
        {"op": "replace", "path": "/status/phase", "value": "Failed"},
        {"op": "add", "path": "/status/containerStatuses", "value": []},
        {"op": "add", "path": "/status/conditions", "value": conditions},
    ])
}
