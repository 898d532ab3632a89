//! Gives nodes and trees of cohorts to other shards: only the shard that leads them names the next one, after it has stopped deciding
//! with them and nothing is under way there. And finds out what leaders before wrote about trees that come to this shard.

mod targets;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use plimsoll_api::event::{EventRecord, ObjectReference};
use plimsoll_api::request::Error;
use plimsoll_api::shards::{LED_BY, TreeChange, TreeKind, TreeObject, TreeStep};
use plimsoll_client::Supervisor;
use plimsoll_client::reflector::Memory;
use plimsoll_client::workers::Gate as _;
use plimsoll_jobs::shards::Step;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::{Api, CLUSTER_QUEUES, COHORTS, NODES, Resource};
use crate::cache::Kind;
use crate::event_recorder::Recorder;
use crate::execute::GRACE;
use crate::ingest::Sinks;
use crate::leading::Leading;
use crate::settings::ShardLeases;
use crate::shard::{Leaving, Shard};
use crate::take_over::find;
use targets::Targets;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// Most writes to trees at a time.
const WRITES: usize = 8;
/// How long another shard may lead a tree of this one before that is reported, and how often it is.
const PATIENCE: Duration = Duration::from_secs(30);

/// What moves need.
#[derive(Clone, Debug)]
pub struct Context {
    /// Requests.
    api: Api,
    /// The way to the engine and the cache.
    sinks: Sinks,
    /// Events.
    recorder: Recorder,
    /// Whether this process decides.
    leading: Leading,
    /// What has been seen of [`OF_TREES`](crate::take_over::OF_TREES).
    seen: Vec<(Resource, Memory)>,
    /// Where leaders of other shards have their Leases.
    leases: Option<ShardLeases>,
}

impl Context {
    /// What these share with others.
    pub fn new(
        (api, sinks): (&Api, &Sinks),
        (recorder, leading): (&Recorder, &Leading),
        (seen, leases): (Vec<(Resource, Memory)>, Option<ShardLeases>),
    ) -> Self {
        let (api, sinks, recorder) = (api.clone(), sinks.clone(), recorder.clone());
        Self { api, sinks, recorder, leading: leading.clone(), seen, leases }
    }
}

/// Gives nodes and trees away, and takes trees over, until stopped, where there are shards.
pub fn start(context: &Context, (supervisor, stop): (&Supervisor, &CancellationToken)) {
    let Some(shard) = context.sinks.shard.clone() else { return };
    let (of, with, token) = (shard.clone(), context.clone(), stop.clone());
    supervisor.spawn("moves of nodes", move || give_nodes(with.clone(), of.clone(), token.clone()));
    let (of, with, token) = (shard.clone(), context.clone(), stop.clone());
    supervisor.spawn("moves of trees", move || give_trees(with.clone(), of.clone(), token.clone()));
    let (of, with, token) = (shard, context.clone(), stop.clone());
    supervisor.spawn("trees that come", move || {
        let (work, stop) = (take_trees(with.clone(), of.clone()), token.clone());
        async move { stop.run_until_cancelled(work).await.unwrap_or_default() }
    });
}

/// Waits for the next look; whether there is one.
async fn looks(context: &Context, stop: &CancellationToken) -> bool {
    loop {
        if stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_none() {
            return false;
        }
        if context.leading.is_open() {
            return true;
        }
    }
}

/// Waits for the answers to writes that give something away. At a stop they get a moment; the Lease of a process that does not know what
/// became of them expires, so that they are carried out or given up before another one decides.
async fn answered<T>(
    answers: impl Future<Output = T>,
    context: &Context,
    stop: &CancellationToken,
) -> Option<T> {
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        answers = answers => Some(answers),
        () = late => {
            context.leading.claim.let_expire();
            None
        }
    }
}

async fn give_nodes(context: Context, shard: Shard, stop: CancellationToken) {
    let mut targets = Targets::new(context.leases.clone());
    while looks(&context, &stop).await {
        for (node, leaving) in shard.given_away() {
            if leaving.to != shard.name() && !targets.is_led(&context.api, &leaving.to).await {
                targets.report(&leaving.to, || Some(regarding_node(&node)), &context.recorder);
                continue;
            }
            let request = leaving.request(&node);
            match answered(context.api.send(&request), &context, &stop).await {
                None => return,
                Some(Ok(_)) => tracing::info!(node, from = shard.name(), to = leaving.to, "Node moved"),
                // The watch shows the newer version, or that the node is gone.
                Some(Err(e)) if e.is_conflict() || e.is_not_found() => {}
                Some(Err(error)) => {
                    refused(&node, &leaving, &error);
                    stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
                }
            }
        }
    }
}

fn refused(node: &str, leaving: &Leaving, error: &Error) {
    tracing::warn!(node, to = leaving.to, %error, "no shard decides with a node that could not be moved");
}

