//! An API server in miniature: keeps the objects, carries out what the engine asks for, and answers.

use plimsoll_state::ObjectEvent;
use std::collections::{BTreeMap, BTreeSet};

use super::unlimited;
use plimsoll_api::convert;
use plimsoll_api::kueue::{self, upsert_event};
use plimsoll_engine::{Action, Engine, EngineConfig, Event};
use plimsoll_queueing::{QueueStatus, Waiting, WorkloadKey, WorkloadUpdate};
use plimsoll_state::{Duration, Time};
use serde_json::{Map, Value, json};

/// The engine with the objects of one recorded row. It replays, in order and without faults.
pub struct Harness {
    pub engine: Engine,
    pub now: Time,
    workloads: BTreeMap<String, Value>,
    version: u64,
    /// Statuses of LocalQueues given out last.
    pub local_queues: BTreeMap<String, QueueStatus>,
    pub seen: Seen,
    /// Workloads whose message Kueue could not publish.
    pub unpublished: BTreeSet<String>,
}

/// What happened since the last look.
#[derive(Default)]
pub struct Seen {
    pub admitted: Map<String, Value>,
    pub preempted: Map<String, Value>,
    pub evicted: Map<String, Value>,
}

impl Harness {
    /// `joint`: with both halves and joint admission, on nodes that have capacity for everything.
    pub fn new(row: &Value, joint: bool) -> Result<Self, String> {
        let queueing = plimsoll_config::kueue::queueing(&row["configuration"]).map_err(|e| e.to_string())?;
        let now = row["now"].as_str().unwrap_or("2026-01-01T10:00:00Z");
        let now: jiff::Timestamp = now.parse().map_err(|e| format!("now: {e}"))?;
        let scheduler = joint.then(plimsoll_scheduler::Config::default);
        let engine = Engine::new(EngineConfig { scheduler, queueing: Some(queueing), joint });
        let mut harness = Self {
            engine,
            now: Time::from_seconds(now.as_second()),
            workloads: BTreeMap::new(),
            version: 1,
            local_queues: BTreeMap::new(),
            seen: Seen::default(),
            unpublished: BTreeSet::new(),
        };
        let mut events = Vec::new();
        let mut objects = row["objects"].as_array().cloned().unwrap_or_default();
        if joint {
            unlimited::add_nodes(&mut objects);
        }
        for object in &objects {
            events.extend(harness.load(object)?);
        }
        harness.settle(events);
        Ok(harness)
    }

    fn load(&mut self, object: &Value) -> Result<Option<Event>, String> {
        let bytes = object.to_string();
        let fail = |e: convert::ConvertError| e.to_string();
        Ok(match object["kind"].as_str().unwrap_or_default() {
            "Node" => {
                let node = convert::node(bytes.as_bytes()).map_err(fail)?;
                Some(Event::Object(ObjectEvent::NodeUpsert(Box::new(node))))
            }
            "Pod" => {
                let mut pod = convert::pod(bytes.as_bytes()).map_err(fail)?;
                if pod.uid.is_empty() {
                    // The scheduler knows pods by their UIDs.
                    pod.uid = format!("{}/{}", pod.namespace, pod.name);
                }
                Some(Event::Object(ObjectEvent::PodUpsert(Box::new(pod))))
            }
            "Workload" => {
                let mut object = object.clone();
                object["metadata"]["resourceVersion"] = "1".into();
                let event = upsert_event(&object).map_err(fail)?;
                self.workloads.insert(key_of(&object), object);
                event.map(Event::Queueing)
            }
            _ => upsert_event(object).map_err(fail)?.map(Event::Queueing),
        })
    }

    /// Delivers events and lets the engine say what there is to say, until nothing more comes.
    pub fn settle(&mut self, mut events: Vec<Event>) {
        for _ in 0..20 {
            let mut actions = Vec::new();
            self.engine.settle(self.now, &mut events, &mut actions);
            events = self.carry_out(actions);
            if events.is_empty() {
                return;
            }
        }
        panic!("the engine does not come to rest");
    }

    /// Runs one cycle and settles.
    pub fn cycle(&mut self) {
        let mut actions = Vec::new();
        self.engine.step(self.now, &mut Vec::new(), &mut actions);
        let events = self.carry_out(actions);
        self.settle(events);
    }

    /// Stops every evicted workload that still holds quota, then moves the clock.
    pub fn stop_evicted(&mut self) {
        let stopped: Vec<Event> = self
            .workloads
            .values()
            .filter(|w| is_true(w, "Evicted") && is_true(w, "QuotaReserved"))
            .map(|w| Event::Queueing(plimsoll_queueing::Event::WorkloadStopped(workload_key(w))))
            .collect();
        self.settle(stopped);
        self.now = self.now.plus(Duration::from_seconds(1));
    }

