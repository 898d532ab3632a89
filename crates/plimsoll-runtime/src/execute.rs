//! Carries out the engine's actions: many at once, in order per object, each as `plimsoll_api::execution` says, answered
//! as events.

use std::time::Duration;

use plimsoll_api::execution::{self, Outcome, Step};
use plimsoll_api::lanes::{Group, Lane, Lanes, explains};
use plimsoll_client::health::Health;
use plimsoll_client::leader_election::Claim;
use plimsoll_client::limit::Limit;
use plimsoll_engine::{Action, Event};
use plimsoll_queueing::{Action as QueueAction, Event as QueueEvent, WorkloadEvent, WorkloadUpdate};
use plimsoll_scheduler::{Action as SchedulerAction, Event as SchedulerEvent};
use plimsoll_state::Answer;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::api::{Api, Error, FOLLOWS};
use crate::cache::{Cache, Kind};
use crate::coalesce::Coalescing;
use crate::driver::Inbox;
use crate::event_recorder::Recorder;
use crate::extender::Extenders;
use crate::flow::Flow;
use crate::shard::Shard;
use crate::status::Statuses;
use crate::throttle::{Decision, Permit, Throttle};
use crate::{clock, decisions, journey};

/// Most actions of a group in flight, including those that wait for a retry; an object has at most one. The limit is per group:
/// writes to workloads, or to claims for devices, that fail until a webhook is repaired do not delay bindings.
const CONCURRENCY: usize = 256;

/// What an action needs.
#[derive(Clone, Debug)]
pub struct Context {
    /// Requests, writing as the scheduler.
    pub api: Api,
    /// Last seen objects.
    pub cache: Cache,
    /// The engine, for answers.
    pub inbox: Inbox,
    /// Whether the engine's decisions wait.
    pub flow: Flow,
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
    /// How many writes may be under way.
    pub throttle: Throttle,
    /// How much of each group of writes may begin.
    pub limits: [Limit; Group::ALL.len()],
    /// The shard of this process; `None`: it has the whole cluster.
    pub shard: Option<Shard>,
    /// The sleep of the worker threads.
    pub coalescing: Coalescing,
}

/// Actions in flight.
#[derive(Debug, Default)]
struct UnderWay {
    tasks: tokio::task::JoinSet<(Lane, Group)>,
    /// How many there are of each group.
    of: [usize; Group::ALL.len()],
    /// The group that is offered the next place first: groups share places and tokens.
    turn: usize,
}

impl UnderWay {
    /// Whether the group is below its limit.
    const fn has_room(&self, group: Group) -> bool {
        self.of[group as usize] < CONCURRENCY
    }

    fn begin(&mut self, lane: Lane, group: Group, action: impl Future<Output = ()> + Send + 'static) {
        self.of[group as usize] += 1;
        self.tasks.spawn(async move {
            action.await;
            (lane, group)
        });
    }

    /// Waits until an action ends; `None` if none is in flight.
    async fn next(&mut self) -> Option<Lane> {
        match self.tasks.join_next().await? {
            Ok((lane, group)) => {
                self.of[group as usize] -= 1;
                Some(lane)
            }
            // The engine waits for an answer that never comes.
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            // Actions are aborted only when the set is dropped.
            Err(_) => None,
        }
    }
}

