//! Conditions of a workload that change between cycles: why it waits, evictions, requeueing (Kueue
//! `pkg/controller/core/workload_controller.go`).

mod evictions;
#[cfg(test)]
mod tests;

use super::bounded::take_some;
use super::dependencies::WAITING;
use super::ids::WorkloadId;
use super::model::{Admission, AdmissionCheckState, CheckState, StopPolicy, WorkloadStatus};
use super::phase::{Phase, is_on_hold};
use super::run_windows::OUTSIDE;
use super::{Action, KubernetesEvent, Reporter, cond};
use crate::Queueing;
use crate::cycle::assign::why;
use plimsoll_state::time::Time;

/// Rounds of changes per workload and call; each makes one write.
pub(crate) const MAX_ROUNDS: usize = 8;

/// Reasons of QuotaReserved=False that the cycle gave and that stay until it gives another.
const KEPT: [&str; 10] = [
    "WaitingForQuota",
    "NoMatchingFlavor",
    "ExceedsMaxQuota",
    "TopologyPlacementFailed",
    "WaitingForPreemptedWorkloads",
    "WaitingForPodsReady",
    "WaitingForNodes",
    "FlavorOutsideRunWindow",
    "PendingEvaluation",
    "AdmissionGated",
];

/// An event of the workload controller.
fn event_of(warning: bool, reason: &str, message: impl Into<String>) -> Vec<KubernetesEvent> {
    let (reporter, reason) = (Reporter::WorkloadController, reason.to_owned());
    vec![KubernetesEvent { reporter, warning, reason, message: message.into() }]
}

impl Queueing {
    /// Reconciles dirty workloads until nothing more changes, or until there were too many for one step. Those, and a
    /// workload that changes in every round, are left for the next step ([`Queueing::next_wake`]), so that others get
    /// their turn.
    pub(crate) fn reconcile_dirty(&mut self, now: Time) {
        self.settle_dependencies(now);
        let mut left = self.bounded.most;
        for _ in 0..self.rounds {
            let dirty = take_some(&mut self.dirty.workloads, &mut self.bounded.workloads, left);
            left -= dirty.len();
            if dirty.is_empty() {
                return;
            }
            for id in dirty {
                self.plan_second_pass(id, now);
                if self.wl(id).is_some_and(|w| w.failures.allow_write(now)) {
                    self.reconcile(id, now);
                }
            }
        }
    }

    /// Makes at most one write; [`Queueing::edit`] marks the workload dirty.
    fn reconcile(&mut self, id: WorkloadId, now: Time) {
        let Some(wl) = self.wl(id) else { return };
        let obj = &wl.obj;
        // Where another client was faster, what comes of the write on its way decides.
        if Phase::of(&obj.status) == Phase::Finished || obj.is_reserved_by_others() {
            return;
        }
        if self.reconcile_replaced(id, now) {
            return;
        }
        let Some(wl) = self.wl(id) else { return };
        let obj = &wl.obj;
        let active = obj.active;
        // A backoff must not delay the release of quota.
        let done = self.release_again(id, now)
            || if active { self.reconcile_active(id, now) } else { self.reconcile_inactive(id, now) };
        if done
            || self.reset_checks_again(id, now)
            || self.reconcile_devices(id, now)
            || self.reconcile_windows(id, now)
            || self.reconcile_requeued(id, now)
            || self.reconcile_dependencies(id, now)
            || self.reconcile_checks(id, now)
            || self.reconcile_preemption_gates(id, now)
            || self.reconcile_reclaim_targets(id, now)
        {
            return;
        }
        self.look_for_opening(id);
        let Some(wl) = self.wl(id) else { return };
        let phase = Phase::of(&wl.obj.status);
        if phase != Phase::Admitted {
            let explicit = self.config.gates.explicit_status;
            let why = if phase == Phase::Pending { self.pending_reason_of(id) } else { None };
            let before = Phase::of(&wl.obj.status);
            let untold = |s: &WorkloadStatus| s.condition(cond::ADMITTED).is_none_or(|c| !c.status);
            if why.is_none() && before == Phase::Pending && !explicit && untold(&wl.obj.status) {
                return;
            }
            let nodes = self.joint.decided.remove(&id);
            let mut events = self.admitted_events(id, now);
            events
                .extend(why.as_ref().and_then(|(reason, message)| self.held_back_event(id, reason, message)));
            self.edit(id, now, events, |e| match why {
                // Another client may have released the quota by the condition alone.
                Some((reason, message)) => {
                    e.unset_reservation(explicit, &reason, &message);
                }
                None => {
                    if let Some(nodes) = nodes.filter(|_| before == Phase::Reserved) {
                        nodes.write(e);
                    }
                    e.sync_admitted(explicit);
                }
            });
            if before == Phase::Pending {
                return;
            }
        }
        self.reconcile_holding(id, now);
    }

