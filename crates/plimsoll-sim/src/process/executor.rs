//! From actions of the engine to requests, in the order of the product's own lanes, and from their answers to events
//! (the runtime's `execute`).

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_api::lanes::{Group, Lane, Lanes};
use plimsoll_engine::{Action, Event};
use plimsoll_queueing::{Action as QueueAction, Admission, Event as QueueEvent, WorkloadUpdate};
use plimsoll_scheduler::{Action as PodAction, Event as PodEvent, PodRef};
use plimsoll_state::Answer as Outcome;
use serde_json::{Value, json};

use super::Process;
use crate::api::{ApiError, Kind, Name, Request, Style, stamp, text, uid, version};
use crate::network::{Answer, Caller, Network, Pending};

/// Tries of a read-modify-write that others keep changing.
const CONFLICTS: u32 = 8;

/// What a request is made for.
#[derive(Debug)]
pub enum For {
    /// A write of the engine, with the lane that it keeps busy.
    Write(Lane, Box<Write>),
    /// The status of a queue.
    Status(Kind, String),
}

/// A write of the engine under way.
#[derive(Debug)]
pub struct Write {
    action: Action,
    /// Serial number of the quotas that were known when it was decided on.
    decided: u64,
    conflicts: u32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The write itself, or its first part.
    Write,
    /// The object is read, to write again or to see what became of a write.
    Read,
    /// The victim is deleted.
    Delete,
}

/// Writes that wait or are under way.
#[derive(Debug, Default)]
pub struct Executor {
    lanes: Lanes,
    /// Serial numbers of quotas that decisions in the lanes were made with, by the number of the write.
    decided: BTreeMap<u64, u64>,
    /// Admissions given, by the UID of the workload, and the serial numbers that they were decided with.
    given: BTreeMap<String, (Box<Admission>, u64)>,
    calls: BTreeMap<u64, For>,
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

    /// Whether nothing waits and nothing is under way.
    pub fn is_idle(&mut self) -> bool {
        self.calls.is_empty() && !Group::ALL.into_iter().any(|g| self.lanes.has(g))
    }
}

fn pod(pod: &PodRef) -> Name {
    (pod.namespace.clone(), pod.name.clone())
}

fn patch(kind: Kind, name: Name, status: bool, style: Style, body: Value) -> Request {
    Request::Patch { kind, name, status, style, body }
}

/// The answer to a write that names its object by its UID.
fn outcome(answer: Answer) -> Outcome {
    match answer {
        Ok(_) => Outcome::Done,
        Err(e) if matches!(e.code, 404 | 409) => Outcome::Superseded,
        Err(e) => Outcome::Failed(e.message),
    }
}

impl Process {
    /// Begins with all writes that may begin.
    pub fn pump(&mut self, network: &mut Network) {
        for group in Group::ALL {
            while let Some((lane, action)) = self.executor.lanes.next(group) {
                let mut decided = self.known.serial();
                if let Action::Queueing(QueueAction::UpdateWorkload(u)) = &action {
                    for id in u.ids() {
                        decided = decided.min(self.executor.decided.remove(&id).unwrap_or(decided));
                    }
                }
                let write = Write { action, decided, conflicts: CONFLICTS, stage: Stage::Write };
                self.begin(lane, Box::new(write), network);
            }
        }
    }

    pub(super) fn send(
        &mut self,
        what: For,
        request: Request,
        decided: Option<u64>,
        retries: bool,
        network: &mut Network,
    ) {
        self.executor.number += 1;
        let call = self.executor.number;
        self.executor.calls.insert(call, what);
        network.send(Caller { life: self.life, call, retries }, request, decided);
    }

