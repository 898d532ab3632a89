//! Wakeup coalescing, as in a network adapter that moderates its interrupts.
//!
//! The API server sends each response and each watch event by itself. On a busy server every one of them woke a worker thread of
//! this process, which was a fifth of its processor time (`tas` in docs/admission-speed.md). While decisions about workloads are in flight,
//! a worker that runs out of work therefore sleeps before it polls the network, and handles what arrives meanwhile at once. The delay
//! is a small part of the time that the API server needs for a write. The Lease and the webhooks have threads of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The sleep is this part of the time from a decision to the response to its write.
const PART: u32 = 8;
/// Shorter sleeps save nothing.
const SHORTEST: Duration = Duration::from_millis(1);
/// Longest sleep.
const LONGEST: Duration = Duration::from_millis(10);

/// How long worker threads sleep before they poll the network; clones share it. No time at first.
#[derive(Clone, Debug, Default)]
pub struct Coalescing(Arc<AtomicU64>);

impl Coalescing {
    /// Sets the sleep. `pace`: time from a decision to the response to its write, of late; `busy`: whether decisions about workloads
    /// are in flight.
    pub fn set(&self, pace: Duration, busy: bool) {
        let sleep = (pace / PART).min(LONGEST);
        let sleep = if busy && sleep >= SHORTEST { sleep } else { Duration::ZERO };
        self.0.store(u64::try_from(sleep.as_nanos()).unwrap_or(0), Ordering::Relaxed);
    }

    /// The sleep.
    pub fn sleep(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// Has the worker threads of a runtime sleep before they poll the network.
    pub fn install(&self, runtime: &mut tokio::runtime::Builder) {
        let coalescing = self.clone();
        runtime.on_thread_park(move || {
            let sleep = coalescing.sleep();
            if !sleep.is_zero() {
                std::thread::sleep(sleep);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_sleep_while_a_slow_server_writes_decisions() {
        let coalescing = Coalescing::default();
        assert_eq!(coalescing.sleep(), Duration::ZERO);
        let sleeps = [0, 3, 8, 40, 80, 3_000].map(|millis| {
            coalescing.set(Duration::from_millis(millis), true);
            coalescing.sleep().as_micros()
        });
        assert_eq!(sleeps, [0, 0, 1000, 5000, 10_000, 10_000]);
        coalescing.set(Duration::from_secs(3), false);
        assert_eq!(coalescing.sleep(), Duration::ZERO, "nothing is in flight");
    }

    /// A worker parks between two turns of a task that waits. Only the shortest time that this may take is asserted.
    #[test]
    fn worker_threads_sleep_before_they_wait() {
        let coalescing = Coalescing::default();
        coalescing.set(Duration::from_secs(3), true);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        coalescing.install(&mut runtime);
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let before = std::time::Instant::now();
        let turns = runtime.spawn(async {
            for _ in 0..5 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        runtime.block_on(turns).unwrap();
        assert!(before.elapsed() >= 5 * LONGEST, "{:?}", before.elapsed());
    }
}
