//! Time for controllers: may run faster than the wall clock, or be moved by a test.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

/// What a [`Clock`] reads its time from.
pub trait TimeSource: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemTime;

impl TimeSource for SystemTime {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that can also be waited on. Cheap to clone; clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

enum Inner {
    Wall(Arc<dyn TimeSource>),
    Scaled { start: Instant, origin: Timestamp, speed: f64 },
    Manual { now: Mutex<Timestamp>, moved: watch::Sender<u64> },
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Wall(_) => f.write_str("Wall"),
            Self::Scaled { speed, .. } => write!(f, "Scaled({speed})"),
            Self::Manual { .. } => f.write_str("Manual"),
        }
    }
}

/// Longest single wait of a scaled clock; the waiter reads the clock again afterwards.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Longest single wait for a time of day. Timers run on `CLOCK_MONOTONIC`, which stands still while a laptop sleeps and
/// knows nothing of a clock that is set: waiters read the wall clock this often.
pub const SLICE: Duration = Duration::from_secs(1);

impl Default for Clock {
    fn default() -> Self {
        Self::wall()
    }
}

impl Clock {
    /// The machine's wall clock: CronJobs and deadlines name times of day.
    pub fn wall() -> Self {
        Self::wall_from(Arc::new(SystemTime))
    }

    /// A wall clock over another source. It may jump; waiters notice within a second.
    pub fn wall_from(source: Arc<dyn TimeSource>) -> Self {
        Self(Arc::new(Inner::Wall(source)))
    }

    /// Starts now and runs `speed` times as fast as the wall clock (at least one thousandth).
    pub fn scaled(speed: f64) -> Self {
        Self::scaled_from(Timestamp::now(), speed)
    }

    /// Starts at a time and runs `speed` times as fast as the wall clock.
    pub fn scaled_from(origin: Timestamp, speed: f64) -> Self {
        let speed = if speed.is_finite() { speed.clamp(0.001, 1e6) } else { 1.0 };
        Self(Arc::new(Inner::Scaled { start: Instant::now(), origin, speed }))
    }

    /// Stands still until [`Clock::advance`].
    pub fn manual(now: Timestamp) -> Self {
        Self(Arc::new(Inner::Manual { now: Mutex::new(now), moved: watch::Sender::new(0) }))
    }

    /// Now.
    pub fn now(&self) -> Timestamp {
        match &*self.0 {
            Inner::Wall(source) => source.now(),
            Inner::Scaled { start, origin, speed } => {
                let passed = start.elapsed().as_secs_f64() * speed;
                let passed = SignedDuration::try_from_secs_f64(passed).unwrap_or(SignedDuration::MAX);
                origin.saturating_add(passed).unwrap_or(Timestamp::MAX)
            }
            Inner::Manual { now, .. } => *now.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Moves a manual clock. Others go by themselves.
    pub fn advance(&self, by: SignedDuration) {
        if let Inner::Manual { now, moved } = &*self.0 {
            let mut now = now.lock().unwrap_or_else(PoisonError::into_inner);
            *now = now.saturating_add(by).unwrap_or(Timestamp::MAX);
            drop(now);
            moved.send_modify(|n| *n = n.wrapping_add(1));
        }
    }

    /// Waits until a time has come; `None`: for ever.
    pub async fn sleep_until(&self, until: Option<Timestamp>) {
        let Some(until) = until else { return std::future::pending().await };
        match &*self.0 {
            Inner::Wall(_) => self.sleep_in_slices(until, 1.0, SLICE).await,
            Inner::Scaled { speed, .. } => self.sleep_in_slices(until, *speed, MAX_WAIT).await,
            Inner::Manual { moved, .. } => {
                let mut moved = moved.subscribe();
                while self.now() < until {
                    // The sender lives in this clock.
                    if moved.changed().await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    async fn sleep_in_slices(&self, until: Timestamp, speed: f64, slice: Duration) {
        loop {
            let left = until.duration_since(self.now());
            if left <= SignedDuration::ZERO {
                return;
            }
            let real = (left.as_secs_f64() / speed).min(slice.as_secs_f64());
            // A timer has a resolution of a millisecond.
            tokio::time::sleep(Duration::from_secs_f64(real.max(0.001))).await;
        }
    }
}

/// Notices when a wall clock and the timers part: after the machine has slept, or when its clock is set.
#[derive(Debug)]
pub struct Jumps {
    clock: Clock,
    last: Option<(Timestamp, tokio::time::Instant)>,
}

impl Jumps {
    /// The jumps of a clock. Only wall clocks jump.
    pub const fn of(clock: Clock) -> Self {
        Self { clock, last: None }
    }

    /// Waits for the next jump, which is noticed within [`SLICE`]. Cancel safe.
    pub async fn next(&mut self) {
        if !matches!(*self.clock.0, Inner::Wall(_)) {
            return std::future::pending().await;
        }
        loop {
            let now = || (self.clock.now(), tokio::time::Instant::now());
            let (at, timer) = self.last.unwrap_or_else(now);
            self.last = Some((at, timer));
            tokio::time::sleep_until(timer + SLICE).await;
            let seen = (self.clock.now(), tokio::time::Instant::now());
            self.last = Some(seen);
            if is_jump(seen.0.duration_since(at), seen.1.duration_since(timer)) {
                return;
            }
        }
    }
}

/// Whether a wall clock that went on by so much has jumped beside timers.
fn is_jump(wall: SignedDuration, timers: Duration) -> bool {
    let timers = SignedDuration::try_from(timers).unwrap_or(SignedDuration::MAX);
    wall.saturating_sub(timers).unsigned_abs() > SLICE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that sleeps: its timers stand still and its wall clock goes on.
    struct Jumping(Mutex<Timestamp>);

    impl TimeSource for Jumping {
        fn now(&self) -> Timestamp {
            *self.0.lock().unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_of_the_wall_clock_ends_a_wait() {
        let source = Arc::new(Jumping(Mutex::new(Timestamp::UNIX_EPOCH)));
        let clock = Clock::wall_from(Arc::clone(&source) as _);
        let due = Timestamp::from_second(8 * 3600).unwrap();
        let began = tokio::time::Instant::now();
        let waiting = clock.sleep_until(Some(due));
        let mut waiting = std::pin::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_secs(30), waiting.as_mut()).await.is_err());
        *source.0.lock().unwrap() = due;
        waiting.await;
        assert!(began.elapsed() <= Duration::from_secs(31), "{:?}", began.elapsed());
        // A clock that is set back is waited for.
        *source.0.lock().unwrap() = Timestamp::UNIX_EPOCH;
        assert!(tokio::time::timeout(Duration::from_secs(30), clock.sleep_until(Some(due))).await.is_err());
    }

    #[test]
    fn a_sleep_and_a_clock_that_is_set_are_jumps() {
        let second = SignedDuration::from_secs;
        assert!(
            !is_jump(second(1), Duration::from_millis(990)) && !is_jump(second(40), Duration::from_secs(40))
        );
        assert!(
            is_jump(second(3600), Duration::from_secs(1)) && is_jump(second(-3600), Duration::from_secs(1))
        );
    }
}
