//! Reserve and Permit, and the pods that wait on Permit (upstream `schedulingCycle` and `bindingCycle` in
//! `schedule_one.go`). A pod that waits stays counted on its node; the cycle has ended and others go on.

use super::bind::Assumed;
use super::cluster::{NodeId, PodId};
use super::events::{ActionType, ClusterEvent, EventResource, Payload, PodSnapshot};
use super::framework::{AssumedPod, Code, CycleState, Released, Status};
use super::message::Fit;
use super::metrics::{Meter, Point, Unmetered};
use super::queue::{MoveCause, Stage};
use super::record::FailureReason;
use super::{Action, PreBindWork, Scheduler};

/// Outcome of Permit for a pod that is not rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permitted {
    /// It may be bound.
    Allowed,
    /// It waits.
    Waits,
}

/// Why an assumed pod is forgotten.
pub(super) enum Back {
    /// A plugin rejected it.
    Rejected(Status),
    /// Something failed.
    Error(String),
}

impl Scheduler {
    /// Assumes a pod on a node: counts it there, and runs Reserve and Permit.
    ///
    /// # Errors
    /// Why the caller has to forget the pod.
    pub(super) fn reserve_and_permit(
        &mut self,
        id: PodId,
        node: NodeId,
        state: CycleState,
    ) -> Result<Permitted, Back> {
        self.cluster.place(id, node);
        let profile = self.queue.get(id).map_or(0, |q| q.profile);
        self.reservations.assume(id, node, Assumed::new(profile, state, self.measuring), self.now);
        match self.meter(self.measuring, profile as usize) {
            None => self.run_reserve_and_permit(&Unmetered, id, node, profile),
            Some(meter) => self.run_reserve_and_permit(&meter, id, node, profile),
        }
    }

    fn run_reserve_and_permit(
        &mut self,
        meter: &impl Meter,
        id: PodId,
        node: NodeId,
        profile: u32,
    ) -> Result<Permitted, Back> {
        let (Some(runner), Some(row)) = (self.runners.get(profile as usize), self.reservations.assumed(id))
        else {
            return Ok(Permitted::Allowed);
        };
        let cluster = &self.cluster;
        let back = |status: Status, point: &str| {
            if status.code.is_rejected() {
                return Back::Rejected(status);
            }
            Back::Error(runner.error_text(cluster, &status, point))
        };
        let pod = AssumedPod { cluster, state: row.state(), pod: id, node, measured: row.is_measured() };
        let mut work = PreBindWork::default();
        let run = || runner.run_reserve_plugins(meter, &pod, &mut work);
        let reserved =
            meter.point(Point::Reserve, run, |r| r.as_ref().map_or_else(|s| s.code, |_| Code::Success));
        let writers = reserved.map_err(|status| back(status, "Reserve"))?;
        let run = || runner.permit(meter, &pod, &mut self.waiting);
        let permitted = meter.point(Point::Permit, run, |result| match result {
            Ok(holds) if holds.is_empty() => Code::Success,
            Ok(_) => Code::Wait,
            Err(status) => status.code,
        });
        let result = match permitted {
            Ok(holds) if holds.is_empty() => Ok(Permitted::Allowed),
            Ok(holds) => {
                self.waiting.hold(id, self.now, &holds);
                Ok(Permitted::Waits)
            }
            Err(status) => Err(back(status, "Permit")),
        };
        if matches!(result, Ok(Permitted::Waits)) {
            // The pod is in flight until it is allowed: events meanwhile count when it comes back.
            self.in_flight_events.entry(id).or_default();
        }
        if !writers.is_empty() {
            self.reserve_work(id, node, work, writers);
        }
        self.run_deferred_calls();
        result
    }

    /// Carries out deferred Allow, Reject and Activate calls of plugins.
    #[inline]
    pub(super) fn run_deferred_calls(&mut self) {
        while self.waiting.has_calls() {
            self.run_calls();
        }
    }