/// Carries out batches until stopped.
pub async fn run(context: Context, mut batches: mpsc::Receiver<Vec<Action>>, stop: CancellationToken) {
    let mut lanes = Lanes::default();
    let mut under_way = UnderWay::default();
    let mut taken = 0;
    loop {
        begin(&mut lanes, &mut under_way, &context);
        let explanations = lanes.explanations(Group::Workloads);
        let (pace, waits) = (context.throttle.pace(), lanes.has_decision(Group::Workloads));
        context.flow.set_pace(pace);
        context.coalescing.set(pace, waits || under_way.of[Group::Workloads as usize] > 0);
        if context.flow.update(taken, waits, explanations) {
            context.inbox.flows();
        }
        let paused = context.health.paused();
        let room = Group::ALL.map(|group| under_way.has_room(group) && !paused);
        let waiting = Group::ALL.map(|group| room[group as usize] && lanes.has_decision(group));
        let explains = Group::ALL.map(|group| room[group as usize] && lanes.has_explanation(group));
        tokio::select! {
            () = stop.cancelled() => return finish(under_way.tasks, &context).await,
            Some(lane) = under_way.next() => lanes.done(lane),
            () = may_begin(waiting, &context), if waiting.contains(&true) => {}
            () = may_explain(explains, &context), if explains.contains(&true) => {}
            () = context.health.resumed(), if paused => {}
            batch = batches.recv() => {
                // The engine has ended, as it does at a stop.
                let Some(batch) = batch else { return finish(under_way.tasks, &context).await };
                taken += u64::from(Flow::counts(&batch));
                for action in batch {
                    match Lane::of(&action) {
                        Some(lane) => {
                            if let Some(superseded) = lanes.push(lane, action) {
                                let event = execution::answered(superseded, Answer::Superseded);
                                context.inbox.send(event);
                            }
                        }
                        None => pass_on(&action, &context),
                    }
                }
            }
        }
    }
}

/// Time that writes under way get to finish at a stop; those that wait are dropped with their lanes.
pub const GRACE: Duration = Duration::from_secs(1);

async fn finish(mut tasks: tokio::task::JoinSet<(Lane, Group)>, context: &Context) {
    context.coalescing.set(Duration::ZERO, false);
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, all).await.is_err() {
        tracing::debug!("writes were cut off by the stop");
        context.claim.let_expire();
    }
}

/// The right to send a request now.
enum Turn {
    /// Of an explanation.
    Explain(Permit),
    /// Of a decision.
    Decide(Decision),
}

/// Begins with as many writes as may be under way, of all groups in turn. What comes first is chosen only when there is
/// a token for it, decisions when the API server can use one more, and explanations when it is not busy.
fn begin(lanes: &mut Lanes, under_way: &mut UnderWay, context: &Context) {
    let mut more = !context.health.paused();
    while std::mem::take(&mut more) {
        let first = under_way.turn;
        let groups = Group::ALL.into_iter().zip(&context.limits).cycle();
        for (group, limit) in groups.skip(first).take(Group::ALL.len()) {
            if !under_way.has_room(group) {
                continue;
            }
            let Some((lane, action, turn)) = next(lanes, group, limit, &context.throttle) else { continue };
            more = true;
            under_way.turn = (group as usize + 1) % Group::ALL.len();
            let mut context = context.clone();
            if limit.is_some() {
                context.api = context.api.prepaid(limit);
            }
            under_way.begin(lane, group, async move { carry_out(action, &context, turn).await });
        }
    }
}

/// The next action of a group that may begin.
fn next(
    lanes: &mut Lanes,
    group: Group,
    limit: &Limit,
    throttle: &Throttle,
) -> Option<(Lane, Action, Option<Turn>)> {
    if group == Group::Extenders {
        let may = lanes.has_decision(group) && limit.try_take();
        let (lane, action) = may.then(|| lanes.next_decision(group)).flatten()?;
        return Some((lane, action, None));
    }
    let permit = lanes.has_explanation(group).then(|| throttle.try_acquire()).flatten();
    let decision = lanes.has_decision(group).then(|| throttle.try_begin_decision()).flatten();
    if (permit.is_none() && decision.is_none()) || !limit.try_take() {
        return None;
    }
    let (lane, action) = match (&permit, &decision) {
        (Some(_), Some(_)) => lanes.next(group),
        (Some(_), None) => lanes.next_explanation(group),
        (None, _) => lanes.next_decision(group),
    }?;
    let turn = match (permit, decision) {
        (Some(permit), _) if explains(&action) => Some(Turn::Explain(permit)),
        (_, decision) => decision.map(Turn::Decide),
    };
    Some((lane, action, turn))
}

