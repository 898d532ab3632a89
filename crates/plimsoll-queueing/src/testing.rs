//! What the tests of this crate share. Here: queueing by itself behind the engine's interface, with joint admission off, as
//! without a scheduler.

pub(crate) mod outside;

use plimsoll_state::{ObjectEvent, Time};

use crate::{Config, Queueing};

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Object(ObjectEvent),
    Queueing(crate::Event),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    Queueing(crate::Action),
}

#[derive(Debug)]
pub(crate) struct Engine {
    queueing: Queueing,
}

impl Engine {
    pub(crate) fn new(config: Config) -> Self {
        Self { queueing: Queueing::new(config) }
    }

    pub(crate) fn step(&mut self, now: Time, events: &mut Vec<Event>, actions: &mut Vec<Action>) {
        self.handle(now, events);
        self.queueing.decide_with(now, None, &mut |a| actions.push(Action::Queueing(a)));
        self.queueing.check();
    }

    fn handle(&mut self, now: Time, events: &mut Vec<Event>) {
        for event in events.drain(..) {
            match event {
                Event::Object(e) => self.queueing.handle_object(now, &e),
                Event::Queueing(e) => self.queueing.handle(now, e),
            }
        }
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        self.queueing.next_wake()
    }

    pub(crate) fn check(&self) {
        self.queueing.check();
    }

    pub(crate) fn queueing(&self) -> Option<&Queueing> {
        Some(&self.queueing)
    }

    pub(crate) fn queueing_mut(&mut self) -> Option<&mut Queueing> {
        Some(&mut self.queueing)
    }
}
