//! The job controllers: a work queue of keys, one place at a time for each, retried with growing pauses (the runtime's
//! `jobs::control`). What is written, and what follows from the answers, is the product's (`plimsoll_jobs::execution`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use plimsoll_engine::Event;
use plimsoll_jobs::execution::{Execution, Step, UnconfirmedWrites};
use plimsoll_jobs::{Env, Key, Kind as Stored, affected, affected_by_deletion};
use plimsoll_state::Duration;
use serde_json::Value;

use super::Process;
use super::calls::For;
use super::executor::not_served;
use crate::agenda::Event as Happens;
use crate::api::{Kind, Name, Request, uid};
use crate::network::{Answer, Network};

/// Most keys that are worked on at once.
const WORKERS: usize = 16;
/// First and longest pause before a failed key is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_seconds(60));

/// A key that is worked on.
#[derive(Debug)]
struct Work {
    /// Whether it has to be worked on again.
    dirty: bool,
    execution: Execution,
}

/// The work queue.
#[derive(Debug, Default)]
pub struct Jobs {
    queue: VecDeque<Key>,
    queued: BTreeSet<Key>,
    active: BTreeMap<Key, Work>,
    failures: BTreeMap<Key, u32>,
    unconfirmed: UnconfirmedWrites,
    /// Keys that wait for their pause.
    pausing: usize,
}

impl Jobs {
    /// Whether nothing is queued and nothing is worked on.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.active.is_empty() && self.pausing == 0
    }
}

impl Process {
    /// An object has changed, or is gone.
    pub(super) fn touched(&mut self, kind: Kind, object: &Value, network: &mut Network) {
        let Some(kind) = Stored::of(kind.resource()) else { return };
        for key in affected(kind, object, &self.objects) {
            self.enqueue(key, network);
        }
    }

    pub(super) fn enqueue(&mut self, key: Key, network: &mut Network) {
        // The controller of another check is one of the users.
        if !self.provisioning && matches!(key, Key::Provisioning(..) | Key::AdmissionCheck(_)) {
            return;
        }
        if let Some(work) = self.jobs.active.get_mut(&key) {
            work.dirty = true;
        } else if self.jobs.queued.insert(key.clone()) {
            self.jobs.queue.push_back(key);
            network.agenda.after(Duration(1_000), Happens::Reconcile(self.life));
        }
    }

    /// A pause of a key is over.
    pub fn requeue(&mut self, key: Key, network: &mut Network) {
        self.jobs.pausing = self.jobs.pausing.saturating_sub(1);
        self.enqueue(key, network);
    }

    fn requeue_after(&mut self, key: Key, pause: Duration, network: &mut Network) {
        self.jobs.pausing += 1;
        network.agenda.after(pause, Happens::Requeue(self.life, key));
    }

    /// Works on keys while there are workers.
    pub fn reconcile(&mut self, network: &mut Network) -> bool {
        // A workload that was not listed yet must not be taken for missing.
        if self.stopping || !self.controls() || !self.unlisted.is_empty() || self.jobs.active.len() >= WORKERS
        {
            return false;
        }
        let key = loop {
            let Some(key) = self.jobs.queue.pop_front() else { return false };
            self.jobs.queued.remove(&key);
            // Another shard's process plans it.
            if self.plans(&key, network.now()) {
                break key;
            }
        };
        let execution = self.jobs.unconfirmed.begin(key.clone());
        self.jobs.active.insert(key.clone(), Work { dirty: false, execution });
        self.go_on(key, network);
        true
    }

    /// Goes on with a key until it sends a request or has ended.
    fn go_on(&mut self, key: Key, network: &mut Network) {
        loop {
            let Some(work) = self.jobs.active.get_mut(&key) else { return };
            let env = Env { objects: &self.objects, config: &self.config, now: network.now() };
            match work.execution.next(env) {
                Step::Send(request) => match Request::of_client(request) {
                    Some(request) => return self.send(For::Job(key), request, None, network),
                    None => return self.job_answered(key, Err(not_served()), network),
                },
                Step::WorkloadStopped(event) => {
                    self.tell(Event::Queueing(*event), network);
                }
                Step::Record(_) => {}
                Step::RequeueAfter(pause) => {
                    let nanos = i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX);
                    self.requeue_after(key.clone(), Duration(nanos), network);
                }
                Step::Done(outcome) => return self.ended(key, outcome.is_err(), network),
            }
        }
    }

    /// A request of a key was answered.
    pub(super) fn job_answered(&mut self, key: Key, answer: Answer, network: &mut Network) {
        let Some(work) = self.jobs.active.get_mut(&key) else { return };
        let answer = answer.map_err(Into::into);
        let taken = work.execution.answered(answer, &mut self.objects, &self.config, network.now());
        match taken {
            Ok(()) => self.go_on(key, network),
            Err(_) => self.ended(key, true, network),
        }
    }

    fn ended(&mut self, key: Key, failed: bool, network: &mut Network) {
        let work = self.jobs.active.remove(&key);
        let dirty = work.as_ref().is_some_and(|w| w.dirty);
        if let Some(work) = work {
            self.jobs.unconfirmed.ended(work.execution);
        }
        let failures = self.jobs.failures.entry(key.clone()).or_insert(0);
        *failures = if failed { failures.saturating_add(1) } else { 0 };
        let pause = BACKOFF.0.0.saturating_mul(1 << failures.saturating_sub(1).min(12)).min(BACKOFF.1.0);
        if dirty {
            self.enqueue(key, network);
        } else if failed {
            self.requeue_after(key, Duration(pause), network);
        }
        // A worker is free.
        self.wake_workers(network);
    }

    /// Begins work on as many keys as there are workers.
    pub(super) fn wake_workers(&self, network: &mut Network) {
        for _ in 0..self.jobs.queue.len().min(WORKERS) {
            network.agenda.after(Duration(1_000), Happens::Reconcile(self.life));
        }
    }

    /// Forgets objects that came and went while the watch was broken.
    pub(super) fn forget_unseen(&mut self, kind: Kind, network: &mut Network) {
        let Some(kind) = Stored::of(kind.resource()) else { return };
        for old in self.objects.listed(kind, &network.api.version().to_string()) {
            for key in affected_by_deletion(kind, uid(&old), Some(&old), &self.objects) {
                self.enqueue(key, network);
            }
        }
    }

    /// Forgets an object that is gone, and enqueues the keys that it concerned.
    pub(super) fn gone(&mut self, kind: Kind, name: &Name, uid: &str, network: &mut Network) {
        let Some(kind) = Stored::of(kind.resource()) else { return };
        let old = self.objects.remove(kind, &name.0, &name.1, uid);
        for key in affected_by_deletion(kind, uid, old.as_deref(), &self.objects) {
            self.enqueue(key, network);
        }
    }
}
