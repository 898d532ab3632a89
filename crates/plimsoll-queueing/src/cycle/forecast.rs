//! The dry run of a workload's admission in the time to come: usage of workloads ends with their maximum execution times, and
//! whenever some ends the workloads of the whole cohort are admitted as cycles would admit them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Cycle;
use super::assign::{Assignment, AssignmentRequest, Mode};
use super::entry::Entry;
use super::victim::Target;
use crate::Queueing;
use crate::forecast::{Forecast, WaitingQueue};
use crate::ids::{ClusterQueueId, SchedulingHashId, WorkloadId};
use crate::model::QueueingStrategy;
use plimsoll_state::time::{Duration, Time};

/// Most assignments that are tried for one question: some milliseconds, in which the engine does nothing else.
const MOST_TRIES: usize = 256;

/// Admissions in the time to come.
struct Future {
    /// The workload in question.
    id: WorkloadId,
    now: Time,
    at: Time,
    /// When usage ends, and whose.
    ends: BTreeSet<(Time, WorkloadId)>,
    /// What those get that are not admitted yet.
    admitted: BTreeMap<WorkloadId, (ClusterQueueId, Assignment)>,
    /// Assignments that may still be tried.
    tries: usize,
    /// How many workloads it would preempt now.
    preempted: usize,
}

/// A ClusterQueue at one time.
struct Line {
    queue: WaitingQueue,
    strict: bool,
    /// Index of the next head.
    next: usize,
    /// What does not fit at this time.
    in_vain: BTreeSet<SchedulingHashId>,
}

impl Queueing {
    /// When a workload could have its quota in the first of these ClusterQueues. `opens` is when it may be queued.
    pub(crate) fn dry_run_admissions(
        &mut self,
        id: WorkloadId,
        queues: Vec<WaitingQueue>,
        times: (Time, Time),
    ) -> Forecast {
        let failed = std::mem::take(&mut self.joint.failed);
        let claims = std::mem::take(&mut self.joint.claims);
        let mut cycle = Cycle::new(self, times.0, None);
        let forecast = cycle.forecast(id, queues, times);
        cycle.state.end();
        (self.joint.failed, self.joint.claims) = (failed, claims);
        forecast
    }
}

impl Line {
    /// The next workload whose turn it is. In a strict order it is the first one, which keeps capacity in every cycle.
    fn head(&mut self, cycle: &Cycle<'_>, own: WorkloadId) -> Option<WorkloadId> {
        if self.strict {
            let head = self.queue.waiting.first().copied();
            return head.filter(|id| cycle.inadmissible(*id, self.queue.cq).is_none());
        }
        while let Some(&id) = self.queue.waiting.get(self.next) {
            let hash = cycle.state.wl(id).map(|wl| wl.scheduling_hash());
            let tried = hash.is_none_or(|hash| id != own && self.in_vain.contains(&hash));
            if !tried && cycle.inadmissible(id, self.queue.cq).is_none() {
                return Some(id);
            }
            self.next += 1;
        }
        None
    }

    /// A head does not fit; whether another one follows.
    fn failed(&mut self, cycle: &Cycle<'_>, id: WorkloadId) -> bool {
        self.in_vain.extend(cycle.state.wl(id).map(|wl| wl.scheduling_hash()));
        self.next += 1;
        !self.strict
    }
}