/// Waits until the API server, and the limit of a group in which something waits, let it begin.
async fn may_begin(waiting: [bool; Group::ALL.len()], context: &Context) {
    let [workloads, pods, pre_bind, extenders] = waiting;
    let written = async {
        context.throttle.decision_ready().await;
        token([workloads, pods, pre_bind, false], &context.limits).await;
    };
    tokio::select! {
        () = written => {}
        () = token([false, false, false, extenders], &context.limits) => {}
    }
}

/// Waits for a token of a group in which something waits.
async fn token(waiting: [bool; Group::ALL.len()], limits: &[Limit; Group::ALL.len()]) {
    let ready = |group: Group| async move {
        match waiting[group as usize] {
            true => limits[group as usize].ready().await,
            false => std::future::pending().await,
        }
    };
    let [workloads, pods, pre_bind, extenders] = Group::ALL.map(ready);
    tokio::select! {
        () = workloads => {}
        () = pods => {}
        () = pre_bind => {}
        () = extenders => {}
    }
}

/// Waits until an explanation may begin.
async fn may_explain(waiting: [bool; Group::ALL.len()], context: &Context) {
    context.throttle.ready().await;
    token(waiting, &context.limits).await;
}

/// Passes on what is not a request of its own.
fn pass_on(action: &Action, context: &Context) {
    match action {
        Action::Scheduler(SchedulerAction::Record { pod, event, .. }) => {
            context.recorder.record(execution::pod_event(pod, event));
        }
        Action::Queueing(QueueAction::Record(event)) => {
            let WorkloadEvent { key, cause: _, event: recorded } = &**event;
            decisions::noted(event);
            let object = context.cache.get(Kind::Workload, &key.namespace, &key.name);
            for event in execution::workload_events(key, std::slice::from_ref(recorded), object.as_deref()) {
                context.recorder.record(event);
            }
        }
        // Each shard's engine has one, for its own queues.
        Action::Queueing(QueueAction::RunWindowStatus(..))
            if context.shard.as_ref().is_some_and(|shard| !shard.is_default()) => {}
        Action::Queueing(status) => context.statuses.put(status, &context.cache),
        Action::Scheduler(_) => {}
    }
}

async fn carry_out(action: Action, context: &Context, turn: Option<Turn>) {
    if !context.claim.held() {
        return refuse(&action, context, FOLLOWS, execution::refuse(&action, FOLLOWS));
    }
    // Until it has ended, the object stays with this shard.
    let under_way = context.shard.as_ref().map(|shard| shard.begin(&action, &context.cache));
    if matches!(under_way, Some(None)) {
        return refuse(&action, context, execution::ELSEWHERE, execution::elsewhere(&action));
    }
    if let Action::Scheduler(SchedulerAction::Extend { pod, extender, call, what }) = &action {
        drop(turn);
        let answer = context.extenders.ask(&context.api, *extender, pod, what).await;
        let step = execution::extended(pod.clone(), (*extender, *call), what, answer);
        let outcome = follow(step, context, None).await;
        return outcome.answers.into_iter().for_each(|event| context.inbox.send(event));
    }
    let span = match &action {
        Action::Queueing(QueueAction::UpdateWorkload(update)) => decisions::span(update),
        Action::Scheduler(_) | Action::Queueing(_) => Span::none(),
    };
    execute(action, context, turn).instrument(span).await;
}

/// Answers an action that is not begun.
fn refuse(action: &Action, context: &Context, why: &str, answers: Vec<Event>) {
    if let Action::Queueing(QueueAction::UpdateWorkload(update)) = action {
        decisions::unwritten(&update.key, why);
    }
    answers.into_iter().for_each(|event| context.inbox.send(event));
}

/// Sends the requests of an action, and passes on what follows from them.
async fn execute(action: Action, context: &Context, turn: Option<Turn>) {
    let started = journey::begin();
    let seen = match &action {
        Action::Queueing(QueueAction::UpdateWorkload(u)) => {
            context.cache.get(Kind::Workload, &u.key.namespace, &u.key.name)
        }
        Action::Scheduler(_) | Action::Queueing(_) => None,
    };
    let Ok(step) = execution::begin(action.clone(), seen, clock::now()) else { return };
    let outcome = follow(step, context, turn).await;
    log(&action, &outcome, started, context);
    let Outcome { answers, workload, events, .. } = outcome;
    // The cache first: the engine's next decision looks there.
    if let Some(workload) = workload {
        context.cache.refresh(Kind::Workload, workload);
    }
    answers.into_iter().for_each(|event| context.inbox.send(event));
    events.into_iter().for_each(|event| context.recorder.record(event));
}

