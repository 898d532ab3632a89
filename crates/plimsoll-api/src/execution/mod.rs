//! How an engine action is carried out, without waiting: from an [`Action`] to requests, and from their responses to what
//! the engine is told.
//!
//! [`begin`] returns the first [`Step`] of an action. The caller sends the request or waits, and continues with the
//! response until the step is [`Step::Done`]: `plimsoll-runtime` in an async task per action, the simulator from its
//! event queue in virtual time. Transient failures are retried, conflicts are resolved by reading again; each loop has a
//! bound, but for those that find out whether the update of a workload, or the allocation of a claim, was carried out: what
//! it gave away must not be given away again before that is known. [`crate::lanes`] says in which order actions begin.

mod allocation;
mod claims;
mod extenders;
mod loans;
mod pods;
mod pre_bind;
pub mod status;
mod volumes;
mod workloads;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_engine::{Action, Event};
use plimsoll_queueing::{Action as QueueAction, Event as QueueEvent};
use plimsoll_scheduler::{Action as SchedulerAction, Event as SchedulerEvent};
use plimsoll_state::{Answer, Time};
use serde_json::Value;

pub use self::extenders::extended;
pub use self::pods::pod_event;
pub use self::workloads::workload_events;
use crate::event::EventRecord;
use crate::json;
use crate::request::{Error, Request};
use crate::resource::Resource;

/// Attempts of a request that fails for a transient reason.
const ATTEMPTS: u32 = 6;
/// First and longest pause between them.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Attempts of a read-modify-write that conflicts with other writers.
const CONFLICTS: u32 = 8;
/// Why nothing is written about an object that another shard has.
pub const ELSEWHERE: &str = "it belongs to another shard";

/// The response to a request. Responses without a body are null.
pub type Response = Result<Value, Error>;

/// What comes next in the execution of an action.
pub enum Step {
    /// Send this request and continue with its response.
    Send(Arc<Request>, Box<dyn FnOnce(Response) -> Step + Send>),
    /// Wait this long and continue.
    Wait(Duration, Box<dyn FnOnce() -> Step + Send>),
    /// The action has ended.
    Done(Box<Outcome>),
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Send(request, _) => f.debug_tuple("Send").field(request).finish_non_exhaustive(),
            Self::Wait(pause, _) => f.debug_tuple("Wait").field(pause).finish_non_exhaustive(),
            Self::Done(outcome) => f.debug_tuple("Done").field(outcome).finish(),
        }
    }
}

/// What an ended action leaves to do and to know.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Events for the engine, in order. Every action that [`begin`] accepts gets exactly one answer.
    pub answers: Vec<Event>,
    /// The workload as written, for caches.
    pub workload: Option<Value>,
    /// Kubernetes Events to record.
    pub events: Vec<EventRecord>,
    /// Failures of requests that do not decide the answer, for the log.
    pub failures: Vec<String>,
}

impl Outcome {
    fn answer(event: Event) -> Step {
        Step::Done(Box::new(Self { answers: vec![event], ..Self::default() }))
    }
}

/// Begins an action. `seen` is the last seen state of the workload that it updates, if it updates one.
///
/// # Errors
/// The action, when it is not carried out by requests to the API server: calls of extenders, Events, statuses of queues.
pub fn begin(action: Action, seen: Option<Arc<Value>>, now: Time) -> Result<Step, Box<Action>> {
    match action {
        Action::Scheduler(SchedulerAction::Bind { pod, node }) => Ok(pods::bind(pod, node)),
        Action::Scheduler(SchedulerAction::Prepare { pod, node, what }) => {
            Ok(pre_bind::begin(pod, node, *what))
        }
        Action::Scheduler(SchedulerAction::ReleaseClaims { pod, claims, deallocate }) => {
            Ok(claims::release(pod, claims, deallocate))
        }
        Action::Scheduler(
            action @ (SchedulerAction::Unschedulable { .. }
            | SchedulerAction::Nominate { .. }
            | SchedulerAction::Preempt { .. }),
        ) => Ok(pods::begin(action, now)),
        Action::Queueing(QueueAction::UpdateWorkload(update)) => Ok(workloads::update(*update, seen)),
        Action::Queueing(QueueAction::DeactivateWorkload { key, uid }) => Ok(workloads::deactivate(key, uid)),
        Action::Queueing(QueueAction::FailPod { namespace, name, uid }) => {
            Ok(pods::fail(namespace, name, uid, now))
        }
        Action::Queueing(QueueAction::UpdateLoan(update)) => Ok(loans::update(*update)),
        other @ (Action::Scheduler(SchedulerAction::Extend { .. } | SchedulerAction::Record { .. })
        | Action::Queueing(
            QueueAction::Record(..)
            | QueueAction::ClusterQueueStatus(..)
            | QueueAction::LocalQueueStatus(..)
            | QueueAction::CohortStatus(..)
            | QueueAction::RunWindowStatus(..),
        )) => Err(Box::new(other)),
    }
}