    fn admitted_events(&self, id: WorkloadId, now: Time) -> Vec<KubernetesEvent> {
        let Some(wl) = self.wl(id).filter(|w| Phase::of(&w.obj.status) == Phase::Reserved) else {
            return Vec::new();
        };
        let s = &wl.obj.status;
        if s.awaits_topology() || s.admission_checks.iter().any(|c| c.state != CheckState::Ready) {
            return Vec::new();
        }
        let (Some(a), Some(c)) = (&s.admission, s.condition(cond::QUOTA_RESERVED)) else { return Vec::new() };
        let waited = now.since(c.transition).rounded_seconds();
        let queue = &a.cluster_queue;
        event_of(
            false,
            "Admitted",
            format!("Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s"),
        )
    }

    /// The event for a workload that is kept out of its queue for a reason that Kueue doesn't have, once per reason.
    pub(crate) fn held_back_event(
        &self,
        id: WorkloadId,
        reason: &str,
        message: &str,
    ) -> Option<KubernetesEvent> {
        let wl = self.wl(id)?;
        let told = wl.obj.status.condition(cond::QUOTA_RESERVED).is_some_and(|c| c.reason == reason);
        let passes = reason == WAITING || reason == OUTSIDE;
        let ours = passes
            || self
                .dependency_reason(wl)
                .or_else(|| self.run_window_reason(wl))
                .is_some_and(|(r, _)| r == reason);
        (!told && ours).then(|| KubernetesEvent {
            reporter: Reporter::WorkloadController,
            warning: !passes,
            reason: reason.to_owned(),
            message: message.to_owned(),
        })
    }

