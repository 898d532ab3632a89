//! How long a pod waits after failures (upstream `calculateBackoffDuration` in `backend/queue/backoff_queue.go`).

use plimsoll_state::time::{Duration, Time};

/// Backoff settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub initial: Duration,
    /// At most; zero switches backoff off.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { initial: Duration::from_seconds(1), max: Duration::from_seconds(10) }
    }
}

impl Backoff {
    /// The wait after `attempts` failures in a row: doubles from the initial one up to the largest.
    pub fn duration(&self, attempts: u32) -> Duration {
        if attempts == 0 || self.max.0 <= 0 {
            return Duration::ZERO;
        }
        let doublings = attempts - 1;
        if doublings >= 63 || self.initial.0 > self.max.0 >> doublings {
            return self.max;
        }
        Duration(self.initial.0 << doublings)
    }

    /// The last whole second in which the pod still waits; `i64::MIN` when it doesn't.
    ///
    /// Errors in a row count before rejections.
    pub fn expiry_second(&self, since: Time, errors: u32, unschedulable: u32) -> i64 {
        let count = if errors > 0 { errors } else { unschedulable };
        if count == 0 || self.max.0 <= 0 {
            return i64::MIN;
        }
        since.plus(self.duration(count)).seconds()
    }
}
