//! The wall clock, in the forms the engine and the API want.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_state::Time;

/// Longest single wait for a time of day: timers run on `CLOCK_MONOTONIC`, which stands still while a machine sleeps and
/// knows nothing of a clock that is set.
pub const SLICE: Duration = Duration::from_secs(1);

/// Now, as the engine counts.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// `metav1.Time`: RFC 3339 in UTC with whole seconds.
pub fn text(at: Time) -> String {
    plimsoll_kubelet::time::seconds_text(at.0)
}

/// `metav1.MicroTime`.
pub fn micro_text(at: Time) -> String {
    plimsoll_kubelet::time::micros_text(at.0)
}

/// Reads either form.
pub fn parse(text: &str) -> Option<Time> {
    plimsoll_kubelet::time::parse(text).map(Time)
}

/// Notices when the wall clock and the timers part: after the machine has slept, or when its clock is set.
#[derive(Debug, Default)]
pub struct Jumps {
    last: Option<(Time, tokio::time::Instant)>,
}

impl Jumps {
    /// Waits for the next jump. Cancel safe.
    pub async fn next(&mut self) {
        loop {
            let (at, timer) = *self.last.get_or_insert_with(|| (now(), tokio::time::Instant::now()));
            tokio::time::sleep_until(timer + SLICE).await;
            let seen = (now(), tokio::time::Instant::now());
            self.last = Some(seen);
            if is_jump(seen.0.since(at).0, seen.1.duration_since(timer)) {
                return;
            }
        }
    }
}

/// Whether a wall clock that went on by so many nanoseconds has jumped beside timers.
fn is_jump(wall: i64, timers: Duration) -> bool {
    let timers = i64::try_from(timers.as_nanos()).unwrap_or(i64::MAX);
    wall.abs_diff(timers) > SLICE.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_and_a_clock_that_is_set_are_jumps() {
        let second = 1_000_000_000;
        assert!(
            !is_jump(second, Duration::from_millis(990)) && !is_jump(40 * second, Duration::from_secs(40))
        );
        assert!(
            is_jump(3600 * second, Duration::from_secs(1)) && is_jump(-3600 * second, Duration::from_secs(1))
        );
    }
}
