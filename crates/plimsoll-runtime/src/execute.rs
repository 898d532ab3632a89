//! Carries out the engine's actions: many at once, in order per object, retried where that can help, answered as
//! events.

use std::time::Duration;

use plimsoll_engine::{Action, Event};
use plimsoll_queueing::{Action as QueueAction, Event as QueueEvent, WorkloadKey, WorkloadUpdate};
use plimsoll_scheduler::{Action as SchedulerAction, Event as SchedulerEvent, PodRef};
use plimsoll_state::Answer;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::api::{Api, Error, PODS, PatchKind, WORKLOADS};
use crate::cache::{Cache, Kind};
use crate::driver::Inbox;
use crate::extender::Extenders;
use crate::health::Health;
use crate::lease::Claim;
use crate::limit::Limit;
use crate::notes::{Note, Recorder, Subject};
use crate::status::Statuses;
use crate::{clock, decisions, journey, json};
use plimsoll_api::lanes::{Group, Lane, Lanes};

/// Most writes under way; one object has at most one.
const CONCURRENCY: usize = 256;
/// Tries of a write that fails for a passing reason.
const TRIES: u32 = 6;
/// First and longest pause between tries.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Tries of a read-modify-write that others keep changing.
const CONFLICTS: u32 = 8;
/// Component of placement's events (kube-scheduler's).
const SCHEDULER: &str = "default-scheduler";
/// Component of events on pods that are ended with their node (the recorder that Kueue's node controller is given).
const NODES: &str = "tas-resource-flavor-controller";
/// Component of queueing's events (Kueue's).
const ADMISSION: &str = "kueue-admission";

/// What an action needs.
#[derive(Clone, Debug)]
pub struct Context {
    /// Requests, writing as the scheduler.
    pub api: Api,
    /// Last seen objects.
    pub cache: Cache,
    /// The engine, for answers.
    pub inbox: Inbox,
    /// Events.
    pub recorder: Recorder,
    /// Statuses of queues.
    pub statuses: Statuses,
    /// Whether this process may write.
    pub claim: Claim,
    /// Extenders of placement.
    pub extenders: Extenders,
    /// Whether writes have to wait.
    pub health: Health,
    /// How much of each group of writes may begin.
    pub limits: [Limit; Group::ALL.len()],
}

/// Carries out batches until stopped.
pub async fn run(context: Context, mut batches: mpsc::Receiver<Vec<Action>>, stop: CancellationToken) {
    let mut lanes = Lanes::default();
    let mut tasks: tokio::task::JoinSet<Lane> = tokio::task::JoinSet::new();
    loop {
        begin(&mut lanes, &mut tasks, &context);
        if !tasks.is_empty() {
            context.recorder.yield_to_decisions();
        }
        let paused = context.health.paused();
        let waiting = Group::ALL.map(|group| lanes.has(group) && !paused);
        tokio::select! {
            () = stop.cancelled() => return finish(tasks).await,
            Some(done) = tasks.join_next(), if !tasks.is_empty() => match done {
                Ok(lane) => lanes.done(lane),
                // The engine waits for an answer that never comes.
                Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
                Err(_) => {}
            },
            () = may_begin(waiting, &context.limits), if tasks.len() < CONCURRENCY => {}
            () = context.health.resumed(), if paused => {}
            batch = batches.recv() => {
                let Some(batch) = batch else { return };
                for action in batch {
                    match Lane::of(&action) {
                        Some(lane) => {
                            if let Some(superseded) = lanes.push(lane, action) {
                                answered(superseded, Answer::Superseded, &context);
                            }
                        }
                        None => hand_on(&action, &context),
                    }
                }
            }
        }
    }
}

/// Time that writes under way get to finish at a stop; those that wait are dropped with their lanes.
pub const GRACE: Duration = Duration::from_secs(1);

async fn finish(mut tasks: tokio::task::JoinSet<Lane>) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        tracing::debug!("writes were cut off by the stop");
    }
}

