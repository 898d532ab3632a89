//! Preemption gates: a workload with a closed gate may not preempt (Kueue KEP-8303).

use super::cond;
use super::conditions::Edit;
use super::ids::WorkloadId;
use super::model::PreemptionGateState;
use crate::Queueing;
use plimsoll_state::time::Time;

/// Reason of the condition BlockedOnPreemptionGates.
pub(crate) const GATED: &str = "PreemptionGated";
/// Its message, and that of the missing reservation.
pub(crate) const MESSAGE: &str = "Workload requires preemption, but it's gated";

impl Edit<'_> {
    /// An eviction closes all gates: the next preemption needs a new permission.
    pub(crate) fn close_gates(&mut self, reason: &str, message: &str) {
        if self.status.is_true(cond::BLOCKED_ON_GATES) {
            self.set(cond::BLOCKED_ON_GATES, false, reason, message);
        }
        let at = self.now.truncate_to_second();
        for gate in &mut self.status.preemption_gates {
            (gate.open, gate.transition) = (false, at);
        }
    }
}

impl Queueing {
    /// Keeps `status.preemptionGates` what the spec lists; new gates are closed. Whether a write was made.
    pub(crate) fn reconcile_preemption_gates(&mut self, id: WorkloadId, now: Time) -> bool {
        if !self.config.gates.preemption_gates {
            return false;
        }
        let Some(wl) = self.wl(id) else { return true };
        let (wanted, have) = (&wl.obj.preemption_gates, &wl.obj.status.preemption_gates);
        let listed = |g: &PreemptionGateState| wanted.contains(&g.name);
        let known = |name: &String| have.iter().any(|g| g.name == *name);
        if have.iter().all(listed) && wanted.iter().all(known) {
            return false;
        }
        let wanted = wanted.clone();
        let at = now.truncate_to_second();
        self.edit(id, now, Vec::new(), |e| {
            let gates = &mut e.status.preemption_gates;
            gates.retain(|g| wanted.contains(&g.name));
            for name in wanted {
                if !gates.iter().any(|g| g.name == name) {
                    gates.push(PreemptionGateState { name, open: false, transition: at });
                }
            }
        })
    }
}
