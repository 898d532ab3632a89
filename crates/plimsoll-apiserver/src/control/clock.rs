//! Time for controllers: may run faster than the wall clock, or be moved by a test.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

/// A clock that can also be waited on. Cheap to clone; clones are the same clock.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Inner>);

#[derive(Debug)]
enum Inner {
    Scaled { start: Instant, origin: Timestamp, speed: f64 },
    Manual { now: Mutex<Timestamp>, moved: watch::Sender<u64> },
}

/// Longest single wait; the waiter looks again afterwards.
const MAX_WAIT: Duration = Duration::from_secs(60);

impl Clock {
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
            Inner::Scaled { speed, .. } => loop {
                let left = until.duration_since(self.now());
                if left <= SignedDuration::ZERO {
                    return;
                }
                let real = (left.as_secs_f64() / speed).min(MAX_WAIT.as_secs_f64());
                // A timer has a resolution of a millisecond.
                tokio::time::sleep(Duration::from_secs_f64(real.max(0.001))).await;
            },
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
}

/// The server's clock can be the controllers' clock, and should.
impl crate::time::Clock for Clock {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }
}
