//! Whether decisions about workloads wait to be written, and how many explanations, between the driver, which hands them out,
//! and the executor.
//!
//! While decisions wait the engine is held ([`plimsoll_engine::Engine::hold_admissions`]): what it would decide meanwhile could
//! not be written anyway, and takes quota from a workload of a higher priority that comes before its turn. While [`MANY`]
//! explanations wait it makes no further ones ([`plimsoll_engine::Engine::hold_explanations`]).
//!
//! The slower the API server answers, and the longer a step takes, the longer the driver gathers what comes ([`Flow::gather`]): what a
//! step decides is written later anyway, and one step for many events costs less than one for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_api::lanes::explains;
use plimsoll_engine::Action;
use plimsoll_queueing::Action as QueueAction;

/// Batches with decisions about workloads and what has become of them; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Flow(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Batches that the driver has handed out.
    sent: AtomicU64,
    /// Batches that the executor has taken in, times two, and one if decisions of theirs wait.
    taken: AtomicU64,
    /// Whether many explanations wait.
    explains: AtomicBool,
    /// Whether the last step was held, or the one that begins may be.
    held: AtomicBool,
    /// Microseconds that a decision takes to be written.
    pace: AtomicU64,
}

/// Least time between two steps: in a burst, events are gathered instead of waking the thread for each.
const LEAST_GATHER: Duration = Duration::from_micros(500);
/// Longest least time.
const MOST_GATHER: Duration = Duration::from_millis(10);
/// The least time is this part of what a decision takes to be written.
const GATHER_PART: u32 = 8;

/// What a step has left to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// More than nothing.
    Something,
    /// What it may not decide while decisions wait to be written.
    Held,
    /// Nothing.
    Nothing,
}

impl Left {
    /// How long events are gathered: so many times what the step took, at most this part of what a decision takes to be written, and as
    /// long. So steps take a small part of a processor, however much happens.
    const fn gather(self) -> Option<(u32, u32, Duration)> {
        match self {
            Self::Something => None,
            // A ClusterQueue admits one workload in a step.
            Self::Held => Some((20, 2, Duration::from_millis(30))),
            Self::Nothing => Some((40, 1, Duration::from_millis(60))),
        }
    }
}

/// So many explanations that wait are enough: more than are under way at once when the API server has nothing else to do.
const MANY: usize = 256;

impl Flow {
    /// Whether a batch counts: one with a write to a workload that decides something.
    pub fn counts(batch: &[Action]) -> bool {
        let of_workloads = |action: &Action| {
            let (Action::Queueing(action), true) = (action, !explains(action)) else { return false };
            matches!(action, QueueAction::UpdateWorkload(_) | QueueAction::DeactivateWorkload { .. })
        };
        batch.iter().any(of_workloads)
    }

