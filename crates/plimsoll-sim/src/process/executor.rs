//! The writes of the engine: in the order of [`plimsoll_api::lanes`], each as [`plimsoll_api::execution`] says, as in the
//! runtime's `execute`. What is modelled here is who sends the requests and waits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use plimsoll_api::execution::{self, Step};
use plimsoll_api::lanes::{Group, Lane, Lanes};
use plimsoll_api::request::Request as ClientRequest;
use plimsoll_engine::Action;
use plimsoll_queueing::{Action as QueueAction, Admission, WorkloadUpdate};
use plimsoll_scheduler::{Action as PodAction, ExtenderCall, PodRef};
use plimsoll_state::{Answer as Outcome, Duration};

use super::Process;
use super::calls::{For, Write};
use crate::agenda::Event as Happens;
use crate::api::{ApiError, Request, response};
use crate::network::{Answer, Network};

/// A write of the engine that pauses, and how it continues.
pub struct Pause(Write, Box<dyn FnOnce() -> Step + Send>);

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pause").field(&self.0).finish_non_exhaustive()
    }
}

/// Writes that wait or are under way.
#[derive(Debug, Default)]
pub struct Executor {
    lanes: Lanes,
    /// Serial numbers of quotas that decisions in the lanes were made with, by the number of the write.
    decided: BTreeMap<u64, u64>,
    /// The same of bindings, by the UID of the pod.
    bound: BTreeMap<String, u64>,
    /// Admissions given, by the UID of the workload, and the serial numbers that they were decided with.
    given: BTreeMap<String, (Box<Admission>, u64)>,
    pauses: BTreeMap<u64, Pause>,
    number: u64,
}

impl Executor {
    /// Takes an action; returns one that it replaces.
    pub fn push(&mut self, action: Action, decided: u64) -> Option<Action> {
        let lane = Lane::of(&action)?;
        if let Action::Queueing(QueueAction::UpdateWorkload(u)) = &action {
            let decided = self.first_decided(u, decided);
            self.decided.insert(u.id, decided);
        }
        // The node was chosen before what the pod needs there was written.
        if let Action::Scheduler(PodAction::Prepare { pod, .. }) = &action {
            self.bound.insert(pod.uid.clone(), decided);
        }
        if let Some(pod) = binds(&action) {
            self.bound.entry(pod.uid.clone()).or_insert(decided);
        }
        self.lanes.push(lane, action)
    }

    /// When an admission was decided on: a write repeats what an earlier one says that has no answer yet.
    fn first_decided(&mut self, update: &WorkloadUpdate, now: u64) -> u64 {
        match &update.admission {
            Some(Some(admission)) => {
                let first = self.given.get(&update.uid).filter(|(given, _)| given == admission);
                let decided = first.map_or(now, |(_, decided)| *decided);
                self.given.insert(update.uid.clone(), (admission.clone(), decided));
                decided
            }
            Some(None) => {
                self.given.remove(&update.uid);
                now
            }
            None => now,
        }
    }

    /// What an action that begins was decided with, where it gives something away.
    fn take_decided(&mut self, action: &Action) -> Option<u64> {
        match action {
            Action::Queueing(QueueAction::UpdateWorkload(update)) => {
                let first = update.ids().filter_map(|id| self.decided.remove(&id)).min();
                first.filter(|_| matches!(update.admission, Some(Some(_))))
            }
            Action::Scheduler(_) => binds(action).and_then(|pod| self.bound.remove(&pod.uid)),
            Action::Queueing(_) => None,
        }
    }

    /// An action has ended.
    pub fn finish(&mut self, write: Write) {
        self.lanes.done(write.lane);
    }

    /// Whether a write pauses before its next request.
    pub fn pauses(&self) -> bool {
        !self.pauses.is_empty()
    }

    /// Whether nothing waits and nothing is under way.
    pub fn is_idle(&mut self) -> bool {
        self.pauses.is_empty() && !Group::ALL.into_iter().any(|g| self.lanes.has(g))
    }
}

/// The pod that an action binds.
const fn binds(action: &Action) -> Option<&PodRef> {
    match action {
        Action::Scheduler(
            PodAction::Bind { pod, .. } | PodAction::Extend { pod, what: ExtenderCall::Bind(_), .. },
        ) => Some(pod),
        Action::Scheduler(_) | Action::Queueing(_) => None,
    }
}

