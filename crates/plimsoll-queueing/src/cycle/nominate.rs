//! Heads and what each of them could get.

use std::sync::Arc;

use super::entry::{Entry, RequeueReason};
use super::{Cycle, Head};
use crate::account::has_failed_checks;
use crate::cycle::assign::{Assignment, AssignmentRequest, LastAssignment, Mode, Pins, Reducer};
use crate::cycle::victim::Target;
use crate::ids::{ClusterQueueId, SchedulingHashId, WorkloadId};
use crate::policy::VETOED;
use crate::state::WorkloadInfo;

impl Cycle<'_> {
    /// Finds an assignment for every head; the second list is of those that may not be admitted at all.
    pub(super) fn nominate(&mut self, heads: Vec<Head>) -> (Vec<Entry>, Vec<Entry>) {
        let (mut entries, mut inadmissible) = (Vec::new(), Vec::new());
        for Head { id, cq, second, fits, shortage, unreclaimable } in heads {
            let mut entry = Entry { second, fits, shortage, ..Entry::new(id, cq) };
            if fits.is_some() {
                entries.push(entry);
                continue;
            }
            if self.state.wl(id).is_none_or(|w| w.quota().is_some() != entry.second.is_some()) {
                continue;
            }
            if let Some((requeue, reason, message)) = self.inadmissible(id, cq) {
                entry.last_assignment = self.state.wl(id).and_then(|w| w.last_assignment().cloned());
                (entry.requeue, entry.reason, entry.message) = (requeue, reason, message);
                inadmissible.push(entry);
                continue;
            }
            let scheduling_hash = self.state.wl(id).map_or(SchedulingHashId::NONE, |w| w.scheduling_hash());
            let last = self.state.wl(id).and_then(|w| w.last_assignment());
            let last = last.filter(|l| !self.is_outdated(l, cq, scheduling_hash)).cloned();
            entry.resumed = last.as_ref().is_some_and(LastAssignment::has_more);
            entry.stale = last.as_ref().is_some_and(|l| l.has_more() && self.requeued_since(l, cq));
            self.unreclaimable = unreclaimable;
            let found = self.find_assignment(id, cq, None, last.as_ref());
            self.unreclaimable = Vec::new();
            entry.record(found);
            entries.push(entry);
            if self.is_put_off() {
                return (entries, inadmissible);
            }
        }
        self.nominate_beside_victims(&mut entries);
        (entries, inadmissible)
    }

    /// Why a head may not be admitted whatever is free, if it may not.
    pub(super) fn inadmissible(
        &self,
        id: WorkloadId,
        cq: ClusterQueueId,
    ) -> Option<(RequeueReason, &'static str, String)> {
        let wl = self.state.wl(id)?;
        if has_failed_checks(&wl.obj) {
            let message = "The workload has failed admission checks".to_owned();
            return Some((RequeueReason::Generic, "PendingEvaluation", message));
        }
        if self.state.in_cycle(cq) || !self.state.cq(cq).is_active() {
            let message = format!("ClusterQueue {} is inactive", self.state.cq(cq).name);
            return Some((RequeueReason::Generic, "Suspended", message));
        }
        if !self.state.namespace_matches(cq, &wl.obj.key.namespace) {
            let message = "workload namespace doesn't match ClusterQueue selector".to_owned();
            return Some((RequeueReason::NamespaceMismatch, "Misconfigured", message));
        }
        if let Some(problem) = wl.invalid().map(str::to_owned) {
            return Some((RequeueReason::Generic, "Misconfigured", problem));
        }
        if let Some(veto) = wl.veto() {
            return Some((RequeueReason::Generic, VETOED, veto.clone()));
        }
        if self.state.leaves_places(id, cq) {
            let message =
                "the workload slice before has places on nodes that another ClusterQueue gave to it";
            return Some((RequeueReason::Generic, "NoMatchingFlavor", message.to_owned()));
        }
        let message = self.state.slice_waits(id)?;
        Some((RequeueReason::Generic, "WaitingForPreemptedWorkloads", message))
    }

    /// The best assignment for a workload and the workloads that have to go for it: whole if possible,
    /// with fewer pods otherwise.
    pub(super) fn find_assignment(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        pins: Option<&Pins>,
        last: Option<&LastAssignment>,
    ) -> (Assignment, Vec<Target>) {
        self.searches = Some(Vec::new());
        let rank = self.lift_claims(id);
        self.dry_runs.by_labels = false;
        let (mut assignment, mut targets) = self.find_quota(id, cq, pins, last);
        assignment.by_labels = self.dry_runs.by_labels;
        let mut overtaken = Vec::new();
        let lacks = assignment.lacks_nodes() && targets.is_empty() && !self.is_put_off();
        if let Some(rank) = rank.as_ref().filter(|_| lacks) {
            overtaken = self.lift_overtaken(id, rank);
        }
        if !overtaken.is_empty() {
            self.drop_found_nodes();
            self.dry_runs.overtakes = true;
            let (found, _) = self.find_quota(id, cq, pins, last);
            self.dry_runs.overtakes = false;
            if found.mode() == Mode::Fit {
                (assignment, targets) = (found, Vec::new());
                self.dry_runs.overtaken.insert(id, overtaken.clone());
            }
        }
        self.searches = None;
        self.keep_dry_runs(id, &mut assignment);
        self.restore_these(&overtaken);
        self.restore_claims(rank.as_ref());
        if self.state.config.gates.topology && assignment.mode() == Mode::Preempt {
            self.state.place_after_preemption(id, cq, &mut assignment, &targets);
        }
        (assignment, targets)
    }

    fn find_quota(
        &mut self,
        id: WorkloadId,
        cq: ClusterQueueId,
        pins: Option<&Pins>,
        last: Option<&LastAssignment>,
    ) -> (Assignment, Vec<Target>) {
        let assigner = Arc::clone(&self.strategies.flavors);
        let request = AssignmentRequest { id, cq, counts: None, pins, last };
        let mut full = assigner.assign(self, request);
        if full.mode() == Mode::Fit || self.is_put_off() {
            return (full, Vec::new());
        }
        // A workload that doesn't get another node at once is evicted, and preempts none.
        let gives_up = self.state.config.gates.replace_fail_fast
            && self.state.wl(id).is_some_and(WorkloadInfo::needs_other_node);
        if full.mode() == Mode::Preempt && !gives_up {
            let targets = self.preemption_targets(id, cq, &full);
            if !targets.is_empty() {
                return (full, targets);
            }
            full.lacks_nodes_after_preemption = self.node_search.lacked;
        }
        let gates = &self.state.config.gates;
        let partial = |w: &WorkloadInfo| {
            gates.partial_admission || (gates.partial_scale_up && w.obj.replaces.is_some())
        };
        if self.state.wl(id).is_some_and(|w| partial(w) && w.quota().is_none())
            && let Some(reducer) = Reducer::new(&self.state, id, full.replaced.as_deref())
        {
            let found = reducer.search(|counts| {
                let a = assigner.assign(self, AssignmentRequest { counts: Some(counts), ..request });
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