    /// A batch that counts is about to be handed out.
    pub fn send(&self) {
        self.0.sent.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a batch is on its way or decisions wait. A step that begins asks; when that has changed, it is woken.
    pub fn hold(&self) -> bool {
        // Before the look: either it sees what changes meanwhile, or the executor sees that it must wake the engine.
        self.0.held.store(true, Ordering::SeqCst);
        let held = self.is_held();
        self.0.held.store(held, Ordering::SeqCst);
        held
    }

    fn is_held(&self) -> bool {
        let taken = self.0.taken.load(Ordering::SeqCst);
        taken & 1 == 1 || taken >> 1 < self.0.sent.load(Ordering::SeqCst)
    }

    /// How long the driver gathers events, from the beginning of a step that took so long to that of the next one.
    pub fn gather(&self, took: Duration, left: Left) -> Duration {
        let pace = Duration::from_micros(self.0.pace.load(Ordering::Relaxed));
        let least = (pace / GATHER_PART).clamp(LEAST_GATHER, MOST_GATHER);
        let Some((times, part, most)) = left.gather() else { return least };
        took.saturating_mul(times).min(pace / part).min(most).max(least)
    }

    /// Decisions take so long to be written.
    pub fn set_pace(&self, pace: Duration) {
        self.0.pace.store(u64::try_from(pace.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Whether many explanations wait.
    pub fn has_many_explanations(&self) -> bool {
        self.0.explains.load(Ordering::Acquire)
    }

    /// The executor has taken in so many batches until now, and `waits`: decisions wait; so do so many `explanations`. Returns
    /// whether the engine has to be woken.
    pub fn update(&self, batches: u64, waits: bool, explanations: usize) -> bool {
        let now = batches << 1 | u64::from(waits);
        let before = self.0.taken.swap(now, Ordering::SeqCst);
        let held = self.0.held.load(Ordering::SeqCst);
        let many = explanations >= MANY;
        let had_many = self.0.explains.swap(many, Ordering::AcqRel);
        (before != now && !waits && held) || (had_many && !many)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_queueing::{Condition, WorkloadUpdate, cond};

    use super::*;

    #[test]
    fn the_engine_is_held_until_its_last_decision_has_begun() {
        let flow = Flow::default();
        assert!(!flow.hold());
        flow.send();
        assert!(flow.hold(), "on its way");
        assert!(!flow.update(1, true, 0) && flow.hold(), "waits");
        flow.send();
        assert!(flow.update(1, false, 0) && flow.hold(), "the next one is on its way");
        assert!(flow.update(2, false, 0) && !flow.hold());
        assert!(!flow.update(2, false, 0), "nothing new");
        flow.send();
        assert!(!flow.update(3, false, 0), "no step was held meanwhile");
        flow.send();
        assert!(flow.hold() && flow.update(4, false, 0), "one was");
    }

    #[test]
    fn the_slower_the_server_the_longer_events_are_gathered() {
        let flow = Flow::default();
        let gather = |took, left| {
            [0, 3, 16, 40, 90, 30_000].map(|millis| {
                flow.set_pace(Duration::from_millis(millis));
                flow.gather(Duration::from_micros(took), left).as_micros()
            })
        };
        let least = [500, 500, 2000, 5000, 10_000, 10_000];
        assert_eq!(gather(10, Left::Nothing), least, "steps that take no time");
        assert_eq!(gather(10_000, Left::Something), least, "there is more to decide");
        assert_eq!(gather(1000, Left::Held), [500, 1500, 8000, 20_000, 20_000, 20_000]);
        assert_eq!(gather(10_000, Left::Held), [500, 1500, 8000, 20_000, 30_000, 30_000]);
        assert_eq!(gather(1000, Left::Nothing), [500, 3000, 16_000, 40_000, 40_000, 40_000]);
        assert_eq!(gather(10_000, Left::Nothing), [500, 3000, 16_000, 40_000, 60_000, 60_000]);
    }

    #[test]
    fn explanations_are_held_while_many_wait() {
        let flow = Flow::default();
        assert!(!flow.update(0, false, MANY - 1) && !flow.has_many_explanations());
        assert!(!flow.update(0, true, MANY) && flow.has_many_explanations());
        assert!(flow.update(0, true, MANY - 1) && !flow.has_many_explanations(), "the engine is woken");
        assert!(!flow.update(0, true, 0), "nothing new");
    }

    #[test]
    fn batches_with_decisions_about_workloads_count() {
        let update = |admission| {
            let update = WorkloadUpdate { admission, ..WorkloadUpdate::default() };
            Action::Queueing(QueueAction::UpdateWorkload(Box::new(update)))
        };
        let reason = Condition { kind: cond::QUOTA_RESERVED.into(), ..Condition::default() };
        let explanation = WorkloadUpdate { conditions: vec![reason], ..WorkloadUpdate::default() };
        let explanation = Action::Queueing(QueueAction::UpdateWorkload(Box::new(explanation)));
        let status = Action::Queueing(QueueAction::CohortStatus("c".into(), 1));
        assert!(explains(&explanation));
        assert!(!Flow::counts(&[explanation.clone(), status.clone()]));
        assert!(Flow::counts(&[explanation, status, update(Some(Some(Box::default())))]));
    }
}
