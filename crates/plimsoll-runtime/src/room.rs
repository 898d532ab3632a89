//! Room for writes that can wait: explanations, statuses of queues, events.
//!
//! An API server that has no room answers later. So, as TCP Vegas does with packets, a window says how many such writes
//! may be under way: it grows while writes take about as long as the fastest ones did, and shrinks when they take
//! much longer or are refused (429). Below one it stands for pauses: at a tenth, nine parts of the time pass without such
//! a write. So it is, too, as long as decisions are being written: those are never held up by such a write, and how long they
//! take is a signal. Decisions have a window of their own ([`Window`]). Events, of which there may be two for each decision,
//! wait longest: while decisions are being written one may begin in an [`EVENT_PAUSE`].

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
    /// No write before; with a window below one.
    resume: Instant,
    /// When the window was cut last: writes that began before then count once.
    cut: Instant,
    /// When the last event began.
    event: Option<Instant>,
}

/// The room that is left; clones share it.
#[derive(Clone, Debug)]
pub struct Room {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

impl Default for Room {
    fn default() -> Self {
        let now = Instant::now();
        let state = State {
            window: START,
            fastest: None,
            under_way: 0,
            decisions: 0,
            deciding: Window::default(),
            decided: None,
            resume: now,
            cut: now,
            event: None,
        };
        Self { state: Arc::new(Mutex::new(state)), changed: Arc::default() }
    }
}

/// A write that can wait, under way. Ended by [`Place::done`], or without a lesson when dropped.
#[derive(Debug)]
pub struct Place {
    room: Room,
    began: Instant,
}

impl Room {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins with a write if there is room.
    pub fn try_begin(&self) -> Option<Place> {
        let now = Instant::now();
        let open = self.with(|s| {
            let open = s.look(now) == Look::Open;
            s.under_way += usize::from(open);
            open
        });
        open.then(|| Place { room: self.clone(), began: now })
    }

    /// Waits for room and begins.
    pub async fn begin(&self) -> Place {
        loop {
            self.opened().await;
            if let Some(place) = self.try_begin() {
                return place;
            }
        }
    }

    /// Begins now, room or not: for what has waited long enough.
    pub fn enter(&self) -> Place {
        let now = Instant::now();
        self.with(|s| s.under_way += 1);
        Place { room: self.clone(), began: now }
    }

    /// Waits until an event may be written, and begins.
    pub async fn begin_event(&self) -> Place {
        loop {
            self.opens(State::look_for_event).await;
            let now = Instant::now();
            let open = self.with(|s| {
                let open = s.look_for_event(now) == Look::Open;
                if open {
                    s.under_way += 1;
                    s.event = Some(now);
                }
                open
            });
            if open {
                return Place { room: self.clone(), began: now };
            }
        }
    }

    /// Waits until there is room, and takes none.
    pub async fn opened(&self) {
        self.opens(State::look).await;
    }

    async fn opens(&self, look: fn(&State, Instant) -> Look) {
        loop {
            // Before the look: what changes in between is not missed.
            let changed = self.changed.notified();
            match self.with(|s| look(s, Instant::now())) {
                Look::Open => return,
                Look::At(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = changed => {}
                },
                Look::Later => changed.await,
            }
        }
    }

    /// A decision is being written, until this is dropped.
    pub fn decision(&self) -> Decision {
        self.with(|s| s.decisions += 1);
        Decision(self.clone())
    }

    /// Begins to write a decision if the server can use one more.
    pub fn try_decide(&self) -> Option<Decision> {
        let free = self.with(|s| {
            let free = s.decisions < s.deciding.size();
            s.decisions += usize::from(free);
            free
        });
        free.then(|| Decision(self.clone()))
    }

    /// Waits until the server can use one more decision.
    pub async fn decidable(&self) {
        loop {
            // Before the look: what changes in between is not missed.
            let changed = self.changed.notified();
            if self.with(|s| s.decisions < s.deciding.size()) {
                return;
            }
            changed.await;
        }
    }
}

/// Whether there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Open,
    /// Not before then, or when something changes.
    At(Instant),
    /// When something changes.
    Later,
}

impl State {
    fn look(&self, now: Instant) -> Look {
        let window = self.window(now);
        // With the last decision the pauses for its sake end.
        let lull =
            self.decided.filter(|_| self.decisions == 0).map(|at| at + LULL).filter(|lull| *lull > now);
        if window < 1.0 && now < self.resume {
            return Look::At(lull.map_or(self.resume, |lull| lull.min(self.resume)));
        }
        if (self.under_way as f64) < window.max(1.0) {
            return Look::Open;
        }
        lull.map_or(Look::Later, Look::At)
    }