/// Sends the requests of these steps until they have ended.
async fn follow(mut step: Step, context: &Context, mut turn: Option<Turn>) -> Outcome {
    loop {
        step = match step {
            Step::Send(request, then) => {
                let turn = turn.take().unwrap_or_else(|| Turn::Decide(context.throttle.begin_decision()));
                let began = Instant::now();
                let answer = context.api.send(&request).await;
                let refused = answer.as_ref().is_err_and(Error::is_too_many);
                // What got no answer tells how long this client waits.
                match turn {
                    _ if matches!(answer, Err(Error::Transport(_))) => {}
                    Turn::Explain(permit) => permit.done(refused),
                    Turn::Decide(decision) => decision.done(began.elapsed(), refused),
                }
                then(answer)
            }
            Step::Wait(pause, then) => {
                // An action that waits to be tried again uses nothing.
                turn = None;
                tokio::time::sleep(pause).await;
                then()
            }
            Step::Done(outcome) => return *outcome,
        };
    }
}

/// Logs an ended action, and the step of its workload's journey.
fn log(action: &Action, outcome: &Outcome, started: Option<plimsoll_state::Time>, context: &Context) {
    for failure in &outcome.failures {
        tracing::warn!("{failure}");
    }
    match (action, outcome.answers.first()) {
        (Action::Scheduler(SchedulerAction::Bind { pod, node }), Some(Event::Scheduler(answer))) => {
            decisions::bound(pod, node, answer);
            journey::bound(pod, node, answer, &context.cache);
        }
        (Action::Queueing(QueueAction::UpdateWorkload(update)), answer) => {
            log_update(update, answer, outcome, started);
        }
        (action, Some(Event::Scheduler(SchedulerEvent::Answered { answer, .. }))) => {
            log_answer(action, answer);
        }
        (action, Some(Event::Queueing(QueueEvent::Answered { answer, .. }))) => log_answer(action, answer),
        _ => {}
    }
}

fn log_update(
    update: &WorkloadUpdate,
    answer: Option<&Event>,
    outcome: &Outcome,
    started: Option<plimsoll_state::Time>,
) {
    if let Some(written) = &outcome.workload {
        decisions::written(update, written);
        journey::written(update, written, started);
    } else if let Some(Event::Queueing(QueueEvent::WriteFailed { message, .. })) = answer {
        decisions::unwritten(&update.key, message);
    }
}

fn log_answer(action: &Action, answer: &Answer) {
    let what = match action {
        Action::Scheduler(SchedulerAction::Unschedulable { .. }) => "setting the condition PodScheduled",
        Action::Scheduler(SchedulerAction::Nominate { .. }) => "setting nominatedNodeName",
        Action::Scheduler(SchedulerAction::Preempt { .. }) => "deleting a victim",
        Action::Scheduler(SchedulerAction::ReleaseClaims { .. }) => "releasing claims for devices",
        Action::Queueing(QueueAction::DeactivateWorkload { .. }) => "deactivating a workload",
        Action::Queueing(QueueAction::FailPod { .. }) => "terminating a pod",
        Action::Queueing(QueueAction::UpdateLoan(_)) => "writing a quota loan",
        Action::Scheduler(_) | Action::Queueing(_) => "",
    };
    match (answer, action) {
        (Answer::Done, Action::Scheduler(action)) => decisions::placed(action),
        (Answer::Done, Action::Queueing(action)) => decisions::queued(action),
        (Answer::Superseded, _) => tracing::debug!("{what}: the object is gone"),
        (Answer::Failed(error), _) => tracing::warn!(error, "{what} failed"),
    }
}
