//! The one entry into the engine and the two closed enums around it.

use crate::place::{self, Placement};
use crate::queueing::{self, Queueing};
use crate::time::Time;

/// What the engine needs to know before the first event.
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// Placement: profiles, backoff, seed. `None` leaves placement to another scheduler.
    pub place: Option<place::Config>,
    /// Queueing: fair sharing, resource rules. `None` leaves queueing to another controller.
    pub queueing: Option<queueing::Config>,
    /// Joint admission, where the engine does both: a workload is admitted only when all its pods are promised a place
    /// on a node.
    pub joint: bool,
}

/// Everything the outside can tell the engine.
#[derive(Clone, Debug)]
pub enum Event {
    /// For placement: nodes, pods, what pods refer to, and answers to placement actions.
    Place(place::Event),
    /// For queueing: queues, quotas, workloads, and answers to queueing actions.
    Queueing(queueing::Event),
}

/// Everything the engine can ask the outside to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A write that placement asks for.
    Place(place::Action),
    /// A write that queueing asks for.
    Queueing(queueing::Action),
}

/// What became of an action whose success no other event shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// It was given up, for this reason. The engine asks again while the cause exists.
    Failed(String),
    /// Its object is gone, or a later action replaces it.
    Superseded,
}

/// The engine: queueing and placement over one state.
#[derive(Debug)]
pub struct Engine {
    place: Option<Placement>,
    queueing: Option<Queueing>,
    joint: bool,
}

impl Engine {
    /// An engine with no objects.
    pub fn new(config: EngineConfig) -> Self {
        Self {
            place: config.place.map(Placement::new),
            queueing: config.queueing.map(Queueing::new),
            joint: config.joint,
        }
    }

    /// Absorbs `events` (drained), then decides once; appends what is to be done to `actions`.
    ///
    /// Work per call is bounded by the configured batch sizes, so a caller calls again at
    /// [`Engine::next_wake`], which is `now` while work is left.
    pub fn step(&mut self, now: Time, events: &mut Vec<Event>, actions: &mut Vec<Action>) {
        self.absorb(now, events);
        self.keep_promises();
        if let Some(queueing) = &mut self.queueing {
            let nodes = self.place.as_mut().filter(|_| self.joint);
            queueing.decide_with(now, nodes, &mut |a| actions.push(Action::Queueing(a)));
        }
        self.keep_promises();
        if let Some(place) = &mut self.place {
            place.decide(now, &mut |a| actions.push(Action::Place(a)));
        }
        self.keep_promises();
        #[cfg(debug_assertions)]
        self.check();
    }

    /// Absorbs `events` (drained) and brings what is said about the present state up to date, without
    /// deciding anything new: the first half of [`Engine::step`]. For tests and for start-up, when the
    /// first decision should wait until everything was seen.
    pub fn settle(&mut self, now: Time, events: &mut Vec<Event>, actions: &mut Vec<Action>) {
        self.absorb(now, events);
        if let Some(queueing) = &mut self.queueing {
            queueing.settle(now, &mut |a| actions.push(Action::Queueing(a)));
        }
        #[cfg(debug_assertions)]
        self.check();
    }

    /// Takes back places of workloads that are not admitted any more, and tells queueing of room on nodes.
    fn keep_promises(&mut self) {
        let (Some(place), Some(queueing)) = (&mut self.place, &mut self.queueing) else { return };
        for key in queueing.take_unpromised() {
            place.release(&key.namespace, &key.name);
        }
        if place.take_freed() {
            queueing.nodes_freed();
        }
    }

    fn absorb(&mut self, now: Time, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            match event {
                Event::Place(e) => {
                    if let Some(queueing) = &mut self.queueing {
                        queueing.absorb_place(now, &e);
                    }
                    if let Some(place) = &mut self.place {
                        place.absorb(now, e);
                    }
                }
                Event::Queueing(e) => {
                    if let Some(queueing) = &mut self.queueing {
                        queueing.absorb(now, e);
                    }
                }
            }
        }
    }

    /// The earliest time at which [`Engine::step`] has something to do without a new event.
    pub fn next_wake(&self) -> Option<Time> {
        let place = self.place.as_ref().and_then(Placement::next_wake);
        let queueing = self.queueing.as_ref().and_then(Queueing::next_wake);
        [place, queueing].into_iter().flatten().min()
    }

    /// Rebuilds the derived state from the ground state and compares.
    ///
    /// # Panics
    /// When they differ: that is a bug in the engine, and going on would over-commit.
    pub fn check(&self) {
        if let Some(place) = &self.place {
            place.check();
        }
        if let Some(queueing) = &self.queueing {
            queueing.check();
        }
    }

    /// Queueing, for tests that change how it works.
    #[cfg(test)]
    pub(crate) fn queueing_mut(&mut self) -> Option<&mut Queueing> {
        self.queueing.as_mut()
    }

    /// Placement, for questions (explain, metrics).
    pub fn place(&self) -> Option<&Placement> {
        self.place.as_ref()
    }

    /// Queueing, for questions (explain, metrics, statuses).
    pub fn queueing(&self) -> Option<&Queueing> {
        self.queueing.as_ref()
    }
}