    fn look_for_event(&self, now: Instant) -> Look {
        let next = self.event.map(|at| at + EVENT_PAUSE).filter(|at| *at > now && self.is_deciding(now));
        let Some(next) = next else { return self.look(now) };
        // With the last decision the pauses for its sake end.
        let lull = self.decided.filter(|_| self.decisions == 0).map(|at| at + LULL);
        Look::At(lull.map_or(next, |lull| lull.min(next)))
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

impl Place {
    /// The write has ended.
    pub fn done(self, refused: bool) {
        let took = self.began.elapsed();
        let now = Instant::now();
        self.room.with(|s| {
            s.learn(took.as_secs_f64(), refused, now);
            let window = s.window(now);
            if window < 1.0 {
                let least = if refused { REFUSED } else { Duration::ZERO };
                s.resume = s.resume.max(now + took.mul_f64(1.0 / window - 1.0).clamp(least, LONGEST));
            }
        });
    }
}

/// A decision that is being written. Ended by [`Decision::done`], or without a lesson when dropped.
#[derive(Debug)]
pub struct Decision(Room);

impl Decision {
    /// The write has ended; `refused`: the server asked for fewer.
    pub fn done(self, took: Duration, refused: bool) {
        let took = took.as_secs_f64();
        self.0.with(|s| {
            s.deciding.learn(took, s.decisions.saturating_sub(1), refused);
            s.learn(took, refused, Instant::now());
        });
    }
}

impl Drop for Decision {
    fn drop(&mut self) {
        let now = Instant::now();
        self.0.with(|s| {
            s.decisions = s.decisions.saturating_sub(1);
            s.decided = Some(now);
        });
        self.0.changed.notify_waiters();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.with(|s| s.under_way = s.under_way.saturating_sub(1));
        self.room.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn write(room: &Room, millis: u64) {
        let place = room.begin().await;
        tokio::time::sleep(Duration::from_millis(millis)).await;
        place.done(false);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_server_is_used_and_a_slow_one_is_spared() {
        let room = Room::default();
        for _ in 0..200 {
            write(&room, 2).await;
        }
        let places: Vec<Place> = std::iter::from_fn(|| room.try_begin()).collect();
        assert!(places.len() >= 16, "{}", places.len());
        drop(places);
        for _ in 0..40 {
            write(&room, 50).await;
        }
        let began = Instant::now();
        for _ in 0..10 {
            write(&room, 50).await;
        }
        assert!(began.elapsed() >= Duration::from_millis(9 * 500), "{:?}", began.elapsed());
        for _ in 0..300 {
            write(&room, 2).await;
        }
        let began = Instant::now();
        write(&room, 2).await;
        assert!(began.elapsed() < Duration::from_millis(20), "it recovers: {:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_and_refusals_close_it() {
        let room = Room::default();
        for _ in 0..100 {
            room.decision().done(Duration::from_millis(3), false);
        }
        for _ in 0..100 {
            tokio::time::advance(Duration::from_millis(60)).await;
            room.decision().done(Duration::from_millis(40), false);
            tokio::time::advance(LULL).await;
        }
        room.opened().await;
        let place = room.try_begin().expect("always some");
        assert!(room.try_begin().is_none(), "one at a time");
        place.done(true);
        assert!(room.try_begin().is_none(), "and a pause");
        tokio::time::timeout(Duration::from_secs(1), room.opened()).await.expect("it ends");
        let _late = room.enter();
    }

    /// Writes during an outage end by their deadline, with answers or without.
    #[tokio::test(start_paused = true)]
    async fn an_outage_is_over_soon_after_it_ends() {
        let room = Room::default();
        for _ in 0..50 {
            write(&room, 3).await;
        }
        for _ in 0..20 {
            write(&room, 30_000).await;
        }
        let began = Instant::now();
        for _ in 0..50 {
            write(&room, 3).await;
        }
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_go_first() {
        let room = Room::default();
        let decisions: Vec<Decision> = (0..100).map(|_| room.decision()).collect();
        let began = Instant::now();
        for _ in 0..20 {
            write(&room, 2).await;
        }
        assert!(began.elapsed() >= Duration::from_millis(20 * 2 + 19 * 18), "{:?}", began.elapsed());
        let place = room.begin().await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        place.done(false);
        drop(decisions);
        let began = Instant::now();
        room.opened().await;
        assert!(began.elapsed() < LULL * 2, "pauses end with the decisions: {:?}", began.elapsed());
        let began = Instant::now();
        for _ in 0..20 {
            write(&room, 2).await;
        }
        assert!(began.elapsed() < LULL, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn events_wait_for_decisions_longest() {
        let room = Room::default();
        let event = || async {
            let place = room.begin_event().await;
            tokio::time::sleep(Duration::from_millis(2)).await;
            place.done(false);
        };
        let deciding = room.decision();
        let began = Instant::now();
        for _ in 0..10 {
            event().await;
        }
        assert!(began.elapsed() >= EVENT_PAUSE * 9, "{:?}", began.elapsed());
        for _ in 0..10 {
            write(&room, 2).await;
        }
        assert!(
            began.elapsed() < EVENT_PAUSE * 11,
            "an explanation does not wait so long: {:?}",
            began.elapsed()
        );
        drop(deciding);
        let began = Instant::now();
        for _ in 0..20 {
            event().await;
        }
        assert!(began.elapsed() < LULL * 2, "the pauses end with the decisions: {:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn decisions_wait_for_each_other_only_when_there_are_enough() {
        let room = Room::default();
        let mut under_way: Vec<Decision> = std::iter::from_fn(|| room.try_decide()).collect();
        assert_eq!(under_way.len(), 16);
        // One that goes on with another request is not held up.
        under_way.push(room.decision());
        let next = tokio::time::timeout(Duration::from_secs(1), room.decidable()).await;
        assert!(next.is_err() && room.try_decide().is_none());
        under_way.truncate(15);
        room.decidable().await;
        assert!(room.try_decide().is_some());
        assert!(room.try_begin().is_some(), "and an explanation now and then");
    }
}