    fn begin(&mut self, lane: Lane, mut write: Box<Write>, network: &mut Network) {
        let now = network.now();
        let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": stamp(now)});
        let status = |p: &PodRef, status: Value| {
            let body = json!({"metadata": {"uid": p.uid}, "status": status});
            patch(Kind::Pod, pod(p), true, Style::Strategic, body)
        };
        let request = match &write.action {
            Action::Queueing(QueueAction::UpdateWorkload(u)) => {
                let known = self.cache.get(Kind::Workload, &u.key.namespace, &u.key.name);
                let update = u.clone();
                return self.write_workload(lane, write, &update, known, network);
            }
            Action::Queueing(QueueAction::DeactivateWorkload { key, uid }) => {
                let body = json!({"metadata": {"uid": uid}, "spec": {"active": false}});
                let name = (key.namespace.clone(), key.name.clone());
                patch(Kind::Workload, name, false, Style::Merge, body)
            }
            Action::Queueing(QueueAction::FailPod { namespace, name, uid }) => {
                let p = PodRef { uid: uid.clone(), namespace: namespace.clone(), name: name.clone() };
                let condition = condition("TerminatedByKueue", "True", "UnschedulableOnAssignedNode");
                status(&p, json!({"phase": "Failed", "conditions": [condition]}))
            }
            Action::Scheduler(PodAction::Bind { pod: p, node }) => {
                Request::Bind { name: pod(p), uid: p.uid.clone(), node: node.clone() }
            }
            Action::Scheduler(PodAction::Unschedulable { pod: p, reason, nominated_node, .. }) => {
                let mut body = json!({"conditions": [condition("PodScheduled", "False", reason)]});
                if let Some(node) = nominated_node {
                    body["nominatedNodeName"] = if node.is_empty() { Value::Null } else { json!(node) };
                }
                status(p, body)
            }
            Action::Scheduler(PodAction::ClearNomination { pod: p }) => {
                status(p, json!({"nominatedNodeName": null}))
            }
            Action::Scheduler(PodAction::Preempt { victim, .. }) => {
                let marked = condition("DisruptionTarget", "True", "PreemptionByScheduler");
                status(victim, json!({"conditions": [marked]}))
            }
            // Nothing in the simulated cluster asks for devices, volumes or extenders.
            Action::Scheduler(_) | Action::Queueing(_) => return self.executor.lanes.done(lane),
        };
        write.stage = Stage::Write;
        self.send(For::Write(lane, write), request, None, true, network);
    }

    /// Writes the status of a workload as it is known, or reads it first.
    fn write_workload(
        &mut self,
        lane: Lane,
        mut write: Box<Write>,
        update: &WorkloadUpdate,
        known: Option<Arc<Value>>,
        network: &mut Network,
    ) {
        let name = (update.key.namespace.clone(), update.key.name.clone());
        let Some(object) = known else {
            write.stage = Stage::Read;
            let request = Request::Get(Kind::Workload, name);
            return self.send(For::Write(lane, write), request, None, true, network);
        };
        if uid(&object) != update.uid {
            self.executor.lanes.done(lane);
            return self.failed(update, "the workload has been replaced by another of its name", network);
        }
        if plimsoll_api::kueue::contradicts_admission(&object, update) {
            self.executor.lanes.done(lane);
            let why = "the workload has been admitted by a write whose answer was lost";
            return self.failed(update, why, network);
        }
        let status = plimsoll_api::kueue::workload_status_patch(&object, update);
        let version = version(&object).to_string();
        let body = json!({"metadata": {"resourceVersion": version, "uid": update.uid}, "status": status});
        write.stage = Stage::Write;
        let decided = matches!(update.admission, Some(Some(_))).then_some(write.decided);
        let request = patch(Kind::Workload, name, true, Style::Merge, body);
        self.send(For::Write(lane, write), request, decided, true, network);
    }

    fn failed(&mut self, update: &WorkloadUpdate, message: &str, network: &mut Network) {
        for id in update.ids() {
            let (key, message) = (update.key.clone(), message.to_owned());
            self.tell(Event::Queueing(QueueEvent::WriteFailed { key, id, message }), network);
        }
    }

