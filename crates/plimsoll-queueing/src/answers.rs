//! Answers to actions that are no writes of a workload's status. What failed is asked for again, with growing pauses,
//! when its cause is found to exist still.

use super::state::Queueing;
use super::{Action, WorkloadKey};
use plimsoll_state::Answer;
use plimsoll_state::time::Time;

impl Queueing {
    /// What became of an action.
    pub(super) fn answered(&mut self, action: &Action, answer: &Answer, now: Time) {
        let failed = match answer {
            Answer::Failed(_) => true,
            Answer::Done | Answer::Superseded => false,
        };
        match action {
            Action::DeactivateWorkload { key, uid } => {
                if failed {
                    self.deactivation_failed(key, uid, now);
                }
            }
            Action::FailPod { uid, .. } => self.tas.health.pod_answered(uid, failed, now),
            // Writes have answers of their own, and the latest status of a queue is written until it is.
            Action::UpdateWorkload(_)
            | Action::Record(..)
            | Action::ClusterQueueStatus(..)
            | Action::LocalQueueStatus(..)
            | Action::CohortStatus(..)
            | Action::RunWindowStatus(..) => {}
        }
    }

    /// The workload is looked at again later: while it has the condition DeactivationTarget, that asks again.
    fn deactivation_failed(&mut self, key: &WorkloadKey, uid: &str, now: Time) {
        if let Some(&id) = self.wl_by_key.get(key)
            && self.wl(id).is_some_and(|w| w.obj.uid == uid)
        {
            self.hold_off(id, now);
        }
    }
}