    #[cold]
    fn run_calls(&mut self) {
        let (released, activated) = self.waiting.take();
        for (id, how, since) in released {
            self.counters.waited_on_permit(how.code(), self.now.since(since));
            if !self.reservations.is_assumed(id) {
                continue;
            }
            match how {
                Released::Allowed => self.permit_allowed(id),
                Released::Rejected(status) => self.forget_assumed(id, Back::Rejected(status), true),
                Released::Preempted => {
                    let text = "waiting on permit for pod: preempted".to_owned();
                    self.forget_assumed(id, Back::Error(text), true);
                }
            }
        }
        for id in activated {
            self.activate(id);
        }
    }

    /// WaitOnPermit succeeded: the pod is no longer in flight for the queue, and is bound.
    fn permit_allowed(&mut self, id: PodId) {
        self.in_flight_events.remove(&id);
        // The pods of a group's cycle are bound when it has succeeded.
        if !self.group_cycle.contains(&id) {
            self.pre_bind(id);
        }
    }

    /// Moves a pod that waits in the queue to the active queue, if PreEnqueue lets it (`Activate`).
    pub(super) fn activate(&mut self, id: PodId) {
        match self.queue.get(id).map(|q| q.stage) {
            None | Some(Stage::Active) => {}
            Some(Stage::InFlight) => {
                if let Some(in_flight) = self.in_flight_events.get_mut(&id) {
                    in_flight.anything();
                }
            }
            Some(_) => {
                self.admit(id);
                self.queue.came(id, MoveCause::ForceActivate);
            }
        }
    }

    /// Unreserve and Forget, then the failure of the attempt. `told`: emits AssignedPodDelete, as upstream does from the
    /// binding cycle on.
    pub(super) fn forget_assumed(&mut self, id: PodId, back: Back, told: bool) {
        let assumed = self.reservations.end_assumed(id);
        let view = (told && self.is_watched()).then(|| Box::new(PodSnapshot::new(&self.cluster, id)));
        self.unreserve(id, assumed.as_ref());
        self.release_work(id);
        let node = self.cluster.pods[id].node;
        self.cluster.unplace(id);
        self.capacity_freed(node);
        let change = view.map(|view| ClusterEvent {
            resource: EventResource::AssignedPod,
            actions: ActionType::DELETE,
            payload: Payload::Pod { id, old: Some(view), new: None },
        });
        self.report_back(id, back, change);
    }

    /// The failure of a pod that was forgotten, and the event for the pods that wait.
    pub(super) fn report_back(&mut self, id: PodId, back: Back, change: Option<ClusterEvent>) {
        let nominated = self.clear_nomination(id);
        match back {
            Back::Rejected(status) => {
                if let Some(row) = self.queue.get_mut(id) {
                    row.unschedulable_plugins = status.plugin.into_iter().collect();
                    row.pending_plugins.clear();
                }
                let mut fit = Fit { nodes: 1, ..Fit::default() };
                fit.count(&status, 1, &self.cluster.strings);
                // Also without a plugin, as a pod that is deleted while it waits (`bindingCycle` in `schedule_one.go`): no event
                // helps it.
                self.unplaced(id, (FailureReason::Unschedulable, &fit.short()), nominated, false);
                // After the failure, and not for the pod itself: its own leaving helps it nothing.
                if let Some(change) = change {
                    self.changed_for(&change, |_, other| other != id);
                }
            }
            Back::Error(text) => {
                if let Some(change) = change {
                    self.changed(&change);
                }
                self.failed(id, FailureReason::SchedulerError, &text, nominated);
            }
        }
    }

    /// Unreserve of the plugins, for a pod that was assumed.
    pub(super) fn unreserve(&mut self, id: PodId, assumed: Option<&Assumed>) {
        let (Some(assumed), Some(node)) = (assumed, self.cluster.pods[id].node) else { return };
        let Some(runner) = self.runners.get(assumed.profile()) else { return };
        let measured = assumed.is_measured();
        let pod = AssumedPod { cluster: &self.cluster, state: assumed.state(), pod: id, node, measured };
        let meter = self.meter(measured, assumed.profile());
        let waiting = &mut self.waiting;
        match meter {
            None => runner.run_unreserve_plugins(&Unmetered, &pod, waiting),
            Some(meter) => meter.point(
                Point::Unreserve,
                || runner.run_unreserve_plugins(&meter, &pod, waiting),
                |()| Code::Success,
            ),
        }
    }