/// Begins with as many writes as may be under way, of all groups in turn. What comes first is chosen only when there is
/// a token for it.
fn begin(lanes: &mut Lanes, tasks: &mut tokio::task::JoinSet<Lane>, context: &Context) {
    let mut more = !context.health.paused();
    while std::mem::take(&mut more) {
        for (group, limit) in Group::ALL.into_iter().zip(&context.limits) {
            if tasks.len() < CONCURRENCY
                && lanes.has(group)
                && limit.try_take()
                && let Some((lane, action)) = lanes.next(group)
            {
                more = true;
                let mut context = context.clone();
                if limit.is_some() {
                    context.api = context.api.paid(limit);
                }
                tasks.spawn(async move {
                    carry_out(action, &context).await;
                    lane
                });
            }
        }
    }
}

/// Waits until the limit of a group in which something waits lets it begin.
async fn may_begin(waiting: [bool; Group::ALL.len()], limits: &[Limit; Group::ALL.len()]) {
    let ready = |group: Group| async move {
        match waiting[group as usize] {
            true => limits[group as usize].ready().await,
            false => std::future::pending().await,
        }
    };
    let [workloads, pods, extenders] = Group::ALL.map(ready);
    tokio::select! {
        () = workloads => {}
        () = pods => {}
        () = extenders => {}
    }
}

/// Hands on what needs no write of its own.
fn hand_on(action: &Action, context: &Context) {
    match action {
        Action::Scheduler(SchedulerAction::Record { pod, note }) => {
            context.recorder.record(pod_note(pod, note))
        }
        Action::Queueing(QueueAction::Record(key, notes)) => {
            decisions::noted(key, notes);
            record(context, key, notes);
        }
        Action::Queueing(status) => context.statuses.put(status),
        Action::Scheduler(_) => {}
    }
}

async fn carry_out(action: Action, context: &Context) {
    if !context.claim.held() {
        return refuse(action, context, "this process does not lead");
    }
    match action {
        Action::Scheduler(action) => carry_out_place(action, context).await,
        Action::Queueing(action) => carry_out_queueing(action, context).await,
    }
}

