//! The job controllers: a work queue of keys, one place at a time for each, retried with growing pauses (the runtime's
//! `jobs::control`). What is written comes from `plimsoll-jobs`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_engine::Event;
use plimsoll_jobs::plan::Write;
use plimsoll_jobs::{Env, Key, Kind as Stored, affected, affected_by_deletion, reconcile};
use plimsoll_queueing::{Event as QueueEvent, WorkloadKey};
use plimsoll_state::Duration;
use serde_json::Value;

use super::Process;
use super::calls::{For, JobStep as Step};
use crate::agenda::Event as Happens;
use crate::api::{Kind, Name, Request, Style, uid};
use crate::network::{Answer, Network};

/// Most keys that are worked on at once.
const WORKERS: usize = 16;
/// First and longest pause before a failed key is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_seconds(60));

/// A key that is worked on.
#[derive(Debug, Default)]
struct Work {
    /// Whether it has to be worked on again.
    dirty: bool,
    /// Objects to read first.
    unconfirmed: VecDeque<(Kind, Name)>,
    /// What is left of its plan, once that is made.
    plan: Option<VecDeque<Write>>,
}

/// The work queue.
#[derive(Debug, Default)]
pub struct Jobs {
    queue: VecDeque<Key>,
    queued: BTreeSet<Key>,
    active: BTreeMap<Key, Work>,
    failures: BTreeMap<Key, u32>,
    unconfirmed: BTreeMap<Key, Vec<(Kind, Name)>>,
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

    fn enqueue(&mut self, key: Key, network: &mut Network) {
        // The controller of the check is one of the users.
        if matches!(key, Key::Provisioning(..) | Key::AdmissionCheck(_)) {
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
        let Some(key) = self.jobs.queue.pop_front() else { return false };
        self.jobs.queued.remove(&key);
        let unconfirmed = self.jobs.unconfirmed.get(&key).cloned().unwrap_or_default().into();
        self.jobs.active.insert(key.clone(), Work { unconfirmed, ..Work::default() });
        self.go_on(key, network);
        true
    }

    /// Goes on with a key: reads what is unconfirmed, plans, writes.
    fn go_on(&mut self, key: Key, network: &mut Network) {
        loop {
            let Some(work) = self.jobs.active.get_mut(&key) else { return };
            if let Some((kind, name)) = work.unconfirmed.pop_front() {
                let request = Request::Get(kind, name);
                return self.send(For::Job(key, Step::Read(kind)), request, None, network);
            }
            if work.plan.is_none() {
                self.jobs.unconfirmed.remove(&key);
                let env = Env { objects: &self.objects, config: &self.config, now: network.now() };
                work.plan = Some(reconcile(&key, env).into());
            }
            let Some(write) = work.plan.as_mut().and_then(VecDeque::pop_front) else {
                return self.ended(key, false, network);
            };
            if let Some((step, request)) = self.begin_write(&key, write, network) {
                return self.send(For::Job(key, step), request, None, network);
            }
        }
    }

    /// The request of a write; what needs none is done at once.
    fn begin_write(&mut self, key: &Key, write: Write, network: &mut Network) -> Option<(Step, Request)> {
        match write {
            Write::Create(resource, object) => {
                let kind = Kind::of(resource)?;
                Some((Step::Create(kind), Request::Create(kind, object)))
            }
            Write::Patch { resource, namespace, name, subresource, body } => {
                let (kind, name) = (Kind::of(resource)?, (namespace, name));
                let (status, style) = (subresource == "status", Style::Merge);
                Some((Step::Patch(kind, name.clone()), Request::Patch { kind, name, status, style, body }))
            }
            Write::IfGone { resource, namespace, name, uid } => {
                let kind = Kind::of(resource)?;
                Some((Step::Find(kind, uid), Request::Find(kind, (namespace, name))))
            }
            Write::Delete { resource, namespace, name, uid } => {
                let (kind, name) = (Kind::of(resource)?, (namespace, name));
                let request = Request::Delete { kind, name: name.clone(), uid: uid.clone(), grace: None };
                Some((Step::Delete(kind, name, uid), request))
            }
            Write::WorkloadStopped { namespace, name } => {
                let event = QueueEvent::WorkloadStopped(WorkloadKey { namespace, name });
                self.tell(Event::Queueing(event), network);
                None
            }
            Write::RequeueAfter(pause) => {
                let nanos = i64::try_from(pause.as_nanos()).unwrap_or(i64::MAX);
                self.requeue_after(key.clone(), Duration(nanos), network);
                None
            }
            // Nothing in the simulated cluster asks for nodes.
            Write::Event(_) | Write::CreateForCheck(_) => None,
        }
    }

    /// A request of a key was answered.
    pub(super) fn job_answered(&mut self, key: Key, step: Step, answer: Answer, network: &mut Network) {
        if self.confirm(&key, step, answer) {
            self.go_on(key, network);
        } else {
            self.ended(key, true, network);
        }
    }

    /// Takes in an answer; whether the next write may follow.
    fn confirm(&mut self, key: &Key, step: Step, answer: Answer) -> bool {
        let error = match answer {
            Ok(object) => {
                if let Step::Find(kind, own) = &step {
                    let there = uid(&object) == own;
                    if let Some(stored) = Stored::of(kind.resource()).filter(|_| there) {
                        self.objects.put_created(stored, object);
                    }
                    return !there;
                }
                let (Step::Create(kind)
                | Step::Read(kind)
                | Step::Find(kind, _)
                | Step::Patch(kind, _)
                | Step::Delete(kind, ..)) = step;
                if let Some(stored) = Stored::of(kind.resource()) {
                    match step {
                        Step::Create(_) => self.objects.put_created(stored, object),
                        Step::Read(..) | Step::Patch(..) => self.objects.refresh(stored, object),
                        Step::Find(..) | Step::Delete(..) => {}
                    }
                }
                return true;
            }
            Err(e) => e,
        };
        // A 404 may come from a proxy: the write is repeated until the watch shows the deletion.
        match step {
            // The watch shows the deletion as well.
            Step::Read(..) => error.code == 404,
            Step::Find(..) | Step::Create(_) => false,
            Step::Patch(kind, name) => {
                if error.code == 404 && self.last_seen(kind, &name).is_none() {
                    return true;
                }
                self.jobs.unconfirmed.entry(key.clone()).or_default().push((kind, name));
                false
            }
            Step::Delete(kind, name, own) => {
                let known = self.last_seen(kind, &name).is_some_and(|o| uid(&o) == own);
                matches!(error.code, 404 | 409) && !known
            }
        }
    }

    fn ended(&mut self, key: Key, failed: bool, network: &mut Network) {
        let dirty = self.jobs.active.remove(&key).is_some_and(|w| w.dirty);
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

    /// Has as many keys worked on as there are workers.
    pub(super) fn wake_workers(&self, network: &mut Network) {
        for _ in 0..self.jobs.queue.len().min(WORKERS) {
            network.agenda.after(Duration(1_000), Happens::Reconcile(self.life));
        }
    }

    fn last_seen(&self, kind: Kind, name: &Name) -> Option<Arc<Value>> {
        self.objects.get(Stored::of(kind.resource())?, &name.0, &name.1)
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
