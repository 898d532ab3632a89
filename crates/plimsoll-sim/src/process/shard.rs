//! The shard of a process: what it is told of the cluster is the product's (`plimsoll_jobs::shards::Division`), and so is which writes may
//! begin; modelled is who asks (the runtime's `ingest`, `execute` and `moves`).

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_engine::{Action, Event};
use plimsoll_jobs::shards::{Division, Seen, Step, Told};
use plimsoll_jobs::{Env, Key};
use plimsoll_queueing::{Action as QueueAction, WorkloadKey};
use plimsoll_scheduler::Action as PodAction;
use plimsoll_state::{Duration, ObjectEvent, Time};
use serde_json::Value;

use super::calls::{For, Holds};
use super::{Process, STOPS, ingest};
use crate::agenda::Event as Happens;
use crate::api::{Kind, Name, Request, uid, version};
use crate::network::{Answer, Network};
use crate::scenario::shards::SHARDS;

/// Pause between two looks for nodes and trees that can be given away, and after a failure.
const LOOK: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_seconds(5);

/// The shard of a process.
#[derive(Debug)]
pub(super) struct Shard {
    division: Division,
    /// Whether it will look for what to give away.
    looks: bool,
    /// Nodes and objects of trees that are being written to.
    moving: usize,
    /// What has to be seen before the shard decides with trees that came to it.
    seeks: Option<Sought>,
}

/// What was written until a moment about trees of the shard.
#[derive(Debug)]
struct Sought {
    /// The trees ([`Division::unknown`]).
    number: u64,
    /// The newest version of each of [`OF_TREES`] then, and the version of the list of loans with their UIDs; `None`: not listed yet.
    listed: Option<([u64; 4], u64, BTreeSet<String>)>,
}

/// Kinds of objects that carry out decisions about trees, or say which there are.
const OF_TREES: [Kind; 4] = [Kind::Cohort, Kind::ClusterQueue, Kind::Workload, Kind::QuotaLoan];