async fn carry_out_place(action: SchedulerAction, context: &Context) {
    let answer = match &action {
        SchedulerAction::Bind { pod, node } => return bind(pod, node, context).await,
        SchedulerAction::Prepare { pod, node, what } => {
            let event = match crate::prepare::write(&context.api, pod, node, what).await {
                Ok(()) => SchedulerEvent::Prepared(pod.uid.clone()),
                Err(message) => SchedulerEvent::BindFailed { uid: pod.uid.clone(), message },
            };
            return context.inbox.send(Event::Scheduler(event));
        }
        SchedulerAction::Extend { pod, extender, call, what } => {
            let answer = context.extenders.ask(&context.api, *extender, pod, what).await;
            let event =
                SchedulerEvent::Extended { uid: pod.uid.clone(), extender: *extender, call: *call, answer };
            return context.inbox.send(Event::Scheduler(event));
        }
        SchedulerAction::Unschedulable { pod, reason, message, nominated_node } => {
            unschedulable(pod, reason, message, nominated_node.as_deref(), context).await
        }
        SchedulerAction::Preempt { victim, message, .. } => preempt(victim, message, context).await,
        SchedulerAction::ClearNomination { pod } => {
            let patch = json!({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": null}});
            let done = retry(|| {
                context.api.patch(PODS, &pod.namespace, &pod.name, "status", PatchKind::Merge, &patch)
            });
            answer_of("clearing a nomination", done.await)
        }
        SchedulerAction::Record { .. } => return,
    };
    if matches!(answer, Answer::Done) {
        decisions::placed(&action);
    }
    answered(Action::Scheduler(action), answer, context);
}

async fn carry_out_queueing(action: QueueAction, context: &Context) {
    let answer = match &action {
        QueueAction::UpdateWorkload(update) => {
            return update_workload(update, context).instrument(decisions::span(update)).await;
        }
        QueueAction::DeactivateWorkload { key, uid } => {
            let patch = json!({"metadata": {"uid": uid}, "spec": {"active": false}});
            let done = retry(|| {
                context.api.patch(WORKLOADS, &key.namespace, &key.name, "", PatchKind::Merge, &patch)
            });
            let done = done.await.map(|w| context.cache.refresh(Kind::Workload, w));
            answer_of("deactivating a workload", done)
        }
        QueueAction::FailPod { namespace, name, uid } => {
            let (namespace, name, uid) = (namespace.clone(), name.clone(), uid.clone());
            fail(PodRef { uid, namespace, name }, context).await
        }
        QueueAction::Record(..)
        | QueueAction::ClusterQueueStatus(..)
        | QueueAction::LocalQueueStatus(..)
        | QueueAction::CohortStatus(..)
        | QueueAction::RunWindowStatus(..) => return,
    };
    if matches!(answer, Answer::Done) {
        decisions::queued(&action);
    }
    answered(Action::Queueing(action), answer, context);
}

/// Tells the engine what became of an action that has no event of its own.
fn answered(action: Action, answer: Answer, context: &Context) {
    context.inbox.send(match action {
        Action::Scheduler(action) => {
            Event::Scheduler(SchedulerEvent::Answered { action: Box::new(action), answer })
        }
        Action::Queueing(action) => {
            Event::Queueing(QueueEvent::Answered { action: Box::new(action), answer })
        }
    });
}

/// Answers an action that is not tried at all.
fn refuse(action: Action, context: &Context, why: &str) {
    match &action {
        Action::Scheduler(SchedulerAction::Bind { pod, .. } | SchedulerAction::Prepare { pod, .. }) => {
            let event = SchedulerEvent::BindFailed { uid: pod.uid.clone(), message: why.to_owned() };
            context.inbox.send(Event::Scheduler(event));
        }
        Action::Scheduler(SchedulerAction::Extend { pod, extender, call, .. }) => {
            let (uid, answer) = (pod.uid.clone(), Err(why.to_owned()));
            let event = SchedulerEvent::Extended { uid, extender: *extender, call: *call, answer };
            context.inbox.send(Event::Scheduler(event));
        }
        Action::Queueing(QueueAction::UpdateWorkload(update)) => failed(update, context, why),
        Action::Scheduler(
            SchedulerAction::Unschedulable { .. }
            | SchedulerAction::Preempt { .. }
            | SchedulerAction::ClearNomination { .. },
        )
        | Action::Queueing(QueueAction::DeactivateWorkload { .. } | QueueAction::FailPod { .. }) => {
            answered(action, Answer::Failed(why.to_owned()), context);
        }
        Action::Scheduler(SchedulerAction::Record { .. })
        | Action::Queueing(
            QueueAction::Record(..)
            | QueueAction::ClusterQueueStatus(..)
            | QueueAction::LocalQueueStatus(..)
            | QueueAction::CohortStatus(..)
            | QueueAction::RunWindowStatus(..),
        ) => {}
    }
}

/// The answer to a write, which names its object by its UID: a conflict says that there is another one of that name.
fn answer_of<T>(what: &str, result: Result<T, Error>) -> Answer {
    match result {
        Ok(_) => Answer::Done,
        Err(e) if e.is_not_found() || e.is_conflict() => {
            tracing::debug!(error = %e, "{what}: the object is gone");
            Answer::Superseded
        }
        Err(e) => {
            tracing::warn!(error = %e, "{what} failed");
            Answer::Failed(e.to_string())
        }
    }
}

/// Tries again after passing failures, with growing pauses.
async fn retry<F, T>(mut request: impl FnMut() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut pause = BACKOFF.0;
    let mut left = TRIES;
    loop {
        let error = match request().await {
            Ok(value) => return Ok(value),
            Err(e) => e,
        };
        left -= 1;
        if left == 0 || !error.is_transient() {
            return Err(error);
        }
        let asked = match &error {
            Error::Status { retry_after, .. } => Duration::from_secs(u64::from(*retry_after)),
            _ => Duration::ZERO,
        };
        tokio::time::sleep(pause.max(asked).min(BACKOFF.1)).await;
        pause *= 2;
    }
}

async fn bind(pod: &PodRef, node: &str, context: &Context) {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let done = retry(|| context.api.create_sub(PODS, &pod.namespace, &pod.name, "binding", &binding)).await;
    let event = match done {
        Ok(_) => SchedulerEvent::Bound(pod.uid.clone()),
        // An earlier try may have been carried out without an answer.
        Err(e) if e.is_conflict() && bound(pod, node, context).await => {
            SchedulerEvent::Bound(pod.uid.clone())
        }
        Err(e) => SchedulerEvent::BindFailed { uid: pod.uid.clone(), message: e.to_string() },
    };
    decisions::bound(pod, node, &event);
    journey::bound(pod, node, &event, &context.cache);
    context.inbox.send(Event::Scheduler(event));
}

/// Whether the API server has the pod on this node.
async fn bound(pod: &PodRef, node: &str, context: &Context) -> bool {
    let read = retry(|| context.api.get(PODS, &pod.namespace, &pod.name)).await;
    read.is_ok_and(|p| json::uid(&p) == pod.uid && json::text(&p, &["spec", "nodeName"]) == node)
}

/// Ends a pod that waits for a node on which it can never start (Kueue's node controller).
async fn fail(pod: PodRef, context: &Context) -> Answer {
    const TEXT: &str = "Pod terminated by Kueue NodeController due to node taint";
    let status = json!({"phase": "Failed", "conditions": [{
        "type": "TerminatedByKueue", "status": "True", "reason": "UnschedulableOnAssignedNode", "message": TEXT,
        "lastTransitionTime": clock::text(clock::now()),
    }]});
    let patch = json!({"metadata": {"uid": pod.uid}, "status": status});
    let kind = PatchKind::Strategic;
    let done = retry(|| context.api.patch(PODS, &pod.namespace, &pod.name, "status", kind, &patch)).await;
    if done.is_ok() {
        let note = plimsoll_scheduler::Note {
            warning: false,
            reason: "PodTerminatedByKueue",
            action: "PodTerminated",
            message: TEXT.into(),
        };
        context.recorder.record(Note { reporter: NODES, ..pod_note(&pod, &note) });
    }
    answer_of("ending a pod that can't start", done)
}

async fn unschedulable(
    pod: &PodRef,
    reason: &str,
    message: &str,
    nominated: Option<&str>,
    context: &Context,
) -> Answer {
    let now = clock::text(clock::now());
    let mut status = json!({"conditions": [{
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message,
        "lastProbeTime": null, "lastTransitionTime": now,
    }]});
    if let Some(node) = nominated {
        status["nominatedNodeName"] = if node.is_empty() { Value::Null } else { json!(node) };
    }
    let patch = json!({"metadata": {"uid": pod.uid}, "status": status});
    let done =
        retry(|| context.api.patch(PODS, &pod.namespace, &pod.name, "status", PatchKind::Strategic, &patch));
    answer_of("writing why a pod is unschedulable", done.await)
}

async fn preempt(victim: &PodRef, message: &str, context: &Context) -> Answer {
    let now = clock::text(clock::now());
    let patch = json!({"metadata": {"uid": victim.uid}, "status": {"conditions": [{
        "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message,
        "lastProbeTime": null, "lastTransitionTime": now,
    }]}});
    let marked = retry(|| {
        context.api.patch(PODS, &victim.namespace, &victim.name, "status", PatchKind::Strategic, &patch)
    });
    // The deletion is what counts.
    answer_of("marking a victim", marked.await);
    let done = retry(|| context.api.delete(PODS, &victim.namespace, &victim.name, &victim.uid, None));
    answer_of("deleting a victim", done.await)
}

fn pod_note(pod: &PodRef, note: &plimsoll_scheduler::Note) -> Note {
    Note {
        subject: Subject {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            field_path: String::new(),
        },
        warning: note.warning,
        reason: note.reason.into(),
        action: note.action.into(),
        message: note.message.clone(),
        reporter: SCHEDULER,
        instance: String::new(),
    }
}

fn record(context: &Context, key: &WorkloadKey, notes: &[plimsoll_queueing::Note]) {
    let object = context.cache.get(Kind::Workload, &key.namespace, &key.name);
    let subject = Subject {
        api_version: WORKLOADS.api_version.into(),
        kind: WORKLOADS.kind.into(),
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: object.as_ref().map(|o| json::uid(o).to_owned()).unwrap_or_default(),
        field_path: String::new(),
    };
    for note in notes {
        let on = |subject: Subject| Note {
            subject,
            warning: note.warning,
            reason: note.reason.clone(),
            action: note.reason.clone(),
            message: note.message.clone(),
            reporter: ADMISSION,
            instance: String::new(),
        };
        context.recorder.record(on(subject.clone()));
        let owners = object.as_deref().filter(|_| note.concerns_job());
        for owner in owners.map_or(&[][..], |o| json::list(o, &["metadata", "ownerReferences"])) {
            let text = |key: &str| json::text(owner, &[key]).to_owned();
            let namespace = key.namespace.clone();
            let (api_version, kind, name, uid) =
                (text("apiVersion"), text("kind"), text("name"), text("uid"));
            let job = Subject { api_version, kind, namespace, name, uid, field_path: String::new() };
            context.recorder.record(on(job));
        }
    }
}

fn failed(update: &WorkloadUpdate, context: &Context, message: &str) {
    decisions::unwritten(&update.key, message);
    for id in update.ids() {
        let event = QueueEvent::WriteFailed { key: update.key.clone(), id, message: message.to_owned() };
        context.inbox.send(Event::Queueing(event));
    }
}

/// Reads, changes and writes the status until nobody was in between.
async fn update_workload(update: &WorkloadUpdate, context: &Context) {
    let key = &update.key;
    let writing = journey::begin();
    let mut current = context.cache.get(Kind::Workload, &key.namespace, &key.name).map(|w| (*w).clone());
    for _ in 0..CONFLICTS {
        let object = match current.take() {
            Some(object) => object,
            None => match retry(|| context.api.get(WORKLOADS, &key.namespace, &key.name)).await {
                Ok(object) => object,
                Err(e) => return failed(update, context, &e.to_string()),
            },
        };
        if json::uid(&object) != update.uid {
            return failed(update, context, "the workload has been replaced by another of its name");
        }
        let status = plimsoll_api::kueue::workload_status_patch(&object, update);
        let patch = json!({
            "metadata": {"resourceVersion": json::version(&object), "uid": update.uid}, "status": status,
        });
        let done = retry(|| {
            context.api.patch(WORKLOADS, &key.namespace, &key.name, "status", PatchKind::Merge, &patch)
        });
        match done.await {
            Ok(written) => {
                decisions::written(update, &written);
                journey::written(update, &written, writing);
                let version = json::version(&written).parse().unwrap_or(0);
                context.cache.refresh(Kind::Workload, written);
                let event = QueueEvent::Written { key: key.clone(), id: update.id, version };
                context.inbox.send(Event::Queueing(event));
                record(context, key, &update.notes);
                return;
            }
            Err(e) if e.is_conflict() => {}
            Err(e) => return failed(update, context, &e.to_string()),
        }
    }
    failed(update, context, "the workload keeps changing");
}
