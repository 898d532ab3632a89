//! One container of a pod: what it does, how it ended, and when it starts again.

use super::Options;
use super::script::Script;
use super::view::{Container, ContainerStatus, Terminated};
use crate::time::{Nanos, SECOND, parse};

/// First wait between two starts of a failing container (kubelet's default).
const BACKOFF_FIRST: Nanos = 10 * SECOND;
/// Longest wait between two starts.
const BACKOFF_MAX: Nanos = 300 * SECOND;
/// A container that ran this long starts again without waiting.
const BACKOFF_RESET: Nanos = 600 * SECOND;

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub code: i32,
    pub reason: String,
    pub started: Nanos,
    pub finished: Nanos,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not started yet.
    Waiting,
    /// Runs since then.
    Running(Nanos),
    /// Ended for good.
    Done(Done),
    /// Ended, starts again at that time.
    Backoff(Nanos),
}

/// A container of the pod.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub name: String,
    pub image: String,
    pub script: Script,
    pub sidecar: bool,
    pub state: State,
    pub restarts: i64,
    pub last: Option<Done>,
}

/// When a container that ended starts again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    Always,
    OnFailure,
    Never,
}

impl Slot {
    /// The container has ended; it starts again if the policy says so.
    pub fn end(
        &mut self,
        at: Nanos,
        code: i32,
        since: Nanos,
        policy: Policy,
        is_init: bool,
        options: &Options,
    ) {
        let reason = if code == 0 { "Completed" } else { "Error" };
        let done = Done { code, reason: reason.into(), started: since, finished: at };
        let again = match policy {
            Policy::Never => false,
            Policy::OnFailure => code != 0,
            // An init container that succeeded is done under any policy.
            Policy::Always => !(is_init && code == 0),
        };
        if !again {
            self.state = State::Done(done);
            return;
        }
        let ran = at.saturating_sub(since);
        let doublings = u32::try_from(self.restarts.saturating_sub(1)).unwrap_or(0).min(10);
        let wait = if self.restarts == 0 || ran >= options.scale(BACKOFF_RESET) {
            0
        } else {
            BACKOFF_FIRST.saturating_mul(1 << doublings).min(BACKOFF_MAX)
        };
        self.last = Some(done);
        self.state = State::Backoff(at.saturating_add(options.scale(wait)));
    }
}

/// A container as its last reported status left it.
pub(super) fn restore(c: &Container, script: Script, sidecar: bool, old: Option<&ContainerStatus>) -> Slot {
    let mut slot = Slot {
        name: c.name.clone(),
        image: c.image.clone(),
        script,
        sidecar,
        state: State::Waiting,
        restarts: 0,
        last: None,
    };
    let Some(old) = old else { return slot };
    let time = |t: &Option<String>| t.as_deref().and_then(parse).unwrap_or(0);
    let done = |t: &Terminated| Done {
        code: t.exit_code,
        reason: t.reason.clone(),
        started: time(&t.started_at),
        finished: time(&t.finished_at),
    };
    slot.restarts = old.restart_count.max(0);
    slot.last = old.last_state.terminated.as_ref().map(done);
    if let Some(running) = &old.state.running {
        slot.state = State::Running(time(&running.started_at));
    } else if let Some(ended) = &old.state.terminated {
        slot.state = State::Done(done(ended));
    } else if let Some(last) = &slot.last {
        slot.state = State::Backoff(last.finished.saturating_add(BACKOFF_FIRST));
    }
    slot
}