impl Cycle<'_> {
    fn forecast(&mut self, id: WorkloadId, queues: Vec<WaitingQueue>, times: (Time, Time)) -> Forecast {
        let Some(own) = queues.first().cloned() else { return Forecast::default() };
        let ahead = own.before.len();
        if let Some((.., message)) = self.inadmissible(id, own.cq) {
            return Forecast { ahead, message, ..Forecast::default() };
        }
        let mark = self.state.mark();
        let (mut start, mut future) = self.admissions(id, queues, times);
        if start.is_none() && future.tries == 0 {
            // The cohort is too large to be looked at.
            self.state.rollback(mark);
            (start, future) = self.admissions(id, vec![own], times);
        }
        Forecast { start, preempted: future.preempted, ahead, message: String::new() }
    }

    /// When the workload is admitted.
    fn admissions(
        &mut self,
        id: WorkloadId,
        queues: Vec<WaitingQueue>,
        (now, opens): (Time, Time),
    ) -> (Option<Time>, Future) {
        let line = |queue: WaitingQueue| {
            let strict = self.state.cq(queue.cq).rules.strategy == QueueingStrategy::StrictFifo;
            Line { queue, strict, next: 0, in_vain: BTreeSet::new() }
        };
        let mut lines: Vec<Line> = queues.into_iter().map(line).collect();
        let cq = lines.first().map(|line| line.queue.cq);
        let ends = cq.map(|cq| self.known_ends(cq)).unwrap_or_default();
        let mut future =
            Future { id, now, at: now, ends, admitted: BTreeMap::new(), tries: MOST_TRIES, preempted: 0 };
        let mut queued = false;
        loop {
            if !queued && future.at >= opens {
                queued = true;
                if let Some(WaitingQueue { waiting, before, .. }) = lines.first_mut().map(|l| &mut l.queue) {
                    let place = waiting.iter().filter(|other| before.contains(other)).count();
                    waiting.insert(place, id);
                }
            }
            if self.admit_what_fits(&mut lines, &mut future) {
                return (Some(future.at), future);
            }
            let end = future.ends.first().map(|(end, _)| *end);
            let next = end.into_iter().chain(Some(opens).filter(|opens| *opens > future.at)).min();
            let (Some(next), true) = (next, future.tries > 0) else { return (None, future) };
            future.at = future.at.max(next);
            while let Some(&(end, other)) = future.ends.first().filter(|(end, _)| *end <= future.at) {
                future.ends.remove(&(end, other));
                self.simulate_end(other, &mut future);
            }
        }
    }

    /// Runs cycles as long as they admit something or come to other heads; whether the workload in question is admitted.
    fn admit_what_fits(&mut self, lines: &mut [Line], future: &mut Future) -> bool {
        for line in lines.iter_mut() {
            line.next = 0;
            line.in_vain.clear();
        }
        loop {
            let (mut entries, mut goes_on) = (Vec::new(), false);
            for line in lines.iter_mut() {
                let Some(head) = line.head(self, future.id) else { continue };
                if future.tries == 0 {
                    return false;
                }
                future.tries -= 1;
                let mut entry = Entry::new(head, line.queue.cq);
                entry.record(self.assignment_of(head, line.queue.cq, future));
                goes_on |= entry.mode() != Mode::Fit && line.failed(self, head);
                entries.push(entry);
            }
            goes_on |= self.admit_entries(&entries, lines, future);
            if future.admitted.contains_key(&future.id) {
                return true;
            }
            if !goes_on {
                return false;
            }
        }
    }

    /// What a head gets. Of those that are not in question it is not known whether they preempt.
    fn assignment_of(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        future: &mut Future,
    ) -> (Assignment, Vec<Target>) {
        if id != future.id {
            let assigner = Arc::clone(&self.strategies.flavors);
            let request = AssignmentRequest { id, cq, counts: None, pins: None, last: None };
            return (assigner.assign(self, request), Vec::new());
        }
        let (assignment, targets) = self.find_assignment(id, cq, None, None);
        if future.at == future.now && assignment.mode() == Mode::Preempt {
            future.preempted = targets.len();
        }
        (assignment, targets)
    }

    /// Admits those of a cycle's entries that still fit, in order; whether there are some.
    fn admit_entries(&mut self, entries: &[Entry], lines: &mut [Line], future: &mut Future) -> bool {
        let mut left = self.classical_order(entries);
        let in_vain = self.in_vain(entries);
        let before = future.admitted.len();
        while let Some(e) = self.next_entry(entries, &mut left, &in_vain).and_then(|i| entries.get(i)) {
            match (e.mode(), &e.assignment) {
                (Mode::Fit, Some(assignment)) if self.fits(e) == (true, true) => {
                    self.state.add_usage(e.cq, &assignment.usage);
                    self.state.tas_charge_assignment(e.id, Some(assignment), true, 1);
                    let limit = self.state.wl(e.id).and_then(|wl| wl.obj.max_execution_seconds);
                    let end = |seconds: i32| future.at.plus(Duration::from_seconds(i64::from(seconds)));
                    future.ends.extend(limit.map(|seconds| (end(seconds), e.id)));
                    future.admitted.insert(e.id, (e.cq, assignment.clone()));
                    for line in lines.iter_mut().filter(|line| line.queue.cq == e.cq) {
                        line.queue.waiting.retain(|id| *id != e.id);
                    }
                }
                (Mode::Preempt, _) => self.reserve_capacity_for_unreclaimable_preemption(e),
                _ => {}
            }
        }
        self.give_back_reserved();
        future.admitted.len() > before
    }

    /// Simulates that a workload has ended.
    fn simulate_end(&mut self, id: WorkloadId, future: &mut Future) {
        match future.admitted.remove(&id) {
            Some((cq, assignment)) => {
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