    fn carry_out(&mut self, actions: Vec<Action>) -> Vec<Event> {
        let mut events = Vec::new();
        for action in actions {
            match action {
                Action::Queueing(plimsoll_queueing::Action::UpdateWorkload(u)) => {
                    events.extend(self.update(&u));
                }
                Action::Queueing(plimsoll_queueing::Action::LocalQueueStatus(ns, name, s)) => {
                    self.local_queues.insert(format!("{ns}/{name}"), (*s).clone());
                }
                _ => {}
            }
        }
        events
    }

    fn update(&mut self, u: &WorkloadUpdate) -> Vec<Event> {
        let key = u.key.to_string();
        self.note(&key, u);
        self.version += 1;
        let version = self.version;
        let object = self.workloads.get_mut(&key).expect("a write to a workload that exists");
        let patch = kueue::workload_status_patch(object, u);
        merge(&mut object["status"], &patch);
        object["metadata"]["resourceVersion"] = version.to_string().into();
        let upsert = upsert_event(object).expect("our own status can be read").expect("a Workload");
        let written = plimsoll_queueing::Event::Written { key: u.key.clone(), id: u.id, version };
        vec![Event::Queueing(upsert), Event::Queueing(written)]
    }

    fn note(&mut self, key: &str, u: &WorkloadUpdate) {
        if let Some(Some(a)) = &u.admission {
            let mut v = kueue::admission(a);
            let picks = v["podSetAssignments"].as_array_mut().into_iter().flatten();
            for (v, ps) in picks.zip(&a.assignments) {
                if let Some(o) = v.as_object_mut() {
                    o.retain(|k, v| k != "topologyAssignment" && v.as_object().is_none_or(|m| !m.is_empty()));
                }
                if let (Some(o), Some(t)) = (v.as_object_mut(), &ps.topology) {
                    let domains: Vec<Value> = t
                        .domains
                        .iter()
                        .map(|(values, count)| json!({ "values": values, "count": count }))
                        .collect();
                    o.insert("topologyLevels".into(), json!(t.levels));
                    o.insert("topologyAssignment".into(), domains.into());
                }
            }
            self.seen.admitted.insert(key.to_owned(), v);
        }
        let condition = |kind: &str| u.conditions.iter().find(|c| c.kind == kind && c.status);
        if let Some(p) = condition("Preempted") {
            let uid = p.message.split("UID: ").nth(1).and_then(|t| t.split(',').next()).unwrap_or_default();
            let by = self.workloads.iter().find(|(_, w)| w["metadata"]["uid"] == uid).map(|(k, _)| k.clone());
            let v = json!({ "reason": p.reason, "by": by, "message": p.message });
            self.seen.preempted.insert(key.to_owned(), v);
        } else if let Some(e) = condition("Evicted") {
            let v = json!({ "reason": e.reason, "message": e.message });
            self.seen.evicted.insert(key.to_owned(), v);
        }
    }

    /// Every unfinished workload without a reservation.
    pub fn pending(&self) -> Map<String, Value> {
        let waiting = self.workloads.iter().filter(|(_, w)| !is_true(w, "QuotaReserved"));
        waiting
            .map(|(key, w)| {
                let mut v = Map::new();
                let spot = self.engine.queueing().and_then(|q| q.waiting(&workload_key(w)));
                let requeue = match spot {
                    Some(Waiting::Queued) => "queued",
                    Some(Waiting::Inadmissible) => "inadmissible",
                    None => "unqueued",
                };
                v.insert("requeue".into(), requeue.into());
                if let Some(c) = condition_of(w, "QuotaReserved") {
                    v.insert("reason".into(), c["reason"].clone());
                    v.insert("message".into(), c["message"].clone());
                }
                (key.clone(), v.into())
            })
            .collect()
    }
}

fn condition_of<'a>(w: &'a Value, kind: &str) -> Option<&'a Value> {
    w["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

fn is_true(w: &Value, kind: &str) -> bool {
    condition_of(w, kind).is_some_and(|c| c["status"] == "True")
}

fn key_of(object: &Value) -> String {
    workload_key(object).to_string()
}

fn workload_key(object: &Value) -> WorkloadKey {
    let text = |f: &str| object["metadata"][f].as_str().unwrap_or_default().to_owned();
    WorkloadKey { namespace: text("namespace"), name: text("name") }
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (k, v) in patch {
        if v.is_null() {
            target.as_object_mut().map(|t| t.remove(k));
        } else {
            merge(&mut target[k], v);
        }
    }
}
