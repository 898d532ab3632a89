//! Heads and what each of them could get.

use super::{Entry, Outcome, Requeue};
use crate::account::has_failed_checks;
use crate::assign::{Assignment, LastTry, Mode, Pins, Reducer};
use crate::pending::{LqId, WlId};
use crate::preempt::Target;
use crate::state::{CqId, Queueing, Wl};

impl Queueing {
    /// Takes the head of every ClusterQueue that takes workloads.
    pub(super) fn pop_heads(&mut self) -> Vec<(WlId, CqId)> {
        let mut heads = Vec::new();
        let queues: Vec<CqId> = self.cq_by_name.values().copied().collect();
        for cq in queues {
            if !self.cq(cq).is_active() || !self.cq(cq).pending.has_head() {
                continue;
            }
            let mut pending = std::mem::take(&mut self.cq_mut(cq).pending);
            let usage = |lq: LqId| self.local_usage(lq);
            let fair = self.cq(cq).rules.fair_admission;
            let head = pending.pop(if fair { Some(&usage) } else { None });
            self.cq_mut(cq).pending = pending;
            heads.extend(head.map(|id| (id, cq)));
        }
        heads
    }

    /// Finds out what every head could get; the second list is of those that may not be admitted at all.
    /// In second passes the number of the attempt is not 0.
    pub(super) fn nominate(&mut self, heads: Vec<(WlId, CqId, u32)>) -> (Vec<Entry>, Vec<Entry>) {
        let (mut entries, mut inadmissible) = (Vec::new(), Vec::new());
        for (id, cq, attempt) in heads {
            let mut entry = Entry {
                id,
                cq,
                assignment: None,
                targets: Vec::new(),
                last: None,
                outcome: Outcome::NotNominated,
                requeue: Requeue::Generic,
                reason: "",
                message: String::new(),
                asked: false,
                stale: false,
                second: (attempt > 0).then_some(attempt),
            };
            if self.wl(id).is_none_or(|w| w.held.is_some() != entry.second.is_some()) {
                continue;
            }
            if let Some((requeue, reason, message)) = self.inadmissible(id, cq) {
                entry.last = self.wl_mut(id).and_then(|w| w.last.take());
                (entry.requeue, entry.reason, entry.message) = (requeue, reason, message);
                inadmissible.push(entry);
                continue;
            }
            let shape = self.wl(id).map_or(u32::MAX, |w| w.shape);
            let last = self.wl_mut(id).and_then(|w| w.last.take());
            let last = last.filter(|l| !self.is_outdated(l, cq, shape));
            entry.stale = last.as_ref().is_some_and(|l| l.has_more() && self.woken_since(l, cq));
            let found = self.find_assignment(id, cq, None, last.as_ref());
            entry.record(found);
            entries.push(entry);
        }
        (entries, inadmissible)
    }

    /// Why a head may not be admitted whatever is free, if it may not.
    fn inadmissible(&self, id: WlId, cq: CqId) -> Option<(Requeue, &'static str, String)> {
        let wl = self.wl(id)?;
        if has_failed_checks(&wl.obj) {
            let message = "The workload has failed admission checks".to_owned();
            return Some((Requeue::Generic, "PendingEvaluation", message));
        }
        if self.in_cycle(cq) || !self.cq(cq).is_active() {
            let message = format!("ClusterQueue {} is inactive", self.cq(cq).name);
            return Some((Requeue::Generic, "Suspended", message));
        }
        if !self.namespace_matches(cq, &wl.obj.key.namespace) {
            let message = "workload namespace doesn't match ClusterQueue selector".to_owned();
            return Some((Requeue::NamespaceMismatch, "Misconfigured", message));
        }
        if let Some(problem) = wl.invalid.clone() {
            return Some((Requeue::Generic, "Misconfigured", problem));
        }
        if self.replaces_places(id) {
            let message = "elastic jobs with topologies are not supported: the workload slice before has places on nodes";
            return Some((Requeue::Generic, "NoMatchingFlavor", message.to_owned()));
        }
        let message = self.slice_waits(id)?;
        Some((Requeue::Generic, "WaitingForPreemptedWorkloads", message))
    }

    /// The best assignment for a workload and the workloads that have to go for it: whole if possible,
    /// with fewer pods otherwise.
    pub(super) fn find_assignment(
        &mut self,
        id: WlId,
        cq: CqId,
        pins: Option<&Pins>,
        last: Option<&LastTry>,
    ) -> (Assignment, Vec<Target>) {
        self.searches = Some(Vec::new());
        let (mut assignment, targets) = self.find_quota(id, cq, pins, last);
        self.searches = None;
        if self.config.gates.topology && assignment.mode() == Mode::Preempt {
            self.place_after_preemption(id, cq, &mut assignment, &targets);
        }
        (assignment, targets)
    }

    fn find_quota(
        &mut self,
        id: WlId,
        cq: CqId,
        pins: Option<&Pins>,
        last: Option<&LastTry>,
    ) -> (Assignment, Vec<Target>) {
        let full = self.assign(id, cq, None, pins, last);
        if full.mode() == Mode::Fit {
            return (full, Vec::new());
        }
        // Who doesn't get another node at once is evicted: nobody has to make room.
        let gives_up = self.config.gates.replace_fail_fast && self.wl(id).is_some_and(Wl::needs_other_node);
        if full.mode() == Mode::Preempt && !gives_up {
            let targets = self.preemption_targets(id, cq, &full);
            if !targets.is_empty() {
                return (full, targets);
            }
        }
        if self.config.gates.partial_admission
            && self.wl(id).is_some_and(|w| w.held.is_none())
            && let Some(reducer) = Reducer::new(self, id)
        {
            let found = reducer.search(|counts| {
                let a = self.assign(id, cq, Some(counts), pins, last);
                match a.mode() {
                    Mode::Fit => Some((a, Vec::new())),
                    Mode::Preempt => {
                        let targets = self.preemption_targets(id, cq, &a);
                        (!targets.is_empty()).then_some((a, targets))
                    }
                    Mode::NoFit | Mode::DeferredFit => None,
                }
            });
            if let Some(found) = found {
                return found;
            }
        }
        (full, Vec::new())
    }
}
