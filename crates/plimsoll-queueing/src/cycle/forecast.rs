//! The dry run of a workload's admission in the time to come: usage of workloads ends with their maximum execution times, and
//! the ClusterQueue admits those before it first.

use std::collections::{BTreeMap, BTreeSet};

use super::Cycle;
use super::assign::{Assignment, AssignmentRequest, Mode};
use crate::Queueing;
use crate::forecast::Forecast;
use crate::ids::{ClusterQueueId, SchedulingHashId, WorkloadId};
use crate::model::QueueingStrategy;
use plimsoll_state::time::{Duration, Time};

/// Most assignments that are tried for one question: some milliseconds, in which the engine does nothing else.
const MOST_TRIES: usize = 256;

/// Admissions in the time to come.
struct Future {
    /// When usage ends, and whose.
    ends: BTreeSet<(Time, WorkloadId)>,
    /// What those get that are not admitted yet.
    admitted: BTreeMap<WorkloadId, Assignment>,
    /// Assignments that may still be tried.
    tries: usize,
}

impl Queueing {
    /// When a workload could have its quota in a ClusterQueue, after those `ahead` of it. `opens` is when it may be queued.
    pub(crate) fn dry_run_admissions(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        ahead: &[WorkloadId],
        (now, opens): (Time, Time),
    ) -> Forecast {
        let failed = std::mem::take(&mut self.joint.failed);
        let claims = std::mem::take(&mut self.joint.claims);
        let mut cycle = Cycle::new(self, now, None);
        let forecast = cycle.forecast(id, cq, ahead, opens);
        cycle.state.end();
        (self.joint.failed, self.joint.claims) = (failed, claims);
        forecast
    }
}

impl Cycle<'_> {
    fn forecast(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        ahead: &[WorkloadId],
        opens: Time,
    ) -> Forecast {
        let mut forecast = Forecast { ahead: ahead.len(), ..Forecast::default() };
        if let Some((.., message)) = self.inadmissible(id, cq) {
            forecast.message = message;
            return forecast;
        }
        let strict = self.state.cq(cq).rules.strategy == QueueingStrategy::StrictFifo;
        let mut future = Future { ends: self.known_ends(cq), admitted: BTreeMap::new(), tries: MOST_TRIES };
        let (mut at, mut waiting) = (self.now, ahead.to_vec());
        loop {
            waiting = self.admit_in_order(cq, waiting, (at, strict), &mut future);
            let has_turn = at >= opens && (waiting.is_empty() || !strict);
            if has_turn && future.tries > 0 {
                let (assignment, targets) = self.find_assignment(id, cq, None, None);
                if assignment.mode() == Mode::Fit {
                    forecast.start = Some(at);
                    return forecast;
                }
                if at == self.now && assignment.mode() == Mode::Preempt {
                    forecast.preempted = targets.len();
                }
                future.tries -= 1;
            }
            let end = future.ends.first().map(|(end, _)| *end);
            let next = end.into_iter().chain(Some(opens).filter(|opens| *opens > at)).min();
            let (Some(next), true) = (next, future.tries > 0) else { return forecast };
            at = at.max(next);
            while let Some(&(end, other)) = future.ends.first().filter(|(end, _)| *end <= at) {
                future.ends.remove(&(end, other));
                self.simulate_end(cq, other, &mut future);
            }
        }
    }

    /// Admits those whose turn it is and that fit, in order; gives those that go on waiting.
    fn admit_in_order(
        &mut self,
        cq: ClusterQueueId,
        waiting: Vec<WorkloadId>,
        (at, strict): (Time, bool),
        future: &mut Future,
    ) -> Vec<WorkloadId> {
        let (mut left, mut in_vain) = (Vec::new(), BTreeSet::<SchedulingHashId>::new());
        for id in waiting {
            let Some(hash) = self.state.wl(id).map(|wl| wl.scheduling_hash()) else { continue };
            let blocked = strict && !left.is_empty();
            if blocked || future.tries == 0 || in_vain.contains(&hash) {
                left.push(id);
                continue;
            }
            future.tries -= 1;
            let assigner = std::sync::Arc::clone(&self.strategies.flavors);
            let request = AssignmentRequest { id, cq, counts: None, pins: None, last: None };
            let assignment = assigner.assign(self, request);
            if assignment.mode() != Mode::Fit {
                in_vain.insert(hash);
                left.push(id);
                continue;
            }
            self.state.add_usage(cq, &assignment.usage);
            self.state.tas_charge_assignment(id, Some(&assignment), true, 1);
            let limit = self.state.wl(id).and_then(|wl| wl.obj.max_execution_seconds);
            future.ends.extend(limit.map(|s| (at.plus(Duration::from_seconds(i64::from(s))), id)));
            future.admitted.insert(id, assignment);
        }
        left
    }

    /// Simulates that a workload has ended.
    fn simulate_end(&mut self, cq: ClusterQueueId, id: WorkloadId, future: &mut Future) {
        match future.admitted.remove(&id) {
            Some(assignment) => {
                self.state.remove_usage(cq, &assignment.usage);
                self.state.tas_charge_assignment(id, Some(&assignment), true, -1);
            }
            None => self.state.simulate_usage_removal(id),
        }
    }

    /// When the workloads of a ClusterQueue's tree end at the latest, as far as that is known.
    fn known_ends(&self, cq: ClusterQueueId) -> BTreeSet<(Time, WorkloadId)> {
        let trees = self.state.trees_of(&BTreeSet::from([cq]));
        let holders = trees.iter().flat_map(|tree| tree.iter()).flat_map(|&queue| self.state.holders(queue));
        holders.filter_map(|id| Some((self.state.latest_end(id, self.now)?, id))).collect()
    }
}
