//! Throttles writes that can wait: explanations, statuses of queues, events (as client-go's `util/flowcontrol/throttle.go`, by
//! how fast the API server answers instead of a fixed rate).
//!
//! A busy API server answers later. So, as TCP Vegas does with packets, a window says how many such writes
//! may be under way: it grows while writes take about as long as the fastest ones did, and shrinks when they take
//! much longer or are refused (429). Below one it stands for pauses: at a tenth, nine parts of the time pass without such
//! a write. So it is, too, as long as decisions are being written: those are never held up by such a write, and how long they
//! take is a signal. Decisions have a window of their own ([`Window`]). Events, of which there may be two for each decision,
//! wait longest: while decisions use half of their window or more one may begin in an [`EVENT_PAUSE`]. With fewer decisions
//! the server has room, and events are written one after the other, with pauses as long as they take.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::window::Window;

/// Smallest window: a write and a pause of nine times its duration.
const LEAST: f64 = 0.1;
/// Largest window.
const MOST: f64 = 64.0;
/// The window at the start.
const START: f64 = 8.0;
/// Factor of a cut.
const CUT: f64 = 0.7;
/// Factor of the growth of a window below one; above, it grows by one while it is used once.
const GROWTH: f64 = 1.2;
/// Longest pause, so that a server that answers again is found out soon.
const LONGEST: Duration = Duration::from_secs(1);
/// Least pause after a refusal, however soon that came.
const REFUSED: Duration = Duration::from_millis(100);
/// Writes that take so many times as long as the fastest ones, and [`SLACK`] more, say that the server is busy.
const SLOWER: f64 = 3.0;
const SLACK: f64 = 0.002;
/// For so long after a decision was written, more are expected.
const LULL: Duration = Duration::from_millis(100);
/// From one event to the next while decisions are being written.
const EVENT_PAUSE: Duration = Duration::from_millis(200);
/// How fast the fastest time is forgotten: its share of the difference with each sample.
const DRIFT: f64 = 0.0005;
/// Weight of one decision in what they take of late.
const PACE: f64 = 0.1;

#[derive(Debug)]
struct State {
    window: f64,
    /// Seconds of the fastest writes.
    fastest: Option<f64>,
    under_way: usize,
    /// Decisions that are being written.
    decisions: usize,
    /// How many of them may be.
    deciding: Window,
    /// When the last one ended.
    decided: Option<Instant>,
    /// Seconds that one took of late.
    pace: f64,
    /// No write before; with a window below one.
    resume: Instant,
    /// When the window was cut last: writes that began before then count once.
    cut: Instant,
    /// When the last event began.
    event: Option<Instant>,
    /// No event before, while decisions are being written that leave the server room.
    next_event: Instant,
    /// When decisions last used half of their window.
    pressed: Option<Instant>,
}

/// How many writes may be under way; clones share it.
#[derive(Clone, Debug)]
pub struct Throttle {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Default for Throttle {
    fn default() -> Self {
        let now = Instant::now();
        let state = State {
            window: START,
            fastest: None,
            under_way: 0,
            decisions: 0,
            deciding: Window::default(),
            decided: None,
            pace: 0.0,
            resume: now,
            cut: now,
            event: None,
            next_event: now,
            pressed: None,
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }
}

/// A write that can wait, under way. Ended by [`Permit::done`], or without a sample when dropped.
#[derive(Debug)]
pub struct Permit {
    throttle: Throttle,
    began: Instant,
    /// Whether it is for an event.
    event: bool,
}

impl Throttle {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A permit, if one is free.
    pub fn try_acquire(&self) -> Option<Permit> {
        let now = Instant::now();
        let open = self.with(|s| {
            let open = s.readiness(now) == Readiness::Now;
            s.under_way += usize::from(open);
            open
        });
        open.then(|| Permit { throttle: self.clone(), began: now, event: false })
    }

    /// Waits for a permit.
    pub async fn acquire(&self) -> Permit {
        loop {
            self.ready().await;
            if let Some(permit) = self.try_acquire() {
                return permit;
            }
        }
    }

    /// A permit whether one is free or not: for a write that has waited long enough.
    pub fn acquire_now(&self) -> Permit {
        let now = Instant::now();
        self.with(|s| s.under_way += 1);
        Permit { throttle: self.clone(), began: now, event: false }
    }

    /// Waits for a permit for an event.
    pub async fn acquire_for_event(&self) -> Permit {
        loop {
            self.wait_for(State::readiness_for_event).await;
            let now = Instant::now();
            let open = self.with(|s| {
                let open = s.readiness_for_event(now) == Readiness::Now;
                if open {
                    s.under_way += 1;
                    s.event = Some(now);
                }
                open
            });
            if open {
                return Permit { throttle: self.clone(), began: now, event: true };
            }
        }
    }

    /// Waits until a permit is free, and takes none.
    pub async fn ready(&self) {
        self.wait_for(State::readiness).await;
    }

    async fn wait_for(&self, readiness: fn(&State, Instant) -> Readiness) {
        loop {
            // Before the check: a change in between is not missed.
            let changed = self.changed.notified();
            match self.with(|s| readiness(s, Instant::now())) {
                Readiness::Now => return,
                Readiness::At(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = changed => {}
                },
                Readiness::OnChange => changed.await,
            }
        }
    }

    /// A decision is being written, until this is dropped.
    pub fn begin_decision(&self) -> Decision {
        self.with(|s| {
            s.decisions += 1;
            s.press();
        });
        Decision(self.clone())
    }

