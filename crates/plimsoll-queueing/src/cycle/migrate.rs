//! Variants of one workload (Kueue KEP-8691): the one with the most favorable flavor is to be admitted.

use super::Cycle;
use super::assign::Mode;
use super::entry::{Entry, RequeueReason};

impl Cycle<'_> {
    /// Whether an entry is a variant whose sibling has been admitted with a more favorable flavor (Kueue `processEntry`). It is
    /// about to be deactivated, and waits without standing in the way of others in its ClusterQueue.
    pub(super) fn yields_to_sibling(&self, e: &mut Entry) -> bool {
        if e.second.is_some() || self.state.wl(e.id).is_none_or(|w| w.obj.variant_of.is_empty()) {
            return false;
        }
        let Some(own) = self.state.variant_place(e.cq, e.id) else { return false };
        if self.state.admitted_sibling(e.cq, e.id, |place| place < own).is_none() {
            return false;
        }
        wait_for_sibling(e, "A more favorable variant is already admitted")
    }

    /// Whether an entry that fits is a variant whose sibling has been admitted with a less favorable flavor: then the sibling
    /// is evicted for it, if the ClusterQueue lets workloads move to its flavor. One that is to keep the flavor with which it
    /// was admitted first is left alone, also while its other variants are still to be deactivated.
    pub(super) fn migrates(&mut self, e: &mut Entry) -> bool {
        if e.mode() != Mode::Fit
            || e.second.is_some()
            || self.state.wl(e.id).is_none_or(|w| w.obj.variant_of.is_empty())
        {
            return false;
        }
        let Some(own) = self.state.variant_place(e.cq, e.id) else { return false };
        let Some(sibling) = self.state.admitted_sibling(e.cq, e.id, |place| place > own) else {
            return false;
        };
        if let Some(policy) = self.state.flavor_migration(e.cq) {
            let last = policy.last_acceptable.as_ref().and_then(|f| self.state.flavor_place(e.cq, f));
            if policy.retains_first {
                return wait_for_sibling(e, "Another variant is already admitted");
            }
            if last.is_some_and(|last| own > last) {
                return wait_for_sibling(e, "Target flavor is below LastAcceptableFlavorName");
            }
        }
        self.reserve_capacity(e);
        e.migrates_from = Some(sibling);
        e.reason = "WaitingForPreemptedWorkloads";
        e.requeue = RequeueReason::PendingPreemption;
        e.last_assignment = None;
        e.message.push_str(". Pending the migration of 1 workload(s)");
        true
    }
}

/// Lets a variant wait for what becomes of its siblings.
fn wait_for_sibling(e: &mut Entry, message: &str) -> bool {
    message.clone_into(&mut e.message);
    e.reason = "PendingEvaluation";
    e.requeue = RequeueReason::Generic;
    e.last_assignment = None;
    true
}