impl Shard {
    /// The shard of a replica, before so many lists.
    pub(super) fn new(replica: u32, lists: usize) -> Self {
        let name = SHARDS[replica as usize % SHARDS.len()];
        Self { division: Division::new(name, lists), looks: false, moving: 0, seeks: None }
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
                Told::Queueing(event) => {
                    if let plimsoll_queueing::Event::WorkloadUpsert(workload) = &event {
                        self.look_at_stop(&workload.key, network);
                    }
                    self.tell(Event::Queueing(event), network);
                }
                Told::Object(event) => self.tell(Event::Object(event), network),
                Told::Look(key) => self.enqueue(key, network),
                Told::Conflict { .. } => {}
            }
        }
        self.look_for_moves(LOOK, network);
    }

    /// Job controllers look at a workload that their shard may have only from now on: whether its job has stopped.
    fn look_at_stop(&self, key: &WorkloadKey, network: &mut Network) {
        let workload = self.objects.get(plimsoll_jobs::Kind::Workload, &key.namespace, &key.name);
        if workload.is_some_and(|workload| ingest::waits_for_stop(&workload)) {
            network.agenda.after(STOPS, Happens::Stopped(self.life, key.name.clone()));
        }
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

    /// Whether a write may begin, and what it keeps with the shard; `None`: it is about what another shard has.
    pub(super) fn may_begin(&mut self, action: &Action) -> Option<Holds> {
        let mut holds = Holds::default();
        let Some(Shard { division, .. }) = &mut self.shard else { return Some(holds) };
        match action {
            Action::Scheduler(PodAction::Bind { node, .. }) => {
                holds.node = Some(division.may_bind(node).then(|| node.clone())?);
            }
            Action::Queueing(QueueAction::UpdateWorkload(update)) => {
                let WorkloadKey { namespace, name } = &update.key;
                division.may_write(namespace, name, &self.objects).then_some(())?;
                if let Some(Some(admission)) = &update.admission {
                    let queue = &admission.cluster_queue;
                    holds.cluster_queue = Some(division.may_admit(queue).then(|| queue.clone())?);
                }
            }
            Action::Queueing(QueueAction::UpdateLoan(update)) => {
                division.may_write_loan(update).then_some(())?;
            }
            Action::Scheduler(_) | Action::Queueing(_) => {}
        }
        Some(holds)
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

    /// A write has ended.
    pub(super) fn let_go(&mut self, holds: &Holds, network: &mut Network) {
        self.divide(network, |division, _, _| {
            holds.node.iter().for_each(|node| division.bound(node));
            holds.cluster_queue.iter().for_each(|queue| division.admitted(queue));
        });
    }

    /// Whether nodes or trees are on their way to another shard, or to this one.
    pub(super) fn gives_away(&self) -> bool {
        let gives = |division: &Division| division.gives_away() || division.moves_trees();
        self.shard.as_ref().is_some_and(|shard| shard.moving > 0 || gives(&shard.division))
    }

    fn look_for_moves(&mut self, pause: Duration, network: &mut Network) {
        let gives = self.gives_away();
        let Some(shard) = self.shard.as_mut().filter(|s| !s.looks && s.moving == 0) else { return };
        if gives {
            shard.looks = true;
            network.agenda.after(pause, Happens::Moves(self.life));
        }
    }

    /// Gives to other shards nodes and trees with which nothing is under way, and claims trees that nobody leads.
    pub fn give_away(&mut self, network: &mut Network) {
        let may = self.may_decide() && !self.stopping;
        let Some(shard) = &mut self.shard else { return };
        shard.looks = false;
        if may {
            let nodes = shard.division.given_away();
            let mut requests: Vec<_> = nodes.iter().map(|(node, leaving)| leaving.request(node)).collect();
            let mut steps = shard.division.tree_steps();
            // The engine has to have heard that it does not decide any more.
            let (engine, heard) = (self.engine.queueing(), self.inbox.is_empty());
            let rests = |step: &Step| {
                let reserves = engine.is_none_or(|engine| engine.is_reserving_in(&*step.cluster_queues));
                step.cluster_queues.is_empty() || heard && !reserves
            };
            steps.retain(rests);
            self.divide(network, |division, seen, out| {
                requests
                    .extend(division.begin_steps(steps, seen, out).into_iter().map(|(_, request)| request));
            });
            for request in requests.into_iter().filter_map(Request::of_client) {
                self.shard.iter_mut().for_each(|shard| shard.moving += 1);
                self.send(For::Move, request, None, network);
            }
            self.begin_to_seek(network);
        }
        self.look_for_moves(LOOK, network);
    }

    /// A node or an object of a tree has changed, or could not be.
    pub(super) fn moved(&mut self, answer: &Answer, network: &mut Network) {
        self.shard.iter_mut().for_each(|shard| shard.moving = shard.moving.saturating_sub(1));
        let again = answer.as_ref().err().is_none_or(|e| matches!(e.code, 404 | 409));
        self.look_for_moves(if again { LOOK } else { RETRY }, network);
    }

    fn begin_to_seek(&mut self, network: &mut Network) {
        let Some(shard) = self.shard.as_mut().filter(|shard| shard.seeks.is_none()) else { return };
        if let Some(number) = shard.division.unknown() {
            shard.seeks = Some(Sought { number, listed: None });
            self.seek_later(network);
        }
    }

    fn seek_later(&self, network: &mut Network) {
        let (latency, _) = network.list_latency(self.replica, Kind::Workload);
        network.agenda.after(latency, Happens::Seek(self.life));
    }

    /// The lists of what was written about trees are there, or failed.
    pub fn seek(&mut self, network: &mut Network) {
        let (_, fails) = network.list_latency(self.replica, Kind::Workload);
        if fails {
            return self.seek_later(network);
        }
        let newest = OF_TREES.map(|kind| network.api.all(kind).map(|o| version(o)).max().unwrap_or(0));
        let loans = network.api.all(Kind::QuotaLoan).map(|loan| uid(loan).to_owned()).collect();
        let listed = Some((newest, network.api.version(), loans));
        if let Some(sought) = self.shard.as_mut().and_then(|shard| shard.seeks.as_mut()) {
            sought.listed = listed;
        }
        self.find_what_was_sought(network);
    }

    /// The shard decides with trees that came to it, when everything was seen that was written before.
    pub(super) fn find_what_was_sought(&mut self, network: &mut Network) {
        let reached = OF_TREES.map(|kind| {
            self.watches.iter().find(|watch| watch.kind == kind).map_or(0, |watch| watch.reached)
        });
        let Some(shard) = &mut self.shard else { return };
        let is_seen = |sought: &mut Sought| {
            let listed = sought.listed.as_ref();
            listed
                .is_some_and(|(newest, ..)| newest.iter().zip(reached).all(|(newest, seen)| *newest <= seen))
        };
        let Some(Sought { number, listed: Some((_, version, loans)) }) = shard.seeks.take_if(is_seen) else {
            return;
        };
        self.divide(network, |division, seen, out| division.found(number, (version, loans), seen, out));
    }
}