/// The answers to an action that is not carried out, for this reason. Empty for actions without an answer.
pub fn refuse(action: &Action, why: &str) -> Vec<Event> {
    match action {
        Action::Scheduler(SchedulerAction::Bind { pod, .. } | SchedulerAction::Prepare { pod, .. }) => {
            let event = SchedulerEvent::BindFailed { uid: pod.uid.clone(), message: why.to_owned() };
            vec![Event::Scheduler(event)]
        }
        Action::Scheduler(SchedulerAction::Extend { pod, extender, call, .. }) => {
            let (uid, answer) = (pod.uid.clone(), Err(why.to_owned()));
            let event = SchedulerEvent::Extended { uid, extender: *extender, call: *call, answer };
            vec![Event::Scheduler(event)]
        }
        Action::Queueing(QueueAction::UpdateWorkload(update)) => workloads::failed(update, why),
        Action::Scheduler(
            SchedulerAction::Unschedulable { .. }
            | SchedulerAction::Preempt { .. }
            | SchedulerAction::Nominate { .. }
            | SchedulerAction::ReleaseClaims { .. },
        )
        | Action::Queueing(
            QueueAction::DeactivateWorkload { .. } | QueueAction::FailPod { .. } | QueueAction::UpdateLoan(_),
        ) => {
            vec![answered(action.clone(), Answer::Failed(why.to_owned()))]
        }
        Action::Scheduler(SchedulerAction::Record { .. })
        | Action::Queueing(
            QueueAction::Record(..)
            | QueueAction::ClusterQueueStatus(..)
            | QueueAction::LocalQueueStatus(..)
            | QueueAction::CohortStatus(..)
            | QueueAction::RunWindowStatus(..),
        ) => Vec::new(),
    }
}

/// The answers to an action that is not begun because another shard has its object. No write to the loan is under way then: a write
/// that may still be carried out is repeated whichever shard leads the tree (`Division::may_write_loan`).
pub fn elsewhere(action: &Action) -> Vec<Event> {
    match action {
        Action::Queueing(QueueAction::UpdateLoan(_)) => vec![answered(action.clone(), Answer::Superseded)],
        Action::Scheduler(_) | Action::Queueing(_) => refuse(action, ELSEWHERE),
    }
}

/// The answer to an action that has no event of its own.
pub fn answered(action: Action, answer: Answer) -> Event {
    match action {
        Action::Scheduler(action) => {
            Event::Scheduler(SchedulerEvent::Answered { action: Box::new(action), answer })
        }
        Action::Queueing(action) => {
            Event::Queueing(QueueEvent::Answered { action: Box::new(action), answer })
        }
    }
}

/// Ends a write that names its object by its UID and was not carried out.
///
/// A 404 may come from a proxy, and a conflict need not mean another UID: a webhook or a busy store answers it as well. The
/// engine repeats what failed and does not repeat what is superseded, so neither is believed before a list shows that the
/// object is gone.
fn not_written(
    error: &Error,
    (resource, namespace, name): (Resource, &str, &str),
    uid: String,
    then: impl FnOnce(Answer) -> Step + Send + 'static,
) -> Step {
    let failed = Answer::Failed(error.to_string());
    if !is_doubtful(error) {
        return then(failed);
    }
    retry(Request::find(resource, namespace, name), move |response| match response {
        Ok(found) if json::uid(&found) != uid => then(Answer::Superseded),
        Ok(_) | Err(_) => then(failed),
    })
}

/// Whether an error may say that the object of a write is gone.
const fn is_doubtful(error: &Error) -> bool {
    error.is_not_found() || error.is_conflict()
}

/// Sends a request once.
fn send(request: impl Into<Arc<Request>>, then: impl FnOnce(Response) -> Step + Send + 'static) -> Step {
    Step::Send(request.into(), Box::new(then))
}

/// Sends a request, again after transient failures with growing pauses.
fn retry(request: Request, then: impl FnOnce(Response) -> Step + Send + 'static) -> Step {
    retry_write(request, |response, _| then(response))
}

/// [`retry`] for an object that a response has shown to exist: a 404 may come from a proxy.
fn retry_known(request: Request, then: impl FnOnce(Response) -> Step + Send + 'static) -> Step {
    let passes = |e: &Error| e.is_transient() || e.is_not_found();
    Attempts::new(request, passes).begin(Box::new(|response, _| then(response)))
}

/// [`retry`] of a write; `then` also learns whether an attempt that failed may have been carried out.
fn retry_write(request: Request, then: impl FnOnce(Response, bool) -> Step + Send + 'static) -> Step {
    Attempts::new(request, Error::is_transient).begin(Box::new(then))
}

/// The attempts of a request.
struct Attempts {
    request: Arc<Request>,
    /// Failures after which it is sent again.
    passes: fn(&Error) -> bool,
    left: u32,
    pause: Duration,
    /// Whether an attempt that failed may have been carried out.
    unsure: bool,
}

impl Attempts {
    /// All of them are left. `passes`: what is tried again.
    fn new(request: Request, passes: fn(&Error) -> bool) -> Self {
        Self { request: Arc::new(request), passes, left: ATTEMPTS, pause: BACKOFF.0, unsure: false }
    }

    fn begin(self, then: Box<dyn FnOnce(Response, bool) -> Step + Send>) -> Step {
        send(Arc::clone(&self.request), move |response| {
            let unsure = self.unsure || response.as_ref().is_err_and(Error::may_be_done);
            let error = match response {
                Err(e) if self.left > 1 && (self.passes)(&e) => e,
                response => return then(response, unsure),
            };
            let asked = match &error {
                Error::Status { retry_after, .. } => Duration::from_secs(u64::from(*retry_after)),
                Error::Transport(_) | Error::Malformed(_) => Duration::ZERO,
            };
            let pause = self.pause.max(asked).min(BACKOFF.1);
            let next = Self { left: self.left - 1, pause: self.pause * 2, unsure, ..self };
            Step::Wait(pause, Box::new(move || next.begin(then)))
        })
    }
}

#[cfg(test)]
mod answer_tests;
#[cfg(test)]
mod doubt_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod volume_tests;
