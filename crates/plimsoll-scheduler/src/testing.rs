//! One type for everything that a test sends to the scheduler.

use plimsoll_state::{ObjectEvent, Time};

use crate::Scheduler;

/// A change of an object, or the answer to an action.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Object(ObjectEvent),
    Answer(crate::Event),
}

impl Scheduler {
    pub(crate) fn apply(&mut self, now: Time, event: Event) {
        match event {
            Event::Object(e) => self.handle_object(now, &e),
            Event::Answer(e) => self.handle(now, e),
        }
    }
}
