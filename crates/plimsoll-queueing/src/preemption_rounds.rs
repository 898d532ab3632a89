//! Preemption that doesn't end: workloads that preempt each other over and over.
//!
//! In Kueue a preemptor owns nothing until it is admitted. A victim that borrows on a lower level or has a
//! smaller share, or a third workload, can take the capacity that was freed for it; or three workloads each preempt
//! the next one, all by the rules (kubernetes-sigs/kueue issues 6861, 12541 and 14543). The first rounds are
//! left to Kueue's rules; then the preemptor goes first, and then it has to wait longer and longer before it may
//! preempt again.

use plimsoll_state::time::{Duration, Time};

/// After how many rounds in vain a preemptor goes first.
const PATIENCE: u32 = 2;
/// After how many rounds in short succession it has to wait.
const FREE_ROUNDS: u32 = 6;
/// The longest it has to wait. After twice that long without a round, earlier ones are forgotten.
const LONGEST_WAIT: Duration = Duration::from_seconds(600);
const FORGOTTEN_AFTER: Duration = Duration::from_seconds(1200);

/// How often others were preempted for a workload.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PreemptionRounds {
    /// Since it was admitted last.
    in_vain: u32,
    /// In short succession.
    recent: u32,
    last: Time,
}

impl PreemptionRounds {
    /// Whether others were preempted in vain so often that Kueue's rules alone may not end the waiting.
    pub(crate) fn again(self) -> bool {
        self.in_vain >= PATIENCE
    }

    /// Whether the workload goes before those whose turn it is.
    pub(crate) fn goes_first(self) -> bool {
        self.in_vain > PATIENCE
    }

    /// Until when the workload may not preempt after too many rounds, and how many there were.
    pub(crate) fn waits_until(self) -> Option<(Time, u32)> {
        let excess = self.recent.checked_sub(FREE_ROUNDS)?;
        let wait = LONGEST_WAIT.min(Duration::from_seconds(1 << excess.min(30)));
        Some((self.last.plus(wait), self.recent))
    }

    /// Others were preempted for the workload.
    pub(crate) fn count(&mut self, now: Time) {
        if now.since(self.last) > FORGOTTEN_AFTER {
            self.recent = 0;
        }
        self.in_vain = self.in_vain.saturating_add(1);
        self.recent = self.recent.saturating_add(1);
        self.last = now;
    }

    /// The workload was admitted: the rounds before were not in vain.
    pub(crate) fn admitted(&mut self) {
        self.in_vain = 0;
    }
}