    /// Backoffs and reactivation; whether a write was made or there is nothing more to do now.
    fn reconcile_active(&mut self, id: WorkloadId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return true };
        let s = &wl.obj.status;
        if s.is_true(cond::DEACTIVATION_TARGET) {
            let (key, uid) = (wl.obj.key.clone(), wl.obj.uid.clone());
            self.out.push(Action::DeactivateWorkload { key, uid });
            return true;
        }
        let requeue_at = s.requeue_state.as_ref().and_then(|r| r.requeue_at);
        if let Some(at) = requeue_at {
            if at > now {
                self.timers.workloads.insert((at, id));
                return true;
            }
            if Phase::of(s) == Phase::Pending {
                return self.edit(id, now, Vec::new(), |e| {
                    if let Some(r) = &mut e.status.requeue_state {
                        r.requeue_at = None;
                    }
                });
            }
        }
        let Some(c) = s.condition(cond::REQUEUED).filter(|c| !c.status) else { return false };
        let (reason, message) = match c.reason.as_str() {
            // Also `DeactivatedDueTo` something.
            r if r.starts_with("Deactivated") => ("Reactivated", "The workload was reactivated"),
            "PodsReadyTimeout" | "AdmissionCheck" => ("BackoffFinished", "The workload backoff was finished"),
            _ => return false,
        };
        self.edit(id, now, Vec::new(), |e| {
            if let Some(r) = &mut e.status.requeue_state {
                r.requeue_at = None;
            }
            e.set(cond::REQUEUED, true, reason, message);
        })
    }

    /// Eviction of a deactivated workload; whether a write was made.
    fn reconcile_inactive(&mut self, id: WorkloadId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return true };
        let s = &wl.obj.status;
        let target = s.condition(cond::DEACTIVATION_TARGET).cloned();
        if s.is_true(cond::EVICTED) {
            // One that was preempted while it was to be deactivated keeps the condition in Kueue, and is deactivated again
            // whenever its user activates it.
            return (s.requeue_state.is_some() || target.is_some())
                && self.edit(id, now, Vec::new(), |e| {
                    e.status.requeue_state = None;
                    e.status.conditions.retain(|c| c.kind != cond::DEACTIVATION_TARGET);
                });
        }
        let cause = target.as_ref().map_or(String::new(), |c| c.reason.clone());
        let message = match &target {
            Some(c) => format!("The workload is deactivated due to {}", c.message),
            None => "The workload is deactivated".to_owned(),
        };
        self.evict(id, ("Deactivated", cause.as_str()), &message, Reporter::WorkloadController, now)
    }

    /// First phase of an eviction for a reason and what is behind that, with its event.
    pub(crate) fn evict(
        &mut self,
        id: WorkloadId,
        (reason, cause): (&str, &str),
        message: &str,
        reporter: Reporter,
        now: Time,
    ) -> bool {
        let holds = self.wl(id).is_some_and(|w| w.obj.status.admission.is_some());
        let full = if reason == "Deactivated" && !cause.is_empty() {
            format!("EvictedDueTo{reason}DueTo{cause}")
        } else {
            format!("EvictedDueTo{reason}")
        };
        let event = KubernetesEvent { reporter, warning: false, reason: full, message: message.to_owned() };
        let events = if holds { vec![event] } else { Vec::new() };
        let deactivated = reason == "Deactivated";
        self.edit(id, now, events, |e| {
            if deactivated {
                e.status.conditions.retain(|c| c.kind != cond::DEACTIVATION_TARGET);
                e.status.requeue_state = None;
            }
            e.evict(reason, cause, message);
        })
    }

    /// Workloads of queues that run again may be queued again; whether a write was made.
    fn reconcile_requeued(&mut self, id: WorkloadId, now: Time) -> bool {
        let Some(wl) = self.wl(id) else { return true };
        let lq = self.lq(wl.lq());
        let requeued = wl.obj.status.condition(cond::REQUEUED).filter(|c| !c.status);
        if let Some(reason) = requeued.map(|c| c.reason.as_str()) {
            let local_runs = lq.spec.as_ref().is_some_and(|s| s.stop_policy == StopPolicy::None);
            if reason == "LocalQueueStopped" && local_runs {
                return self.requeued(id, "LocalQueueRestarted", "The LocalQueue", now);
            }
            let queue = lq.cq.filter(|_| local_runs).and_then(|c| self.cq(c).spec.as_ref());
            if reason == "ClusterQueueStopped" && queue.is_some_and(|q| q.stop_policy == StopPolicy::None) {
                return self.requeued(id, "ClusterQueueRestarted", "The ClusterQueue", now);
            }
        }
        let gate = wl.obj.admission_gated_by.clone();
        let gated =
            wl.obj.status.condition(cond::QUOTA_RESERVED).is_some_and(|c| c.reason == "AdmissionGated");
        let explicit = self.config.gates.explicit_status;
        if gate.is_empty() && gated {
            let events =
                event_of(false, "AdmissionGateCleared", "Admission gate cleared, workload is now admissible");
            return self.edit(id, now, events, |e| {
                let message = "AdmissionGatedBy cleared, waiting for quota reservation";
                e.unset_reservation(explicit, "PendingEvaluation", message);
            });
        }
        // Another reason to wait comes before the gate, and the two would replace each other for ever.
        let waits = Phase::of(&wl.obj.status) == Phase::Pending;
        let other = || self.pending_reason_of(id).filter(|(reason, _)| waits && reason != "AdmissionGated");
        if !gate.is_empty() && !gated && other().is_none() {
            let events = event_of(false, "AdmissionGated", format!("Workload admission is gated by: {gate}"));
            return self.edit(id, now, events, |e| {
                e.unset_reservation(explicit, "AdmissionGated", &format!("Admission is gated by: {gate}"));
            });
        }
        false
    }

    fn requeued(&mut self, id: WorkloadId, reason: &str, what: &str, now: Time) -> bool {
        let message = format!("{what} was restarted after being stopped");
        self.edit(id, now, Vec::new(), |e| {
            e.set(cond::REQUEUED, true, reason, &message);
        })
    }

    /// Syncs the list of admission checks (Kueue `AdmissionChecksForWorkload`); whether a write was made.
    fn reconcile_checks(&mut self, id: WorkloadId, now: Time) -> bool {
        // The checks are those of its variants (Kueue `reconcileSyncAdmissionChecks`).
        let Some(wl) = self.wl(id).filter(|w| !w.obj.has_variants) else { return false };
        // One whose queue was changed while it got its quota is compared with the checks of the ClusterQueue that gave it.
        let cq = self.reserved_in(wl).or(self.lq(wl.lq()).cq);
        let Some(cq) = cq.filter(|&c| self.cq(c).spec.is_some()) else { return false };
        let wanted = self.checks_of(cq, wl.obj.status.admission.as_deref());
        let have = &wl.obj.status.admission_checks;
        if have.len() == wanted.len() && have.iter().all(|c| wanted.contains(&c.name)) {
            return false;
        }
        let at = now.truncate_to_second();
        self.edit(id, now, Vec::new(), |e| {
            let checks = &mut e.status.admission_checks;
            checks.retain(|c| wanted.contains(&c.name));
            for name in wanted {
                if !checks.iter().any(|c| c.name == name) {
                    checks.push(AdmissionCheckState {
                        name,
                        transition: at,
                        ..AdmissionCheckState::default()
                    });
                }
            }
            checks.sort_by(|a, b| a.name.cmp(&b.name));
        })
    }

    /// Names of the checks a workload has to pass: with an admission those of its flavors, before that
    /// those that apply to every flavor.
    pub(crate) fn checks_of(
        &self,
        cq: super::ids::ClusterQueueId,
        admission: Option<&Admission>,
    ) -> Vec<String> {
        let Some(spec) = &self.cq(cq).spec else { return Vec::new() };
        let all: Vec<&str> =
            spec.resource_groups.iter().flat_map(|g| g.flavors.iter().map(|f| f.flavor.as_str())).collect();
        let applies = |on: &[String]| {
            if on.is_empty() {
                return true;
            }
            match admission {
                Some(a) => a.assignments.iter().flat_map(|p| &p.flavors).any(|(_, f)| on.contains(f)),
                None => all.iter().all(|f| on.iter().any(|o| o == f)),
            }
        };
        spec.admission_checks.iter().filter(|(_, on)| applies(on)).map(|(n, _)| n.clone()).collect()
    }

    /// Why a workload without a reservation waits, as far as that is known without a cycle.
    fn pending_reason_of(&self, id: WorkloadId) -> Option<(String, String)> {
        let wl = self.wl(id)?;
        let obj = &wl.obj;
        let because = |reason: &str, message: String| Some((reason.to_owned(), message));
        let condition = obj.status.condition(cond::QUOTA_RESERVED);
        if !obj.active {
            return because("Deactivated", "The workload is deactivated".into());
        }
        if is_on_hold(obj) {
            return None;
        }
        let lq = self.lq(wl.lq());
        let Some(spec) = &lq.spec else {
            return because("Misconfigured", format!("LocalQueue {} doesn't exist", obj.queue));
        };
        if spec.stop_policy != StopPolicy::None {
            return because("Suspended", format!("LocalQueue {} is inactive", obj.queue));
        }
        let Some(cq) = lq.cq.filter(|&c| self.cq(c).spec.is_some()) else {
            return because("Misconfigured", format!("ClusterQueue {} doesn't exist", spec.cluster_queue));
        };
        if !self.cq(cq).is_active() {
            return because("Suspended", format!("ClusterQueue {} is inactive", self.cq(cq).name));
        }
        if self.objects.namespaces.contains_key(&obj.key.namespace)
            && !self.namespace_matches(cq, &obj.key.namespace)
        {
            return because("Misconfigured", "workload namespace doesn't match ClusterQueue selector".into());
        }
        if let Some(problem) = wl.invalid_as_written() {
            return because("Misconfigured", problem.to_owned());
        }
        if let Some(veto) = wl.veto() {
            return because(crate::policy::VETOED, veto.clone());
        }
        if !obj.admission_gated_by.is_empty() {
            return because("AdmissionGated", format!("Admission is gated by: {}", obj.admission_gated_by));
        }
        if let Some((reason, message)) = self.dependency_reason(wl) {
            return because(reason, message);
        }
        if let Some((reason, message)) = self.run_window_reason(wl) {
            return because(reason, message);
        }
        let reason = condition.map(|c| c.reason.as_str());
        if self.adopts_hash_reason(reason)
            && let Some(stopped) = self.stopped_reason(id)
        {
            let message = "Bypassed scheduling evaluation because an equivalent workload recently failed";
            let shut = if stopped == why::WINDOW { self.shut_flavors_text(wl) } else { None };
            return because(stopped, shut.unwrap_or_else(|| message.into()));
        }
        match reason {
            Some(r) if KEPT.contains(&r) => None,
            None if !self.config.gates.explicit_status => None,
            _ => {
                because("PendingEvaluation", "Workload is pending evaluation in the scheduling queue".into())
            }
        }
    }

    /// Whether a verdict on an equal workload could change what is said about this one.
    pub(crate) fn may_adopt_hash_reason(&self, id: WorkloadId) -> bool {
        let condition = self.wl(id).map(|w| w.obj.status.condition(cond::QUOTA_RESERVED));
        condition.is_some_and(|c| self.adopts_hash_reason(c.map(|c| c.reason.as_str())))
    }

    /// Whether the verdict on an equal workload may replace this reason.
    fn adopts_hash_reason(&self, reason: Option<&str>) -> bool {
        self.config.gates.equivalence_hashing
            && match reason {
                None => self.config.gates.explicit_status,
                Some(r) => ["", "Deactivated", "PendingEvaluation", "Suspended", "Pending"].contains(&r),
            }
    }

    /// Why workloads of this one's scheduling hash are inadmissible, if they and it are.
    fn stopped_reason(&self, id: WorkloadId) -> Option<&'static str> {
        let wl = self.wl(id)?;
        let pending = &self.cq(wl.queued()?).pending;
        if pending.position(id) == Some(super::pending::QueuePosition::Active) {
            return None;
        }
        pending.stopped(wl.scheduling_hash()).map(|(reason, _)| reason)
    }
}
