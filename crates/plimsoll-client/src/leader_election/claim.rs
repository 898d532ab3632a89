//! Whether this process leads, as its tasks see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Timing;

/// Nanoseconds of the wall clock since the epoch.
pub(super) type Wall = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Whether this process leads.
#[derive(Clone)]
pub struct Claim {
    pub(super) state: Arc<State>,
}

pub(super) struct State {
    /// The monotonic clock's zero.
    zero: Instant,
    pub(super) wall: Wall,
    /// How far the wall clock may get ahead of the monotonic one: as long as others wait beyond our own deadline.
    slack: i64,
    /// Nanoseconds from `zero` until which the claim holds; `MIN`: it never did, or not any more.
    until: AtomicI64,
    /// The wall clock minus the monotonic one at the last renewal.
    offset: AtomicI64,
    /// Wakes the election for a look at the Lease.
    pub(super) doubt: Notify,
    /// Whether the Lease is not released at the end: writes may still be under way.
    pub(super) expires: AtomicBool,
    /// Whether the Lease was held and is lost.
    pub(super) lost: AtomicBool,
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim").field("held", &self.held()).finish_non_exhaustive()
    }
}

pub(super) fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Pause between two looks at a claim.
const LOOK: Duration = Duration::from_millis(50);

impl Claim {
    /// A claim that always holds: one process, no election.
    pub fn always() -> Self {
        Self::new(Timing::default(), i64::MAX, Arc::new(|| 0))
    }

    pub(super) fn new(timing: Timing, until: i64, wall: Wall) -> Self {
        let slack = nanoseconds(timing.lease.saturating_sub(timing.renew_deadline));
        let (until, offset) = (AtomicI64::new(until), AtomicI64::new(0));
        let (doubt, expires, lost) = (Notify::new(), AtomicBool::new(false), AtomicBool::new(false));
        let state = State { zero: Instant::now(), wall, slack, until, offset, doubt, expires, lost };
        Self { state: Arc::new(state) }
    }

    /// Nanoseconds of the monotonic clock.
    pub(super) fn now(&self) -> i64 {
        nanoseconds(self.state.zero.elapsed())
    }

    /// The Lease was renewed by a request that began then.
    pub(super) fn renewed(&self, began: i64, timing: Timing) {
        self.state.offset.store((self.state.wall)().saturating_sub(self.now()), Ordering::Release);
        self.state.until.store(began.saturating_add(nanoseconds(timing.renew_deadline)), Ordering::Release);
    }

    /// Leaves the Lease to expire at the end instead of releasing it: the API server may still carry out writes that
    /// this process has begun, and the next leader would decide without them (client-go's `ReleaseOnCancel`: all that
    /// the Lease guards has ended before).
    pub fn let_expire(&self) {
        self.state.expires.store(true, Ordering::Release);
    }

    pub(super) fn give_up(&self) {
        self.state.until.store(i64::MIN, Ordering::Release);
    }

    /// Whether this process has led and not lost the Lease for all it knows.
    pub(super) fn unexpired(&self) -> bool {
        let until = self.state.until.load(Ordering::Acquire);
        until == i64::MAX || self.now() < until
    }

    /// Whether it holds without an election.
    pub fn is_uncontested(&self) -> bool {
        self.state.until.load(Ordering::Acquire) == i64::MAX
    }

    /// Whether this process leads now, and may write.
    pub fn held(&self) -> bool {
        let state = &self.state;
        if state.until.load(Ordering::Acquire) == i64::MAX {
            return true;
        }
        if !self.unexpired() {
            return false;
        }
        let ahead =
            (state.wall)().saturating_sub(self.now()).saturating_sub(state.offset.load(Ordering::Acquire));
        if ahead >= state.slack {
            state.doubt.notify_one();
        }
        ahead < state.slack
    }

    /// Waits until this process leads; says so, or that it has led and never will again.
    pub async fn wait(&self) -> bool {
        while !self.held() {
            if self.state.lost.load(Ordering::Acquire) {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }

    /// Waits until this process does not lead any more. A doubt is no loss.
    pub async fn lost(&self) {
        while self.unexpired() {
            tokio::time::sleep(LOOK).await;
        }
    }
}