    /// Tells the engine what became of an action that has no event of its own.
    pub(super) fn answered(&mut self, action: Action, answer: Outcome, network: &mut Network) {
        let event = match action {
            Action::Scheduler(action) => {
                Event::Scheduler(PodEvent::Answered { action: Box::new(action), answer })
            }
            Action::Queueing(action) => {
                Event::Queueing(QueueEvent::Answered { action: Box::new(action), answer })
            }
        };
        self.tell(event, network);
    }

    /// An answer has come.
    pub fn answer(&mut self, pending: &Pending, answer: Answer, network: &mut Network) {
        match self.executor.calls.remove(&pending.caller.call) {
            Some(For::Status(kind, name)) => self.status_answered(kind, name, answer, network),
            Some(For::Write(lane, write)) => {
                if let Some(lane) = self.write_answered(lane, write, answer, network) {
                    self.executor.lanes.done(lane);
                    self.pump(network);
                }
            }
            None => {}
        }
    }

    /// Goes on with a write; its lane, when the write has ended.
    fn write_answered(
        &mut self,
        lane: Lane,
        mut write: Box<Write>,
        answer: Answer,
        network: &mut Network,
    ) -> Option<Lane> {
        match write.action.clone() {
            Action::Queueing(QueueAction::UpdateWorkload(update)) => {
                return self.workload_answered(lane, write, &update, answer, network);
            }
            Action::Scheduler(PodAction::Bind { pod: p, node }) => {
                let conflict = |e: &ApiError| e.code == 409;
                if write.stage == Stage::Write && answer.as_ref().is_err_and(conflict) {
                    // An earlier try may have been carried out without an answer.
                    write.stage = Stage::Read;
                    let request = Request::Get(Kind::Pod, pod(&p));
                    self.send(For::Write(lane, write), request, None, true, network);
                    return None;
                }
                let there = |o: &Value| uid(o) == p.uid && text(o, &["spec", "nodeName"]) == node;
                let event = match answer {
                    Ok(object) if write.stage == Stage::Write || there(&object) => PodEvent::Bound(p.uid),
                    Ok(_) => PodEvent::BindFailed { uid: p.uid, message: "conflict".into() },
                    Err(e) => PodEvent::BindFailed { uid: p.uid, message: e.message },
                };
                self.tell(Event::Scheduler(event), network);
            }
            Action::Scheduler(PodAction::Preempt { victim, .. }) if write.stage == Stage::Write => {
                // The deletion is what counts.
                write.stage = Stage::Delete;
                let (name, uid) = (pod(&victim), victim.uid);
                let request = Request::Delete { kind: Kind::Pod, name, uid, grace: None };
                self.send(For::Write(lane, write), request, None, true, network);
                return None;
            }
            action => {
                if let (Action::Queueing(QueueAction::DeactivateWorkload { .. }), Ok(object)) =
                    (&action, &answer)
                {
                    self.cache.refresh(Kind::Workload, Arc::clone(object));
                }
                self.answered(action, outcome(answer), network);
            }
        }
        Some(lane)
    }

    fn workload_answered(
        &mut self,
        lane: Lane,
        mut write: Box<Write>,
        update: &WorkloadUpdate,
        answer: Answer,
        network: &mut Network,
    ) -> Option<Lane> {
        match answer {
            Ok(object) if write.stage == Stage::Read => {
                self.write_workload(lane, write, update, Some(object), network);
                return None;
            }
            Ok(object) => {
                let (key, id, version) = (update.key.clone(), update.id, version(&object));
                self.cache.refresh(Kind::Workload, object);
                self.tell(Event::Queueing(QueueEvent::Written { key, id, version }), network);
            }
            Err(e) if e.code == 409 && write.conflicts > 1 => {
                write.conflicts -= 1;
                self.write_workload(lane, write, update, None, network);
                return None;
            }
            Err(e) => self.failed(update, &e.message, network),
        }
        Some(lane)
    }
}
