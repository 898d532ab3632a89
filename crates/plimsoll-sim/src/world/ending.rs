//! How a process ends, and when the next one leads.

use plimsoll_state::Duration;

use super::World;
use crate::agenda::Event;
use crate::dice::{Dice, Draw};
use crate::process::Process;
use crate::scenario::Ending;

/// How long a process that is asked to stop waits for its writes (the runtime's `execute::GRACE`).
const GRACE: Duration = Duration::from_seconds(1);
/// How long after its last renewal a leader writes (`renewDeadline`).
const RENEW: Duration = Duration::from_seconds(10);
/// Milliseconds after the last renewal in which no other replica takes the Lease (`leaseDuration`).
const EXPIRES: i64 = 15_000;
/// Milliseconds between two looks at the Lease (`retryPeriod`).
const RETRY: i64 = 2_000;

impl World {
    /// The process that leads, or one of those that lead shards, begins to end.
    pub(super) fn leave(&mut self, leader: usize, ending: Ending) {
        let index = leader % self.leaders.len();
        let life = self.leaders[index].life;
        match ending {
            Ending::Crash => self.end(index, ending),
            Ending::HandOver => {
                self.leaders[index].stop(&mut self.network);
                self.network.agenda.after(GRACE, Event::End(life, ending));
            }
            Ending::LoseLease => self.network.agenda.after(RENEW, Event::End(life, ending)),
        }
    }

    /// The process ends. When the next one starts depends on its Lease (`plimsoll-runtime`'s `lease`); after a crash that
    /// is when nothing of this one is on its way to the server any more.
    pub(super) fn end(&mut self, index: usize, ending: Ending) {
        let (old, writes) = (self.leaders[index].life, self.leaders[index].writes());
        let mut rng = Dice::new(self.scenario.seed).about("crash").of(u64::from(old)).rng();
        let (least, most) = match ending {
            Ending::Crash => {
                let last = self.network.forget(old);
                let left = last.map_or(Duration::ZERO, |at| at.since(self.network.now())).0 / 1_000_000;
                (left + 1, left + 3_000)
            }
            // A Lease is released when all writes were answered; otherwise it expires.
            Ending::HandOver if writes => (EXPIRES - 2 * RETRY, EXPIRES + RETRY),
            Ending::HandOver => (1, RETRY),
            Ending::LoseLease => {
                let left = EXPIRES - RENEW.0 / 1_000_000;
                (left, left + RETRY)
            }
        };
        if ending != Ending::Crash {
            self.network.cut(|caller| caller.life == old);
        }
        let pause = Duration::from_millis(rng.range(least, most));
        // One that has not led yet ends without a Lease.
        let vacant = self.vacant[index].max(self.network.now().plus(pause));
        self.vacant[index] = vacant;
        let (replica, settings) = (self.leaders[index].replica, self.scenario.settings);
        let next = if let Some(standby) = self.standby.take() {
            let life = standby.life + 1;
            self.standby = Some(Process::standby(life, replica, settings));
            self.start_standby(life);
            self.network.agenda.at(vacant, Event::Hold(standby.life));
            standby
        } else {
            // Lives of two shards have numbers of their own.
            let life = old + u32::try_from(self.leaders.len()).unwrap_or(1);
            self.network.agenda.at(vacant, Event::Start(life));
            Process::new(life, replica, settings)
        };
        self.past.insert(old, std::mem::replace(&mut self.leaders[index], next).known);
    }

    /// The replica that follows starts soon.
    pub(super) fn start_standby(&mut self, life: u32) {
        let mut rng = Dice::new(self.scenario.seed).about("standby").of(u64::from(life)).rng();
        self.network.agenda.after(Duration::from_millis(rng.range(1, 10_000)), Event::Start(life));
    }
}
