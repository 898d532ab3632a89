//! Whether decisions about workloads wait to be written, and how many explanations, between the driver, which hands them out,
//! and the executor.
//!
//! While decisions wait the engine is held ([`plimsoll_engine::Engine::hold_admissions`]): what it would decide meanwhile could
//! not be written anyway, and takes quota from a workload of a higher priority that comes before its turn. While [`MANY`]
//! explanations wait it makes no further ones ([`plimsoll_engine::Engine::hold_explanations`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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
        self.0.sent.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a batch is on its way or decisions wait.
    pub fn is_held(&self) -> bool {
        let taken = self.0.taken.load(Ordering::Acquire);
        taken & 1 == 1 || taken >> 1 < self.0.sent.load(Ordering::Acquire)
    }

    /// Whether many explanations wait.
    pub fn has_many_explanations(&self) -> bool {
        self.0.explains.load(Ordering::Acquire)
    }

    /// The executor has taken in so many batches until now, and `waits`: decisions wait; so do so many `explanations`. Returns
    /// whether the engine may have to be woken.
    pub fn update(&self, batches: u64, waits: bool, explanations: usize) -> bool {
        let now = batches << 1 | u64::from(waits);
        let before = self.0.taken.swap(now, Ordering::AcqRel);
        let many = explanations >= MANY;
        let had_many = self.0.explains.swap(many, Ordering::AcqRel);
        (before != now && !waits) || (had_many && !many)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_queueing::{Condition, WorkloadUpdate, cond};

    use super::*;

    #[test]
    fn the_engine_is_held_until_its_last_decision_has_begun() {
        let flow = Flow::default();
        assert!(!flow.is_held());
        flow.send();
        assert!(flow.is_held(), "on its way");
        assert!(!flow.update(1, true, 0) && flow.is_held(), "waits");
        flow.send();
        assert!(flow.update(1, false, 0) && flow.is_held(), "the next one is on its way");
        assert!(flow.update(2, false, 0) && !flow.is_held());
        assert!(!flow.update(2, false, 0), "nothing new");
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
