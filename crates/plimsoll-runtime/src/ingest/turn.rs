//! What watches tell the engine of one shard of a cluster: what [`plimsoll_jobs::shards::Division`] says.
//!
//! The lock is held from when an object enters the cache until its event is sent, so that an object that changes its shard is
//! given with its newest state, whatever watch is faster.

use std::sync::MutexGuard;

use plimsoll_api::json;
use plimsoll_engine::Event;
use plimsoll_jobs::shards::{Division, Seen, Told};
use plimsoll_queueing::Event as QueueEvent;
use plimsoll_state::model::{Node, Pod};
use serde_json::Value;

use super::Sinks;
use crate::shard::Shard;

/// The right to change the cache and to tell the engine of it.
pub struct Turn<'a> {
    division: MutexGuard<'a, Division>,
    sinks: &'a Sinks,
}

impl<'a> Turn<'a> {
    /// Waits until what other watches have told is given to the engine.
    pub fn new(shard: &'a Shard, sinks: &'a Sinks) -> Self {
        Self { division: shard.lock(), sinks }
    }

    /// Changes the division by what the cache has, and tells what follows.
    fn divide(&mut self, change: impl FnOnce(&mut Division, Seen<'_>, &mut Vec<Told>)) {
        let (sinks, mut told) = (self.sinks, Vec::new());
        let event_of = |object: &Value| match sinks.event_of(object) {
            Ok(event) => event,
            Err(error) => {
                let (kind, namespace) = (json::text(object, &["kind"]), json::namespace(object));
                tracing::warn!(kind, namespace, name = json::name(object), %error, "skipping malformed object");
                None
            }
        };
        sinks.cache.objects(|objects| {
            change(&mut self.division, Seen { objects, event_of: &event_of }, &mut told);
        });
        told.into_iter().for_each(|told| sinks.tell(told));
    }

    /// A list is complete; with the last one, everything of the shard is given to the engine.
    pub fn listed(&mut self) {
        self.divide(Division::listed);
    }

    /// An object of queueing was seen or has changed; the cache has it.
    pub fn upsert(&mut self, event: QueueEvent, object: &Value) {
        self.divide(|division, seen, out| division.upsert(event, object, seen, out));
    }

    /// An object of queueing is gone; the cache has it no more.
    pub fn delete(&mut self, event: QueueEvent) {
        self.divide(|division, seen, out| division.delete(event, seen, out));
    }

    /// A node was seen or has changed, in this version. Returns whether it is of the shard, and stays there.
    pub fn node(&mut self, node: Node, version: &str) -> bool {
        let mut mine = false;
        self.divide(|division, _, out| mine = division.node(node, version, out));
        mine
    }

    /// A node is gone, or of another shard.
    pub fn node_gone(&mut self, name: &str) {
        self.divide(|division, _, out| division.node_gone(name, out));
    }

    /// A pod was seen or has changed.
    pub fn pod(&mut self, pod: Pod) {
        self.divide(|division, seen, out| division.pod(pod, seen.objects, out));
    }

    /// A pod is gone.
    pub fn pod_gone(&mut self, uid: &str) {
        self.divide(|division, _, out| division.pod_gone(uid, out));
    }
}

impl Sinks {
    /// Changes how the cluster is divided by what the cache has, and tells what follows; `None`: it is not divided.
    pub fn change_division<T>(
        &self,
        change: impl FnOnce(&mut Division, Seen<'_>, &mut Vec<Told>) -> T,
    ) -> Option<T> {
        let (mut turn, mut answer) = (self.turn()?, None);
        turn.divide(|division, seen, out| answer = Some(change(division, seen, out)));
        answer
    }

    fn tell(&self, told: Told) {
        match told {
            Told::Queueing(event) => self.inbox.send(Event::Queueing(event)),
            Told::Object(event) if self.nodes => self.inbox.send(Event::Object(event)),
            Told::Object(_) => {}
            Told::Look(key) => self.queue.add(&key),
            Told::Conflict { cluster_queue, why } => {
                tracing::warn!(
                    cluster_queue,
                    "no shard decides with it: its tree belongs to several shards: {why}"
                );
            }
        }
    }
}