    /// The pod is deleted, or bound by another scheduler: it waits no more. Unreserve runs while its row still exists.
    pub(super) fn forget_waiting(&mut self, id: PodId, gone: bool) {
        if !(gone || self.waiting.contains(id)) {
            return;
        }
        let Some(assumed) = self.reservations.end_assumed(id) else { return };
        self.unreserve(id, Some(&assumed));
        if let Some(since) = self.waiting.forget(id) {
            // As one that is rejected (`handleAssumedPodDeletion` in `eventhandlers.go`).
            self.counters.waited_on_permit(Code::Unschedulable, self.now.since(since));
        } else if let Some(node) = self.cluster.pods[id].node {
            self.reservations.assume(id, node, assumed, self.now);
        }
    }

    /// A pod that waits before it is bound is being deleted: what it has taken is free from now on, also while a finalizer keeps it
    /// (upstream `handleAssumedPodDeletion`). One that is being written ends with the answer.
    pub(super) fn end_waits_of_leaving(&mut self, id: PodId) {
        if self.waiting.leave(id) {
            self.run_deferred_calls();
        } else if self.can_cancel(id) {
            self.end_pre_bind(id, "context canceled");
        }
    }

    /// Nominates a pod to a node, or to none.
    pub(super) fn nominate(&mut self, id: PodId, node: Option<NodeId>) {
        if self.cluster.pods[id].nominated != node {
            self.reservations.nominate(id, node, self.now);
            self.cluster.nominate(id, node);
        }
    }

    /// Writes the node of an assumed pod that waits on Permit, or for which PreBind has work, once: others may know that it is
    /// about to be bound there (KEP-5278, `bindingCycle` in `schedule_one.go`).
    pub(super) fn expect_binding(&mut self, id: PodId) {
        let pod = &self.cluster.pods[id];
        let (Some(node), Some(row)) = (pod.node, self.queue.get_mut(id)) else { return };
        let node = self.cluster.strings.text(self.cluster.nodes[node].name);
        if row.expected || pod.extra.as_ref().is_some_and(|e| *e.nominated == *node) {
            return;
        }
        row.expected = true;
        let (pod, node) = (self.pod_ref(id), node.to_owned());
        self.outbox.push(Action::Nominate { pod, node });
    }

    /// Ends the nomination of a pod; `Some("")` when the API still shows one, or is about to.
    pub(super) fn clear_nomination(&mut self, id: PodId) -> Option<String> {
        let had = self.cluster.pods[id].nominated.is_some();
        self.nominate(id, None);
        let shown = self.cluster.pods[id].extra.as_ref().is_some_and(|e| !e.nominated.is_empty());
        let expected = self.queue.get_mut(id).is_some_and(|row| std::mem::take(&mut row.expected));
        (had || shown || expected).then(String::new)
    }

    /// Rejects the pods whose Permit timeout has passed, and lets plugins look at the others when something has changed.
    pub(super) fn end_waiting(&mut self) {
        if let Some(runner) = self.runners.first() {
            self.waiting.expire(self.now, &runner.names);
        }
        let position = self.cluster.changes.end();
        if !self.waiting.is_empty() && self.reviewed != position {
            self.reviewed = position;
            let current = self.config.profiles.len();
            self.runners.iter().take(current).for_each(|r| r.review(&self.cluster, &mut self.waiting));
        }
        self.run_deferred_calls();
    }

    /// Compares the pods that wait with what is known of them elsewhere.
    ///
    /// # Panics
    /// When they differ.
    pub(super) fn check_waiting(&self) {
        self.waiting.check(|id| {
            assert!(self.reservations.is_assumed(id), "a waiting pod is assumed");
            assert!(self.cluster.pods[id].node.is_some(), "a waiting pod is on a node");
            assert!(self.in_flight_events.contains_key(&id), "a waiting pod is in flight");
            let stage = self.queue.get(id).map(|q| q.stage);
            assert_eq!(stage, Some(Stage::InFlight), "a waiting pod is popped");
        });
    }
}

#[cfg(test)]
mod tests;
