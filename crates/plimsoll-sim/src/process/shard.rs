//! The shard of a process: what it is told of the cluster is the product's (`plimsoll_jobs::shards::Division`), and so is which writes may
//! begin; modelled is who asks (the runtime's `ingest`, `execute` and `moves`).

use std::sync::Arc;

use plimsoll_engine::{Action, Event};
use plimsoll_jobs::shards::{Division, Seen, Told};
use plimsoll_jobs::{Env, Key};
use plimsoll_queueing::{Action as QueueAction, WorkloadKey};
use plimsoll_scheduler::Action as PodAction;
use plimsoll_state::{Duration, ObjectEvent, Time};
use serde_json::Value;

use super::Process;
use super::calls::For;
use crate::agenda::Event as Happens;
use crate::api::{Kind, Name, Request, version};
use crate::network::{Answer, Network};
use crate::scenario::shards::SHARDS;

/// Pause between two looks for nodes that can be given away, and after a failure.
const LOOK: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_seconds(5);

/// The shard of a process.
#[derive(Debug)]
pub(super) struct Shard {
    division: Division,
    /// Whether it will look for nodes to give away.
    looks: bool,
    /// Nodes whose label is being changed.
    moving: usize,
}

impl Shard {
    /// The shard of a replica, before so many lists.
    pub(super) fn new(replica: u32, lists: usize) -> Self {
        let name = SHARDS[replica as usize % SHARDS.len()];
        Self { division: Division::new(name, lists), looks: false, moving: 0 }
    }
}

fn event_of(object: &Value) -> Option<plimsoll_queueing::Event> {
    plimsoll_api::kueue::upsert_event(object).ok().flatten()
}

impl Process {
    /// How the cluster is divided, as this process sees it.
    pub fn division(&self) -> Option<&Division> {
        self.shard.as_ref().map(|shard| &shard.division)
    }

    /// Changes the division by what was seen, and tells what follows.
    pub(super) fn divide(
        &mut self,
        network: &mut Network,
        change: impl FnOnce(&mut Division, Seen<'_>, &mut Vec<Told>),
    ) {
        let Some(shard) = &mut self.shard else { return };
        let mut told = Vec::new();
        change(&mut shard.division, Seen { objects: &self.objects, event_of: &event_of }, &mut told);
        for told in told {
            match told {
                Told::Queueing(event) => self.tell(Event::Queueing(event), network),
                Told::Object(event) => self.tell(Event::Object(event), network),
                Told::Look(key) => self.enqueue(key, network),
                Told::Conflict { .. } => {}
            }
        }
        self.look_for_moves(LOOK, network);
    }

    /// An object was seen or has changed; the store has it.
    pub(super) fn seen_in_shard(&mut self, event: Event, object: &Arc<Value>, network: &mut Network) {
        self.divide(network, |division, seen, out| match event {
            Event::Object(ObjectEvent::NodeUpsert(node)) => {
                division.node(*node, &version(object).to_string(), out);
            }
            Event::Object(ObjectEvent::PodUpsert(pod)) => division.pod(*pod, seen.objects, out),
            Event::Queueing(event) => division.upsert(event, object, seen, out),
            other => drop(other),
        });
    }

    /// An object is gone; the store has it no more.
    pub(super) fn gone_from_shard(&mut self, kind: Kind, name: &Name, uid: &str, network: &mut Network) {
        self.divide(network, |division, seen, out| match kind {
            Kind::Pod => division.pod_gone(uid, out),
            Kind::Node => division.node_gone(&name.1, out),
            _ => {
                let event = plimsoll_api::kueue::delete_event(kind.name(), &name.0, &name.1);
                event.into_iter().for_each(|event| division.delete(event, seen, out));
            }
        });
    }

    /// Whether a write may begin, and the node that it binds to; `None`: it is about what another shard has.
    pub(super) fn may_begin(&mut self, action: &Action) -> Option<Option<String>> {
        let Some(shard) = &mut self.shard else { return Some(None) };
        match action {
            Action::Scheduler(PodAction::Bind { node, .. }) => {
                shard.division.may_bind(node).then(|| Some(node.clone()))
            }
            Action::Queueing(QueueAction::UpdateWorkload(update)) => {
                let WorkloadKey { namespace, name } = &update.key;
                shard.division.may_write(namespace, name, &self.objects).then_some(None)
            }
            Action::Scheduler(_) | Action::Queueing(_) => Some(None),
        }
    }

    /// Whether a workload is written to here.
    pub(super) fn may_write(&self, namespace: &str, name: &str) -> bool {
        self.division().is_none_or(|division| division.may_write(namespace, name, &self.objects))
    }

    /// Whether its job controllers plan a key.
    pub(super) fn plans(&self, key: &Key, now: Time) -> bool {
        let env = Env { objects: &self.objects, config: &self.config, now };
        self.division().is_none_or(|division| division.plans(key, env))
    }

    /// A binding has ended.
    pub(super) fn bound(&mut self, node: &str, network: &mut Network) {
        self.divide(network, |division, _, _| division.bound(node));
    }

    /// Whether nodes are on their way to another shard.
    pub(super) fn gives_away(&self) -> bool {
        self.shard.as_ref().is_some_and(|shard| shard.moving > 0 || shard.division.gives_away())
    }

    fn look_for_moves(&mut self, pause: Duration, network: &mut Network) {
        let Some(shard) = self.shard.as_mut().filter(|s| !s.looks && s.moving == 0) else { return };
        if shard.division.gives_away() {
            shard.looks = true;
            network.agenda.after(pause, Happens::Moves(self.life));
        }
    }

    /// Gives nodes to other shards with which nothing is under way.
    pub fn give_away(&mut self, network: &mut Network) {
        let may = self.may_decide() && !self.stopping;
        let Some(shard) = &mut self.shard else { return };
        shard.looks = false;
        let given = if may { shard.division.given_away() } else { Vec::new() };
        let requests = given.iter().filter_map(|(node, leaving)| Request::of_client(leaving.request(node)));
        for request in requests {
            self.shard.iter_mut().for_each(|shard| shard.moving += 1);
            self.send(For::Move, request, None, network);
        }
        self.look_for_moves(LOOK, network);
    }

    /// A node's label has changed, or could not be.
    pub(super) fn moved(&mut self, answer: &Answer, network: &mut Network) {
        self.shard.iter_mut().for_each(|shard| shard.moving = shard.moving.saturating_sub(1));
        let again = answer.as_ref().err().is_none_or(|e| matches!(e.code, 404 | 409));
        self.look_for_moves(if again { LOOK } else { RETRY }, network);
    }
}
