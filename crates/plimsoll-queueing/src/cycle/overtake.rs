//! Overtaking (joint admission): a workload with a maximum execution time gets places that one before it has claimed, if it has
//! left before that one could start anyway: before the last of the workloads in its way has reached its own maximum. All of
//! them have one then, so a claim waits no longer than it would if all of them ran for as long as they may.

use super::Cycle;
use super::claim_order::ClaimRank;
use crate::Queueing;
use crate::cond;
use crate::ids::WorkloadId;
use plimsoll_state::time::{Duration, Time};

impl Queueing {
    /// When a workload has ended at the latest, if it is admitted now or was before; `None`: it may run for ever, or has to stop
    /// for another reason, and then it is not known when it has.
    pub(super) fn latest_end(&self, id: WorkloadId, now: Time) -> Option<Time> {
        let wl = self.wl(id)?;
        let (max, status) = (wl.obj.max_execution_seconds?, &wl.obj.status);
        if status.is_true(cond::EVICTED) {
            return None;
        }
        let left = i64::from(max) - i64::from(status.past_execution_seconds.unwrap_or(0));
        let admitted = status.condition(cond::ADMITTED).filter(|c| c.status);
        let since = admitted.map_or(now, |c| c.transition);
        Some(since.plus(Duration::from_seconds(left.max(0))))
    }
}

impl Cycle<'_> {
    /// Lifts the claims before a workload of this rank that it may overtake, and names them.
    pub(super) fn lift_overtaken(&mut self, id: WorkloadId, rank: &ClaimRank) -> Vec<ClaimRank> {
        let Some(end) = self.state.latest_end(id, self.now) else { return Vec::new() };
        let before: Vec<ClaimRank> = self.claims.before(rank);
        self.lift_these(&before);
        let mut overtaken = Vec::new();
        for claim in before {
            // Beside those before it only.
            self.restore_these(std::slice::from_ref(&claim));
            let starts = self.claim_starts(&claim);
            if starts.is_some_and(|start| end <= start) {
                overtaken.push(claim);
            }
        }
        self.lift_these(&overtaken);
        overtaken
    }

    /// When a claim has all its places at the latest; `None`: that is not known.
    fn claim_starts(&mut self, rank: &ClaimRank) -> Option<Time> {
        let plan = self.claims.plan_of(rank)?;
        let blockers = self.nodes.as_mut()?.blockers(plan)?;
        let mut ends = Vec::new();
        for key in blockers {
            let mut ids = self.state.bearing(&key).peekable();
            ids.peek()?;
            ends.push(ids.map(|id| self.state.latest_end(id, self.now)).collect::<Option<Vec<Time>>>()?);
        }
        ends.into_iter().flatten().max()
    }
}