    /// Begins to write a decision if the server can use one more.
    pub fn try_begin_decision(&self) -> Option<Decision> {
        let free = self.with(|s| {
            let free = s.decisions < s.deciding.size();
            s.decisions += usize::from(free);
            s.press();
            free
        });
        free.then(|| Decision(self.clone()))
    }

    /// How long it takes of late to write a decision.
    pub fn pace(&self) -> Duration {
        Duration::from_secs_f64(self.with(|s| s.pace))
    }

    /// Waits until the server can use one more decision.
    pub async fn decision_ready(&self) {
        loop {
            // Before the check: a change in between is not missed.
            let changed = self.changed.notified();
            if self.with(|s| s.decisions < s.deciding.size()) {
                return;
            }
            changed.await;
        }
    }
}

/// When a permit is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Readiness {
    Now,
    /// Not before then, or when something changes.
    At(Instant),
    /// When something changes.
    OnChange,
}

impl State {
    fn readiness(&self, now: Instant) -> Readiness {
        let window = self.window(now);
        // With the last decision the pauses for its sake end.
        let lull =
            self.decided.filter(|_| self.decisions == 0).map(|at| at + LULL).filter(|lull| *lull > now);
        if window < 1.0 && now < self.resume {
            return Readiness::At(lull.map_or(self.resume, |lull| lull.min(self.resume)));
        }
        if (self.under_way as f64) < window.max(1.0) {
            return Readiness::Now;
        }
        lull.map_or(Readiness::OnChange, Readiness::At)
    }

    fn readiness_for_event(&self, now: Instant) -> Readiness {
        if self.is_pressed(now) {
            let next = self.event.map(|at| at + EVENT_PAUSE).filter(|at| *at > now);
            let Some(next) = next else { return self.readiness(now) };
            // Soon after they have become fewer the pauses end.
            let end = self.pressed.filter(|_| !self.is_full()).map(|at| at + LULL);
            return Readiness::At(end.map_or(next, |end| end.min(next)));
        }
        if !self.is_deciding(now) || self.window < 1.0 {
            // Nothing is decided, or the server answers late though little is.
            self.readiness(now)
        } else if self.under_way > 0 {
            Readiness::OnChange
        } else if now < self.next_event {
            Readiness::At(self.next_event)
        } else {
            Readiness::Now
        }
    }

    /// Whether decisions use half of their window or more.
    fn is_full(&self) -> bool {
        self.decisions * 2 >= self.deciding.size()
    }

    /// Whether they do, or did a moment ago: the server has other things to do than to write events.
    fn is_pressed(&self, now: Instant) -> bool {
        self.is_full() || self.pressed.is_some_and(|at| now < at + LULL)
    }

    /// Notes whether they do now.
    fn press(&mut self) {
        if self.is_full() {
            self.pressed = Some(Instant::now());
        }
    }

    /// Whether decisions are being written, or were a moment ago.
    fn is_deciding(&self, now: Instant) -> bool {
        self.decisions > 0 || self.decided.is_some_and(|at| now < at + LULL)
    }

    /// The window as it is at present.
    fn window(&self, now: Instant) -> f64 {
        if self.is_deciding(now) { LEAST } else { self.window }
    }

    fn learn(&mut self, took: f64, refused: bool, now: Instant) {
        let fastest = self.fastest.map_or(took, |f| if took < f { took } else { f + (took - f) * DRIFT });
        self.fastest = Some(fastest);
        if !refused && took <= fastest * SLOWER + SLACK {
            let more = if self.window < 1.0 { self.window * (GROWTH - 1.0) } else { 1.0 / self.window };
            self.window = (self.window + more).min(MOST);
        } else if now.saturating_duration_since(self.cut).as_secs_f64() >= took {
            self.window = (self.window * CUT).max(LEAST);
            self.cut = now;
        }
    }
}

impl Permit {
    /// The write has ended.
    pub fn done(self, refused: bool) {
        let took = self.began.elapsed();
        let now = Instant::now();
        self.throttle.with(|s| {
            s.learn(took.as_secs_f64(), refused, now);
            if self.event {
                s.next_event = now + took.min(LONGEST);
            }
            // The pauses that events make are not for other writes.
            let window = if self.event && !s.is_pressed(now) { s.window } else { s.window(now) };
            if window < 1.0 {
                let least = if refused { REFUSED } else { Duration::ZERO };
                s.resume = s.resume.max(now + took.mul_f64(1.0 / window - 1.0).clamp(least, LONGEST));
            }
        });
    }
}

/// A decision that is being written. Ended by [`Decision::done`], or without a sample when dropped.
#[derive(Debug)]
pub struct Decision(Throttle);

impl Decision {
    /// The write has ended; `refused`: the server asked for fewer.
    pub fn done(self, took: Duration, refused: bool) {
        let took = took.as_secs_f64();
        self.0.with(|s| {
            s.deciding.learn(took, s.decisions.saturating_sub(1), refused);
            s.pace += (took - s.pace) * PACE;
            s.learn(took, refused, Instant::now());
        });
    }
}

impl Drop for Decision {
    fn drop(&mut self) {
        let now = Instant::now();
        self.0.with(|s| {
            s.press();
            s.decisions = s.decisions.saturating_sub(1);
            s.decided = Some(now);
        });
        self.0.changed.notify_waiters();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.throttle.with(|s| s.under_way = s.under_way.saturating_sub(1));
        self.throttle.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