/// Claims objects of trees for the shard, and gives those away that are to go to another one.
async fn give_trees(context: Context, shard: Shard, stop: CancellationToken) {
    let mut targets = Targets::new(context.leases.clone());
    while looks(&context, &stop).await {
        let steps = shard.lock().tree_steps();
        let steps = to_led_shards(steps, &mut targets, &context).await;
        if steps.is_empty() {
            continue;
        }
        let queues: BTreeSet<String> =
            steps.iter().flat_map(|step| step.cluster_queues.iter().cloned()).collect();
        // The answer has everything in it that the engine was told before the steps were found.
        let reserving = match queues.is_empty() {
            true => false,
            false => {
                let asked = context.sinks.inbox.reserving(queues);
                stop.run_until_cancelled(asked).await.and_then(Result::ok).unwrap_or(true)
            }
        };
        let steps = steps.into_iter().filter(|step| step.cluster_queues.is_empty() || !reserving).collect();
        let writes =
            context.sinks.change_division(|division, seen, out| division.begin_steps(steps, seen, out));
        let carry_out = async |(step, request)| (step, context.api.send(&request).await);
        let answers =
            futures::stream::iter(writes.unwrap_or_default()).map(carry_out).buffer_unordered(WRITES);
        let Some(answers) = answered(answers.collect::<Vec<_>>(), &context, &stop).await else { return };
        let refused = answers.into_iter().filter(|answer| report_write(answer, &shard)).count();
        if refused > 0 {
            stop.run_until_cancelled(tokio::time::sleep(RETRY)).await;
        }
    }
}

/// A node, as Events name it: its name is its UID there, as kubelets and the node controller write it.
fn regarding_node(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: NODES.api_version.into(),
        kind: NODES.kind.into(),
        name: node.to_owned(),
        uid: node.to_owned(),
        ..ObjectReference::default()
    }
}

/// Steps that give nothing to a shard without a leader. What may have been given there already is repeated, until that is known.
async fn to_led_shards(steps: Vec<Step>, targets: &mut Targets, context: &Context) -> Vec<Step> {
    let mut led: BTreeMap<String, bool> = BTreeMap::new();
    let mut kept = Vec::new();
    for step in steps {
        let to = match &step.write.change {
            TreeChange::Give(given) if !step.write.repeats => &given.to,
            TreeChange::Give(_) | TreeChange::Claim | TreeChange::Stay(_) => {
                kept.push(step);
                continue;
            }
        };
        let is_led = match led.get(to) {
            Some(known) => *known,
            None => targets.is_led(&context.api, to).await,
        };
        led.insert(to.clone(), is_led);
        match is_led {
            true => kept.push(step),
            false => targets.report(to, || regarding(context, &step.write.object), &context.recorder),
        }
    }
    kept
}

/// The object of a tree, as Events name it.
fn regarding(context: &Context, object: &TreeObject) -> Option<ObjectReference> {
    let kind = match object.kind {
        TreeKind::Cohort => Kind::Cohort,
        TreeKind::ClusterQueue => Kind::ClusterQueue,
    };
    context.sinks.cache.get(kind, "", &object.name).map(|known| ObjectReference::of(&known))
}

/// Logs what became of a write to a tree; whether it was refused.
fn report_write((step, answer): &(TreeStep, Result<Value, Error>), shard: &Shard) -> bool {
    let (object, shard) = (&step.object, shard.name());
    match (answer, &step.change) {
        (Ok(_), TreeChange::Claim) => tracing::info!(%object, shard, "Tree claimed"),
        (Ok(_), TreeChange::Give(given)) => {
            tracing::info!(%object, from = shard, to = given.to, "Tree moved");
        }
        (Ok(_), TreeChange::Stay(_)) => {}
        // The watch shows the newer version, or that the object is gone.
        (Err(e), _) if e.is_conflict() || e.is_not_found() => {}
        (Err(error), _) => {
            tracing::warn!(%object, %error, "no shard decides with a tree whose object could not be written to");
            return true;
        }
    }
    false
}

/// Has the division decide with trees that came to this shard, once everything was seen that was written before; and reports
/// those that another shard keeps.
async fn take_trees(context: Context, shard: Shard) {
    let mut awaited: Option<Instant> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        if !context.leading.is_open() {
            continue;
        }
        find(&context.api, &context.sinks, &context.seen).await;
        let waits = shard.lock().awaited();
        if waits.is_empty() {
            awaited = None;
        } else if awaited.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            waits.iter().for_each(|(object, by)| report(&context, &shard, object, by));
            awaited = Some(Instant::now());
        }
    }
}

/// Says that another shard leads an object of a tree that is to be this one's, and what to do when that shard is no more.
fn report(context: &Context, shard: &Shard, object: &TreeObject, by: &str) {
    let resource = match object.kind {
        TreeKind::Cohort => COHORTS,
        TreeKind::ClusterQueue => CLUSTER_QUEUES,
    };
    let name = &object.name;
    let message = format!(
        "shard {} waits until shard {by} has given {object} away. If no process leads shard {by} any more, and none will, remove the \
         annotation: kubectl annotate {}.kueue.x-k8s.io {name} {LED_BY}-",
        shard.name(),
        resource.plural
    );
    tracing::warn!("{message}");
    let Some(regarding) = regarding(context, object) else { return };
    context.recorder.record(EventRecord {
        regarding,
        warning: true,
        reason: "LedByOtherShard".into(),
        action: "LedByOtherShard".into(),
        message,
        reporting_controller: "kueue-admission".into(),
        reporting_instance: String::new(),
    });
}
