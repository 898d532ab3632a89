//! The wall clock, in the forms the engine and the API want, and the one that measures.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub use plimsoll_client::clock::SLICE;
use plimsoll_scheduler::Stopwatch;
use plimsoll_state::Time;

/// Now, as the engine counts.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// A clock that never goes back, for measuring.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic(Instant);

impl Default for Monotonic {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Stopwatch for Monotonic {
    fn nanos(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// `metav1.Time`: RFC 3339 in UTC with whole seconds.
pub fn text(at: Time) -> String {
    plimsoll_api::timestamp::text(at)
}

/// `metav1.MicroTime`.
pub fn micro_text(at: Time) -> String {
    plimsoll_api::timestamp::micro_text(at)
}

/// Reads either form.
pub fn parse(text: &str) -> Option<Time> {
    plimsoll_api::timestamp::parse(text)
}