/// The answer to a request that the model of the API does not serve.
pub fn not_served() -> ApiError {
    ApiError::new(404, "the simulated cluster does not serve it")
}

impl Process {
    /// Begins with all writes that may begin.
    pub fn pump(&mut self, network: &mut Network) {
        if self.stopping {
            return;
        }
        for group in Group::ALL {
            while let Some((lane, action)) = self.executor.lanes.next(group) {
                let decided = self.executor.take_decided(&action);
                let Some(holds) = self.may_begin(&action) else {
                    self.refuse(&action, lane, network);
                    continue;
                };
                self.begin(Write { lane, decided, holds }, action, network);
            }
        }
    }

    fn begin(&mut self, write: Write, action: Action, network: &mut Network) {
        let seen = match &action {
            Action::Queueing(QueueAction::UpdateWorkload(u)) => {
                self.objects.get(plimsoll_jobs::Kind::Workload, &u.key.namespace, &u.key.name)
            }
            Action::Scheduler(_) | Action::Queueing(_) => None,
        };
        match execution::begin(action, seen, network.now()) {
            Ok(step) => self.carry_on(write, step, network),
            Err(action) => match *action {
                Action::Scheduler(PodAction::Extend { pod, extender, call, what }) => {
                    self.ask(write, (pod, extender, call, what), network);
                }
                // Passed on before it got a lane.
                Action::Scheduler(_) | Action::Queueing(_) => self.executor.finish(write),
            },
        }
    }

    /// Does what a write wants next.
    pub(super) fn carry_on(&mut self, write: Write, mut step: Step, network: &mut Network) {
        loop {
            step = match step {
                Step::Send(request, then) => {
                    let reads = matches!(*request, ClientRequest::Get { .. });
                    if let Some(request) = Request::of_client(Arc::unwrap_or_clone(request)) {
                        let decided = write.decided.filter(|_| !reads);
                        return self.send(For::Write(write, then), request, decided, network);
                    }
                    then(response(Err(not_served())))
                }
                Step::Wait(pause, then) => {
                    self.executor.number += 1;
                    let number = self.executor.number;
                    self.executor.pauses.insert(number, Pause(write, then));
                    let pause = Duration(i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX));
                    return network.agenda.after(pause, Happens::Resume(self.life, number));
                }
                Step::Done(outcome) => {
                    // The cache first: the engine's next decision looks there.
                    if let Some(workload) = outcome.workload {
                        self.objects.refresh(plimsoll_jobs::Kind::Workload, workload);
                    }
                    outcome.answers.into_iter().for_each(|event| self.tell(event, network));
                    self.executor.lanes.done(write.lane);
                    return self.let_go(&write.holds, network);
                }
            };
        }
    }

    /// The pause of a write is over.
    pub fn resume(&mut self, number: u64, network: &mut Network) {
        if let Some(Pause(write, then)) = self.executor.pauses.remove(&number) {
            self.carry_on(write, then(), network);
            self.pump(network);
        }
    }

    /// Answers an action that is not begun: what it is about belongs to another shard.
    fn refuse(&mut self, action: &Action, lane: Lane, network: &mut Network) {
        execution::elsewhere(action).into_iter().for_each(|event| self.tell(event, network));
        self.executor.lanes.done(lane);
    }

    /// An action was replaced before it began.
    pub(super) fn superseded(&mut self, action: Action, network: &mut Network) {
        self.tell(execution::answered(action, Outcome::Superseded), network);
    }

    /// An answer has come.
    pub fn answer(&mut self, call: u64, answer: Answer, network: &mut Network) {
        match self.calls.take(call) {
            Some(For::Extender(question)) => self.extended(*question, answer, network),
            Some(For::Job(key)) => self.job_answered(key, answer, network),
            Some(For::Move) => self.moved(&answer, network),
            Some(For::Status(key, status)) => self.status_answered(key, status, answer, network),
            Some(For::Write(write, then)) => {
                self.carry_on(write, then(response(answer)), network);
                self.pump(network);
            }
            None => {}
        }
    }
}
